"""A daemon with a PostgreSQL of its own, configured by the environment alone."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg2
import pytest
from support import documents
from support.daemon import PATIENCE, TWISTD, environment, wait_for
from support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.direct("the daemon has a PostgreSQL of its own")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder that root's server user can enter too."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@contextmanager
def embedded(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a daemon that keeps its database in a folder; give its process and admin port."""
    port, admin = free_port(), free_port()
    variables = {
        "DATAAPI_DATAAPI_ADMIN_LISTEN": f"tcp:{admin}:interface=127.0.0.1",
        "DATAAPI_PROJECT_REQUIRE_API_KEY": "no",
    }
    listen = f"tcp:{port}:interface=127.0.0.1"
    with (folder / "output").open("ab") as output:
        process = subprocess.Popen(
            [TWISTD, "-n", "--pidfile=", "dataapi", "--listen", listen, "--embedded", str(folder / "kept")],
            cwd=folder, env=environment(variables), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        wait_for(lambda: process.poll() is not None or status(admin) == 200, "/ready")
        assert process.poll() is None, (folder / "output").read_text()
        yield process, admin
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a daemon, and with it its PostgreSQL."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


def status(port: int) -> int | None:
    """Return the status of ``/ready``, None when nobody answers."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status
        except OSError:
            return None


def catalog_is_read(kept: Path) -> bool:
    """Whether a command of ``dataapi`` reaches the database by the address that the README names."""
    [address] = re.findall(r"`db-uri = (host=DIR/run [^`]*)`", documents.read("README.md"))
    variables = {
        "DATAAPI_PROJECT_DB_URI": address.replace("DIR", str(kept)),
        "DATAAPI_PROJECT_REQUIRE_API_KEY": "no",
    }
    finished = subprocess.run(
        [sys.executable, "-m", "dataapi.cli.main", "check-config"],
        cwd=kept, env=environment(variables), capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    return finished.stderr == ""


def test_the_embedded_server_runs_with_the_daemon_and_keeps_its_data(folder: Path) -> None:
    """``--embedded DIR`` starts a PostgreSQL with its data in the folder, stops it, and finds it again."""
    for _ in range(2):
        with embedded(folder) as (process, _admin):
            assert catalog_is_read(folder / "kept")
            made = (folder / "kept" / "data" / "PG_VERSION").stat()
            assert (folder / "kept" / "data" / "postmaster.pid").exists()
            stop(process)
            assert not (folder / "kept" / "data" / "postmaster.pid").exists()
    assert (folder / "kept" / "data" / "PG_VERSION").stat() == made


def test_new_tables_are_usable_by_secret_keys_at_once(folder: Path) -> None:
    """As they are after ``dataapi init``; other roles are granted nothing, and what is revoked stays so."""

    def asked(query: str) -> list[tuple[object, ...]]:
        kept = folder / "kept" / "run"
        with closing(psycopg2.connect(host=str(kept), user="postgres", dbname="app")) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(query)
                return cursor.fetchall() if cursor.description else []

    may = "select rolname from pg_roles where has_table_privilege(oid, 'note', 'insert') and rolname !~ '^p'"
    with embedded(folder) as (process, _admin):
        asked("create table note (id int generated always as identity primary key)")
        assert asked(may) == [("service_role",)]
        assert asked("select has_sequence_privilege('service_role', 'note_id_seq', 'usage')") == [(True,)]
        asked("revoke all on note from service_role")
        stop(process)
    with embedded(folder) as (process, _admin):
        assert asked(may) == []
        stop(process)
