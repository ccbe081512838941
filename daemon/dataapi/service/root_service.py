"""The root service of the daemon: starts components in order, and stops them in reverse order.

Sockets are bound first, while the process is privileged. Then come the embedded PostgreSQL (if any), the
request server (this process or its workers), the admin listener, and the notification of systemd. A failed
start ends the daemon with a non-zero exit status.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import ILogObserver, Logger
from twisted.python.failure import Failure

from dataapi.concurrency.tasks import SingleFlight, concurrently
from dataapi.service.configuration import ConfigurationError
from dataapi.service.settings_sources import Reconfigure, SettingsSource
from dataapi.service.sockets import (
    Acceptor,
    BoundSocket,
    Descriptor,
    StartFailed,
    accept,
    allow_open_files,
    bind,
)
from dataapi.settings import Settings
from dataapi.telemetry.readiness import DaemonControl, Reloaded
from dataapi.telemetry.version import installed_version
from dataapi.web.admin_listener import AdminListener

if TYPE_CHECKING:
    from twisted.web.server import Site

_log = Logger(namespace="dataapi.service")

RELOAD_SIGNALS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that trigger a reload. PostgREST reloads its configuration on SIGUSR2."""


class RequestServer(DaemonControl, Protocol):
    """Serves the public sockets, in this process or in workers."""

    async def start(self) -> None: ...

    async def drain(self) -> None:
        """Keep serving, but close each connection after its next response, and report not ready."""

    async def stop(self) -> None: ...

    async def configure(self, settings: Settings) -> Mapping[str, str]:
        """Apply changed settings. Return the error of each project that keeps its old settings."""


Build = Callable[[Settings, Sequence[Descriptor], Reconfigure], RequestServer]

STATUS_INTERVAL = 0.5
"""Seconds between updates of the status that ``systemctl status`` shows."""

_FIXED = ("listen", "admin_listen", "server_reuseport", "workers", "log_format", "mcp", "mcp_writes")
"""Settings that only a restart can change."""


class RootService(Service):
    """The service that twistd runs."""

    name = "dataapi"

    def __init__(
        self,
        reactor: Any,
        source: SettingsSource,
        build: Build,
        notifier: Notifier,
        observer: ILogObserver | None,
    ) -> None:
        self._reactor = reactor
        self._source = source
        self._build = build
        self._notifier = notifier
        self._observer = observer
        self._sockets: tuple[BoundSocket, ...] = ()
        self._admin_sockets: tuple[BoundSocket, ...] = ()
        self._admin: list[Acceptor] = []
        self._server: RequestServer | None = None
        self._working: Deferred[None] | None = None
        self._settings: Settings = source.settings
        self._reloading = SingleFlight(self._reload, fresh=True)
        self._pending_reload: str | None = None
        self._pending_databases: set[str] = set()
        self._reading = DeferredLock()
        self._serving = False
        self._stopping = False
        self._watchdog = LoopingCall(notifier.alive)
        self._watchdog.clock = reactor
        self._status_updates = LoopingCall(lambda: Deferred.fromCoroutine(self._update_status()))
        self._status_updates.clock = reactor
        self._status = "serving"
        self._reload_failed = False

    def setServiceParent(self, parent: Any) -> None:  # noqa: N802 - IService
        super().setServiceParent(parent)
        if self._observer is not None:
            parent.setComponent(ILogObserver, self._observer)

    def privilegedStartService(self) -> None:  # noqa: N802 - IService
        """Bind the sockets. Raises ``StartFailed`` to end the process."""
        super().privilegedStartService()
        for number in RELOAD_SIGNALS:
            self._on_signal(number, partial(self._request_reload, number.name))
        try:
            settings = self._source.settings
            self._sockets = bind(self._reactor, settings.listen, reuse_port=settings.server_reuseport)
            self._admin_sockets = bind(self._reactor, settings.admin_listen)
        except StartFailed as error:
            _log.critical("{error}", error=str(error))
            # twistd does not catch the exception. The interpreter would print it again and exit with 1.
            sys.excepthook = _skip_logged_error
            _exit_with(error.status, str(error))
            raise

    def startService(self) -> None:  # noqa: N802 - IService
        super().startService()
        allow_open_files()
        use_monotonic_clock(self._reactor)
        self._reactor.callWhenRunning(self._begin)

    def _begin(self) -> None:
        # With Twisted's handler, the process would end as if the signal had killed it.
        self._on_signal(signal.SIGTERM, self._terminate)
        self._working = Deferred.fromCoroutine(self._start())
        self._working.addErrback(self._start_failed)

    async def _start(self) -> None:
        _log.info("dataapi {version} starts", version=installed_version())
        if self._notifier.watchdog is not None:
            watching = self._watchdog.start(self._notifier.watchdog)
            watching.addErrback(lambda failure: _log.failure("the watchdog is not notified", failure))
        self._settings = settings = await self._source.prepare()
        _warn_of_deprecations(settings)
        self._server = server = self._build(
            settings, [bound.as_descriptor for bound in self._sockets], self._reconfigure
        )
        listener = AdminListener(partial(self._make_admin_site, server))
        self._admin = [accept(self._reactor, bound.as_descriptor, listener) for bound in self._admin_sockets]
        await server.start()
        # The entry point disabled the collector, because most objects of the startup are long-lived.
        gc.enable()
        self._serving = True
        _log.info("listening on {listen}", listen=", ".join(settings.listen))
        self._source.announce()
        self._notifier.ready(self._status)
        if self._notifier.address is not None:
            updating = self._status_updates.start(STATUS_INTERVAL)
            updating.addErrback(lambda failure: _log.failure("systemd's status is not updated", failure))
        await self._run_pending_reloads()

    def _make_admin_site(self, server: RequestServer) -> Site:
        from dataapi.web.admin import make_admin_site  # noqa: PLC0415 - see ``AdminListener``

        return make_admin_site(
            server, self._reactor, partial(self._reload_on, "POST /reload"), lambda: self._settings
        )

    async def _update_status(self) -> None:
        assert self._server is not None, "it serves"
        try:
            status = self._with_reload((await self._server.state()).summary)
        except CancelledError:
            raise
        except Exception:
            _log.failure("the status for systemd cannot be determined")
            return
        if status != self._status and not self._stopping:
            self._status = status
            self._notifier.status(status)

    def _with_reload(self, summary: str) -> str:
        return f"{summary}; the last reload failed" if self._reload_failed else summary

    def _start_failed(self, failure: Failure) -> None:
        if self._stopping and failure.check(CancelledError):
            return
        error = failure.value
        if isinstance(error, StartFailed):
            _log.critical("{error}", error=str(error))
            _exit_with(error.status, str(error))
        else:
            _log.failure("the daemon cannot start", failure)
            _exit_with(os.EX_SOFTWARE, f"the daemon cannot start: {failure.getErrorMessage()}")
        self._reactor.stop()

    def stopService(self) -> Deferred[None]:  # noqa: N802 - IService
        super().stopService()
        self._stopping = True
        for number in (signal.SIGTERM, signal.SIGINT):
            self._on_signal(number, self._exit_immediately)
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._notifier.stopping()
        if self._working is not None:
            self._working.cancel()
        self._reloading.cancel()
        if self._status_updates.running:
            self._status_updates.stop()
        if self._serving and self._settings.shutdown_delay:
            await _logged("the shutdown delay", self._delay)
        for bound in self._sockets:
            await _logged("a socket", bound.close)
        if self._server is not None:
            await _logged("the request server", self._server.stop)
        for accepting in self._admin:
            accepting.stop()
        for bound in self._admin_sockets:
            await _logged("an admin socket", bound.close)
        await _logged("the embedded database", self._source.cleanup)
        if self._watchdog.running:
            self._watchdog.stop()
        _log.info("stopped")

    async def _delay(self) -> None:
        """Keep serving until proxies have noticed the shutdown, then accept the queued connections."""
        assert self._server is not None, "it serves"
        await self._server.drain()
        await deferLater(self._reactor, self._settings.shutdown_delay)
        await concurrently(bound.drain(self._reactor) for bound in self._sockets)

    def _on_signal(self, number: signal.Signals, action: Callable[[], None]) -> None:
        signal.signal(number, lambda _number, _frame: self._reactor.callFromThread(action))

    def _terminate(self) -> None:
        _log.info("stopping on SIGTERM")
        self._reactor.stop()

    def _exit_immediately(self) -> None:
        _log.warn("second stop signal: exiting without waiting for requests in flight")
        _exit(1)

    def _request_reload(self, cause: str) -> None:
        self._pending_reload = cause
        self._start_pending_reloads()

    def _reconfigure(self, ref: str | None) -> None:
        if ref is None:
            self._request_reload("NOTIFY")
        else:
            self._pending_databases.add(ref)
            self._start_pending_reloads()

    def _start_pending_reloads(self) -> None:
        if self._server is not None and self._working is not None and self._working.called:
            self._working = Deferred.fromCoroutine(self._run_pending_reloads())

    async def _run_pending_reloads(self) -> None:
        while not self._stopping:
            if self._pending_databases:
                try:
                    await self._reread_database(self._pending_databases.pop())
                except CancelledError:
                    return
                except Exception:
                    _log.failure("the settings in a database could not be reloaded")
                continue
            if self._pending_reload is None:
                return
            cause, self._pending_reload = self._pending_reload, None
            self._notifier.reloading()
            try:
                outcome: Reloaded | None = await self._reload_on(cause)
            except CancelledError:
                return
            except Exception:
                _log.failure("the reload failed")
                outcome = None
            self._reload_failed = outcome is None or bool(outcome.failures)
            self._status = self._with_reload("serving")
            self._notifier.ready(self._status)

    async def _reload_on(self, cause: str) -> Reloaded:
        outcome = await self._reloading.run()
        if outcome.failures:
            template = "the reload on {signal} failed for {places}"
            _log.error(template, signal=cause, places=", ".join(outcome.failures), **outcome.as_json())
        else:
            _log.info("reloaded on {signal}", signal=cause, **outcome.as_json())
        return outcome

    async def _reload(self) -> Reloaded:
        await self._reading.acquire()
        try:
            return await self._reload_now()
        finally:
            self._reading.release()

    async def _reread_database(self, ref: str) -> None:
        await self._reading.acquire()
        try:
            settings = self._changed(await self._source.reread_database(ref))
            if settings is not None and self._server is not None:
                await self._server.configure(settings)
        finally:
            self._reading.release()

    async def _reload_now(self) -> Reloaded:
        server = self._server
        assert server is not None, "the admin listener starts later"
        try:
            settings = await self._source.reread()
        except ConfigurationError as error:
            _log.error("the configuration was not applied: {error}", error=str(error))
            outcome = await server.reload()
            return replace(outcome, failures={**outcome.failures, "configuration": str(error)})
        if settings is not None:
            _warn_of_deprecations(settings)
        outcome = await server.reload(self._changed(settings))
        return replace(outcome, failures={**self._source.failures, **outcome.failures})

    def _changed(self, settings: Settings | None) -> Settings | None:
        if settings is None:
            return None
        fixed = {name: getattr(self._settings, name) for name in _FIXED}
        if changed := [name for name, value in fixed.items() if getattr(settings, name) != value]:
            keys = ", ".join(changed).replace("_", "-")
            _log.warn("a restart is needed for the new values of {keys}", keys=keys)
        before, self._settings = self._settings, replace(settings, **fixed)
        return None if before == self._settings else self._settings


def _warn_of_deprecations(settings: Settings) -> None:
    for text in settings.deprecations:
        _log.warn("{warning}", warning=text)


def _skip_logged_error(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Exception hook: print all errors except ``StartFailed``, because it has been logged."""
    if not issubclass(kind, StartFailed):
        sys.__excepthook__(kind, error, traceback)


async def _logged(part: str, stop: Callable[[], Awaitable[None]]) -> None:
    """Stop a component. Log failures, so that the other components are still stopped."""
    try:
        await stop()
    except Exception:
        _log.failure("{what} did not stop cleanly", what=part)


def _exit_with(status: int, reason: str) -> None:
    """Set the exit status of the process, and print the reason unless standard error is the log."""
    atexit.register(_exit, status, f"dataapi: {reason}\n" if _stderr_is_not_log() else "")


def _stderr_is_not_log() -> bool:
    try:
        return os.isatty(2) or not os.path.sameopenfile(1, 2)
    except OSError:
        return False


def _exit(status: int, message: str = "") -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    # Twisted has redirected sys.stderr to its log.
    os.write(2, message.encode())
    os._exit(status)


def use_monotonic_clock(reactor: Any) -> None:
    """Make the reactor's timers use the monotonic clock. Call this before any timer is created.

    Otherwise setting the wall clock back by an hour would delay every retry and timeout by an hour.
    """
    if reactor.seconds is time.time:
        reactor.seconds = time.monotonic


_NOTIFY_SECONDS = 1.0
"""Seconds to wait for space in systemd's queue. The daemon is blocked during this time."""


def _send(address: str, message: bytes) -> None:
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notifier:
        notifier.settimeout(_NOTIFY_SECONDS)
        notifier.sendto(message, address)


@dataclass(slots=True)
class Notifier:
    """Notifies systemd (``sd_notify(3)``) through ``NOTIFY_SOCKET``, if set.

    The first of consecutive failures is logged. Failures have no other effect.

    :ivar watchdog: seconds between keep-alive messages (half of systemd's limit), or None.
    """

    address: str | None = None
    watchdog: float | None = None
    send: Callable[[str, bytes], None] = _send
    _failing: bool = field(default=False, init=False)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Notifier:
        microseconds = environ.get("WATCHDOG_USEC", "")
        ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watchdog = int(microseconds) / 2_000_000 if microseconds.isdigit() and ours else None
        return cls(environ.get("NOTIFY_SOCKET") or None, watchdog or None)

    def ready(self, status: str) -> None:
        self._notify(f"READY=1\nSTATUS={status}")

    def status(self, template: str) -> None:
        self._notify(f"STATUS={template}")

    def reloading(self) -> None:
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}\nSTATUS=reloading")

    def stopping(self) -> None:
        self._notify("STOPPING=1\nSTATUS=finishing requests in flight")

    def alive(self) -> None:
        self._notify("WATCHDOG=1")

    def _notify(self, message: str) -> None:
        if self.address is None:
            return
        try:
            self.send(self.address, message.encode())
        except OSError as error:
            if not self._failing:
                _log.warn(
                    "systemd cannot be notified at NOTIFY_SOCKET ({address}): {error}",
                    address=self.address,
                    error=error,
                )
            self._failing = True
        else:
            self._failing = False
