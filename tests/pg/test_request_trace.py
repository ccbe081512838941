"""Limits on the number of our functions and modules that a request runs."""

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

PROJECT = {"db_lane": "auto"}

TOKEN = token("authenticated")
QUERY = '{"query":"query($id: Int!) { albumByPk(id: $id) { title artist { name } } }","variables":{"id":%d}}'
REQUESTS = {
    "GraphQL": ("POST /graphql/v1", QUERY),
    "REST": ("GET /rest/v1/album?select=title,artist(name)&id=eq.%d", ""),
}
"""Request lines and bodies. Each request contains a placeholder for the album's ID."""

LONGEST = {
    ("GraphQL", "first"): (50, 458),
    ("GraphQL", "warm"): (23, 70),
    ("REST", "first"): (47, 333),
    ("REST", "warm"): (26, 88),
}
"""Maximum number of modules and functions that a request may run. Lower the limits after improvements."""

ATTEMPTS = {"first": 5, "warm": 100}
"""Maximum attempts per kind of request. Attempts are repeated because timers may run during one, and because
the express lane accepts statements only after three short executions (``database/message.py``)."""


@dataclass(frozen=True)
class Trace:
    """Our functions that ran, in the order of their calls.

    :ivar calls: module, name and code of each function.
    """

    calls: tuple[tuple[str, str, CodeType], ...]

    @property
    def modules(self) -> int:
        return len({module for module, _, _ in self.calls})

    @property
    def functions(self) -> int:
        return len({code for _, _, code in self.calls})

    def __str__(self) -> str:
        """List each function once, in the order of its first call."""
        changes = sum(before[0] != after[0] for before, after in pairwise(self.calls))
        lines = dict.fromkeys(f"  {module} {name}" for module, name, _ in self.calls)
        head = f"{self.modules} modules, {self.functions} functions, {changes} changes of module"
        return "\n".join([head, *lines])


async def trace_calls(send: Callable[[], Awaitable[object]]) -> Trace:
    calls: list[tuple[str, str, CodeType]] = []

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("dataapi."):
            calls.append((module, frame.f_code.co_qualname, frame.f_code))

    sys.setprofile(profile)
    try:
        await send()
    finally:
        sys.setprofile(None)
    return Trace(tuple(calls))


class Client(Protocol):
    """A client with a persistent connection."""

    def __init__(self) -> None:
        self._received = b""
        self._response: Deferred[bytes] = Deferred()

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        length = next((line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")), None)
        if separator and length is not None and len(body) == int(length.partition(b": ")[2]):
            response, self._response, self._received = self._response, Deferred(), b""
            response.callback(head)

    async def send(self, protocol: str, album: int) -> None:
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
        assert (await self._response).startswith(b"HTTP/1.1 200 ")

    def disconnect(self) -> None:
        transport: Any = self.transport
        transport.abortConnection()


@pytest.mark.parametrize("protocol", list(REQUESTS))
async def test_request_runs_no_more_functions_than_before(
    service: Service, reactor: Any, protocol: str
) -> None:
    endpoint = HostnameEndpoint(reactor, "127.0.0.1", int(service.url.rpartition(":")[2]))
    client: Client = await connectProtocol(endpoint, Client())
    albums = count(1)
    try:
        for kind, attempts in ATTEMPTS.items():
            modules, functions = LONGEST[protocol, kind]
            for number in range(attempts):
                if kind == "first":
                    await service.execute(f"comment on table artist is 'version {number}'")
                trace = await trace_calls(lambda: client.send(protocol, next(albums)))
                if trace.modules <= modules and trace.functions <= functions:
                    break
            sys.stdout.write(f"{protocol}, {kind}: {trace}\n")
            assert trace.modules <= modules
            assert trace.functions <= functions
    finally:
        client.disconnect()
