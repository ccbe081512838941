"""Where a database is: a connection string as libpq parameters, its host names looked up.

libpq looks host names up itself, and blocks while it does; so it gets addresses beside names.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg2.extensions import parse_dsn

if TYPE_CHECKING:
    from collections.abc import Callable

_DEFAULTS = {
    "fallback_application_name": "dataapi",
    # A peer that vanished without a word is noticed within about a minute.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


@dataclass(frozen=True, slots=True)
class Host:
    """One place to try, as libpq's parameters ``host``, ``hostaddr`` and ``port`` list them."""

    name: str
    address: str
    port: str


def parameters(uri: str) -> dict[str, str]:
    """Return libpq's parameters for a URI or key-value string, with our defaults.

    Raises ``psycopg2.ProgrammingError`` for a string that libpq cannot read.
    """
    given: dict[str, str] = parse_dsn(uri)
    return {**_DEFAULTS, **given, "client_encoding": "UTF8"}


def connect_timeout(given: dict[str, str]) -> float:
    """Return the seconds that connecting may take; libpq itself ignores its parameter when asynchronous."""
    seconds = given.get("connect_timeout", "")
    return float(seconds) if seconds.isdigit() and int(seconds) > 0 else 10.0


def resolved(given: dict[str, str], resolve: Callable[[str], list[str]]) -> dict[str, str]:
    """Return the parameters with an address for every host name, which may become several places.

    Raises ``OSError`` when no name has an address.
    """
    if not has_names(given):
        return given
    names = given["host"].split(",")
    ports = given.get("port", "").split(",")
    if len(ports) == 1:
        ports *= len(names)
    places: list[Host] = []
    problem: OSError | None = None
    for name, port in zip(names, ports, strict=True):
        try:
            addresses = resolve(name) if _is_name(name) else [_literal(name)]
        except OSError as error:
            problem = error
        else:
            places.extend(Host(name, address, port) for address in addresses)
    if not places and problem is not None:
        raise problem
    return {
        **given,
        "host": ",".join(place.name for place in places),
        "hostaddr": ",".join(place.address for place in places),
        "port": ",".join(place.port for place in places),
    }


def has_names(given: dict[str, str]) -> bool:
    """Tell whether the parameters have a host name that is yet to be looked up."""
    return "hostaddr" not in given and any(_is_name(name) for name in given.get("host", "").split(","))


def look_up(name: str) -> list[str]:
    """Return a host name's addresses; blocks, so run it in a thread.  Raises ``OSError``."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _is_name(host: str) -> bool:
    """Tell whether the host is a name to look up: no socket folder, no address."""
    return bool(host) and not host.startswith(("/", "@")) and not _literal(host)


def _literal(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""
