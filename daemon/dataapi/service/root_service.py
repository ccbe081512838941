"""The root service: starts the parts in order, stops them in reverse, fails loudly.

Order: sockets are bound (while privileged), then the embedded PostgreSQL, if any,
then what serves (this process or its workers), then the admin listener, and then
systemd is notified.  A failed start ends the daemon with a non-zero exit.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, Protocol

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
from dataapi.web.admin import make_admin_site

_log = Logger(namespace="dataapi.service")

RELOADING = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that ask for a reload; PostgREST's SIGUSR2, which reloads its configuration, is one of them."""


class RequestServer(DaemonControl, Protocol):
    """What answers the public sockets: this process, or its workers."""

    async def start(self) -> None:
        """Begin to answer; returns when requests are accepted."""

    async def drain(self) -> None:
        """Go on answering, the last request on each connection, and say that no more should come."""

    async def stop(self) -> None:
        """Accept no more, finish what is in flight, and end."""

    async def configure(self, settings: Settings) -> Mapping[str, str]:
        """Go on with other settings where they differ; return why projects keep their old ones."""


Build = Callable[[Settings, Sequence[Descriptor], Reconfigure], RequestServer]
"""Makes what serves from complete settings, bound sockets, and a callback that asks for other settings."""

FOLLOW = 0.5
"""Seconds between two looks at whether the databases answer, for ``systemctl status``."""

_FIXED = ("listen", "admin_listen", "server_reuseport", "workers", "log_format")
"""The settings that a restart alone changes."""


class RootService(Service):
    """The one service that twistd runs."""

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
        self._reload_asked: str | None = None
        self._databases_asked: set[str] = set()
        self._reading = DeferredLock()
        self._serving = False
        self._stopping = False
        self._watchdog = LoopingCall(notifier.alive)
        self._watchdog.clock = reactor
        self._following = LoopingCall(lambda: Deferred.fromCoroutine(self._follow()))
        self._following.clock = reactor
        self._status = "serving"
        self._reload_failed = False

    def setServiceParent(self, parent: Any) -> None:  # noqa: N802 - IService
        """Join the application, and make our log observer the one that twistd starts."""
        super().setServiceParent(parent)
        if self._observer is not None:
            parent.setComponent(ILogObserver, self._observer)

    def privilegedStartService(self) -> None:  # noqa: N802 - IService
        """Bind every socket; raises ``StartFailed``, which ends the process."""
        super().privilegedStartService()
        for number in RELOADING:
            self._on_signal(number, partial(self._ask_to_reload, number.name))
        try:
            settings = self._source.settings
            self._sockets = bind(self._reactor, settings.listen, reuse_port=settings.server_reuseport)
            self._admin_sockets = bind(self._reactor, settings.admin_listen)
        except StartFailed as error:
            _log.critical("{error}", error=str(error))
            # It goes through twistd to the interpreter, which would say the same again and exit with 1.
            sys.excepthook = _said_already
            _end_with(error.status, str(error))
            raise

    def startService(self) -> None:  # noqa: N802 - IService
        """Start the parts once the reactor runs."""
        super().startService()
        allow_open_files()
        use_monotonic_clock(self._reactor)
        self._reactor.callWhenRunning(self._begin)

    def _begin(self) -> None:
        # Twisted's handler would end the process by the signal.
        self._on_signal(signal.SIGTERM, self._terminate)
        self._working = Deferred.fromCoroutine(self._start())
        self._working.addErrback(self._start_failed)

    async def _start(self) -> None:
        _log.info("dataapi {version} starts", version=installed_version())
        if self._notifier.watchdog is not None:
            watching = self._watchdog.start(self._notifier.watchdog)
            watching.addErrback(lambda failure: _log.failure("the watchdog is not notified", failure))
        self._settings = settings = await self._source.prepare()
        self._server = server = self._build(
            settings, [bound.handed for bound in self._sockets], self._reconfigure
        )
        site = make_admin_site(
            server, self._reactor, partial(self._reload_on, "POST /reload"), lambda: self._settings
        )
        self._admin = [accept(self._reactor, bound.handed, site) for bound in self._admin_sockets]
        await server.start()
        self._serving = True
        _log.info("listening on {listen}", listen=", ".join(settings.listen))
        self._source.announce()
        self._notifier.ready(self._status)
        if self._notifier.address is not None:
            following = self._following.start(FOLLOW)
            following.addErrback(lambda failure: _log.failure("systemd's status is not kept", failure))
        await self._do_as_asked()

    async def _follow(self) -> None:
        """Keep the status that systemd shows: whether the databases answer, and how the last reload ended."""
        assert self._server is not None, "it serves"
        try:
            status = self._with_reload((await self._server.state()).summary)
        except CancelledError:
            raise
        except Exception:
            _log.failure("the status for systemd is not known")
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
            _end_with(error.status, str(error))
        else:
            _log.failure("the daemon cannot start", failure)
            _end_with(os.EX_SOFTWARE, f"the daemon cannot start: {failure.getErrorMessage()}")
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
        self._reloading.cancel()
        if self._following.running:
            self._following.stop()
        if self._serving and self._settings.shutdown_delay:
            await _logged("the delay", self._delay)
        for bound in self._sockets:
            await _logged("a socket", bound.close)
        if self._server is not None:
            await _logged("serving", self._server.stop)
        for accepting in self._admin:
            accepting.stop()
        for bound in self._admin_sockets:
            await _logged("an admin socket", bound.close)
        await _logged("the embedded database", self._source.cleanup)
        if self._watchdog.running:
            self._watchdog.stop()
        _log.info("stopped")

    async def _delay(self) -> None:
        """Go on answering until proxies have noticed, and then those that connected all the same."""
        assert self._server is not None, "it serves"
        await self._server.drain()
        await deferLater(self._reactor, self._settings.shutdown_delay)
        await concurrently(bound.empty(self._reactor) for bound in self._sockets)

    def _on_signal(self, number: signal.Signals, action: Callable[[], None]) -> None:
        signal.signal(number, lambda _number, _frame: self._reactor.callFromThread(action))

    def _terminate(self) -> None:
        _log.info("stopping on SIGTERM")
        self._reactor.stop()

    def _leave_at_once(self) -> None:
        """Exit at once, as the operator asked twice; workers and the embedded server end by themselves."""
        _log.warn("asked twice to stop: requests in flight are given up")
        _leave(1)

    def _ask_to_reload(self, cause: str) -> None:
        """Reload, once the start or the reload that is under way is over."""
        self._reload_asked = cause
        self._go_on()

    def _reconfigure(self, ref: str | None) -> None:
        """Reload, or only read the settings in a project's database again."""
        if ref is None:
            self._ask_to_reload("NOTIFY")
        else:
            self._databases_asked.add(ref)
            self._go_on()

    def _go_on(self) -> None:
        if self._server is not None and self._working is not None and self._working.called:
            self._working = Deferred.fromCoroutine(self._do_as_asked())

    async def _do_as_asked(self) -> None:
        while not self._stopping:
            if self._databases_asked:
                try:
                    await self._reread_database(self._databases_asked.pop())
                except CancelledError:
                    return
                except Exception:
                    _log.failure("the settings in a database were not read again")
                continue
            if self._reload_asked is None:
                return
            cause, self._reload_asked = self._reload_asked, None
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
        """Reload, and log the outcome."""
        outcome = await self._reloading.run()
        if outcome.failures:
            text = "the reload on {signal} failed for {places}"
            _log.error(text, signal=cause, places=", ".join(outcome.failures), **outcome.as_json())
        else:
            _log.info("reloaded on {signal}", signal=cause, **outcome.as_json())
        return outcome

    async def _reload(self) -> Reloaded:
        """Read the configuration and the catalogs again; a mistake keeps the settings that serve."""
        await self._reading.acquire()
        try:
            return await self._reload_now()
        finally:
            self._reading.release()

    async def _reread_database(self, ref: str) -> None:
        """Read the settings in one project's database again, which concerns no other project."""
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
            _log.error("the configuration is not used: {error}", error=str(error))
            outcome = await server.reload()
            return replace(outcome, failures={**outcome.failures, "configuration": str(error)})
        outcome = await server.reload(self._changed(settings))
        return replace(outcome, failures={**self._source.failures, **outcome.failures})

    def _changed(self, settings: Settings | None) -> Settings | None:
        """Take settings that were read, but for what a restart alone changes; None if nothing else did."""
        if settings is None:
            return None
        fixed = {name: getattr(self._settings, name) for name in _FIXED}
        if changed := [name for name, value in fixed.items() if getattr(settings, name) != value]:
            keys = ", ".join(changed).replace("_", "-")
            _log.warn("a restart is needed for the new values of {keys}", keys=keys)
        before, self._settings = self._settings, replace(settings, **fixed)
        return None if before == self._settings else self._settings


def _said_already(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print an error that ends the interpreter, unless it is the one that the log has."""
    if not issubclass(kind, StartFailed):
        sys.__excepthook__(kind, error, traceback)


async def _logged(what: str, stop: Callable[[], Awaitable[None]]) -> None:
    """Stop a part, and log its failure so that the others stop too."""
    try:
        await stop()
    except Exception:
        _log.failure("{what} did not stop as it should", what=what)


def _end_with(status: int, reason: str) -> None:
    """Make the process exit with ``status``, which twistd does not; and say why where the log is not."""
    atexit.register(_leave, status, f"dataapi: {reason}\n" if _is_apart_from_log() else "")


def _is_apart_from_log() -> bool:
    """Whether standard error goes to a terminal, or elsewhere than the log on standard output."""
    try:
        return os.isatty(2) or not os.path.sameopenfile(1, 2)
    except OSError:
        return False


def _leave(status: int, last_words: str = "") -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    # Twisted has put its log in the place of sys.stderr.
    os.write(2, last_words.encode())
    os._exit(status)


def use_monotonic_clock(reactor: Any) -> None:
    """Run the reactor's timers by the monotonic clock instead of the wall clock, before there are timers.

    Otherwise a wall clock that is set back by an hour would delay every retry and time limit by an hour.
    """
    if reactor.seconds is time.time:
        reactor.seconds = time.monotonic


_NOTIFY_SECONDS = 1.0
"""Seconds to wait for room in systemd's queue, during which the daemon does nothing else."""


def _send(address: str, message: bytes) -> None:
    """Send one datagram to the notification socket; ``@`` is the abstract namespace."""
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notifier:
        notifier.settimeout(_NOTIFY_SECONDS)
        notifier.sendto(message, address)


@dataclass(slots=True)
class Notifier:
    """Notifies systemd (``sd_notify(3)``) at ``NOTIFY_SOCKET``; does nothing without it.

    A message that cannot be sent is logged, the first of several, and has no other effect.

    :ivar watchdog: seconds between two keep-alive messages, half of what systemd allows, or None.
    """

    address: str | None = None
    watchdog: float | None = None
    send: Callable[[str, bytes], None] = _send
    _failing: bool = field(default=False, init=False)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Notifier:
        """Read ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID``."""
        microseconds = environ.get("WATCHDOG_USEC", "")
        ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watchdog = int(microseconds) / 2_000_000 if microseconds.isdigit() and ours else None
        return cls(environ.get("NOTIFY_SOCKET") or None, watchdog or None)

    def ready(self, status: str) -> None:
        """Notify that requests are answered; ``systemctl status`` shows the ``status``."""
        self._notify(f"READY=1\nSTATUS={status}")

    def status(self, text: str) -> None:
        """Notify what ``systemctl status`` shows from now on."""
        self._notify(f"STATUS={text}")

    def reloading(self) -> None:
        """Notify that the catalogs are being reloaded; ``ready`` follows."""
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}\nSTATUS=reloading")

    def stopping(self) -> None:
        """Notify that the daemon finishes requests in flight and then exits."""
        self._notify("STOPPING=1\nSTATUS=finishing requests in flight")

    def alive(self) -> None:
        """Notify the watchdog."""
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
