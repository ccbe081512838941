"""Long documents are compiled on the worker thread while the reactor serves other requests."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.auth.caller import Caller
from dataapi.graphql import engine
from dataapi.graphql.role import GraphQLRole
from dataapi.graphql.transport import GraphQLRequest
from dataapi.http.messages import Request
from support.clocks import FOR_EVER
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from support.service import Service

SCHEMA = """
comment on schema public is '@graphql({"introspection": true})';
create table item (id int primary key, name text, item_id int references item);
grant select, insert on item to anon;
"""
SHORT = "{ itemByPk(id: 1) { name } }"
LONG = f"{{ {' '.join(f'a{number}: itemByPk(id: {number}) {{ id }}' for number in range(200))} }}"
FRAGMENTS = "{ itemByPk(id: 1) { ...a } } fragment a on item { name }"
FILTER = "query($f: itemFilter) { itemCollection(filter: $f) { edges { cursor } } }"
MANY = {"f": {"or": [{"id": {"eq": 1}}] * 2_000}}


def asking(api: Service, text: str, variables: Any = None) -> Deferred[Any]:
    """Execute a request whose body has the length of the document and variables."""
    request = GraphQLRequest(text, None, variables)
    http = Request("id", "POST", "/graphql/v1", "", {}, f"{text}{variables}".encode())
    return Deferred.fromCoroutine(api.engine.execute(request, Caller("anon", "{}"), http))


@pytest.mark.parametrize(
    ("text", "variables", "expected"),
    [
        (SHORT, None, False),
        (LONG, None, True),
        (FRAGMENTS, None, True),
        ("{ __schema { queryType { name } } }", None, True),
        (FILTER, {"f": {"id": {"eq": 1}}}, False),
        (FILTER, MANY, True),
        (f"{LONG[:-1]} unknown }}", None, True),
    ],
    ids=["short", "long", "fragments", "introspection", "variables", "many variables", "invalid"],
)
async def test_long_documents_are_compiled_off_the_reactor(
    api: Service, monkeypatch: pytest.MonkeyPatch, text: str, variables: Any, *, expected: bool
) -> None:
    compiling, bind = [], engine._bind

    def noted(*arguments: Any, may_compile: bool) -> Any:
        if may_compile:
            compiling.append(threading.current_thread() is not threading.main_thread())
        return bind(*arguments, may_compile=may_compile)

    monkeypatch.setattr(engine, "_bind", noted)
    await asking(api, f"# {expected}\n{text}", variables)
    assert compiling
    assert set(compiling) == {expected}


async def test_known_plans_stay_on_the_reactor(api: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (SHORT, LONG, FRAGMENTS):
        await asking(api, text)
    monkeypatch.setattr(api.engine._worker, "run", None)
    for text in (SHORT, LONG, FRAGMENTS):
        assert (await asking(api, text)).errors == ()


async def test_other_requests_run_while_a_long_document_is_compiled(
    api: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, may_go = GraphQLRole.prepare, threading.Event()

    def waiting(role: GraphQLRole, text: str) -> Any:
        if threading.current_thread() is not threading.main_thread():
            may_go.wait(FOR_EVER)
        return prepare(role, text)

    await asking(api, SHORT)
    monkeypatch.setattr(GraphQLRole, "prepare", waiting)
    long = asking(api, f"{LONG} # another one")
    try:
        for text in (SHORT, "{ itemCollection { edges { node { item { name } } } } }"):
            assert (await asking(api, text)).errors == ()
        assert not long.called
    finally:
        may_go.set()
    assert (await long).errors == ()
