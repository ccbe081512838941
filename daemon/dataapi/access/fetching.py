"""Gets the keys that an issuer publishes, over HTTP: bounded in time and size, and not redirected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import Agent, HTTPConnectionPool, ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers

from dataapi.access.published import Fetched, FetchError

LONGEST_SET = 262_144
"""Bytes of a set of keys."""
TIME_LIMIT = 10.0
"""Seconds from the connection to the last byte."""


def fetcher(reactor: Any) -> Callable[[str, str | None], Deferred[Fetched]]:
    """Return what gets the set of a URL, unless it is still that of an ``ETag``."""
    # Nothing is kept open for a request an hour.
    agent = Agent(reactor, connectTimeout=TIME_LIMIT, pool=HTTPConnectionPool(reactor, persistent=False))
    client = HTTPClient(agent)

    def fetch(url: str, etag: str | None) -> Deferred[Fetched]:
        fetching = Deferred.fromCoroutine(_fetch(client, url, etag))
        return fetching.addTimeout(TIME_LIMIT, reactor, _too_late).addErrback(_told)

    return fetch


async def _fetch(client: HTTPClient, url: str, etag: str | None) -> Fetched:
    headers = Headers({"Accept": ["application/jwk-set+json, application/json"]})
    if etag is not None:
        headers.setRawHeaders("If-None-Match", [etag])
    response = await client.get(url, headers=headers, allow_redirects=False, unbuffered=True)
    reader = _Reader()
    response.deliverBody(reader)
    body = await reader.read
    if response.code not in (200, 304) or (response.code == 304 and etag is None):
        raise FetchError(f"the answer's status is {response.code}")
    cache_control = ", ".join(response.headers.getRawHeaders("Cache-Control", []))
    [given] = response.headers.getRawHeaders("ETag", [None])[:1]
    return Fetched(body if response.code == 200 else None, given, cache_control)


def _too_late(_outcome: object, limit: float) -> NoReturn:
    """Say what the end of the time means, which each part of twisted's client tells by another error."""
    raise FetchError(f"no whole answer came within {limit:.0f} seconds")


def _told(failure: Failure) -> Failure:
    """Say in one sentence why nothing came."""
    if failure.check(FetchError, CancelledError):
        return failure
    raise FetchError(failure.getErrorMessage()) from failure.value


class _Reader(Protocol):
    """Keeps a body up to the limit; cancelled, it gives up the connection."""

    def __init__(self) -> None:
        self._body = bytearray()
        self.read: Deferred[bytes] = Deferred(lambda _: self._give_up())

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Keep what came."""
        self._body += data
        if len(self._body) > LONGEST_SET and not self.read.called:
            self.read.errback(FetchError(f"the answer has more than {LONGEST_SET} bytes"))
            self._give_up()

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802 - twisted's name
        """Give what came, if it came whole."""
        if self.read.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.read.callback(bytes(self._body))
        else:
            self.read.errback(reason)

    def _give_up(self) -> None:
        assert self.transport is not None
        self.transport.loseConnection()
