"""How many of our functions and modules a request runs, so that nobody makes its way longer unseen."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

import pytest
from support.memory_http import KEY
from support.service import token
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol
from twisted.internet.protocol import Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import CodeType, FrameType

    from support.service import Service

SCHEMA = """
create table artist (id int primary key, name text);
create table album (id int primary key, title text, artist_id int references artist);
insert into artist values (1, 'Accept');
insert into album select i, 'Restless and Wild', 1 from generate_series(1, 100) i;
grant all on artist, album to authenticated;
"""

TOKEN = token("authenticated")
QUERY = '{"query":"query($id: Int!) { albumByPk(id: $id) { title artist { name } } }","variables":{"id":%d}}'
REQUESTS = {
    "GraphQL": ("POST /graphql/v1", QUERY),
    "REST": ("GET /rest/v1/album?select=title,artist(name)&id=eq.%d", ""),
}
"""A request line and a body, one of which has a place for the album's id."""

LONGEST = {
    ("GraphQL", "first"): (49, 456),
    ("GraphQL", "warm"): (22, 70),
    ("REST", "first"): (46, 330),
    ("REST", "warm"): (25, 88),
}
"""The most modules and functions that a request may run: lower them when the way gets shorter."""

ATTEMPTS = 3
"""The shortest way counts: now and then a timer runs meanwhile."""


@dataclass(frozen=True)
class Way:
    """The functions of ours that ran, in the order of their calls.

    :ivar calls: the module of each, its name and its code.
    """

    calls: tuple[tuple[str, str, CodeType], ...]

    @property
    def modules(self) -> int:
        """How many modules they are of."""
        return len({module for module, _, _ in self.calls})

    @property
    def functions(self) -> int:
        """How many different ones they are."""
        return len({code for _, _, code in self.calls})

    def __str__(self) -> str:
        """List each function once, module by module as they are entered."""
        changes = sum(before[0] != after[0] for before, after in pairwise(self.calls))
        lines = dict.fromkeys(f"  {module} {name}" for module, name, _ in self.calls)
        head = f"{self.modules} modules, {self.functions} functions, {changes} changes of module"
        return "\n".join([head, *lines])


async def walk(ask: Callable[[], Awaitable[object]]) -> Way:
    calls: list[tuple[str, str, CodeType]] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("dataapi."):
            calls.append((module, frame.f_code.co_qualname, frame.f_code))

    sys.setprofile(note)
    try:
        await ask()
    finally:
        sys.setprofile(None)
    return Way(tuple(calls))


class Client(Protocol):
    """A client that keeps its connection."""

    def __init__(self) -> None:
        self._received = b""
        self._answered: Deferred[bytes] = Deferred()

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Take a part of an answer."""
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        length = next((line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")), None)
        if separator and length is not None and len(body) == int(length.partition(b": ")[2]):
            answered, self._answered, self._received = self._answered, Deferred(), b""
            answered.callback(head)

    async def ask(self, protocol: str, album: int) -> None:
        """Send a request of a signed-in user for an album, and wait for the response."""
        line, text = (part % album if "%d" in part else part for part in REQUESTS[protocol])
        body = text.encode()
        headers = {
            "Host": "127.0.0.1",
            "apikey": KEY,
            "Authorization": f"Bearer {TOKEN}",
            **({"Content-Type": "application/json", "Content-Length": str(len(body))} if body else {}),
        }
        lines = [f"{line} HTTP/1.1", *[f"{name}: {value}" for name, value in headers.items()]]
        transport: Any = self.transport
        transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        assert (await self._answered).startswith(b"HTTP/1.1 200 ")

    def leave(self) -> None:
        """Disconnect."""
        transport: Any = self.transport
        transport.abortConnection()


@pytest.mark.parametrize("protocol", list(REQUESTS))
async def test_a_request_runs_no_more_functions_than_it_did(
    service: Service, reactor: Any, protocol: str
) -> None:
    endpoint = HostnameEndpoint(reactor, "127.0.0.1", int(service.url.rpartition(":")[2]))
    client: Client = await connectProtocol(endpoint, Client())
    first, warm, albums = [], [], count(1)
    try:
        for number in range(ATTEMPTS):
            await service.execute(f"comment on table artist is 'version {number}'")
            first.append(await walk(lambda: client.ask(protocol, next(albums))))
            await client.ask(protocol, next(albums))
            warm.append(await walk(lambda: client.ask(protocol, next(albums))))
    finally:
        client.leave()
    for kind, ways in (("first", first), ("warm", warm)):
        way = min(ways, key=lambda each: each.functions)
        sys.stdout.write(f"{protocol}, {kind}: {way}\n")
        modules, functions = LONGEST[protocol, kind]
        assert way.modules <= modules
        assert way.functions <= functions
