"""The root service: its order of starting and stopping, and how it fails."""

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
from twisted.logger import ILogObserver


class Machine(Clock):
    """A reactor that runs when told to."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self.events = events
        self.begin: list[Callable[[], None]] = []

    def callWhenRunning(self, function: Callable[[], None]) -> None:  # noqa: N802 - IReactorCore
        self.begin.append(function)

    def callFromThread(self, function: Callable[[], None]) -> None:  # noqa: N802 - IReactorFromThreads
        """Call it now."""
        function()

    def stop(self) -> None:
        """Note it."""
        self.events.append("reactor stop")


class Source:
    """Settings on paper."""

    settings = Settings(projects=(), listen=(), admin_listen=())

    def __init__(self, events: list[str], prepared: Deferred[Settings]) -> None:
        self.events = events
        self.prepared = prepared
        self.reread_as: Settings | Exception | None = None
        self.failures: dict[str, str] = {}

    async def reread(self) -> Settings | None:
        """Give what the configuration has become."""
        if isinstance(self.reread_as, Exception):
            raise self.reread_as
        return self.reread_as

    async def reread_database(self, ref: str) -> Settings | None:
        """Give what the configuration has become."""
        self.events.append(f"reread database of {ref}")
        return await self.reread()

    async def prepare(self) -> Settings:
        """Prepare when told to."""
        self.events.append("prepare")
        return await self.prepared

    def announce(self) -> None:
        """Note it."""
        self.events.append("announce")

    async def cleanup(self) -> None:
        """Note it."""
        self.events.append("cleanup")


class Server:
    """What serves, on paper."""

    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.started: Deferred[None] = Deferred()
        self.stopped: Deferred[None] = Deferred()
        self.reloaded: Deferred[None] = succeed(None)
        self.settings: Settings | None = None
        self.served: DaemonState | Exception = DaemonState(())

    async def start(self) -> None:
        """Start when told to."""
        self.events.append("server start")
        await self.started

    async def drain(self) -> None:
        """Note it."""
        self.events.append("server drain")

    async def stop(self) -> None:
        """Stop when told to."""
        self.events.append("server stop")
        await self.stopped

    async def state(self) -> DaemonState:
        if isinstance(self.served, Exception):
            raise self.served
        return self.served

    async def catalogs(self) -> dict[str, Any]:
        """Have no catalog."""
        return {}

    async def snapshot(self) -> Snapshot:
        """Have no figures."""
        return {}

    async def configure(self, settings: Settings) -> dict[str, str]:
        """Note it."""
        self.events.append("configure")
        self.settings = settings
        return {}

    async def reload(self, settings: Settings | None = None) -> Reloaded:
        """Note it."""
        self.events.append("reload")
        self.settings = settings
        await self.reloaded
        return Reloaded({}, {})


class Daemon:
    """A root service with everything about it on paper.

    :ivar events: what happened, notifications to the manager among it.
    """

    def __init__(self) -> None:
        self.events: list[str] = []
        self.machine = Machine(self.events)
        self.prepared: Deferred[Settings] = Deferred()
        self.source = Source(self.events, self.prepared)
        self.server = Server(self.events)
        self.reconfigure: Reconfigure = lambda _: None
        notifier = Notifier("/x", None, lambda _to, text: self.events.append(text.decode().split("\n")[0]))
        self.root = RootService(self.machine, self.source, self.build, notifier, None)

    def build(self, _settings: Settings, _sockets: Sequence[Descriptor], reconfigure: Reconfigure) -> Server:
        """Give the server on paper."""
        self.reconfigure = reconfigure
        self.events.append("build")
        return self.server

    def start(self) -> None:
        """Start as twistd does."""
        self.root.privilegedStartService()
        self.root.startService()
        for function in self.machine.begin:
            function()


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect what the process would exit with."""
    collected: list[int] = []
    monkeypatch.setattr(root, "_exit_with", lambda status, _reason: collected.append(status))
    return collected


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Keep this process's own signal handlers."""
    kept = {
        number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, *root.RELOAD_SIGNALS)
    }
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_parts_start_in_order_and_readiness_is_reported_last() -> None:
    daemon = Daemon()
    daemon.start()
    assert daemon.events == ["prepare"]
    daemon.prepared.callback(Settings(projects=()))
    assert daemon.events[1:] == ["build", "server start"]
    daemon.server.started.callback(None)
    assert daemon.events[3:] == ["announce", "READY=1"]


def test_parts_stop_in_reverse_and_are_waited_for() -> None:
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


def test_answers_go_on_for_the_delay_before_the_parts_stop() -> None:
    daemon = Daemon()
    daemon.start()
    daemon.prepared.callback(Settings(projects=(), shutdown_delay=5))
    daemon.server.started.callback(None)
    daemon.events.clear()
    daemon.root.stopService()
    daemon.machine.advance(4.9)
    assert daemon.events == ["STOPPING=1", "server drain"]
    daemon.machine.advance(0.1)
    assert daemon.events[2:] == ["server stop"]


def test_nothing_is_waited_for_before_the_daemon_serves() -> None:
    daemon = Daemon()
    daemon.start()
    daemon.prepared.callback(Settings(projects=(), shutdown_delay=5))
    daemon.root.stopService()
    assert daemon.events[-1] == "server stop"


@pytest.mark.parametrize(
    ("error", "status"),
    [(StartFailed("no certificate"), os.EX_UNAVAILABLE), (KeyError("inside"), os.EX_SOFTWARE)],
)
def test_a_failed_start_ends_the_process(statuses: list[int], error: Exception, status: int) -> None:
    daemon = Daemon()
    daemon.start()
    daemon.prepared.errback(error)
    assert statuses == [status]
    assert daemon.events[-1] == "reactor stop"
    assert "READY=1" not in daemon.events


def test_stopping_while_starting_is_no_failure(statuses: list[int]) -> None:
    """A stop before the start is over ends what began, with status 0."""
    daemon = Daemon()
    daemon.start()
    daemon.prepared.callback(Settings(projects=()))
    stopping = daemon.root.stopService()
    daemon.server.stopped.callback(None)
    assert stopping.called
    assert statuses == []
    assert daemon.events[-2:] == ["server stop", "cleanup"]


def test_a_part_that_fails_to_stop_does_not_keep_the_others() -> None:
    """The database of our own is stopped although what serves could not."""
    daemon = Daemon()
    daemon.start()
    daemon.prepared.callback(Settings(projects=()))
    daemon.server.started.callback(None)
    stopping = daemon.root.stopService()
    daemon.server.stopped.errback(LookupError("stuck"))
    assert stopping.called
    assert daemon.events[-1] == "cleanup"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_signals_mean_what_operators_expect(number: signal.Signals) -> None:
    """Each signal that asks for a reload does it between RELOADING and READY; SIGTERM stops."""
    daemon = Daemon()
    daemon.start()
    daemon.prepared.callback(Settings(projects=()))
    daemon.server.started.callback(None)
    daemon.events.clear()
    signal.raise_signal(number)
    assert daemon.events == ["RELOADING=1", "reload", "READY=1"]
    signal.raise_signal(signal.SIGTERM)
    assert daemon.events[3:] == ["reactor stop"]


def test_a_signal_during_the_start_reloads_once_it_is_over() -> None:
    daemon = Daemon()
    daemon.root.privilegedStartService()
    signal.raise_signal(signal.SIGUSR1)
    daemon.start()
    daemon.prepared.callback(Settings(projects=()))
    signal.raise_signal(signal.SIGUSR1)
    assert "reload" not in daemon.events
    daemon.server.started.callback(None)
    assert daemon.events[-4:] == ["READY=1", "RELOADING=1", "reload", "READY=1"]


def test_signals_during_a_reload_make_one_more() -> None:
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


def test_a_stop_does_not_wait_for_a_reload() -> None:
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
def test_who_asks_twice_does_not_wait(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    daemon = Daemon()
    daemon.start()
    daemon.prepared.callback(Settings(projects=()))
    daemon.server.started.callback(None)
    left: list[int] = []
    monkeypatch.setattr(root, "_exit", left.append)
    stopping = daemon.root.stopService()
    assert left == []
    signal.raise_signal(number)
    assert left == [1]
    daemon.server.stopped.callback(None)
    assert stopping.called


def test_twistd_is_given_our_log_observer() -> None:
    """The application carries our observer, so that twistd starts it in place of its own."""
    daemon = Daemon()
    observer = LineObserver(print, FORMATS["json"], Redactor())
    service = RootService(daemon.machine, daemon.source, daemon.build, Notifier(), observer)
    application = Application("dataapi")
    service.setServiceParent(application)
    assert application.getComponent(ILogObserver) is observer
    assert list(IServiceCollection(application)) == [service]


def test_messages_to_systemd_that_fail_end_nothing() -> None:
    events: list[str] = []
    reachable = False

    def send(_to: str, text: bytes) -> None:
        if not reachable:
            raise ConnectionRefusedError
        events.append(text.decode().split("\n")[0])

    daemon = Daemon()
    daemon.root = RootService(daemon.machine, daemon.source, daemon.build, Notifier("/x", 5.0, send), None)
    daemon.start()
    daemon.prepared.callback(Settings(projects=()))
    daemon.server.started.callback(None)
    daemon.machine.pump([5, 5])
    assert "reactor stop" not in daemon.events
    reachable = True
    daemon.machine.pump([5])
    assert "WATCHDOG=1" in events
    daemon.server.served = RuntimeError("no state")
    daemon.machine.pump([root.STATUS_INTERVAL])
    daemon.server.served = DaemonState((), starting=True)
    daemon.machine.pump([root.STATUS_INTERVAL])
    assert events[-1].startswith("STATUS=")
    daemon.server.stopped.callback(None)
    stopping: Any = daemon.root.stopService()
    assert stopping.called
    assert daemon.machine.getDelayedCalls() == []


def test_the_watchdog_is_patted_by_the_running_reactor() -> None:
    """Signs of life are given as often as the manager wants them, until the end."""
    events: list[str] = []
    daemon = Daemon()
    notifier = Notifier("/x", 5.0, lambda _to, text: events.append(text.decode().split("\n")[0]))
    daemon.root = RootService(daemon.machine, daemon.source, daemon.build, notifier, None)
    daemon.start()
    daemon.machine.pump([5, 5])
    assert events == ["WATCHDOG=1"] * 3
    daemon.prepared.callback(Settings(projects=()))
    daemon.server.started.callback(None)
    daemon.server.stopped.callback(None)
    stopping: Any = daemon.root.stopService()
    assert stopping.called
    assert daemon.machine.getDelayedCalls() == []


def test_the_status_follows_the_database_within_two_seconds() -> None:
    daemon = Daemon()
    daemon.root = RootService(
        daemon.machine, daemon.source, daemon.build,
        Notifier("/x", None, lambda _to, text: daemon.events.append(text.decode().split("\n")[-1])), None,
    )  # fmt: skip
    serving(daemon, Settings(projects=()))
    daemon.server.served = DaemonState(
        (ProjectState("a" * 20, False, 1, reason="the database cannot be reached"),)
    )
    daemon.machine.pump([0.5] * 4)
    assert daemon.events == ["STATUS=not ready; aaaaaaaaaaaaaaaaaaaa: the database cannot be reached"]
    daemon.server.served = DaemonState((ProjectState("a" * 20, True, 1),))
    daemon.machine.pump([0.5] * 4)
    assert daemon.events[1:] == ["STATUS=serving"]
    daemon.source.reread_as = ConfigurationError([Mistake("dataapi.ini", "it is wrong")])
    signal.raise_signal(signal.SIGHUP)
    daemon.server.served = DaemonState((ProjectState("a" * 20, True, 1, standby=True),))
    daemon.machine.pump([0.5] * 4)
    assert daemon.events[-1] == "STATUS=serving reads; the last reload failed"
    daemon.server.stopped.callback(None)
    daemon.root.stopService()
    assert daemon.machine.getDelayedCalls() == []


def serving(daemon: Daemon, settings: Settings) -> Daemon:
    """Start a daemon with settings."""
    daemon.start()
    daemon.prepared.callback(settings)
    daemon.server.started.callback(None)
    daemon.events.clear()
    return daemon


def test_a_signal_reads_the_configuration_again() -> None:
    daemon = serving(Daemon(), Settings(projects=(), listen=("tcp:1",), workers=2))
    daemon.source.reread_as = Settings(projects=(), listen=("tcp:9",), workers=3, log_level="debug")
    signal.raise_signal(signal.SIGHUP)
    assert daemon.server.settings == Settings(projects=(), listen=("tcp:1",), workers=2, log_level="debug")
    assert daemon.events == ["RELOADING=1", "reload", "READY=1"]


def test_a_mistake_in_the_configuration_keeps_the_settings() -> None:
    daemon = serving(Daemon(), Settings(projects=()))
    daemon.source.reread_as = ConfigurationError([Mistake("x.ini", "expected more", "project", "db-pool")])
    signal.raise_signal(signal.SIGHUP)
    assert daemon.server.settings is None
    assert daemon.events == ["RELOADING=1", "reload", "READY=1"]


def test_a_project_that_lacks_its_settings_reloads_no_other() -> None:
    daemon = serving(Daemon(), Settings(projects=()))
    daemon.source.reread_as = Settings(projects=(), log_level="debug")
    daemon.reconfigure("p")
    assert daemon.events == ["reread database of p", "configure"]
    assert daemon.server.settings == Settings(projects=(), log_level="debug")
    daemon.reconfigure("p")
    assert daemon.events[2:] == ["reread database of p"]


def test_a_database_is_read_again_when_the_reload_is_over() -> None:
    daemon = serving(Daemon(), Settings(projects=()))
    daemon.server.reloaded = reloaded = Deferred[None]()
    signal.raise_signal(signal.SIGHUP)
    daemon.reconfigure("p")
    assert daemon.events == ["RELOADING=1", "reload"]
    reloaded.callback(None)
    assert daemon.events == ["RELOADING=1", "reload", "READY=1", "reread database of p"]


def test_the_outcome_of_a_reload_names_projects_whose_settings_are_not_used() -> None:
    daemon = serving(Daemon(), Settings(projects=()))
    daemon.source.failures = {"p": "the settings in the database cannot be used"}
    reloaded = outcome(daemon.root._reload())
    assert reloaded.failures == {"p": "the settings in the database cannot be used"}
