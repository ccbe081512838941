"""The embedded PostgreSQL starts with the daemon and stops with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg2
import pytest
from dataapi.database import embedded_supervisor
from dataapi.database.embedded import (
    EmbeddedServer,
    EmbeddedServerError,
    PostgreSQLNotFound,
    default_directory,
    find_binaries,
)
from dataapi.database.script import ScriptError, run_script
from support.daemon import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

WHO = "select current_user, current_database(), pg_has_role('service_role', 'usage')"


@pytest.fixture
def directory() -> Iterator[Path]:
    """Return a directory that the server's user can enter if the tests run as root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


async def test_address_is_of_a_login_role_without_inherited_privileges() -> None:
    server = EmbeddedServer(None)
    uri = await server.start()
    try:
        [(user, database, inherits)] = await run_script(uri, WHO)
        assert (user, database, inherits) == ("authenticator", "app", False)
        assert await run_script(uri, "set role anon; select current_user") == [("anon",)]
        [(name,)] = await run_script(
            server.uri(), "select setting from pg_settings where name = 'listen_addresses'"
        )
        assert name == ""
    finally:
        await server.stop()


async def test_temporary_data_is_removed_and_stopping_twice_is_harmless() -> None:
    server = EmbeddedServer(None)
    await server.start()
    [(folder,)] = await run_script(server.uri(), "show data_directory")
    assert Path(folder).parent.is_dir()
    await server.stop()
    await server.stop()
    assert not Path(folder).parent.exists()


async def test_data_survives_in_a_named_directory(directory: Path) -> None:
    for expected in ([], [(1,)]):
        server = EmbeddedServer(directory / "new", "kept")
        await server.start()
        try:
            exists = await run_script(server.uri(), "select to_regclass('t') is not null")
            assert exists == [(bool(expected),)]
            if not expected:
                await run_script(server.uri(), "create table t as select 1 as a")
            else:
                assert await run_script(server.uri(), "select a from t") == expected
        finally:
            await server.stop()


async def test_second_server_on_the_same_data_is_rejected(directory: Path) -> None:
    first = EmbeddedServer(directory)
    await first.start()
    try:
        with pytest.raises(EmbeddedServerError, match=r"postmaster\.pid.*already exists"):
            await EmbeddedServer(directory).start()
        assert await run_script(first.uri(), "select 1") == [(1,)]
    finally:
        await first.stop()


async def test_data_of_another_version_is_rejected(directory: Path) -> None:
    (directory / "data").mkdir()
    (directory / "data" / "PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedServerError, match="the data directory needs PostgreSQL 9 \\(installed: 1"):
        await EmbeddedServer(directory).start()
    assert (directory / "data" / "PG_VERSION").read_text() == "9\n"


async def test_error_of_a_server_that_does_not_start_contains_the_reason(directory: Path) -> None:
    (directory / "data").mkdir()
    (directory / "data" / "PG_VERSION").write_text(f"{find_binaries().major}\n")
    if os.geteuid() == 0:
        shutil.chown(directory / "data", "nobody")
    with pytest.raises(EmbeddedServerError, match=r"PostgreSQL did not start: .*postgresql\.conf"):
        await EmbeddedServer(directory).start()


async def test_server_starts_in_a_directory_with_a_long_path(directory: Path) -> None:
    server = EmbeddedServer(directory / ("x" * 100))
    await server.start()
    [(sockets,)] = await run_script(server.uri(), "show unix_socket_directories")
    assert len(sockets) < 100
    await server.stop()
    assert not Path(sockets).exists()


async def test_failed_statement_raises_a_script_error() -> None:
    server = EmbeddedServer(None)
    uri = await server.start()
    try:
        with pytest.raises(ScriptError, match='relation "nothing" does not exist'):
            await run_script(uri, "select * from nothing")
    finally:
        await server.stop()
    with pytest.raises(ScriptError, match="No such file or directory"):
        await run_script(uri, "select 1")


def test_server_stops_when_the_daemon_is_killed() -> None:
    """The daemon cannot clean up after SIGKILL; the supervisor does."""
    program = """
import os, signal, sys
from twisted.internet import defer, task
from dataapi.database.embedded import EmbeddedServer
async def main(reactor):
    server = EmbeddedServer(None)
    await server.start()
    print(server.uri(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
task.react(lambda reactor: defer.ensureDeferred(main(reactor)))
"""
    killed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], stdout=subprocess.PIPE, text=True, check=False
    )
    assert killed.returncode == -9
    uri = killed.stdout.strip()
    socket = Path(psycopg2.extensions.parse_dsn(uri)["host"])
    wait_for(lambda: not socket.parent.exists(), "the end of the server and its folder")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")
def test_programs_in_an_inaccessible_folder_are_copied(
    directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    binaries = find_binaries()
    if not binaries.package:
        pytest.skip("the tests use this machine's programs, not those of the extra")
    closed = tmp_path_factory.mktemp("closed")
    origin = Path(os.path.commonpath([folder.parent for folder in binaries.package]))
    for folder in binaries.package:
        shutil.copytree(folder, closed / folder.relative_to(origin), symlinks=True)
    closed.chmod(0o700)
    plan = {
        "directory": str(directory),
        "temporary": True,
        "binaries": str(closed / binaries.folder.relative_to(origin)),
        "package": [str(closed / folder.relative_to(origin)) for folder in binaries.package],
    }
    running = subprocess.Popen(
        [sys.executable, "-P", "-m", embedded_supervisor.__name__, json.dumps(plan)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with running:
        assert running.stdout is not None
        assert json.loads(running.stdout.readline()) == {"ready": str(directory / "run")}
        assert (directory / "programs").is_dir()
    assert running.returncode == 0
    assert not directory.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")
async def test_directory_that_the_server_user_cannot_enter_is_rejected(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(
        EmbeddedServerError, match=r"the user .* cannot access .*closed/in/data: choose another directory"
    ):
        await EmbeddedServer(closed / "in").start()


def test_error_contains_the_missing_version() -> None:
    with pytest.raises(PostgreSQLNotFound, match="needs PostgreSQL 7 \\(installed: "):
        find_binaries(7)


def test_default_directory_is_in_the_users_state_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_directory({"XDG_STATE_HOME": "/s"}) == Path("/s/dataapi/embedded")
    assert default_directory({}) == Path.home() / ".local/state/dataapi/embedded"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_directory({}) == Path("/var/lib/dataapi/embedded")
