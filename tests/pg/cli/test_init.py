"""``dataapi init`` on a server that requires passwords."""

from __future__ import annotations

import argparse
import io
import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from dataapi.cli import init
from dataapi.cli.main import run
from dataapi.cli.status import DECLINED, Failed
from dataapi.service.configuration import load
from support.daemon import Daemon, wait_for
from support.postgres import Database, Server

TABLES = "create table blog (id int primary key, name text); insert into blog values (1, 'Tides');"
ROLES = (
    "select rolname from pg_roles where rolname in ('anon', 'authenticated', 'authenticator', 'service_role')"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Server]:
    """Return a server that requires a password from the login role."""
    server = Server()
    try:
        server.create()
        server.require_password("authenticator")
        yield server
    finally:
        server.remove()


@pytest.fixture
def bare(cluster: Server) -> Iterator[Database]:
    """Return a database with a table, on a server without the API's roles."""
    database = cluster.create_database(TABLES)
    assert dataapi("init", database.admin_uri, "--remove", "--yes")[0] == 0
    assert database.execute(ROLES) == []
    yield database
    dataapi("init", database.admin_uri, "--remove", "--yes", "--webhooks")
    cluster.drop_database(database)


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def dataapi(*arguments: str) -> tuple[int, str, str]:
    output, errors = io.StringIO(), io.StringIO()
    code = run(arguments, {}, output, errors)
    return code, output.getvalue(), errors.getvalue()


def init_with_input(text: str, *words: str) -> tuple[int, str, str]:
    """Run ``init`` with this text as the terminal's input."""
    parser = argparse.ArgumentParser()
    init.add(parser.add_subparsers())
    output, errors = io.StringIO(), io.StringIO()
    options = parser.parse_args(["init", *words])
    status = os.EX_OK
    try:
        init.Init(options, output, errors, io.StringIO(text)).run()
    except Failed as failed:
        status = failed.status
        errors.write(str(failed))
    return status, output.getvalue(), errors.getvalue()


def rest(daemon: Daemon, path: str, key: str) -> Any:
    """Return the rows of a REST response, or the status if it is not 200."""
    response = daemon.request("GET", path, None, {"apikey": key})
    return response.json if response.status == 200 else response.status


def test_init_prepares_a_server_for_requests(bare: Database, tmp_path: Path) -> None:
    code, output, errors = dataapi("init", bare.admin_uri, "--anon", "read", "--yes")
    assert (code, errors) == (0, f"init: wrote {tmp_path}/dataapi.ini and {tmp_path}/dataapi.secrets/\n")
    settings = load(tmp_path / "dataapi.ini", {})
    [project] = settings.projects
    assert "rest/v1/blog?limit=3' -H 'apikey: " + project.publishable_keys[0] in output
    (tmp_path / "daemon").mkdir()
    daemon = Daemon(tmp_path / "daemon", bare.uri)
    listeners = daemon.config.read_text().partition("[project]")[0]
    daemon.config.write_text(listeners + (tmp_path / "dataapi.ini").read_text())
    with daemon:
        daemon.wait_ready()
        key = project.publishable_keys[0]
        assert rest(daemon, "/rest/v1/blog", key) == [{"id": 1, "name": "Tides"}]
        bare.execute("create table post (id int primary key)")
        wait_for(lambda: rest(daemon, "/rest/v1/post", key) == [], "the new table")
        created = daemon.request("POST", "/rest/v1/blog", '{"id": 2}', {"apikey": project.secret_keys[0]})
        assert created.status == 201


def test_files_are_private(bare: Database, tmp_path: Path) -> None:
    assert dataapi("init", bare.admin_uri, "--yes", "--webhooks")[0] == 0
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {
        "dataapi.ini", "db-uri", "jwt-secret", "publishable-keys", "secret-keys", "encryption-key",
    }  # fmt: skip
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "dataapi.secrets").stat().st_mode) == 0o700


@pytest.mark.parametrize("words", [("--yes",), ("--print",)])
def test_secrets_are_never_written_to_existing_files(
    bare: Database, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "dataapi.secrets").mkdir()
    open_to_all = tmp_path / "dataapi.secrets" / "jwt-secret"
    open_to_all.touch(mode=0o644)
    code, output, errors = dataapi("init", bare.admin_uri, *words)
    assert (code, output) == (os.EX_CANTCREAT, "")
    assert f"{open_to_all} already exists" in errors
    assert "--config" in errors
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [open_to_all]
    assert open_to_all.read_text() == ""
    assert bare.execute(ROLES) == []
    assert dataapi("init", bare.admin_uri, "--yes", "--config", "other.ini")[0] == 0


def test_init_is_idempotent(bare: Database) -> None:
    assert dataapi("init", bare.admin_uri, "--yes")[0] == 0
    before = (
        Path("dataapi.ini").read_text(),
        bare.execute("select rolpassword from pg_authid order by rolname"),
    )
    code, _, errors = dataapi("init", bare.admin_uri, "--yes", "--anon", "blog")
    assert (code, "already exists" in errors) == (0, True)
    assert before == (
        Path("dataapi.ini").read_text(), bare.execute("select rolpassword from pg_authid order by rolname")
    )  # fmt: skip
    assert bare.execute("select has_table_privilege('anon', 'blog', 'select')") == [(True,)]


def test_printed_sql_has_the_same_effect(bare: Database, tmp_path: Path) -> None:
    code, sql, notes = dataapi("init", "--print", "--db-uri", bare.uri, "--anon", "blog")
    assert code == 0
    assert f"twistd --nodaemon --pidfile= dataapi --config {tmp_path / 'dataapi.ini'}" in notes
    uri = (tmp_path / "dataapi.secrets" / "db-uri").read_text().strip()
    password = uri.partition("authenticator:")[2].partition("@")[0]
    assert len(password) >= 32
    assert password not in sql
    assert bare.execute(ROLES) == []
    bare.execute(sql)
    code, _, errors = dataapi("check-config", "--config", "dataapi.ini")
    assert (code, errors) == (0, "")


def test_sql_raises_no_notices_on_a_fresh_database(bare: Database) -> None:
    connection = psycopg2.connect(bare.admin_uri)
    connection.autocommit = True
    with closing(connection), connection.cursor() as cursor:
        for words in (["--webhooks", "--anon", "read"], ["--remove", "--webhooks"]):
            _, sql, _ = dataapi("init", "--print", "--db-uri", bare.uri, *words)
            cursor.execute(sql)
    assert connection.notices == []


@pytest.mark.parametrize("reply", ["", "n\n", "what\n"])
def test_nothing_changes_without_confirmation(bare: Database, reply: str) -> None:
    code, output, errors = init_with_input(reply, bare.admin_uri)
    assert code == DECLINED
    assert output.startswith("begin;")
    assert "nothing was changed" in errors
    assert bare.execute(ROLES) == []
    assert list(Path().iterdir()) == []


def test_init_prompts_for_the_uri(bare: Database) -> None:
    code, output, _ = init_with_input(f"{bare.admin_uri}\ny\n")
    assert code == 0
    assert output.startswith("PostgreSQL URI of an administrator: ")
    assert "Next\n" in output


def test_unreachable_database_is_reported(tmp_path: Path) -> None:
    code, _, errors = dataapi("init", "postgresql://nobody@127.0.0.1:1/none", "--yes")
    assert code == os.EX_UNAVAILABLE
    assert "nothing was changed: " in errors
    assert "Connection refused" in errors
    assert list(tmp_path.iterdir()) == []


def test_failed_login_is_explained(bare: Database) -> None:
    wrong = bare.uri.replace("/" + bare.name, "/nowhere")
    code, _, errors = dataapi("init", bare.admin_uri, "--yes", "--db-uri", wrong)
    assert code == os.EX_UNAVAILABLE
    assert "authenticator cannot log in" in errors
    assert "pg_hba.conf" in errors


def test_removal_keeps_other_databases(bare: Database, cluster: Server) -> None:
    other = cluster.create_database(TABLES)
    assert dataapi("init", other.admin_uri, "--yes", "--config", "other.ini", "--anon", "read")[0] == 0
    assert dataapi("init", bare.admin_uri, "--yes", "--webhooks", "--anon", "read")[0] == 0
    config = ("--config", str(Path.cwd() / "dataapi.ini"))
    assert dataapi("organization", "create", "acme", *config)[0] == 0
    watch = ("webhooks", "watch", "blog", "v1.project.paused", "--organization", "acme")
    assert dataapi(*watch, "--owner-uri", bare.admin_uri, *config)[0] == 0
    assert dataapi("init", bare.admin_uri, "--remove", "--yes", "--webhooks")[0] == 0
    bare.execute("insert into blog values (2, 'Clouds')")
    assert bare.execute("select tgname from pg_trigger where not tgisinternal") == []
    assert bare.execute("select proname from pg_proc where proname like 'webhooks%'") == []
    assert bare.execute("select evtname from pg_event_trigger") == []
    assert bare.execute("select nspname from pg_namespace where nspname in ('dataapi', 'webhooks')") == []
    assert bare.execute("select has_table_privilege('anon', 'blog', 'select')") == [(False,)]
    assert other.execute("select has_table_privilege('anon', 'blog', 'select')") == [(True,)]
    assert dataapi("init", other.admin_uri, "--remove", "--yes")[0] == 0
    cluster.drop_database(other)
    assert bare.execute(ROLES) == []
