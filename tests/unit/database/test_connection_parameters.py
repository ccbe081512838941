"""Connection parameters from libpq's environment variables and service files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from dataapi.database.address import connection_parameters

if TYPE_CHECKING:
    from pathlib import Path

SERVICES = """
# where our databases are
[other]
host=elsewhere

[app]
host=db.example.org
 port=6432
# port=1
keepalives_idle=7
ldap://ldap.example.org/x?y=z
port=9999

[last]
host=/run/postgresql
"""


@pytest.mark.parametrize(
    ("uri", "environ", "expected"),
    [
        ("postgresql://", {}, {}),
        ("postgresql://", {"PGHOST": "db", "PGPORT": "6432"}, {"host": "db", "port": "6432"}),
        ("postgresql://", {"PGHOST": "", "PGHOSTADDR": "10.0.0.1"}, {"hostaddr": "10.0.0.1"}),
        ("postgresql://here:1/app", {"PGHOST": "db"}, {"host": "here", "port": "1", "dbname": "app"}),
        ("host=here", {"PGPORT": "6432"}, {"host": "here", "port": "6432"}),
        ("host=a,b", {"PGTARGETSESSIONATTRS": "primary"}, {"host": "a,b", "target_session_attrs": "primary"}),
        ("postgresql://", {"PGCONNECT_TIMEOUT": "3"}, {"connect_timeout": "3"}),
        ("postgresql://", {"PGUSER": "me", "PGPASSWORD": "secret"}, {}),
    ],
)
def test_connection_string_takes_precedence_over_environment(
    uri: str, environ: dict[str, str], expected: dict[str, str]
) -> None:
    assert connection_parameters(uri, environ) == expected


def test_service_file_takes_precedence_over_environment_only(tmp_path: Path) -> None:
    first, second = tmp_path / "first.conf", tmp_path / "pg_service.conf"
    first.write_text("[nothing]\n", "utf-8")
    second.write_text(SERVICES, "utf-8")
    environ = {
        "PGSERVICEFILE": str(first),
        "PGSYSCONFDIR": str(tmp_path),
        "PGPORT": "1",
        "PGCONNECT_TIMEOUT": "3",
    }
    app = {"host": "db.example.org", "port": "6432", "keepalives_idle": "7", "connect_timeout": "3"}
    assert connection_parameters("postgresql://", {**environ, "PGSERVICE": "app"}) == app
    assert connection_parameters("service=app port=5", {**environ, "PGSERVICE": "other"}) == {
        **app, "service": "app", "port": "5",
    }  # fmt: skip
    assert connection_parameters("service=last", environ)["host"] == "/run/postgresql"
    assert "host" not in connection_parameters("service=missing", environ)
    assert connection_parameters("service=app", {"PGSERVICEFILE": str(tmp_path / "missing")}) == {
        "service": "app"
    }
