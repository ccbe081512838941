"""The pipe between a worker and its parent: JSON objects, one a line.

The parent's first line carries the settings; then it asks (``{"id": 1, "ask": "state"}``)
and the worker answers (``{"id": 1, "answer": …}`` or ``{"id": 1, "error": "…"}``).  "known" is
a heartbeat, which tells of all workers and is answered with the last known state; for "state" it asks the
databases; after "drain" each connection's next answer is its last.  Once it accepts requests the worker
says ``{"event": "started"}``, or ``{"event": "failed", "reason": "…"}``, and ``{"event": "reconfigure",
"project": …}`` when the configuration is to be read again, or only what is in that project's database.
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

ANSWERS, COUNTS, FIRST_SOCKET = 3, 4, 5
"""The worker's descriptors of its answers, the counts of connections, and the first listening socket.

0 brings asks, 1 and 2 take logs.
"""


class WorkerGone(Exception):
    """The worker ended, or did not answer in time."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The first message to a worker.

    :ivar listen: endpoint strings of the sockets from ``FIRST_SOCKET`` on.
    :ivar journal: whether systemd's journal reads the log.
    """

    number: int
    settings: Settings
    listen: tuple[str, ...]
    journal: bool = False

    def encode(self) -> bytes:
        """Write the assignment as a line."""
        document = {
            "number": self.number,
            "settings": written(self.settings),
            "listen": list(self.listen),
            "journal": self.journal,
        }
        return encode(document)

    @classmethod
    def decode(cls, line: bytes) -> Assignment:
        """Read what ``encode`` wrote."""
        document = json.loads(line)
        settings, listen = read(document["settings"]), tuple(document["listen"])
        return cls(document["number"], settings, listen, document["journal"])


def written(settings: Settings) -> str:
    """Return settings as text; the pipe is private, so that it is a pickle."""
    return base64.b64encode(pickle.dumps(settings)).decode()


def read(text: str) -> Settings:
    """Return the settings that ``written`` wrote."""
    settings: Settings = pickle.loads(base64.b64decode(text))
    return settings


def encode(document: Mapping[str, Any]) -> bytes:
    """Write one message."""
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


class Lines:
    """Cuts a stream of bytes into lines."""

    def __init__(self, receive: Callable[[bytes], object]) -> None:
        self._receive = receive
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take bytes and pass on every complete line."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._receive(line)

    def finish(self) -> None:
        """Pass on the rest, which has no end of line."""
        rest, self._rest = self._rest, b""
        if rest:
            self._receive(rest)


def _no_answer(_outcome: object, seconds: float) -> NoReturn:
    raise WorkerGone(f"no answer within {seconds:g} s")


class Asker:
    """Sends questions to a worker and matches its answers to them."""

    def __init__(self, reactor: Any, send: Callable[[bytes], object]) -> None:
        self._reactor = reactor
        self._send = send
        self._pending: dict[int, Deferred[Any]] = {}
        self._last = 0

    async def ask(self, what: str, seconds: float | None = None, **more: object) -> Any:
        """Ask and return the answer; raises ``WorkerGone`` when none comes within ``seconds``, if limited."""
        self._last += 1
        number = self._last
        answer: Deferred[Any] = Deferred()
        self._pending[number] = answer
        if seconds is not None:
            answer.addTimeout(seconds, self._reactor, _no_answer)
        self._send(encode({"id": number, "ask": what, **more}))
        try:
            return await answer
        finally:
            self._pending.pop(number, None)

    def received(self, document: Mapping[str, Any]) -> None:
        """Take an answer; a late one is dropped."""
        answer = self._pending.pop(document["id"], None)
        if answer is None:
            return
        if "error" in document:
            answer.errback(WorkerGone(document["error"]))
        else:
            answer.callback(document["answer"])

    def close(self) -> None:
        """Fail everything that still waits: the worker ended."""
        for number in list(self._pending):
            self.received({"id": number, "error": "the worker ended"})
