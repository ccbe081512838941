"""Fixtures that every test shares: a PostgreSQL of their own, a time limit and a clean reactor."""

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
from support.pooler import THROUGH_POOLER, pooled_if_asked
from support.postgres import Database, Server
from support.receiver import World
from support.unqualified import WATCH
from twisted.internet import defer, task
from twisted.logger import LogEvent, globalLogPublisher

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator
    from pathlib import Path

    Test = Callable[..., Coroutine[Any, Any, None]]

# A test of many examples may use a fixture of the whole test, and is limited by the time limit below alone.
settings.register_profile(
    "default", deadline=None, suppress_health_check=list(HealthCheck), max_examples=25, derandomize=True
)
# `make campaign` looks for rare values, other ones each time.
settings.register_profile("campaign", settings.get_profile("default"), max_examples=500, derandomize=False)
settings.load_profile("default")

TIME_LIMIT = 300.0
"""Seconds after which a test is thought to hang; ``@pytest.mark.time_limit(seconds)`` says otherwise.

It is no measure of speed: a test that passes on one machine passes on another that is ten times slower.
An ``async def`` test is cancelled then, after twice the time whatever blocks is interrupted, and after three
times the whole process ends, which ends what it started.
"""

_SETTLE = 60.0
"""Seconds that a test's connections and timers get to go away after it ended."""

_STANDARD_ERROR = pytest.StashKey[int]()
_FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch that puts a pooler before PostgreSQL."""
    parser.addoption(
        THROUGH_POOLER,
        action="store_true",
        help="let what is tested reach PostgreSQL through PgBouncer in transaction mode, whose program"
        " the variable PGBOUNCER names if it is not the machine's",
    )
    parser.addoption(costs.OPTION, metavar="FILE", help="write the processor time of each test to a file")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers, keep standard error as it is uncaptured, and have skipped tests explained."""
    config.pluginmanager.register(skips)
    if file := config.getoption(costs.OPTION):
        config.pluginmanager.register(costs.Costs(file))
    config.addinivalue_line("markers", "time_limit(seconds): when this test is thought to hang.")
    config.addinivalue_line("markers", "campaign: random, and longer in `make campaign`.")
    config.addinivalue_line("markers", "own_sql: sends SQL of its own, which names no schemas.")
    config.addinivalue_line("markers", "direct(reason): means nothing through a pooler in transaction mode.")
    config.stash[_STANDARD_ERROR] = os.dup(2)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Of a shell's command in the background, whose daemons under test would ignore Ctrl-C, too.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage in what tests make alone: a third of the collection's time went into what stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Keep what the coverage of the run is made of."""
    line_probes.hand_over()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the process, saying where it was, when a test or its fixtures are beyond all other limits."""
    limit = _time_limit(item) * 3
    faulthandler.dump_traceback_later(limit, exit=True, file=item.config.stash[_STANDARD_ERROR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let the fixtures know of a failure."""
    report = yield
    item.stash[_FAILED] = report.failed
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests, limit the time of ``async def`` ones, and skip those that a pooler cannot serve."""
    items[:] = _spread(items)
    for item in items:
        direct = item.get_closest_marker("direct")
        if direct is not None and config.getoption(THROUGH_POOLER):
            item.add_marker(pytest.mark.skip(reason=f"through a pooler: {direct.args[0]}"))
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = _limited(item.obj, _time_limit(item))


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """Spread the modules of tests/run among the others: they wait, for daemons, while the others compute."""
    modules = [list(module) for _, module in itertools.groupby(items, key=lambda item: item.path)]
    waiting = [module for module in modules if module[0].path.parent.name == "run"]
    others = [module for module in modules if module[0].path.parent.name != "run"]
    places = [
        ((number + 0.5) / len(kind), module)
        for kind in (waiting, others)
        for number, module in enumerate(kind)
    ]
    places.sort(key=lambda place: place[0])
    return [item for _, module in places for item in module]


def _time_limit(item: pytest.Item) -> float:
    marker = item.get_closest_marker("time_limit")
    return float(marker.args[0]) if marker else TIME_LIMIT


def _limited(test: Test, seconds: float) -> Test:
    @functools.wraps(test)
    async def run(*arguments: Any, **named: Any) -> None:
        # pytest-twisted chooses the reactor, so it is not imported before a test runs.
        from twisted.internet import reactor  # noqa: PLC0415

        deferred: defer.Deferred[None] = defer.Deferred.fromCoroutine(test(*arguments, **named))
        await deferred.addTimeout(seconds, reactor)

    return run


@pytest.fixture(scope="session")
def reactor() -> Any:
    """Give the reactor that pytest-twisted installed."""
    from twisted.internet import reactor as installed  # noqa: PLC0415 - see above

    return installed


@pytest.fixture(autouse=True)
def _time_limit_of_blocking_code(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that blocks: code that never returns to the reactor is beyond a Deferred's time-out."""

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
    """Let no process outlive the run, even if that is killed."""
    with processes.watched():
        processes.mark()
        yield


@pytest.fixture(autouse=True)
def _processes_of_the_test(request: pytest.FixtureRequest, _processes_of_the_run: None) -> Iterator[None]:
    """End the processes that a test leaves, and fail it for them."""
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
    """Read all SQL that the daemon sends in this process."""
    with WATCH.reading():
        yield


@pytest.fixture(autouse=True)
def _sql_is_qualified(request: pytest.FixtureRequest, _sql_is_read: None) -> Iterator[None]:
    """Fail a test in which SQL was sent that leaves PostgreSQL to look in the search path for an operator.

    The tests of the database's own layer send SQL of their own.
    """
    WATCH.taken()
    yield
    found = WATCH.taken()
    if "database" not in request.path.parts and request.node.get_closest_marker("own_sql") is None:
        assert found == [], "SQL of the daemon names these without their schema"


def _in_use(reactor: Any) -> list[object]:
    """Return the reactor's timers and sockets, without those that it opened for itself."""
    descriptors = [*reactor.getReaders(), *reactor.getWriters()]
    own = ("twisted.internet._signals", "twisted.internet.posixbase")
    foreign = [one for one in descriptors if type(one).__module__ not in own]
    return [*(timer for timer in reactor.getDelayedCalls() if not _is_of_an_empty_queue(timer)), *foreign]


def _is_of_an_empty_queue(timer: Any) -> bool:
    """Return whether a timer is that of a queue in which nothing waits, which keeps it until it is over."""
    queue: Any = getattr(timer.func, "__self__", None)
    return type(queue).__module__ == "dataapi.concurrency.wait_queue" and not queue.waiting


def _is_connection(one: object) -> bool:
    """Tell whether what is in the reactor is a connection to a database."""
    return type(one).__module__ in ("dataapi.database.connection", "dataapi.database.polling")


@pytest.fixture(autouse=True)
def _clean_reactor(reactor: Any) -> Iterator[None]:
    """Fail a test that leaves timers or sockets in the reactor, or a failure that nobody handled."""
    failures: list[str] = []
    before = _in_use(reactor)

    def left_over() -> list[object]:
        """Return what is new; a pool that outlives the test may have made a connection in another's place."""
        now = _in_use(reactor)
        new = [one for one in now if one not in before]
        gone = [one for one in before if one not in now and _is_connection(one)]
        in_place = [one for one in new if _is_connection(one)][: len(gone)]
        return [one for one in new if one not in in_place]

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


def _kept(config: pytest.Config, name: str) -> Path:
    """Return a directory that outlives the run, for npm packages."""
    assert config.cache is not None
    return config.cache.mkdir(name)


@pytest.fixture
def world(reactor: Any) -> Iterator[World]:
    """Yield what makes receivers of webhooks and senders, and ends them."""
    made = World(reactor)
    yield made
    made.end()


@pytest.fixture
def npm_bundler(pytestconfig: pytest.Config) -> Path:
    """Return the directory of the npm package that bundles TypeScript."""
    return _kept(pytestconfig, "rolldown")


@pytest.fixture
def npm_audit(pytestconfig: pytest.Config) -> Path:
    """Return the directory of the npm packages that audit GraphQL over HTTP."""
    return _kept(pytestconfig, "graphql-http")


@pytest.fixture
def npm_clients(pytestconfig: pytest.Config) -> Path:
    """Return the directory of the npm packages that are clients of the APIs."""
    return _kept(pytestconfig, "npm-clients")


@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """Yield a PostgreSQL cluster for the whole session, with the API's roles."""
    running = Server()
    try:
        running.create()
        with pooled_if_asked(pytestconfig, running):
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
    """Give the Chinook sample that the session's tests share: only read it.

    ``server.create_chinook()`` makes a copy of one's own.
    """
    return server.create_chinook()
