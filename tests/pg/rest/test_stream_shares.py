"""A caller's unread streams leave connections for other callers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jwt
import pytest
from support.memory_http import SECRET, raw
from support.service import Service, serving
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ClientCreator, Protocol
from twisted.internet.task import deferLater

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create view line as select g as id, repeat('x', 1000) as pad from generate_series(1, 100000) g;
create view short as select g as id from generate_series(1, 5000) g;
grant select on line, short to anon, authenticated;
"""
STREAMED = {"accept": "application/x-ndjson"}


@pytest.fixture
def api(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve the schema with a pool that allows two concurrent streams."""
    with serving(reactor, server.create_database(SCHEMA), db_pool=4) as service:
        yield service


class Unread(Protocol):
    """A client that requests rows and does not read them."""

    def __init__(self, user: str) -> None:
        self._user = user
        self.ended: Deferred[None] = Deferred()

    def connectionMade(self) -> None:  # noqa: N802 - twisted's name
        transport: Any = self.transport
        transport.pauseProducing()
        token = jwt.encode({"role": "authenticated", "sub": self._user}, SECRET, "HS256")
        headers = [("Accept", "application/x-ndjson"), ("Authorization", f"Bearer {token}")]
        transport.write(raw("GET", "/rest/v1/line", headers=headers))

    def connectionLost(self, reason: Any = None) -> None:  # noqa: ARG002, N802 - twisted's name
        self.ended.callback(None)


async def test_unread_streams_of_one_caller_do_not_block_others(api: Service, reactor: Any) -> None:
    port = int(api.url.rpartition(":")[2])
    creator = ClientCreator(reactor, Unread, "greedy")
    clients = [await creator.connectTCP("127.0.0.1", port) for _ in range(4)]
    while api.pool.figures().waiting < 3:
        await deferLater(reactor, 0.01)
    for role in ("authenticated", "anon"):
        response = await api.rest("GET", "short", role=role, headers=STREAMED)
        assert (response.status, response.text.count("\n")) == (200, 5000)
    ordinary = await api.rest("GET", "short?id=eq.1", role="authenticated")
    assert ordinary.body == [{"id": 1}]
    assert api.pool.figures().waiting == 3
    for client in clients:
        client.transport.abortConnection()
        await client.ended
    while api.pool.figures().in_use or api.pool.figures().waiting:
        await deferLater(reactor, 0.01)
