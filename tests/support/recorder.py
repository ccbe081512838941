"""A receiver in a thread that records requests and has a behaviour per path."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from standardwebhooks import Webhook
from support.webhooks import SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HOOK = "/hook"
ELSEWHERE = "/elsewhere"
"""Target of ``Behaviour.REDIRECT``; must never receive a request."""


class Behaviour(StrEnum):
    """How the recorder responds to requests."""

    TAKE = "take"
    REFUSE = "refuse"
    HANG = "hang"
    HOLD = "hold"
    """Delay the response until the test sets another behaviour for the request's path."""
    RESET = "reset"
    REDIRECT = "redirect"


_RESPONSES = {
    Behaviour.TAKE: b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    Behaviour.REFUSE: b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops",
    Behaviour.REDIRECT: f"HTTP/1.1 302 Found\r\nLocation: {ELSEWHERE}\r\nContent-Length: 0\r\n\r\n".encode(),
}


@dataclass(frozen=True)
class Recorded:
    """A recorded request.

    :ivar at: monotonic time when the last byte was read.
    :ivar behaviour: how the recorder responded.
    """

    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float
    behaviour: Behaviour

    @property
    def identifier(self) -> str:
        """The event ID from the header."""
        return self.headers["webhook-id"]

    @property
    def event(self) -> Any:
        return json.loads(self.body)


@dataclass
class Recorder:
    """A context manager that listens on every loopback address (127.0.0.2 is a different host).

    :ivar port: listening port.
    """

    requests: list[Recorded] = field(default_factory=list)
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    port: int = 0

    def __enter__(self) -> Recorder:
        self._loop = asyncio.new_event_loop()
        self._talks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        # Playwright runs an event loop in the main thread.
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def of(self, identifier: str) -> list[Recorded]:
        return [one for one in list(self.requests) if one.identifier == identifier]

    def at(self, path: str) -> list[Recorded]:
        return [one for one in list(self.requests) if one.path == path]

    def behave(self, behaviour: Behaviour, path: str = HOOK) -> None:
        """Set the behaviour of a path for current and future requests."""
        self.behaviours[path] = behaviour

    @contextmanager
    def unaccepting(self) -> Iterator[int]:
        """Yield a port that neither accepts nor rejects connections."""
        with ExitStack() as sockets:
            full = sockets.enter_context(socket.socket())
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            for _ in range(4):
                waiting = sockets.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(full.getsockname())
            yield full.getsockname()[1]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._talk, "0.0.0.0", self.port, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for talk in list(self._talks):
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        await self._server.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        self._talks.add(talk)
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # The daemon has disconnected, or the recorder is closing.
            pass
        finally:
            self._talks.discard(talk)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read a request and respond; return False if the connection ends."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = head.rstrip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        path = line.split(" ")[1]
        behaviour = self.behaviours.setdefault(path, Behaviour.TAKE)
        self.requests.append(Recorded(path, headers, body, time.monotonic(), behaviour))
        while behaviour is Behaviour.HOLD and not reader.at_eof():
            await asyncio.sleep(0.02)
            behaviour = self.behaviours[path]
        if behaviour is Behaviour.RESET:
            writer.transport.abort()
            return False
        if behaviour in (Behaviour.HANG, Behaviour.HOLD):
            await reader.read()
            return False
        writer.write(_RESPONSES[behaviour])
        await writer.drain()
        return True


def verified(requests: list[Recorded]) -> list[Recorded]:
    """Check signatures and that requests with the same ID have the same body; return the requests."""
    for one in requests:
        Webhook(SECRET).verify(one.body, dict(one.headers))
        assert one.event["id"] == one.identifier
    assert len({one.identifier for one in requests}) == len({one.body for one in requests}) == 1
    return requests
