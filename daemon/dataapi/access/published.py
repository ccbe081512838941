"""Keys that an issuer publishes at a URL: read at start, kept fresh, and never lost to a failure.

The rules are those of caches: the issuer says how long a set is fresh (``Cache-Control: max-age``)
and whether it changed (``ETag``).  A token that names a key that is not known yet makes the set
be read again, but not more often than every ``PAUSE`` seconds.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from dataapi.access import keys

_log = Logger(namespace="dataapi.access")

PAUSE = 30.0
"""Seconds between two readings that unknown keys ask for."""
LEAST_FRESH, USUALLY_FRESH, MOST_FRESH = 300.0, 3600.0, 86_400.0
"""Seconds that a set is fresh: at least, where the issuer does not say, and at most."""
FIRST_RETRY, LAST_RETRY = 5.0, 300.0
"""Seconds until a reading that failed is tried again, doubling."""

_MAX_AGE = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?([0-9]{1,9})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Fetched:
    """An issuer's answer.

    :ivar body: None when the set has not changed since the one of the ``ETag`` that was named.
    """

    body: bytes | None
    etag: str | None
    cache_control: str


class FetchError(Exception):
    """The set could not be had; the text says why, without anything of its content."""


Fetch = Callable[[str, str | None], Awaitable[Fetched]]
"""Gets the set of a URL, unless it is still that of an ``ETag``; raises ``FetchError``."""


def freshness(cache_control: str) -> float:
    """Return for how many seconds a set is fresh, by the issuer's ``Cache-Control``."""
    found = _MAX_AGE.search(cache_control)
    return min(max(float(found[1]), LEAST_FRESH), MOST_FRESH) if found else USUALLY_FRESH


class PublishedKeys:
    """Keeps the keys of one URL.

    :param use: is given the keys whenever they changed.
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
        self._shown = url.partition("?")[0]  # a query may hold what is no log's business
        self._fetch = fetch
        self._use = use
        self._clock = clock
        self._etag: str | None = None
        self._body: bytes | None = None
        self._failures = 0
        self._tried = float("-inf")
        self._timer: IDelayedCall | None = None
        self._reading: Deferred[None] | None = None
        self._waiting: list[Deferred[None]] = []
        self._stopped = True

    async def start(self) -> None:
        """Read the keys once; when that fails, they are tried for in the background."""
        self._stopped = False
        await self._read()

    def stop(self) -> None:
        """Read nothing any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._reading is not None:
            self._reading.cancel()

    async def look_again(self) -> None:
        """Read the keys because one is not known, unless they were just read."""
        if self._stopped:
            return
        if self._reading is not None or self._clock.seconds() - self._tried >= PAUSE:
            await self._read()

    def _read(self) -> Deferred[None]:
        """Read the keys, or wait for the reading that is on its way; whoever waits may leave."""
        waiting: Deferred[None] = Deferred(self._waiting.remove)
        self._waiting.append(waiting)
        if self._reading is None:
            self._reading = reading = Deferred.fromCoroutine(self._read_once())
            reading.addBoth(self._done)
        return waiting

    def _done(self, _outcome: object) -> None:
        self._reading = None
        waiting, self._waiting = self._waiting, []
        while waiting:  # one may lead another one to leave
            waiting.pop(0).callback(None)

    async def _read_once(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._tried = self._clock.seconds()
        try:
            wait = self._take(await self._fetch(self._url, self._etag))
            self._failures = 0
        except CancelledError:
            return
        except Exception as error:
            if self._stopped:
                return
            wait = self._failed(error)
        if not self._stopped:
            self._timer = self._clock.callLater(wait, self._due)

    def _failed(self, error: Exception) -> float:
        """Say why nothing was read, and return the seconds until it is tried again."""
        wait = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(self._failures, 16))
        self._failures += 1
        text = "the keys at {url} could not be read, trying again in {wait:.0f} s"
        if isinstance(error, FetchError):
            _log.warn(text + ": {error}", url=self._shown, wait=wait, error=error)
        else:
            _log.failure(text, Failure(error), url=self._shown, wait=wait)
        return wait

    def _take(self, fetched: Fetched) -> float:
        """Use what came, and return the seconds for which it is fresh."""
        if fetched.body is not None:
            if fetched.body != self._body:
                try:
                    found = keys.parse_published(fetched.body)
                except ValueError as error:
                    raise FetchError(str(error)) from None
                self._use(found)
                self._body = fetched.body
                _log.info("{count} keys were read from {url}", count=len(found), url=self._shown)
            self._etag = fetched.etag
        return freshness(fetched.cache_control)

    def _due(self) -> None:
        self._timer = None
        self._read()
