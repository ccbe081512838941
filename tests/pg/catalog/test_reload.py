"""The catalog is reloaded after notifications, event triggers and restarts."""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
import pytest_twisted
from dataapi.catalog.watcher import EVENT_TRIGGER_EXISTS, CatalogWatcher
from dataapi.database.listener import Listener
from dataapi.http.errors import ApiError
from support.catalog import column_named, table_named
from support.messages import running, until
from twisted.internet.defer import gatherResults

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from dataapi.database.pool import Pool
    from support.postgres import Database, Server

    Watch = Callable[..., Coroutine[Any, Any, CatalogWatcher]]

EVENT_TRIGGER = files("dataapi.catalog").joinpath("event_trigger.sql").read_text(encoding="utf-8")


@pytest.fixture
def watch(make_pool: Callable[..., Pool], reactor: Any, database: Database) -> Iterator[Watch]:
    """Yield a function that starts a watcher. All watchers are stopped after the test."""
    watchers: list[CatalogWatcher] = []

    async def start(
        uri: str = database.uri, *, schemas: tuple[str, ...] = ("public",), **options: Any
    ) -> CatalogWatcher:
        pool = make_pool(uri=uri, size=2)
        await pool.start()
        created = CatalogWatcher(reactor, pool.fetch, schemas, partial(Listener, reactor, uri), **options)
        watchers.append(created)
        await created.start()
        return created

    yield start
    for each in watchers:
        pytest_twisted.blockon(running(each.stop()))


def names(watcher: CatalogWatcher) -> set[str]:
    """Return the names of tables in the watcher's catalog."""
    assert watcher.current is not None
    return {table.name for table in watcher.current.tables.values()}


@pytest.mark.direct("a pooler forwards no notifications")
@pytest.mark.parametrize("notify", ["notify pgrst, 'reload schema'", "notify pgrst", "notify dataapi"])
async def test_notification_reloads_the_catalog(
    watch: Watch, database: Database, reactor: Any, notify: str
) -> None:
    watcher = await watch()
    old = watcher.current
    assert old is not None
    database.execute("create table public.t (id integer primary key)")
    database.execute(notify)
    await until(reactor, lambda: names(watcher) == {"t"})
    assert watcher.current is not None
    assert watcher.current.generation == old.generation + 1
    assert old.tables == {}


@pytest.mark.direct("a pooler forwards no notifications")
async def test_notification_reloads_the_settings_of_roles(
    watch: Watch, make_pool: Callable[..., Pool], database: Database, reactor: Any
) -> None:
    pool = make_pool(size=1)
    await pool.start()
    watcher = await watch(renew=pool.renew)
    await pool.fetch("select 1")
    scope = f"in database {database.name} set"
    database.execute(f"alter role anon {scope} work_mem = '5MB'")
    database.execute(f"alter role authenticator {scope} app.region = 'north'")
    database.execute("notify pgrst, 'reload config'")

    def settings() -> dict[str, str]:
        assert watcher.current is not None
        return dict(watcher.current.roles["anon"].settings)

    await until(reactor, lambda: settings().get("work_mem") == "5MB")
    assert await pool.fetch("select current_setting('app.region', true)") == [("north",)]
    database.execute(f"alter role anon in database {database.name} reset all")
    database.execute(f"alter role authenticator in database {database.name} reset all")


def has_table(watcher: CatalogWatcher, table: str) -> bool:
    return table in names(watcher)


@pytest.mark.direct("a pooler forwards no notifications")
async def test_channel_can_be_configured(watch: Watch, database: Database, reactor: Any) -> None:
    watcher = await watch(channel="Our_Own")
    for number, notify in enumerate(('notify "Our_Own"', "notify dataapi"), 2):
        database.execute(f"create table t{number} (id int); {notify}, 'reload schema'")
        await until(reactor, partial(has_table, watcher, f"t{number}"))


async def test_reload_returns_the_current_catalog(watch: Watch, database: Database) -> None:
    watcher = await watch()
    first = running(watcher.reload())
    database.execute("create table public.t (id integer primary key)")
    later = await gatherResults([running(watcher.reload()) for _ in range(5)])
    await first
    assert all(table_named(catalog, "t") for catalog in later)
    assert len({catalog.generation for catalog in later}) == 1


@pytest.mark.direct("a pooler forwards no notifications")
async def test_ddl_reloads_the_catalog_if_event_triggers_are_installed(
    watch: Watch, database: Database, reactor: Any
) -> None:
    database.execute(EVENT_TRIGGER)
    watcher = await watch()
    database.execute("create table public.t (id integer primary key)")
    await until(reactor, lambda: names(watcher) == {"t"})
    database.execute("comment on table public.t is 'new'")
    await until(reactor, lambda: table_named(_current(watcher), "t").comment == "new")
    database.execute("grant select (id) on public.t to anon")
    await until(reactor, lambda: column_named(table_named(_current(watcher), "t"), "id").acl != ())
    database.execute("alter table public.t drop column id")
    await until(reactor, lambda: table_named(_current(watcher), "t").columns == ())
    database.execute("drop table public.t")
    await until(reactor, lambda: names(watcher) == set())


def _current(watcher: CatalogWatcher) -> Any:
    return watcher.current


def test_event_triggers_can_be_installed_again(database: Database) -> None:
    database.execute(EVENT_TRIGGER)
    before = database.execute("select oid, evtname from pg_event_trigger order by 2")
    assert [name for _, name in before] == ["dataapi_ddl", "dataapi_drop"]
    database.execute(EVENT_TRIGGER)
    assert database.execute("select oid, evtname from pg_event_trigger order by 2") == before


@pytest.mark.direct("a pooler forwards no notifications")
async def test_temporary_objects_and_refreshed_views_cause_no_reload(
    watch: Watch, database: Database, reactor: Any
) -> None:
    database.execute("create materialized view public.m as select 1 as x")
    database.execute(EVENT_TRIGGER)
    watcher = await watch()
    database.execute("create temporary table t (id integer); alter table t add b integer; drop table t")
    database.execute("refresh materialized view public.m")
    database.execute("create table public.last (id integer)")
    await until(reactor, lambda: "last" in names(watcher))
    assert watcher.loads == 2


@pytest.mark.parametrize("login", ["authenticator", "postgres"])
async def test_watcher_creates_nothing_in_the_database(watch: Watch, database: Database, login: str) -> None:
    watcher = await watch(database.admin_uri if login == "postgres" else database.uri)
    assert watcher.current is not None
    assert database.execute("select evtname from pg_event_trigger") == []
    assert database.execute("select nspname from pg_namespace where nspname = 'dataapi'") == []


@pytest.mark.parametrize(
    ("trigger", "announced"),
    [
        (EVENT_TRIGGER, True),
        (
            "create function public.watch() returns event_trigger language plpgsql as $$"
            "begin notify pgrst, 'reload schema'; end $$;"
            "create event trigger pgrst_watch on ddl_command_end execute procedure public.watch()",
            True,
        ),
        (f"{EVENT_TRIGGER}; alter event trigger dataapi_ddl disable", False),
        ("select", False),
    ],
)
def test_event_triggers_that_announce_changes_are_recognized(
    database: Database, trigger: str, announced: bool
) -> None:
    """The second event trigger is from PostgREST's documentation."""
    database.execute(trigger)
    assert database.execute(EVENT_TRIGGER_EXISTS.replace("$1", "'pgrst'")) == [(announced,)]


@pytest.mark.direct("a pooler forwards no notifications")
async def test_catalog_is_reloaded_after_a_reconnect(
    watch: Watch, server: Server, database: Database, reactor: Any
) -> None:
    watcher = await watch()
    database.execute("create table public.t (id integer primary key)")
    server.terminate_backends(database)
    await until(reactor, lambda: names(watcher) == {"t"})


@pytest.mark.direct("a pooler holds its clients while the server is down")
async def test_old_catalog_is_used_while_the_server_is_down(
    watch: Watch, server: Server, database: Database, reactor: Any
) -> None:
    database.execute("create table public.t (id integer primary key)")
    watcher = await watch()
    server.stop()
    try:
        with pytest.raises(ApiError):
            await watcher.reload()
        assert names(watcher) == {"t"}
        assert watcher.error
    finally:
        server.start()
    await until(reactor, lambda: watcher.error is None)
    assert names(watcher) == {"t"}


async def test_catalog_is_loaded_once_the_server_starts(
    watch: Watch, server: Server, database: Database, reactor: Any
) -> None:
    database.execute("create table public.t (id integer primary key)")
    server.stop()
    try:
        watcher = await watch()
        assert watcher.current is None
        assert watcher.error
    finally:
        server.start()
    await until(reactor, lambda: watcher.current is not None)
    assert names(watcher) == {"t"}


async def test_malformed_directive_affects_only_its_table(watch: Watch, database: Database) -> None:
    database.execute(
        """
        create table public.good (id integer primary key);
        create table public.bad (id integer primary key);
        comment on table public.good is '@graphql({"name": "Good"})';
        comment on table public.bad is '@graphql({"name": )';
        """
    )
    watcher = await watch()
    assert names(watcher) == {"good", "bad"}
    assert [problem.place for problem in watcher.problems] == ["table public.bad"]
    assert set(_current(watcher).base_names.values()) == {"Good", "bad"}
