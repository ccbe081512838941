"""Introspection under load. It runs in a thread because it is expensive."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from dataapi.auth.caller import Caller
from dataapi.graphql.introspection import Introspection
from dataapi.graphql.transport import GraphQLRequest
from dataapi.http.messages import Request
from graphql import get_introspection_query
from support.clocks import FOR_EVER
from support.service import Service, serving
from twisted.internet import defer, task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.postgres import Server

SCHEMA = """
comment on schema public is '@graphql({"introspection": true})';
create table item (id int primary key, name text, item_id int references item);
grant select on item to anon;
"""
STANDARD = get_introspection_query()


@pytest.fixture
def api(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHEMA)) as service:
        yield service


def asking(api: Service, query: str) -> defer.Deferred[Any]:
    http = Request("id", "POST", "/graphql/v1", "", {}, b"")
    response = api.engine.execute(GraphQLRequest(query), Caller("anon", "{}"), http)
    return defer.Deferred.fromCoroutine(response)


class Watched:
    """Counts executions and concurrent executions. Each execution waits for ``may_go``."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self.begun = self.running = self.maximum = 0
        self._execute = Introspection._execute

    def execute(self, introspection: Introspection, *arguments: Any) -> Any:
        self.begun += 1
        self.running += 1
        self.maximum = max(self.maximum, self.running)
        self.may_go.wait(FOR_EVER)
        self.running -= 1
        return self._execute(introspection, *arguments)


async def until(reactor: Any, condition: Callable[[], object]) -> None:
    while not condition():
        await task.deferLater(reactor, 0.005)


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()

    def execute(introspection: Introspection, *arguments: Any) -> Any:
        return watched.execute(introspection, *arguments)

    with patch.object(Introspection, "_execute", execute):
        yield watched
        watched.may_go.set()


async def test_concurrent_equal_requests_share_a_response(api: Service, watched: Watched) -> None:
    requests = [asking(api, STANDARD) for _ in range(5)]
    watched.may_go.set()
    responses = await defer.gatherResults(requests)
    assert {response.data for response in responses} == {responses[0].data}
    assert "item" in responses[0].data
    await asking(api, STANDARD)
    assert watched.begun == 1


async def test_next_request_waits_for_the_thread_of_a_cancelled_one(
    api: Service, reactor: Any, watched: Watched
) -> None:
    """Two threads would create the same types twice."""
    left = asking(api, "{ __schema { types { name } } }")
    await until(reactor, lambda: watched.running)
    queued = asking(api, "{ __schema { directives { name } } }")
    left.cancel()
    stays = asking(api, "{ __schema { queryType { name } } }")
    queued.cancel()
    for gone in (left, queued):
        with pytest.raises(defer.CancelledError):
            await gone
    await task.deferLater(reactor, 0.02)
    assert watched.begun == 1
    watched.may_go.set()
    assert (await stays).data == '{"__schema": {"queryType": {"name": "Query"}}}'
    assert (watched.begun, watched.maximum) == (2, 1)


FRAGMENT = """ fragment t on __Type { name kind description fields { name type { name kind ofType { name } } }
    inputFields { name type { name kind ofType { name } } } possibleTypes { name } }"""


@pytest.mark.parametrize(
    "query",
    [
        "{ " + " ".join(f"a{n}: __schema {{ types {{ ...t }} }}" for n in range(95)) + " }",
        "{ __schema { " + " ".join(f"a{n}: types {{ ...t }}" for n in range(95)) + " } }",
    ],
    ids=["aliases of the schema", "aliases of the types"],
)
async def test_too_complex_introspection_is_rejected(api: Service, query: str) -> None:
    response = await asking(api, query + FRAGMENT)
    assert [error["message"] for error in response.errors] == ["The introspection query is too complex."]
    assert response.data == "null"
    assert (await asking(api, STANDARD)).errors == ()
