"""Keys that an issuer publishes at a URL. They stay in use if a refresh fails.

``Cache-Control: max-age`` determines when they are refreshed, and ``ETag`` whether they have changed. A
token with an unknown key also triggers a refresh, at most every ``MIN_REFRESH_INTERVAL`` seconds.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.client import Agent, HTTPConnectionPool, ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent

from dataapi.auth import keys
from dataapi.concurrency.tasks import SingleFlight
from dataapi.concurrency.timers import Alarm, Backoff, Retry
from dataapi.http.outgoing_tls import OutgoingTls

_log = Logger(namespace="dataapi.auth")

MIN_REFRESH_INTERVAL = 30.0
"""Minimum interval between refreshes for unknown keys, in seconds."""
MAX_BODY_BYTES = 262_144
"""Maximum size of a response body, in bytes."""
TIME_LIMIT = 10.0
"""Timeout of a request, including its body, in seconds."""
MIN_FRESH, DEFAULT_FRESH, MAX_FRESH = 300.0, 3600.0, 86_400.0
"""Minimum, default and maximum freshness lifetime, in seconds."""
FIRST_RETRY, LAST_RETRY = 5.0, 300.0
"""Initial and maximum retry delay, in seconds."""

_MAX_AGE = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?([0-9]{1,9})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FetchedKeySet:
    """An issuer's response. The body is None if the key set has not changed."""

    body: bytes | None
    etag: str | None
    cache_control: str


class FetchError(Exception):
    """Raised when the key set could not be fetched. The message contains no part of the key set."""


Fetch = Callable[[str, str | None], Awaitable[FetchedKeySet]]
"""Fetches a URL unless its ``ETag`` is unchanged. Raises ``FetchError``."""


def freshness(cache_control: str) -> float:
    match = _MAX_AGE.search(cache_control)
    return min(max(float(match[1]), MIN_FRESH), MAX_FRESH) if match else DEFAULT_FRESH


class PublishedKeys:
    """The keys published at a URL, refreshed before they become stale."""

    def __init__(
        self,
        url: str,
        fetch: Fetch,
        use: Callable[[tuple[keys.VerifyingKey, ...]], None],
        clock: IReactorTime,
    ) -> None:
        self._url = url
        self._logged_url = url.partition("?")[0]  # the query string may contain a secret
        self._fetch = fetch
        self._use = use
        self._clock = clock
        self._etag: str | None = None
        self._body: bytes | None = None
        self._last_read = float("-inf")
        self._reads = SingleFlight(self._read_once)
        self._refresh_timer = Alarm(clock, self._due)
        self._retry = Retry(clock, Backoff(first=FIRST_RETRY, longest=LAST_RETRY, spread=0.0), self._due)
        self._stopped = True

    async def start(self) -> None:
        self._stopped = False
        await self._reads.run()

    def stop(self) -> None:
        self._stopped = True
        self._cancel_timers()
        self._reads.cancel()

    async def refresh(self) -> None:
        if self._stopped:
            return
        if self._reads.running or self._clock.seconds() - self._last_read >= MIN_REFRESH_INTERVAL:
            await self._reads.run()

    async def reread(self) -> str | None:
        """Read the keys now and return the error message, or None on success."""
        if self._reads.running:
            await self._reads.run()
        return None if self._stopped else await self._reads.run()

    async def _read_once(self) -> str | None:
        self._cancel_timers()
        self._last_read = self._clock.seconds()
        try:
            fresh_for = self._apply(await self._fetch(self._url, self._etag))
        except CancelledError:
            return None
        except Exception as error:
            if not self._stopped:
                self._failed(error)
            return str(error)
        self._retry.succeeded()
        if not self._stopped:
            self._refresh_timer.within(fresh_for)
        return None

    def _failed(self, error: Exception) -> None:
        wait = self._retry.failed()
        text = "could not read the keys at {url}, retrying in {wait:.0f} s"
        if isinstance(error, FetchError):
            _log.warn(text + ": {error}", url=self._logged_url, wait=wait, error=error)
        else:
            _log.failure(text, Failure(error), url=self._logged_url, wait=wait)

    def _apply(self, fetched: FetchedKeySet) -> float:
        if fetched.body is not None:
            if fetched.body != self._body:
                try:
                    parsed = keys.parse_published(fetched.body)
                except ValueError as error:
                    raise FetchError(str(error)) from None
                self._use(parsed)
                self._body = fetched.body
                _log.info("read {count} keys from {url}", count=len(parsed), url=self._logged_url)
            self._etag = fetched.etag
        return freshness(fetched.cache_control)

    def _due(self) -> None:
        self._reads.run()

    def _cancel_timers(self) -> None:
        self._refresh_timer.cancel()
        self._retry.cancel()


def fetcher(
    reactor: Any, agent: IAgent | None = None
) -> Callable[[str, str | None], Deferred[FetchedKeySet]]:
    """Return a function that fetches key sets, with limits on time and size and without redirects."""
    if agent is None:
        # Connections are not reused, because requests are about an hour apart.
        pool = HTTPConnectionPool(reactor, persistent=False)
        agent = Agent(reactor, OutgoingTls(), connectTimeout=TIME_LIMIT, pool=pool)
    client = HTTPClient(agent)

    def fetch(url: str, etag: str | None) -> Deferred[FetchedKeySet]:
        fetching = Deferred.fromCoroutine(_fetch(client, url, etag))
        return fetching.addTimeout(TIME_LIMIT, reactor, _raise_timeout).addErrback(_as_fetch_error)

    return fetch


async def _fetch(client: HTTPClient, url: str, etag: str | None) -> FetchedKeySet:
    headers = Headers({"Accept": ["application/jwk-set+json, application/json"]})
    if etag is not None:
        headers.setRawHeaders("If-None-Match", [etag])
    response = await client.get(url, headers=headers, allow_redirects=False, unbuffered=True)
    reader = _LimitedBody()
    response.deliverBody(reader)
    body = await reader.read
    if response.code not in (200, 304) or (response.code == 304 and etag is None):
        raise FetchError(f"the response status is {response.code}")
    cache_control = ", ".join(response.headers.getRawHeaders("Cache-Control", []))
    [new_etag] = response.headers.getRawHeaders("ETag", [None])[:1]
    return FetchedKeySet(body if response.code == 200 else None, new_etag, cache_control)


def _raise_timeout(_outcome: object, limit: float) -> NoReturn:
    # Twisted raises different errors, depending on what timed out.
    raise FetchError(f"no complete response within {limit:.0f} seconds")


def _as_fetch_error(failure: Failure) -> Failure:
    if failure.check(FetchError, CancelledError):
        return failure
    raise FetchError(failure.getErrorMessage()) from failure.value


class _LimitedBody(Protocol):
    def __init__(self) -> None:
        self._body = bytearray()
        self.read: Deferred[bytes] = Deferred(lambda _: self._disconnect())

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        self._body += data
        if len(self._body) > MAX_BODY_BYTES and not self.read.called:
            self.read.errback(FetchError(f"the response has more than {MAX_BODY_BYTES} bytes"))
            self._disconnect()

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802 - twisted's name
        if self.read.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.read.callback(bytes(self._body))
        else:
            self.read.errback(reason)

    def _disconnect(self) -> None:
        assert self.transport is not None
        self.transport.loseConnection()
