"""Where a database is: the places that a connection string lists, in the order in which libpq tries them.

libpq looks host names up itself, and blocks while it does; so it gets addresses beside names.  It
also ignores the time limit of each host when it does not block; so it gets one place at a time.
"""

from __future__ import annotations

import ipaddress
import random
import re
import socket
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from psycopg2.extensions import libpq_version, make_dsn

from dataapi.database import environment

if TYPE_CHECKING:
    from collections.abc import Callable

ATTRIBUTES = "target_session_attrs"
"""Libpq's parameter for what a server must be, such as a primary."""

# The severity, in the server's language, and two blanks stand before a server's own message alone.
_SERVERS_WORDS = re.compile(r"failed: \S+:  ")
_NOT_NOW = "the database system is "

_DEFAULTS = {
    "fallback_application_name": "dataapi",
    # A peer that vanished without a word is noticed within about a minute.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


@dataclass(frozen=True, slots=True)
class Place:
    """One place to try.

    :ivar parameters: libpq's, with one host, address and port at most.
    :ivar problem: why there is nothing to try, "" when there is.
    """

    parameters: dict[str, str]
    problem: str = ""


def parameters(uri: str) -> dict[str, str]:
    """Return libpq's parameters for a URI or key-value string and the environment, with our defaults.

    Raises ``psycopg2.ProgrammingError`` for a string that libpq cannot read.
    """
    return {**_DEFAULTS, **environment.given(uri), "client_encoding": "UTF8"}


def primary_uri(uri: str) -> str:
    """Return the connection string that leads to the primary among the servers that a URI leads to.

    One server is taken as it is: there is nothing to choose.
    """
    given = environment.given(uri)
    hosts, addresses, _ = _lists(given)
    chooses = len(hosts) > 1 or len(addresses) > 1 or has_names(given)
    if not chooses or given.get(ATTRIBUTES) in ("read-write", "primary"):
        return uri
    # Before its version 14 libpq knows no other word for it.
    wanted = "primary" if libpq_version() >= 140000 else "read-write"
    return str(make_dsn(**{**given, ATTRIBUTES: wanted}))


def connect_timeout(given: dict[str, str]) -> float:
    """Return the seconds that connecting to one place may take."""
    seconds = given.get("connect_timeout", "")
    return float(seconds) if seconds.isdigit() and int(seconds) > 0 else 10.0


def has_names(given: dict[str, str]) -> bool:
    """Tell whether the parameters have a host name that is yet to be looked up."""
    hosts, addresses, _ = _lists(given)
    return any(
        _is_name(host) and not address for host, address in zip_longest(hosts, addresses, fillvalue="")
    )


def places(
    given: dict[str, str],
    resolve: Callable[[str], list[str]],
    shuffle: Callable[[list[Any]], object] = random.shuffle,
) -> list[Place]:
    """Return the places to try in libpq's order, one for each address of each host.

    :param resolve: returns a host name's addresses, or raises ``OSError``.
    :param shuffle: puts a list into a random order, where ``load_balance_hosts`` asks for one.
    """
    hosts, addresses, ports = _lists(given)
    count = max(len(hosts), len(addresses))
    ports = ports * count if len(ports) == 1 else ports
    if not all(len(listed) in (0, count) for listed in (hosts, addresses, ports)):
        return [Place(given)]  # libpq says what is wrong with it
    reorder = shuffle if given.get("load_balance_hosts") == "random" else lambda _: None
    listed = list(zip_longest(hosts, addresses, ports, fillvalue=None))
    reorder(listed)
    found = []
    for host, address, port in listed:
        several = _addressed(_single(given, host, address, port), resolve)
        reorder(several)
        found += several
    return _in_passes(found or [Place(given)])


def _lists(given: dict[str, str]) -> tuple[list[str], list[str], list[str]]:
    """Return the hosts, addresses and ports that the parameters list."""
    hosts, addresses, ports = (
        given[name].split(",") if name in given else [] for name in ("host", "hostaddr", "port")
    )
    return hosts, addresses, ports


def _single(given: dict[str, str], host: str | None, address: str | None, port: str | None) -> dict[str, str]:
    """Return the parameters for one of the hosts that they list."""
    own = {"host": host, "hostaddr": address or None, "port": port}
    kept = {name: value for name, value in given.items() if name not in own}
    return {**kept, **{name: value for name, value in own.items() if value is not None}}


def _addressed(one: dict[str, str], resolve: Callable[[str], list[str]]) -> list[Place]:
    """Return a place for each address of a host."""
    host = one.get("host", "")
    if "hostaddr" in one or not _is_name(host):
        return [Place(one)]
    try:
        return [Place({**one, "hostaddr": address}) for address in resolve(host)]
    except OSError as error:
        reason = error.strerror or str(error)
        return [Place(one, f'could not translate host name "{host}" to address: {reason}')]


def _in_passes(found: list[Place]) -> list[Place]:
    """Return the places once more for any server, where a standby is preferred and none might be there."""
    if len(found) == 1 or found[0].parameters.get(ATTRIBUTES) != "prefer-standby":
        return found
    return [
        replace(place, parameters={**place.parameters, ATTRIBUTES: wanted})
        for wanted in ("standby", "any")
        for place in found
    ]


def server_key(place: dict[str, str]) -> tuple[str | None, ...]:
    """Return what tells the servers at different places apart."""
    return tuple(place.get(name) for name in ("host", "hostaddr", "port"))


def refused_by_server(reason: str) -> bool:
    """Tell whether a server refused the connection, so that libpq tries no other one.

    One that starts, stops or recovers leaves it to the others.
    """
    return bool(_SERVERS_WORDS.search(reason)) and _NOT_NOW not in reason


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
