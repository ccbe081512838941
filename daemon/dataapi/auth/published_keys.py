"""Keys that an issuer publishes at a URL: fetched at start, refreshed, and never lost to a failure.

The rules are those of caches: the issuer says how long a set is fresh (``Cache-Control: max-age``)
and whether it changed (``ETag``).  A token that names an unknown key makes the set be
read again, but not more often than every ``PAUSE`` seconds.
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
"""Minimum number of seconds between two readings on behalf of unknown keys."""
MAX_BODY_BYTES = 262_144
"""Bytes of a set of keys."""
TIME_LIMIT = 10.0
"""Seconds from the connection to the last byte."""
MIN_FRESH, USUALLY_FRESH, MAX_FRESH = 300.0, 3600.0, 86_400.0
"""Seconds that a set is fresh: at least, where the issuer does not say, and at most."""
FIRST_RETRY, LAST_RETRY = 5.0, 300.0
"""Seconds until a reading that failed is tried again, doubling."""

_MAX_AGE = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?([0-9]{1,9})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FetchedKeySet:
    """An issuer's answer; its body is None when the set still is that of the request's ``ETag``."""

    body: bytes | None
    etag: str | None
    cache_control: str


class FetchError(Exception):
    """The set could not be fetched; the text says why and has nothing of its content."""


Fetch = Callable[[str, str | None], Awaitable[FetchedKeySet]]
"""Fetches the set of a URL, unless it still is that of an ``ETag``; raises ``FetchError``."""


def freshness(cache_control: str) -> float:
    """Return for how many seconds a set is fresh, by the issuer's ``Cache-Control``."""
    found = _MAX_AGE.search(cache_control)
    return min(max(float(found[1]), MIN_FRESH), MAX_FRESH) if found else USUALLY_FRESH


class PublishedKeys:
    """The keys of one URL, read again before they are outdated.

    :param use: called with the keys whenever they changed.
    :param clock: twisted's time and timers.
    """

    def __init__(
        self,
        url: str,
        fetch: Fetch,
        use: Callable[[tuple[keys.VerifyingKey, ...]], None],
        clock: IReactorTime,
    ) -> None:
        self._url = url
        self._logged_url = url.partition("?")[0]  # the query may hold a secret
        self._fetch = fetch
        self._use = use
        self._clock = clock
        self._etag: str | None = None
        self._body: bytes | None = None
        self._tried = float("-inf")
        self._reading = SingleFlight(self._read_once)
        self._outdated = Alarm(clock, self._due)
        self._retry = Retry(clock, Backoff(first=FIRST_RETRY, longest=LAST_RETRY, spread=0.0), self._due)
        self._stopped = True

    async def start(self) -> None:
        """Read the keys once; when that fails, they are tried for in the background."""
        self._stopped = False
        await self._reading.run()

    def stop(self) -> None:
        """Read no more."""
        self._stopped = True
        self._cancel_timers()
        self._reading.cancel()

    async def refresh(self) -> None:
        """Read the keys because one is unknown, unless they were just read."""
        if self._stopped:
            return
        if self._reading.running or self._clock.seconds() - self._tried >= MIN_REFRESH_INTERVAL:
            await self._reading.run()

    async def reread(self) -> str | None:
        """Read the keys now, whenever they were read last; return why that failed, None if it did not."""
        if self._reading.running:
            await self._reading.run()
        return None if self._stopped else await self._reading.run()

    async def _read_once(self) -> str | None:
        """Read the keys; return why that failed, None if it did not."""
        self._cancel_timers()
        self._tried = self._clock.seconds()
        try:
            fresh_for = self._take(await self._fetch(self._url, self._etag))
        except CancelledError:
            return None
        except Exception as error:
            if not self._stopped:
                self._failed(error)
            return str(error)
        self._retry.succeeded()
        if not self._stopped:
            self._outdated.within(fresh_for)
        return None

    def _failed(self, error: Exception) -> None:
        """Say why nothing was read, and try again later."""
        wait = self._retry.failed()
        text = "the keys at {url} could not be read, trying again in {wait:.0f} s"
        if isinstance(error, FetchError):
            _log.warn(text + ": {error}", url=self._logged_url, wait=wait, error=error)
        else:
            _log.failure(text, Failure(error), url=self._logged_url, wait=wait)

    def _take(self, fetched: FetchedKeySet) -> float:
        """Use the set, and return the seconds for which it is fresh."""
        if fetched.body is not None:
            if fetched.body != self._body:
                try:
                    found = keys.parse_published(fetched.body)
                except ValueError as error:
                    raise FetchError(str(error)) from None
                self._use(found)
                self._body = fetched.body
                _log.info("{count} keys were read from {url}", count=len(found), url=self._logged_url)
            self._etag = fetched.etag
        return freshness(fetched.cache_control)

    def _due(self) -> None:
        self._reading.run()

    def _cancel_timers(self) -> None:
        self._outdated.cancel()
        self._retry.cancel()


def fetcher(
    reactor: Any, agent: IAgent | None = None
) -> Callable[[str, str | None], Deferred[FetchedKeySet]]:
    """Return what fetches sets over HTTP: bounded in time and size, and not redirected.

    :param agent: makes the requests; by default one that connects to where the URL leads.
    """
    if agent is None:
        # A request an hour needs no persistent connection.
        pool = HTTPConnectionPool(reactor, persistent=False)
        agent = Agent(reactor, OutgoingTls(), connectTimeout=TIME_LIMIT, pool=pool)
    client = HTTPClient(agent)

    def fetch(url: str, etag: str | None) -> Deferred[FetchedKeySet]:
        fetching = Deferred.fromCoroutine(_fetch(client, url, etag))
        return fetching.addTimeout(TIME_LIMIT, reactor, _too_late).addErrback(_explained)

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
        raise FetchError(f"the answer's status is {response.code}")
    cache_control = ", ".join(response.headers.getRawHeaders("Cache-Control", []))
    [new_etag] = response.headers.getRawHeaders("ETag", [None])[:1]
    return FetchedKeySet(body if response.code == 200 else None, new_etag, cache_control)


def _too_late(_outcome: object, limit: float) -> NoReturn:
    """Report a timeout in one way, for which each part of twisted's client has another error."""
    raise FetchError(f"no whole answer came within {limit:.0f} seconds")


def _explained(failure: Failure) -> Failure:
    """Turn any error into a ``FetchError``."""
    if failure.check(FetchError, CancelledError):
        return failure
    raise FetchError(failure.getErrorMessage()) from failure.value


class _LimitedBody(Protocol):
    """Reads a body up to the limit; cancelled, it drops the connection."""

    def __init__(self) -> None:
        self._body = bytearray()
        self.read: Deferred[bytes] = Deferred(lambda _: self._give_up())

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - twisted's name
        """Add a piece."""
        self._body += data
        if len(self._body) > MAX_BODY_BYTES and not self.read.called:
            self.read.errback(FetchError(f"the answer has more than {MAX_BODY_BYTES} bytes"))
            self._give_up()

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802 - twisted's name
        """Finish with the body if it is complete."""
        if self.read.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.read.callback(bytes(self._body))
        else:
            self.read.errback(reason)

    def _give_up(self) -> None:
        assert self.transport is not None
        self.transport.loseConnection()
