"""Whether libpq can read a connection string; nothing is connected."""

from __future__ import annotations

import psycopg2
from psycopg2.extensions import parse_dsn

_SCHEMES = ("postgresql://", "postgres://")
_HIGHEST_PORT = 65535


def is_connection_string(text: str) -> bool:
    """Tell whether the text is a URI or a ``keyword=value`` string with known keywords and sane ports.

    A URI may leave everything to the environment: ``postgresql://``.
    """
    if "\0" in text:
        # libpq would read no further.
        return False
    try:
        parameters = parse_dsn(text)
    except (psycopg2.ProgrammingError, UnicodeEncodeError):
        return False
    ports = str(parameters.get("port", "")).split(",")
    return (bool(parameters) or text.startswith(_SCHEMES)) and all(
        not port or (port.isascii() and port.isdigit() and 0 < int(port) <= _HIGHEST_PORT) for port in ports
    )
