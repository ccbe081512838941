"""The root service: starts the parts in order, stops them in reverse, fails loudly.

Order: sockets are bound (while privileged), then the database that we run ourselves if any,
then whatever serves (this process or its workers), then the admin listener, and then
systemd hears that we are ready.  A failed start ends the daemon with a non-zero exit.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import ILogObserver, Logger
from twisted.python.failure import Failure

from dataapi.service.acceptor import Acceptor
from dataapi.service.clock import steady
from dataapi.service.listening import BoundSocket, Descriptor, StartFailed, accept, bind
from dataapi.service.notify import Notifier
from dataapi.service.source import Source
from dataapi.service.state import Operated
from dataapi.settings import Settings
from dataapi.web.admin import make_admin_site

_log = Logger(namespace="dataapi.service")

RELOADING = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that ask for a reload.  PostgREST reads its configuration again on SIGUSR2, which is SIGHUP's
work here."""


class Front(Operated, Protocol):
    """Whatever answers the public sockets: this process, or its workers."""

    async def start(self) -> None:
        """Begin to answer; returns when requests are accepted."""

    async def stop(self) -> None:
        """Accept no more, finish what is in flight, and end."""


Build = Callable[[Settings, Sequence[Descriptor]], Front]
"""Makes the front of complete settings and bound sockets."""


class Root(Service):
    """The one service twistd knows of."""

    name = "dataapi"

    def __init__(
        self, reactor: Any, source: Source, build: Build, notifier: Notifier, observer: ILogObserver | None
    ) -> None:
        self._reactor = reactor
        self._source = source
        self._build = build
        self._notifier = notifier
        self._observer = observer
        self._sockets: tuple[BoundSocket, ...] = ()
        self._admin_sockets: tuple[BoundSocket, ...] = ()
        self._admin: list[Acceptor] = []
        self._front: Front | None = None
        self._working: Deferred[None] | None = None
        self._reload_asked: signal.Signals | None = None
        self._stopping = False
        self._watchdog = LoopingCall(notifier.alive)
        self._watchdog.clock = reactor

    def setServiceParent(self, parent: Any) -> None:  # noqa: N802 - IService
        """Join the application, and make our log observer the one that twistd starts."""
        super().setServiceParent(parent)
        if self._observer is not None:
            parent.setComponent(ILogObserver, self._observer)

    def privilegedStartService(self) -> None:  # noqa: N802 - IService
        """Bind every socket; raises ``StartFailed``, on which twistd exits with 1."""
        super().privilegedStartService()
        for number in RELOADING:
            self._on_signal(number, partial(self._ask_to_reload, number))
        try:
            self._sockets = bind(self._reactor, self._source.settings.listen)
            self._admin_sockets = bind(self._reactor, self._source.settings.admin_listen)
        except StartFailed as error:
            _log.critical("{error}", error=str(error))
            # twistd prints what it cannot handle; the sentence is all an operator needs.
            sys.tracebacklimit = 0
            raise

    def startService(self) -> None:  # noqa: N802 - IService
        """Start the parts once the reactor runs."""
        super().startService()
        steady(self._reactor)
        self._reactor.callWhenRunning(self._begin)

    def _begin(self) -> None:
        # Twisted's handler would end the process by the signal.
        self._on_signal(signal.SIGTERM, self._terminate)
        self._working = Deferred.fromCoroutine(self._start())
        self._working.addErrback(self._start_failed)

    async def _start(self) -> None:
        if self._notifier.watchdog is not None:
            await_never = self._watchdog.start(self._notifier.watchdog)
            await_never.addErrback(lambda failure: _log.failure("the watchdog is not patted", failure))
        settings = await self._source.prepare()
        self._front = front = self._build(settings, [bound.handed for bound in self._sockets])
        site = make_admin_site(front, self._reactor)
        self._admin = [accept(self._reactor, bound.handed, site) for bound in self._admin_sockets]
        await front.start()
        _log.info("listening on {listen}", listen=", ".join(settings.listen))
        self._source.announce()
        self._notifier.ready("serving")
        await self._reload_as_asked(front)

    def _start_failed(self, failure: Failure) -> None:
        if self._stopping and failure.check(CancelledError):
            return
        if failure.check(StartFailed):
            _log.critical("{error}", error=failure.getErrorMessage())
        else:
            _log.failure("the daemon cannot start", failure)
        _exit_with(1)
        self._reactor.stop()

    def stopService(self) -> Deferred[None]:  # noqa: N802 - IService
        """Stop the parts; the Deferred fires when nothing is left to wait for."""
        super().stopService()
        self._stopping = True
        for number in (signal.SIGTERM, signal.SIGINT):
            self._on_signal(number, self._leave_at_once)
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._notifier.stopping()
        if self._working is not None:
            self._working.cancel()
        for bound in self._sockets:
            await _logged("a socket", bound.close)
        if self._front is not None:
            await _logged("serving", self._front.stop)
        for accepting in self._admin:
            accepting.stop()
        for bound in self._admin_sockets:
            await _logged("an admin socket", bound.close)
        await _logged("the embedded database", self._source.cleanup)
        if self._watchdog.running:
            self._watchdog.stop()
        _log.info("stopped")

    def _on_signal(self, number: signal.Signals, action: Callable[[], None]) -> None:
        signal.signal(number, lambda _number, _frame: self._reactor.callFromThread(action))

    def _terminate(self) -> None:
        _log.info("stopping on SIGTERM")
        self._reactor.stop()

    def _leave_at_once(self) -> None:
        """Wait for nothing more, for the operator asked twice; workers and our database end by themselves."""
        _log.warn("asked twice to stop: requests in flight are given up")
        _leave(1)

    def _ask_to_reload(self, number: signal.Signals) -> None:
        """Reload, once the start or the reload that is under way is over."""
        self._reload_asked = number
        if self._front is not None and self._working is not None and self._working.called:
            self._working = Deferred.fromCoroutine(self._reload_as_asked(self._front))

    async def _reload_as_asked(self, front: Front) -> None:
        while self._reload_asked is not None and not self._stopping:
            number, self._reload_asked = self._reload_asked, None
            self._notifier.reloading()
            try:
                outcome = await front.reload()
            except CancelledError:
                return
            except Exception:
                _log.failure("the reload failed")
            else:
                _log.info("reloaded on {signal}", signal=number.name, **outcome.as_json())
            self._notifier.ready("serving")


async def _logged(what: str, stop: Callable[[], Awaitable[None]]) -> None:
    """Stop a part; its failure must not keep the others from stopping."""
    try:
        await stop()
    except Exception:
        _log.failure("{what} did not stop as it should", what=what)


def _exit_with(status: int) -> None:
    """Make the process exit with ``status``: whatever stops the reactor, twistd itself exits with 0."""
    atexit.register(_leave, status)


def _leave(status: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
