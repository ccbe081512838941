"""A daemon with an embedded PostgreSQL, configured only through the environment."""

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
from dataapi.testing import free_port
from support import documents
from support.daemon import PATIENCE, TWISTD, environment, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.direct("the daemon has a PostgreSQL of its own")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that PostgreSQL's user can enter if the tests run as root."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@contextmanager
def embedded(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a daemon with its database in a folder. Yield the daemon's process and admin port."""
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
    """Stop a daemon and its PostgreSQL."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


def status(port: int) -> int | None:
    """Return the status of ``/ready``, or None if nothing is listening."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status
        except OSError:
            return None


def catalog_is_read(kept: Path) -> bool:
    """Return whether a ``dataapi`` command can connect with the README's ``db-uri``."""
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


def test_embedded_server_stops_with_the_daemon_and_retains_its_data(folder: Path) -> None:
    for _ in range(2):
        with embedded(folder) as (process, _admin):
            assert catalog_is_read(folder / "kept")
            made = (folder / "kept" / "data" / "PG_VERSION").stat()
            assert (folder / "kept" / "data" / "postmaster.pid").exists()
            stop(process)
            assert not (folder / "kept" / "data" / "postmaster.pid").exists()
    assert (folder / "kept" / "data" / "PG_VERSION").stat() == made


def test_service_role_can_use_new_tables_until_privileges_are_revoked(folder: Path) -> None:
    """The embedded server has the same default privileges as after ``dataapi init``."""

    def execute(query: str) -> list[tuple[object, ...]]:
        kept = folder / "kept" / "run"
        with closing(psycopg2.connect(host=str(kept), user="postgres", dbname="app")) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(query)
                return cursor.fetchall() if cursor.description else []

    may = "select rolname from pg_roles where has_table_privilege(oid, 'note', 'insert') and rolname !~ '^p'"
    with embedded(folder) as (process, _admin):
        execute("create table note (id int generated always as identity primary key)")
        assert execute(may) == [("service_role",)]
        assert execute("select has_sequence_privilege('service_role', 'note_id_seq', 'usage')") == [(True,)]
        execute("revoke all on note from service_role")
        stop(process)
    with embedded(folder) as (process, _admin):
        assert execute(may) == []
        stop(process)
