"""Global fixtures: a PostgreSQL server, a time limit and a clean reactor."""

from __future__ import annotations

import faulthandler
import functools
import gc
import inspect
import itertools
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
import pytest_twisted
from hypothesis import HealthCheck, settings
from support import costs, line_probes, processes, skips
from support.pooler import THROUGH_POOLER, pooled_if_enabled
from support.postgres import Database, Server
from support.receiver import World
from support.unqualified import WATCH
from twisted.internet import defer, task
from twisted.logger import LogEvent, globalLogPublisher

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator
    from pathlib import Path

    Test = Callable[..., Coroutine[Any, Any, None]]

# Examples of a test share its function-scoped fixtures, and only the test's time limit applies.
settings.register_profile(
    "default", deadline=None, suppress_health_check=list(HealthCheck), max_examples=25, derandomize=True
)
# `make campaign` searches for rare values, with different ones each time.
settings.register_profile("campaign", settings.get_profile("default"), max_examples=500, derandomize=False)
settings.load_profile("default")

TIME_LIMIT = 300.0
"""Time limit of a test in seconds, unless it has ``@pytest.mark.time_limit(seconds)``.

It detects hanging tests, not slow ones, and suits machines that are ten times slower. It cancels an ``async
def`` test. After twice the time it interrupts blocking code. After three times it ends the whole process and
all processes that it started.
"""

_SETTLE = 60.0
"""Maximum time for a test's connections and timers to end after the test, in seconds."""

_STANDARD_ERROR = pytest.StashKey[int]()
_FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that puts a pooler in front of PostgreSQL."""
    parser.addoption(
        THROUGH_POOLER,
        action="store_true",
        help="connect to PostgreSQL through PgBouncer in transaction mode"
        " (PGBOUNCER sets the program; default: the installed one)",
    )
    parser.addoption(costs.OPTION, metavar="FILE", help="write the processor time of each test to a file")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers, duplicate the uncaptured standard error, and report skipped tests."""
    config.pluginmanager.register(skips)
    if file := config.getoption(costs.OPTION):
        config.pluginmanager.register(costs.Costs(file))
    config.addinivalue_line("markers", "time_limit(seconds): time limit of the test.")
    config.addinivalue_line("markers", "campaign: random test, longer in `make campaign`.")
    config.addinivalue_line("markers", "own_sql: sends its own SQL with unqualified names.")
    config.addinivalue_line("markers", "empty_database: begins before the migrations of webhooks.")
    config.addinivalue_line("markers", "direct(reason): proves nothing through a pooler in transaction mode.")
    config.stash[_STANDARD_ERROR] = os.dup(2)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A background shell command ignores SIGINT, and its daemons would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude existing objects from garbage collection. They took a third of its time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Store the data for combining coverage."""
    line_probes.hand_over()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the process with a traceback when a test or its fixtures exceed all other limits."""
    limit = _time_limit(item) * 3
    faulthandler.dump_traceback_later(limit, exit=True, file=item.config.stash[_STANDARD_ERROR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell fixtures whether the test failed."""
    report = yield
    item.stash[_FAILED] = report.failed
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests, limit the time of ``async def`` tests, and skip tests unsuitable for a pooler."""
    items[:] = _spread(items)
    for item in items:
        direct = item.get_closest_marker("direct")
        if direct is not None and config.getoption(THROUGH_POOLER):
            item.add_marker(pytest.mark.skip(reason=f"through a pooler: {direct.args[0]}"))
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = _limited(item.obj, _time_limit(item))


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """Spread the modules of tests/run among the others, because they mostly wait for daemons."""
    modules = [list(module) for _, module in itertools.groupby(items, key=lambda item: item.path)]
    waiting = [module for module in modules if module[0].path.parent.name == "run"]
    others = [module for module in modules if module[0].path.parent.name != "run"]
    positions = [
        ((number + 0.5) / len(kind), module)
        for kind in (waiting, others)
        for number, module in enumerate(kind)
    ]
    positions.sort(key=lambda position: position[0])
    return [item for _, module in positions for item in module]


def _time_limit(item: pytest.Item) -> float:
    marker = item.get_closest_marker("time_limit")
    return float(marker.args[0]) if marker else TIME_LIMIT


def _limited(test: Test, seconds: float) -> Test:
    @functools.wraps(test)
    async def run(*arguments: Any, **named: Any) -> None:
        # pytest-twisted chooses the reactor, so it must not be imported before a test runs.
        from twisted.internet import reactor  # noqa: PLC0415

        deferred: defer.Deferred[None] = defer.Deferred.fromCoroutine(test(*arguments, **named))
        await deferred.addTimeout(seconds, reactor)

    return run


@pytest.fixture(scope="session")
def reactor() -> Any:
    """Return the reactor installed by pytest-twisted."""
    from twisted.internet import reactor as installed  # noqa: PLC0415 - see above

    return installed


@pytest.fixture(autouse=True)
def _time_limit_of_blocking_code(request: pytest.FixtureRequest) -> Iterator[None]:
    """Interrupt tests that block. A Deferred's timeout cannot, because the reactor does not run."""

    def expired(_number: int, _frame: object) -> None:
        raise TimeoutError(f"{request.node.nodeid} blocks for too long")

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, _time_limit(request.node) * 2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session", autouse=True)
def _processes_of_the_run() -> Iterator[None]:
    """End all processes of the run, even if the run is killed."""
    with processes.watched():
        processes.mark()
        yield


@pytest.fixture(autouse=True)
def _processes_of_the_test(request: pytest.FixtureRequest, _processes_of_the_run: None) -> Iterator[None]:
    """End the processes that a test leaves running, and fail the test."""
    older = processes.present()
    mark = processes.mark(f"{request.node.nodeid}.")
    yield
    processes.mark()
    failed = request.node.stash.get(_FAILED, False)
    assert processes.settle(mark, 0 if failed else processes.SETTLE, older) == [], (
        "the test left these processes running"
    )


@pytest.fixture(scope="session", autouse=True)
def _sql_is_read() -> Iterator[None]:
    """Check all SQL that the daemon sends in this process."""
    with WATCH.reading():
        yield


@pytest.fixture(autouse=True)
def _sql_is_qualified(request: pytest.FixtureRequest, _sql_is_read: None) -> Iterator[None]:
    """Fail a test that sends unqualified operators or functions, because they depend on the search path.

    Tests of the database layer send SQL of their own.
    """
    WATCH.taken()
    yield
    found = WATCH.taken()
    if "database" not in request.path.parts and request.node.get_closest_marker("own_sql") is None:
        assert found == [], "SQL of the daemon names these without their schema"


def _in_use(reactor: Any) -> list[object]:
    """Return the reactor's timers and sockets, except internal ones."""
    descriptors = [*reactor.getReaders(), *reactor.getWriters()]
    own = ("twisted.internet._signals", "twisted.internet.posixbase")
    foreign = [each for each in descriptors if type(each).__module__ not in own]
    return [*(timer for timer in reactor.getDelayedCalls() if not _is_of_an_empty_queue(timer)), *foreign]


def _is_of_an_empty_queue(timer: Any) -> bool:
    """Whether a timer belongs to an empty wait queue, where it stays until it fires."""
    queue: Any = getattr(timer.func, "__self__", None)
    return type(queue).__module__ == "dataapi.concurrency.wait_queue" and not queue.waiting


def _is_connection(each: object) -> bool:
    """Whether a reader or writer is a database connection."""
    return type(each).__module__ in ("dataapi.database.connection", "dataapi.database.polling")


@pytest.fixture(autouse=True)
def _clean_reactor(reactor: Any) -> Iterator[None]:
    """Fail a test that leaves timers, sockets or unhandled failures behind."""
    failures: list[str] = []
    before = _in_use(reactor)

    def left_over() -> list[object]:
        """Return new objects. A pool that outlives the test may have replaced a connection."""
        now = _in_use(reactor)
        new = [each for each in now if each not in before]
        gone = [each for each in before if each not in now and _is_connection(each)]
        replaced = [each for each in new if _is_connection(each)][: len(gone)]
        return [each for each in new if each not in replaced]

    def unhandled(event: LogEvent) -> None:
        if event.get("log_namespace") == "twisted.internet.defer" and "log_failure" in event:
            failures.append(event["log_failure"].getTraceback())

    globalLogPublisher.addObserver(unhandled)  # type: ignore[arg-type]
    yield
    try:
        waited = 0.0
        while left_over() and waited < _SETTLE:
            pytest_twisted.blockon(task.deferLater(reactor, 0.02))
            waited += 0.02
    finally:
        globalLogPublisher.removeObserver(unhandled)  # type: ignore[arg-type]
    assert left_over() == [], "the test leaves these in the reactor"
    assert not failures, "\n".join(failures)


def _npm_folder(name: str) -> Callable[..., Path]:
    """Return a fixture with a directory for npm packages that is cached between runs."""

    @pytest.fixture
    def folder(pytestconfig: pytest.Config) -> Path:
        assert pytestconfig.cache is not None
        return pytestconfig.cache.mkdir(name)

    return folder


npm_bundler = _npm_folder("rolldown")
npm_audit = _npm_folder("graphql-http")
npm_clients = _npm_folder("npm-clients")
npm_agents = _npm_folder("npm-agents")
npm_generators = _npm_folder("npm-generators")


@pytest.fixture
def world(reactor: Any) -> Iterator[World]:
    """Yield a factory of webhook receivers and senders."""
    created = World(reactor)
    yield created
    created.end()


@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """Yield a PostgreSQL cluster with the API's roles for the whole session."""
    running = Server()
    try:
        running.create()
        with pooled_if_enabled(pytestconfig, running):
            yield running
    finally:
        running.remove()


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    """Yield an empty database for one test."""
    created = server.create_database()
    yield created
    server.drop_database(created)


@pytest.fixture(scope="session")
def chinook(server: Server) -> Database:
    """Return the Chinook sample shared by the session. Tests must not change it.

    ``server.create_chinook()`` creates a private copy.
    """
    return server.create_chinook()
