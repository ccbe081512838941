"""The pipe between a worker and its parent: one JSON object per line.

The parent's first line contains the settings. After that, it sends commands (``{"id": 1, "ask": "state"}``)
and the worker replies (``{"id": 1, "answer": …}`` or ``{"id": 1, "error": "…"}``). "known" is a heartbeat: it
passes the state of all workers, and returns the worker's last known state. "state" makes the worker check its
databases first. After "drain", each connection is closed with its next response.

The worker sends ``{"event": "started"}`` when it accepts requests, ``{"event": "failed", "reason": "…"}`` if
it cannot, and ``{"event": "reconfigure", "project": …}`` to request a reload of the configuration (if
``project`` is null) or of the settings in the database of one project.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from twisted.internet.defer import Deferred

from dataapi.settings import Settings

# Descriptors of a worker: replies, connection counts, and the first listening socket.
# 0 receives commands, 1 and 2 are for log lines.
REPLIES, COUNTS, FIRST_SOCKET = 3, 4, 5


class WorkerGone(Exception):
    """Raised when a worker has ended or does not reply in time."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The first message to a worker. ``listen`` contains the endpoint strings of its sockets.

    The sockets' descriptors start at ``FIRST_SOCKET``.
    """

    number: int
    settings: Settings
    listen: tuple[str, ...]
    journal: bool = False

    def encode(self) -> bytes:
        document = {
            "number": self.number,
            "settings": dump_settings(self.settings),
            "listen": list(self.listen),
            "journal": self.journal,
        }
        return encode(document)

    @classmethod
    def decode(cls, line: bytes) -> Assignment:
        document = json.loads(line)
        settings, listen = load_settings(document["settings"]), tuple(document["listen"])
        return cls(document["number"], settings, listen, document["journal"])


def dump_settings(settings: Settings) -> str:
    """Serialize settings. Pickle is safe here because the pipe is private."""
    return base64.b64encode(pickle.dumps(settings)).decode()


def load_settings(text: str) -> Settings:
    settings: Settings = pickle.loads(base64.b64decode(text))
    return settings


def encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


class LineSplitter:
    """Splits a stream of bytes into lines."""

    def __init__(self, receive: Callable[[bytes], object]) -> None:
        self._receive = receive
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._receive(line)

    def finish(self) -> None:
        rest, self._rest = self._rest, b""
        if rest:
            self._receive(rest)


def _raise_timeout(_outcome: object, timeout: float) -> NoReturn:
    raise WorkerGone(f"no reply within {timeout:g} s")


class WorkerClient:
    """Sends commands to a worker, and matches its replies to them."""

    def __init__(self, reactor: Any, send: Callable[[bytes], object]) -> None:
        self._reactor = reactor
        self._send = send
        self._pending: dict[int, Deferred[Any]] = {}
        self._last = 0

    async def send(self, command: str, timeout: float | None = None, **arguments: object) -> Any:
        """Send a command and return its result. Raises ``WorkerGone`` on an error or after the timeout."""
        self._last += 1
        number = self._last
        result: Deferred[Any] = Deferred()
        self._pending[number] = result
        if timeout is not None:
            result.addTimeout(timeout, self._reactor, _raise_timeout)
        self._send(encode({"id": number, "ask": command, **arguments}))
        try:
            return await result
        finally:
            self._pending.pop(number, None)

    def received(self, document: Mapping[str, Any]) -> None:
        """Process a reply. Replies after the timeout are ignored."""
        result = self._pending.pop(document["id"], None)
        if result is None:
            return
        if "error" in document:
            result.errback(WorkerGone(document["error"]))
        else:
            result.callback(document["answer"])

    def close(self) -> None:
        for number in list(self._pending):
            self.received({"id": number, "error": "the worker ended"})
