"""Settings in the database are read at startup, on request, and when the database becomes available."""

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
    """A daemon and the database that contains its settings."""

    daemon: Daemon
    database: Database


def status(daemon: Daemon) -> int:
    return daemon.request("GET", SUMS, headers={"apikey": KEY}).status


def allow_sums(database: Database, value: str) -> None:
    """Enable or disable aggregates with the setting of the highest precedence."""
    database.execute(
        f"alter role authenticator in database {database.name} set pgrst.db_aggregates_enabled = '{value}'"
    )


@pytest.fixture(params=["1", "2"])
def configured(own_server: Server, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Configured]:
    """Yield a daemon with one or two workers and with settings in its database."""
    database = own_server.create_database(SCHEMA + FUNCTION)
    project = {"db-config": "yes", "db-pre-config": "public.settings"}
    with Daemon(tmp_path, database.uri, settings={"workers": request.param}, project=project) as daemon:
        daemon.wait_ready()
        yield Configured(daemon, database)
    database.execute("alter role authenticator reset all")


def test_settings_are_reloaded_on_request(configured: Configured) -> None:
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
        wait_for(lambda: status(daemon) == expected, signal_.name)  # noqa: B023 - called immediately


@pytest.mark.direct("a pooler forwards no notifications")
def test_notification_reloads_settings(configured: Configured) -> None:
    """PostgREST's notification also reloads settings."""
    daemon, database = configured
    allow_sums(database, "false")
    database.execute("notify pgrst, 'reload config'")
    wait_for(lambda: status(daemon) == 400, "the setting of the role")


@pytest.mark.direct("a pooler holds its clients while the server is down")
def test_running_daemon_retains_settings_while_the_database_is_down(
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
            message = "the settings in the database cannot be read"
            assert any(message in line["message"] for line in daemon.lines), "the log contains the error"
            assert not lacks_settings(daemon), "the settings read before the outage are used"
            assert status(daemon) == 503
        finally:
            own_server.start()
        daemon.wait_ready()
        assert status(daemon) == 200


def lacks_settings(daemon: Daemon) -> bool:
    """Return whether the daemon runs, but could not read the settings in the database."""
    daemon.wait_for_admin()
    return b"settings in the database" in daemon.admin("GET", "/ready").body


@pytest.mark.direct("a pooler holds its clients while the server is down")
def test_daemon_waits_for_the_database_before_serving(own_server: Server, tmp_path: Path) -> None:
    database = own_server.create_database(SCHEMA + FUNCTION)
    project = {"db-config": "yes", "db-pre-config": "public.settings"}
    own_server.stop()
    is_down = True
    try:
        with Daemon(tmp_path, database.uri, project=project) as daemon:
            wait_for(lambda: lacks_settings(daemon), "the reason")
            assert status(daemon) == 503
            own_server.start()
            is_down = False
            daemon.wait_ready()
            assert status(daemon) == 200
    finally:
        if is_down:
            own_server.start()


def test_requests_fail_until_settings_can_be_read(own_server: Server, tmp_path: Path) -> None:
    database = own_server.create_database(SCHEMA)
    project = {"db-config": "yes", "db-pre-config": "public.settings", "db-aggregates-enabled": "yes"}
    with Daemon(tmp_path, database.uri, project=project) as daemon:
        wait_for(lambda: lacks_settings(daemon), "the reason")
        assert status(daemon) == 503
        assert daemon.admin("POST", "/reload").status == 503
        assert status(daemon) == 503
        database.execute(FUNCTION)
        daemon.wait_ready()
        assert status(daemon) == 200


OTHER = "b" * 20


def backends(database: Database) -> set[int]:
    """Return the process IDs of the pool's connections."""
    query = "select pid from pg_stat_activity where datname = %s and usename = 'authenticator'"
    return {pid for (pid,) in database.execute(query, [database.name])}


def status_of(daemon: Daemon, host: str) -> int:
    return daemon.request("GET", "/rest/v1/note", headers={"apikey": KEY, "Host": host}).status


def test_invalid_setting_affects_only_its_project(own_server: Server, tmp_path: Path) -> None:
    wrong, right = own_server.create_database(SCHEMA), own_server.create_database(SCHEMA)
    setting = f"alter role authenticator in database {wrong.name} set pgrst.db_max_rows"
    wrong.execute(f"{setting} = 'many'")
    message = {"db-config": "yes", "db-pool-max-idletime": "0"}
    made = Daemon(
        tmp_path, wrong.uri, settings={"workers": "2"}, project={**message, "hosts": "wrong.example.org"}
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
        connected = backends(right)
        wrong.execute(f"{setting} = '1'")
        wait_for(lambda: status_of(daemon, "wrong.example.org") == 200, "the first project")
        assert status_of(daemon, "right.example.org") == 200
        assert daemon.admin("GET", "/ready").json["projects"][1]["generation"] == generation
        assert connected
        assert backends(right) >= connected
    wrong.execute(f"{setting} to default")
