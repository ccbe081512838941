"""Settings in the database: read at the start, when told to, and as soon as a database is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.daemon import KEY, SCHEMA, Daemon, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from support.postgres import Server

SUMS = "/rest/v1/note?select=id.sum()"
FUNCTION = """
create function public.settings() returns void language plpgsql as $$ begin
    perform set_config('pgrst.db_aggregates_enabled', 'true', true);
    perform set_config('pgrst.client_error_verbosity', 'minimal', true);
end $$;
"""


def status(daemon: Daemon) -> int:
    """Return the status of a request for a sum."""
    return daemon.request("GET", SUMS, headers={"apikey": KEY}).status


@pytest.mark.parametrize("workers", ["1", "2"])
def test_settings_are_read_again_when_asked(own_server: Server, tmp_path: Path, workers: str) -> None:
    """Of the function, then of the role, which wins over it, then of the role in the database."""
    database = own_server.create_database(SCHEMA + FUNCTION)
    project = {"db-config": "yes", "db-pre-config": "public.settings"}
    with Daemon(tmp_path, database.uri, settings={"workers": workers}, project=project) as daemon:
        daemon.wait_ready()
        assert status(daemon) == 200
        database.execute("alter role authenticator set pgrst.db_aggregates_enabled = 'false'")
        database.execute("notify pgrst, 'reload config'")
        wait_for(lambda: status(daemon) == 400, "the setting of the role")
        database.execute(
            f"alter role authenticator in database {database.name} set pgrst.db_aggregates_enabled = 'true'"
        )
        assert daemon.admin("POST", "/reload").status == 200
        assert status(daemon) == 200
    database.execute("alter role authenticator reset all")


def withheld(daemon: Daemon) -> bool:
    """Tell whether the daemon listens, and says that it lacks the settings of the database."""
    daemon.wait_for_admin()
    return b"settings in the database" in daemon.admin("GET", "/ready").body


def test_a_daemon_waits_for_a_database_that_is_away(own_server: Server, tmp_path: Path) -> None:
    """It listens meanwhile, and answers once it has asked it."""
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


@pytest.mark.parametrize("workers", ["1", "2"])
def test_nothing_is_answered_without_the_settings(own_server: Server, tmp_path: Path, workers: str) -> None:
    """Even where the database is there: a function that checks requests may be among them."""
    database = own_server.create_database(SCHEMA)
    project = {"db-config": "yes", "db-pre-config": "public.settings", "db-aggregates-enabled": "yes"}
    with Daemon(tmp_path, database.uri, settings={"workers": workers}, project=project) as daemon:
        wait_for(lambda: withheld(daemon), "the reason")
        assert status(daemon) == 503
        assert daemon.admin("POST", "/reload").status == 503
        assert status(daemon) == 503
        database.execute(FUNCTION)
        daemon.wait_ready()
        assert status(daemon) == 200
