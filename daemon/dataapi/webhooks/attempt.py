"""One attempt of a delivery: sign, resolve and check, POST, and say what came of it.

One attempt is one POST, and one deadline covers all of it, the answer's body too (specification, "States and
transitions"; reference/webhooks.md section 3).  treq sends the request through an agent that is bound to one
checked connection, so neither redirects nor proxies nor cookies nor compressed bodies lead anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.web.client import BrowserLikePolicyForHTTPS, HostnameCachingHTTPSPolicy

from dataapi.webhooks import urls
from dataapi.webhooks.connection import Connections
from dataapi.webhooks.exchange import Exchange
from dataapi.webhooks.failures import error_word, is_cancelled
from dataapi.webhooks.headers import delivery_headers
from dataapi.webhooks.response import body_text, header_texts
from dataapi.webhooks.work import ErrorWord, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IReactorTime
    from twisted.web.iweb import IPolicyForHTTPS

    from dataapi.webhooks.resolver import Vetting


class _TooLate(Exception):
    """The deadline passed before anything was sent."""


TARGETS_KEPT = 4096
"""URLs whose reading is remembered."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is to be sent.

    :ivar event_id: the value of ``webhook-id``, the same on every retry.
    :ivar body: the bytes to sign and send.
    :ivar custom_headers: the endpoint's own, already checked.
    """

    url: str
    secret: str = field(repr=False)
    event_id: str
    body: bytes = field(repr=False)
    custom_headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


class Sender:
    """Makes attempts.

    :param reactor: connects.
    :param vetting: looks up and checks receivers' addresses.
    :param now: the wall clock, for ``webhook-timestamp``.
    :param timeout: seconds that an attempt may take, from the look-up to the last byte.
    :param clock: keeps the deadline; the reactor when left out.
    :param tls: checks receivers' certificates; by the system's authorities when left out.
    """

    def __init__(
        self,
        reactor: IReactorTime,
        vetting: Vetting,
        now: Callable[[], float],
        *,
        timeout: float = 20.0,
        require_https: bool = False,
        clock: IReactorTime | None = None,
        tls: IPolicyForHTTPS | None = None,
    ) -> None:
        self._vetting = vetting
        self._now = now
        self._timeout = timeout
        # Endpoints are few beside their deliveries.
        self._target = lru_cache(TARGETS_KEPT)(
            partial(urls.parse, require_https=require_https, allowed=vetting.allowed)
        )
        self._clock = clock or reactor
        # Reading the system's authorities takes milliseconds: not for every connection.
        policy = tls or HostnameCachingHTTPSPolicy(BrowserLikePolicyForHTTPS(), cacheSize=64)
        self._connections = Connections(reactor, policy)

    async def send(self, attempt: Attempt) -> Outcome:
        """Make one attempt.  Cancelling it drops the connection and raises ``CancelledError``.

        It is a success when a complete 2xx answer came within the deadline, or more of its body than is kept.
        An answer that breaks off, or is not over at the deadline, leaves its code, headers and first bytes in
        the outcome, with the error beside them: whoever never ends an answer may not have taken the event.
        """
        exchange = Exchange(self._now())
        started = self._clock.seconds()
        work: Deferred[None] = Deferred.fromCoroutine(
            self._exchange(attempt, exchange, started + self._timeout)
        )
        expired: list[bool] = []

        def expire() -> None:
            expired.append(True)
            work.cancel()

        timer = self._clock.callLater(self._timeout, expire)
        error: ErrorWord | None = None
        try:
            await work
        except _TooLate:
            error = ErrorWord.TIMEOUT
        except Exception as problem:
            error = ErrorWord.TIMEOUT if expired else _word(problem)
        finally:
            if timer.active():
                timer.cancel()
            exchange.finish()
        return _outcome(exchange, error, self._clock.seconds() - started)

    async def _exchange(self, attempt: Attempt, exchange: Exchange, deadline: float) -> None:
        """Do all that the deadline covers, and leave what comes in ``exchange``."""
        target = self._target(attempt.url)
        addresses = await self._vetting.addresses(target)
        connection = await self._connections.get(target, addresses)
        if self._clock.seconds() >= deadline:
            # A process that was held up hears of its connection before its timers; by now the lease may be
            # another's.
            connection.drop()
            raise _TooLate
        exchange.signed = self._now()
        headers = delivery_headers(
            attempt.secret, attempt.event_id, int(exchange.signed), attempt.body, attempt.custom_headers
        )
        # Never sent again within an attempt: who closed the connection may have taken the event before.
        await exchange.post(connection, target, headers, attempt.body)

    def close(self) -> None:
        """Drop every connection; attempts under way fail."""
        self._connections.close()


def _word(problem: Exception) -> ErrorWord:
    """Return the word for what a receiver did, or raise what none can bring about."""
    if is_cancelled(problem):
        raise CancelledError from problem
    word = error_word(problem)
    if word is None:
        raise problem
    return word


def _outcome(exchange: Exchange, error: ErrorWord | None, seconds: float) -> Outcome:
    """Say what an exchange came to; a clock that was set back makes no negative duration."""
    return Outcome(
        success=error is None and 200 <= exchange.code < 300,
        signed_at=datetime.fromtimestamp(exchange.signed, UTC),
        duration_ms=max(0, round(seconds * 1000)),
        response_code=exchange.code,
        response_headers=header_texts(exchange.headers),
        response_body=body_text(exchange.body) if exchange.code else None,
        error=error,
    )
