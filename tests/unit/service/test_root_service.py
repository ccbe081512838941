"""The root service: start, stop, reload, signals and failures."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from dataapi.service import root_service as root
from dataapi.service.configuration.mistakes import ConfigurationError, Mistake
from dataapi.service.root_service import Notifier, RootService
from dataapi.service.settings_sources import Reconfigure
from dataapi.service.sockets import Descriptor, StartFailed
from dataapi.settings import Settings
from dataapi.telemetry.logs import FORMATS, LineObserver, Redactor
from dataapi.telemetry.metrics import Snapshot
from dataapi.telemetry.readiness import DaemonState, ProjectState, Reloaded
from support.deferreds import outcome
from twisted.application.service import Application, IServiceCollection
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogLevel, capturedLogs


class FakeReactor(Clock):
    """A fake reactor that runs when the test starts it."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self.events = events
        self.begin: list[Callable[[], None]] = []

    def callWhenRunning(self, function: Callable[[], None]) -> None:  # noqa: N802 - IReactorCore
        self.begin.append(function)

    def callFromThread(self, function: Callable[[], None]) -> None:  # noqa: N802 - IReactorFromThreads
        function()

    def stop(self) -> None:
        self.events.append("reactor stop")


class FakeSource:
    """A fake source of settings."""

    settings = Settings(projects=(), listen=(), admin_listen=())

    def __init__(self, events: list[str], prepared: Deferred[Settings]) -> None:
        self.events = events
        self.prepared = prepared
        self.reread_as: Settings | Exception | None = None
        self.failures: dict[str, str] = {}

    async def reread(self) -> Settings | None:
        if isinstance(self.reread_as, Exception):
            raise self.reread_as
        return self.reread_as

    async def reread_database(self, ref: str) -> Settings | None:
        self.events.append(f"reread database of {ref}")
        return await self.reread()

    async def prepare(self) -> Settings:
        self.events.append("prepare")
        return await self.prepared

    def announce(self) -> None:
        self.events.append("announce")

    async def cleanup(self) -> None:
        self.events.append("cleanup")


class FakeServer:
    """A fake server."""

    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.started: Deferred[None] = Deferred()
        self.stopped: Deferred[None] = Deferred()
        self.reloaded: Deferred[None] = succeed(None)
        self.settings: Settings | None = None
        self.served: DaemonState | Exception = DaemonState(())

    async def start(self) -> None:
        self.events.append("server start")
        await self.started

    async def drain(self) -> None:
        self.events.append("server drain")

    async def stop(self) -> None:
        self.events.append("server stop")
        await self.stopped

    async def state(self) -> DaemonState:
        if isinstance(self.served, Exception):
            raise self.served
        return self.served

    async def catalogs(self) -> dict[str, Any]:
        return {}

    async def snapshot(self) -> Snapshot:
        return {}

    async def configure(self, settings: Settings) -> dict[str, str]:
        self.events.append("configure")
        self.settings = settings
        return {}

    async def reload(self, settings: Settings | None = None) -> Reloaded:
        self.events.append("reload")
        self.settings = settings
        await self.reloaded
        return Reloaded({}, {})


class Daemon:
    """A root service with fake dependencies.

    :ivar events: calls of the dependencies and notifications to systemd, in order.
    """

    def __init__(self) -> None:
        self.events: list[str] = []
        self.reactor = FakeReactor(self.events)
        self.prepared: Deferred[Settings] = Deferred()
        self.source = FakeSource(self.events, self.prepared)
        self.server = FakeServer(self.events)
        self.reconfigure: Reconfigure = lambda _: None
        notifier = Notifier("/x", None, lambda _to, text: self.events.append(text.decode().split("\n")[0]))
        self.root = RootService(self.reactor, self.source, self.build, notifier, None)

    def build(
        self, _settings: Settings, _sockets: Sequence[Descriptor], reconfigure: Reconfigure
    ) -> FakeServer:
        self.reconfigure = reconfigure
        self.events.append("build")
        return self.server

    def start(self) -> None:
        self.root.privilegedStartService()
        self.root.startService()
        for function in self.reactor.begin:
            function()


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the statuses with which the process would exit."""
    collected: list[int] = []
    monkeypatch.setattr(root, "_exit_with", lambda status, _reason: collected.append(status))
    return collected


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Restore this process's signal handlers after the test."""
    handlers = {
        number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, *root.RELOAD_SIGNALS)
    }
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_parts_start_in_order_and_readiness_is_reported_last() -> None:
    daemon = Daemon()
    daemon.start()
    assert daemon.events == ["prepare"]
    daemon.prepared.callback(Settings(projects=()))
    assert daemon.events[1:] == ["build", "server start"]
    daemon.server.started.callback(None)
    assert daemon.events[3:] == ["announce", "READY=1"]


def test_deprecated_keys_are_logged_at_start_and_at_reload() -> None:
    daemon = Daemon()
    with capturedLogs() as logged:
        daemon.start()
        daemon.prepared.callback(Settings(projects=(), deprecations=("old: deprecated",)))
        daemon.server.started.callback(None)
        daemon.source.reread_as = Settings(projects=(), deprecations=("older: deprecated",))
        signal.raise_signal(signal.SIGHUP)
    warnings = [event["warning"] for event in logged if event["log_level"] is LogLevel.warn]
    assert warnings == ["old: deprecated", "older: deprecated"]


def test_parts_stop_in_reverse_order() -> None:
    daemon = Daemon()
    daemon.start()
    daemon.prepared.callback(Settings(projects=()))
    daemon.server.started.callback(None)
    daemon.events.clear()
    stopping = daemon.root.stopService()
    assert daemon.events == ["STOPPING=1", "server stop"]
    daemon.server.stopped.callback(None)
    assert daemon.events[2:] == ["cleanup"]
    assert stopping.called


def test_server_keeps_serving_during_the_shutdown_delay() -> None:
    daemon = Daemon()
    daemon.start()
    daemon.prepared.callback(Settings(projects=(), shutdown_delay=5))
    daemon.server.started.callback(None)
    daemon.events.clear()
    daemon.root.stopService()
    daemon.reactor.advance(4.9)
    assert daemon.events == ["STOPPING=1", "server drain"]
    daemon.reactor.advance(0.1)
    assert daemon.events[2:] == ["server stop"]


def test_shutdown_delay_is_skipped_before_the_daemon_serves() -> None:
    daemon = Daemon()
    daemon.start()
    daemon.prepared.callback(Settings(projects=(), shutdown_delay=5))
    daemon.root.stopService()
    assert daemon.events[-1] == "server stop"


@pytest.mark.parametrize(
    ("error", "status"),
    [(StartFailed("no certificate"), os.EX_UNAVAILABLE), (KeyError("inside"), os.EX_SOFTWARE)],
)
def test_failed_start_ends_the_process(statuses: list[int], error: Exception, status: int) -> None:
    daemon = Daemon()
    daemon.start()
    daemon.prepared.errback(error)
    assert statuses == [status]
    assert daemon.events[-1] == "reactor stop"
    assert "READY=1" not in daemon.events


def test_stop_during_the_start_is_not_a_failure(statuses: list[int]) -> None:
    daemon = Daemon()
    daemon.start()
    daemon.prepared.callback(Settings(projects=()))
    stopping = daemon.root.stopService()
    daemon.server.stopped.callback(None)
    assert stopping.called
    assert statuses == []
    assert daemon.events[-2:] == ["server stop", "cleanup"]


def test_cleanup_runs_even_if_the_server_fails_to_stop() -> None:
    daemon = Daemon()
    daemon.start()
    daemon.prepared.callback(Settings(projects=()))
    daemon.server.started.callback(None)
    stopping = daemon.root.stopService()
    daemon.server.stopped.errback(LookupError("stuck"))
    assert stopping.called
    assert daemon.events[-1] == "cleanup"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_reload_signals_reload_and_sigterm_stops(number: signal.Signals) -> None:
    daemon = Daemon()
    daemon.start()
    daemon.prepared.callback(Settings(projects=()))
    daemon.server.started.callback(None)
    daemon.events.clear()
    signal.raise_signal(number)
    assert daemon.events == ["RELOADING=1", "reload", "READY=1"]
    signal.raise_signal(signal.SIGTERM)
    assert daemon.events[3:] == ["reactor stop"]


def test_reload_signal_during_the_start_is_deferred() -> None:
    daemon = Daemon()
    daemon.root.privilegedStartService()
    signal.raise_signal(signal.SIGUSR1)
    daemon.start()
    daemon.prepared.callback(Settings(projects=()))
    signal.raise_signal(signal.SIGUSR1)
    assert "reload" not in daemon.events
    daemon.server.started.callback(None)
    assert daemon.events[-4:] == ["READY=1", "RELOADING=1", "reload", "READY=1"]


def test_signals_during_a_reload_cause_one_more_reload() -> None:
    daemon = Daemon()
    daemon.start()
    daemon.prepared.callback(Settings(projects=()))
    daemon.server.started.callback(None)
    daemon.events.clear()
    slow = daemon.server.reloaded = Deferred()
    for number in root.RELOAD_SIGNALS:
        signal.raise_signal(number)
    assert daemon.events == ["RELOADING=1", "reload"]
    daemon.server.reloaded = succeed(None)
    slow.callback(None)
    assert daemon.events[2:] == ["READY=1", "RELOADING=1", "reload", "READY=1"]


def test_stop_does_not_wait_for_a_reload() -> None:
    daemon = Daemon()
    daemon.start()
    daemon.prepared.callback(Settings(projects=()))
    daemon.server.started.callback(None)
    daemon.server.reloaded = Deferred()
    signal.raise_signal(signal.SIGHUP)
    stopping = daemon.root.stopService()
    daemon.server.stopped.callback(None)
    assert stopping.called
    signal.raise_signal(signal.SIGUSR2)
    assert daemon.events.count("reload") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_second_stop_signal_exits_immediately(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    daemon = Daemon()
    daemon.start()
    daemon.prepared.callback(Settings(projects=()))
    daemon.server.started.callback(None)
    exits: list[int] = []
    monkeypatch.setattr(root, "_exit", exits.append)
    stopping = daemon.root.stopService()
    assert exits == []
    signal.raise_signal(number)
    assert exits == [1]
    daemon.server.stopped.callback(None)
    assert stopping.called


def test_application_has_our_log_observer() -> None:
    """The default of twistd is its own observer."""
    daemon = Daemon()
    observer = LineObserver(print, FORMATS["json"], Redactor())
    service = RootService(daemon.reactor, daemon.source, daemon.build, Notifier(), observer)
    application = Application("dataapi")
    service.setServiceParent(application)
    assert application.getComponent(ILogObserver) is observer
    assert list(IServiceCollection(application)) == [service]


def test_failed_notifications_to_systemd_are_ignored() -> None:
    events: list[str] = []
    reachable = False

    def send(_to: str, text: bytes) -> None:
        if not reachable:
            raise ConnectionRefusedError
        events.append(text.decode().split("\n")[0])

    daemon = Daemon()
    daemon.root = RootService(daemon.reactor, daemon.source, daemon.build, Notifier("/x", 5.0, send), None)
    daemon.start()
    daemon.prepared.callback(Settings(projects=()))
    daemon.server.started.callback(None)
    daemon.reactor.pump([5, 5])
    assert "reactor stop" not in daemon.events
    reachable = True
    daemon.reactor.pump([5])
    assert "WATCHDOG=1" in events
    daemon.server.served = RuntimeError("no state")
    daemon.reactor.pump([root.STATUS_INTERVAL])
    daemon.server.served = DaemonState((), starting=True)
    daemon.reactor.pump([root.STATUS_INTERVAL])
    assert events[-1].startswith("STATUS=")
    daemon.server.stopped.callback(None)
    stopping: Any = daemon.root.stopService()
    assert stopping.called
    assert daemon.reactor.getDelayedCalls() == []


def test_watchdog_is_notified_at_its_interval() -> None:
    events: list[str] = []
    daemon = Daemon()
    notifier = Notifier("/x", 5.0, lambda _to, text: events.append(text.decode().split("\n")[0]))
    daemon.root = RootService(daemon.reactor, daemon.source, daemon.build, notifier, None)
    daemon.start()
    daemon.reactor.pump([5, 5])
    assert events == ["WATCHDOG=1"] * 3
    daemon.prepared.callback(Settings(projects=()))
    daemon.server.started.callback(None)
    daemon.server.stopped.callback(None)
    stopping: Any = daemon.root.stopService()
    assert stopping.called
    assert daemon.reactor.getDelayedCalls() == []


def test_status_is_updated_within_two_seconds() -> None:
    daemon = Daemon()
    daemon.root = RootService(
        daemon.reactor, daemon.source, daemon.build,
        Notifier("/x", None, lambda _to, text: daemon.events.append(text.decode().split("\n")[-1])), None,
    )  # fmt: skip
    serving(daemon, Settings(projects=()))
    daemon.server.served = DaemonState(
        (ProjectState("a" * 20, False, 1, reason="the database cannot be reached"),)
    )
    daemon.reactor.pump([0.5] * 4)
    assert daemon.events == ["STATUS=not ready; aaaaaaaaaaaaaaaaaaaa: the database cannot be reached"]
    daemon.server.served = DaemonState((ProjectState("a" * 20, True, 1),))
    daemon.reactor.pump([0.5] * 4)
    assert daemon.events[1:] == ["STATUS=serving"]
    daemon.source.reread_as = ConfigurationError([Mistake("dataapi.ini", "it is wrong")])
    signal.raise_signal(signal.SIGHUP)
    daemon.server.served = DaemonState((ProjectState("a" * 20, True, 1, standby=True),))
    daemon.reactor.pump([0.5] * 4)
    assert daemon.events[-1] == "STATUS=serving reads; the last reload failed"
    daemon.server.stopped.callback(None)
    daemon.root.stopService()
    assert daemon.reactor.getDelayedCalls() == []


def serving(daemon: Daemon, settings: Settings) -> Daemon:
    """Start a daemon and provide these settings."""
    daemon.start()
    daemon.prepared.callback(settings)
    daemon.server.started.callback(None)
    daemon.events.clear()
    return daemon


def test_reload_signal_applies_the_new_configuration() -> None:
    daemon = serving(Daemon(), Settings(projects=(), listen=("tcp:1",), workers=2))
    daemon.source.reread_as = Settings(projects=(), listen=("tcp:9",), workers=3, log_level="debug")
    signal.raise_signal(signal.SIGHUP)
    assert daemon.server.settings == Settings(projects=(), listen=("tcp:1",), workers=2, log_level="debug")
    assert daemon.events == ["RELOADING=1", "reload", "READY=1"]


def test_invalid_configuration_is_not_applied() -> None:
    daemon = serving(Daemon(), Settings(projects=()))
    daemon.source.reread_as = ConfigurationError([Mistake("x.ini", "expected more", "project", "db-pool")])
    signal.raise_signal(signal.SIGHUP)
    assert daemon.server.settings is None
    assert daemon.events == ["RELOADING=1", "reload", "READY=1"]


def test_reread_of_one_project_does_not_reload_others() -> None:
    daemon = serving(Daemon(), Settings(projects=()))
    daemon.source.reread_as = Settings(projects=(), log_level="debug")
    daemon.reconfigure("p")
    assert daemon.events == ["reread database of p", "configure"]
    assert daemon.server.settings == Settings(projects=(), log_level="debug")
    daemon.reconfigure("p")
    assert daemon.events[2:] == ["reread database of p"]


def test_reread_of_a_database_waits_for_a_reload() -> None:
    daemon = serving(Daemon(), Settings(projects=()))
    daemon.server.reloaded = reloaded = Deferred[None]()
    signal.raise_signal(signal.SIGHUP)
    daemon.reconfigure("p")
    assert daemon.events == ["RELOADING=1", "reload"]
    reloaded.callback(None)
    assert daemon.events == ["RELOADING=1", "reload", "READY=1", "reread database of p"]


def test_reload_reports_projects_with_invalid_settings() -> None:
    daemon = serving(Daemon(), Settings(projects=()))
    daemon.source.failures = {"p": "the settings in the database cannot be used"}
    reloaded = outcome(daemon.root._reload())
    assert reloaded.failures == {"p": "the settings in the database cannot be used"}
