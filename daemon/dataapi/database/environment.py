"""What libpq takes from the environment (``PGHOST``, ``PGSERVICE``, …) where a connection string is silent.

libpq reads all of it by itself.  Here is what the daemon has to know too: where the servers are, whose
names it looks up in libpq's place, and how long connecting may take.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg2.extensions import libpq_version, parse_dsn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_VARIABLES = {
    "PGHOST": "host",
    "PGHOSTADDR": "hostaddr",
    "PGPORT": "port",
    "PGCONNECT_TIMEOUT": "connect_timeout",
    "PGTARGETSESSIONATTRS": "target_session_attrs",
}
_SETTING = re.compile("([a-z_]+)=(.*)")
_BALANCED_FROM = 160_000


def given(uri: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return libpq's parameters for a URI or key-value string, its service, and the environment.

    Raises ``psycopg2.ProgrammingError`` for a string that libpq cannot read.
    """
    said: dict[str, str] = parse_dsn(uri)
    name = said.get("service") or environ.get("PGSERVICE")
    service = _service(name, environ) if name else {}
    variables = {key: environ[variable] for variable, key in _VARIABLES.items() if environ.get(variable)}
    if libpq_version() >= _BALANCED_FROM and environ.get("PGLOADBALANCEHOSTS"):
        variables["load_balance_hosts"] = environ["PGLOADBALANCEHOSTS"]
    return {**variables, **service, **said}


def _service(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the first file that has the service says of it; libpq complains where there is none."""
    for path in _service_files(environ):
        with suppress(OSError, UnicodeDecodeError):
            found = _read_service(path.read_text("utf-8").splitlines(), name)
            if found is not None:
                return found
    return {}


def _service_files(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("PGSERVICEFILE"):
        yield Path(environ["PGSERVICEFILE"])
    else:
        with suppress(RuntimeError):
            yield Path.home() / ".pg_service.conf"
    if environ.get("PGSYSCONFDIR"):
        yield Path(environ["PGSYSCONFDIR"]) / "pg_service.conf"


def _read_service(lines: list[str], name: str) -> dict[str, str] | None:
    """Return the ``key=value`` lines of a service's section, None when there is none."""
    found: dict[str, str] | None = None
    for line in map(str.strip, lines):
        if line.startswith("["):
            if found is not None:
                break
            found = {} if line == f"[{name}]" else None
        elif found is not None and (setting := _SETTING.fullmatch(line)):
            found.setdefault(setting[1], setting[2])
    return found
