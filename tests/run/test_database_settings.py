"""Settings in the database: read at the start, when told to, and as soon as a database is there."""

from __future__ import annotations

from signal import SIGHUP, SIGUSR2
from typing import TYPE_CHECKING, NamedTuple

import pytest
from support.daemon import KEY, SCHEMA, Daemon, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Database, Server

SUMS = "/rest/v1/note?select=id.sum()"
FUNCTION = """
create function public.settings() returns void language plpgsql as $$ begin
    perform set_config('pgrst.db_aggregates_enabled', 'true', true);
    perform set_config('pgrst.client_error_verbosity', 'minimal', true);
end $$;
"""


class Configured(NamedTuple):
    """A daemon, and the database that it has its settings from."""

    daemon: Daemon
    database: Database


def status(daemon: Daemon) -> int:
    """Return the status of a request for a sum."""
    return daemon.request("GET", SUMS, headers={"apikey": KEY}).status


def allow_sums(database: Database, value: str) -> None:
    """Say in the database whether sums may be asked for, in the place that wins over others."""
    database.execute(
        f"alter role authenticator in database {database.name} set pgrst.db_aggregates_enabled = '{value}'"
    )


@pytest.fixture(params=["1", "2"])
def configured(own_server: Server, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Configured]:
    """Give a daemon with one or two workers whose database has settings, and that database."""
    database = own_server.create_database(SCHEMA + FUNCTION)
    project = {"db-config": "yes", "db-pre-config": "public.settings"}
    with Daemon(tmp_path, database.uri, settings={"workers": request.param}, project=project) as daemon:
        daemon.wait_ready()
        yield Configured(daemon, database)
    database.execute("alter role authenticator reset all")


def test_settings_are_read_again_when_asked(configured: Configured) -> None:
    daemon, database = configured
    assert status(daemon) == 200
    database.execute("alter role authenticator set pgrst.db_aggregates_enabled = 'false'")
    assert daemon.admin("POST", "/reload").status == 200
    assert status(daemon) == 400
    allow_sums(database, "true")
    assert daemon.admin("POST", "/reload").status == 200
    assert status(daemon) == 200
    for signal_, value, expected in ((SIGHUP, "false", 400), (SIGUSR2, "true", 200)):
        allow_sums(database, value)
        daemon.process.send_signal(signal_)
        wait_for(lambda: status(daemon) == expected, signal_.name)  # noqa: B023 - called at once


@pytest.mark.direct("a pooler passes no notifications on")
def test_a_notification_has_the_settings_read_again(configured: Configured) -> None:
    """As PostgREST does."""
    daemon, database = configured
    allow_sums(database, "false")
    database.execute("notify pgrst, 'reload config'")
    wait_for(lambda: status(daemon) == 400, "the setting of the role")


@pytest.mark.direct("a pooler keeps its clients while the server is away")
def test_a_running_daemon_keeps_the_settings_of_a_database_that_is_away(
    own_server: Server, tmp_path: Path
) -> None:
    database = own_server.create_database(SCHEMA + FUNCTION)
    project = {"db-config": "yes", "db-pre-config": "public.settings", "db-max-rows": "1"}
    with Daemon(tmp_path, database.uri, project=project) as daemon:
        daemon.wait_ready()
        own_server.stop()
        try:
            daemon.config.write_text(daemon.config.read_text().replace("db-max-rows = 1", "db-max-rows = 0"))
            reloaded = daemon.admin("POST", "/reload")
            assert "db-max-rows" in reloaded.json["failures"]["configuration"]
            daemon.config.write_text(daemon.config.read_text().replace("db-max-rows = 0", "db-max-rows = 2"))
            reloaded = daemon.admin("POST", "/reload")
            assert reloaded.status == 503
            kept = "the settings in the database cannot be read"
            assert any(kept in line["message"] for line in daemon.lines), "the log says so"
            assert not withheld(daemon), "they are known"
            assert status(daemon) == 503
        finally:
            own_server.start()
        daemon.wait_ready()
        assert status(daemon) == 200


def withheld(daemon: Daemon) -> bool:
    """Tell whether the daemon listens, and says that it lacks the settings of the database."""
    daemon.wait_for_admin()
    return b"settings in the database" in daemon.admin("GET", "/ready").body


@pytest.mark.direct("a pooler keeps its clients while the server is away")
def test_a_daemon_waits_for_a_database_that_is_away(own_server: Server, tmp_path: Path) -> None:
    database = own_server.create_database(SCHEMA + FUNCTION)
    project = {"db-config": "yes", "db-pre-config": "public.settings"}
    own_server.stop()
    away = True
    try:
        with Daemon(tmp_path, database.uri, project=project) as daemon:
            wait_for(lambda: withheld(daemon), "the reason")
            assert status(daemon) == 503
            own_server.start()
            away = False
            daemon.wait_ready()
            assert status(daemon) == 200
    finally:
        if away:
            own_server.start()


def test_nothing_is_answered_without_the_settings(own_server: Server, tmp_path: Path) -> None:
    database = own_server.create_database(SCHEMA)
    project = {"db-config": "yes", "db-pre-config": "public.settings", "db-aggregates-enabled": "yes"}
    with Daemon(tmp_path, database.uri, project=project) as daemon:
        wait_for(lambda: withheld(daemon), "the reason")
        assert status(daemon) == 503
        assert daemon.admin("POST", "/reload").status == 503
        assert status(daemon) == 503
        database.execute(FUNCTION)
        daemon.wait_ready()
        assert status(daemon) == 200


OTHER = "b" * 20
CONNECTS = f'dataapi_pool_connects_total{{project="{OTHER}"}}'


def status_of(daemon: Daemon, host: str) -> int:
    """Return the status of a read of the project that a host name chooses."""
    return daemon.request("GET", "/rest/v1/note", headers={"apikey": KEY, "Host": host}).status


def test_a_wrong_setting_concerns_its_project_alone(own_server: Server, tmp_path: Path) -> None:
    wrong, right = own_server.create_database(SCHEMA), own_server.create_database(SCHEMA)
    setting = f"alter role authenticator in database {wrong.name} set pgrst.db_max_rows"
    wrong.execute(f"{setting} = 'many'")
    kept = {"db-config": "yes", "db-pool-max-idletime": "0"}
    made = Daemon(
        tmp_path, wrong.uri, settings={"workers": "2"}, project={**kept, "hosts": "wrong.example.org"}
    )
    service, _, first = made.config.read_text().partition("[project]")
    first = "\n".join(line for line in first.splitlines() if not line.startswith("ref ="))
    second = first.replace("wrong.example.org", "right.example.org").replace(wrong.uri, right.uri)
    made.config.write_text(f"{service}[project:{'a' * 20}]\n{first}\n[project:{OTHER}]\n{second}\n")

    with made as daemon:
        daemon.wait_for_admin()
        wait_for(lambda: b"pgrst.db_max_rows" in daemon.admin("GET", "/ready").body, "the reason")
        assert status_of(daemon, "wrong.example.org") == 503
        wait_for(lambda: status_of(daemon, "right.example.org") == 200, "the other project")
        wait_for(lambda: daemon.admin("GET", "/ready").json["starting"] is False, "every worker")
        ready = daemon.admin("GET", "/ready")
        assert (ready.status, ready.json["unready_projects"]) == (200, ["a" * 20])
        assert daemon.admin("GET", f"/ready?project={'a' * 20}").status == 503
        assert daemon.admin("GET", f"/ready?project={OTHER}").status == 200
        generation = ready.json["projects"][1]["generation"]
        connects = daemon.metric(CONNECTS)
        wrong.execute(f"{setting} = '1'")
        wait_for(lambda: status_of(daemon, "wrong.example.org") == 200, "the first project")
        assert status_of(daemon, "right.example.org") == 200
        assert daemon.admin("GET", "/ready").json["projects"][1]["generation"] == generation
        assert daemon.metric(CONNECTS) == connects
    wrong.execute(f"{setting} to default")
