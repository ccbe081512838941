"""Where a database is: connection strings, libpq's environment, and the places to try in libpq's order.

libpq looks host names up itself, and blocks while it does; so it gets addresses with names.  It
also ignores the time limit of each host when it does not block; so it gets one place at a time.
"""

from __future__ import annotations

import ipaddress
import os
import random
import re
import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_SCHEMES = ("postgresql://", "postgres://")
_HIGHEST_PORT = 65535
_DEFAULT_PORT = 5432


def is_connection_string(text: str) -> bool:
    """Return whether the text is a URI or a ``keyword=value`` string with known keywords and sane ports.

    A URI may leave everything to the environment: ``postgresql://``.
    """
    if "\0" in text:
        # libpq would read no further.
        return False
    try:
        parameters = _parsed(text)
    except (psycopg.ProgrammingError, UnicodeEncodeError):
        return False
    ports = str(parameters.get("port", "")).split(",")
    return (bool(parameters) or text.startswith(_SCHEMES)) and all(
        not port or (port.isascii() and port.isdigit() and 0 < int(port) <= _HIGHEST_PORT) for port in ports
    )


_VARIABLES = {
    "PGHOST": "host",
    "PGHOSTADDR": "hostaddr",
    "PGPORT": "port",
    "PGCONNECT_TIMEOUT": "connect_timeout",
    "PGTARGETSESSIONATTRS": "target_session_attrs",
    "PGLOADBALANCEHOSTS": "load_balance_hosts",
}
_SETTING = re.compile("([a-z_]+)=(.*)")
_ENDING = re.compile(r"[\s\\]")
BALANCE = "load_balance_hosts"
"""Libpq's parameter for the order of hosts."""


def connection_parameters(uri: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return libpq's parameters for a URI or key-value string, its service, and the environment.

    Raises ``psycopg.ProgrammingError`` for a string that libpq cannot read.
    """
    said = _parsed(uri)
    name = said.get("service") or environ.get("PGSERVICE")
    service = _service(name, environ) if name else {}
    variables = {key: environ[variable] for variable, key in _VARIABLES.items() if environ.get(variable)}
    return {**variables, **service, **said}


def _parsed(uri: str) -> dict[str, str]:
    """Return the parameters of a connection string."""
    said = {name: str(value) for name, value in conninfo_to_dict(uri).items()}
    if said.get(BALANCE, "disable") not in ("disable", "random"):
        raise psycopg.ProgrammingError(f'invalid {BALANCE} value: "{said[BALANCE]}"')
    return said


def _service(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a service by the first file that has it; libpq complains where none has."""
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


ATTRIBUTES = "target_session_attrs"
"""Libpq's parameter for the kind of server, such as a primary."""

# The severity, in the server's language, and two blanks stand only before a server's own message.
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

    Raises ``psycopg.ProgrammingError`` for a string that libpq cannot read.
    """
    return {**_DEFAULTS, **connection_parameters(uri), "client_encoding": "UTF8"}


def beginning_with(
    params: dict[str, str], settings: Iterable[tuple[str, str]], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the parameters of connections that begin with settings, ``(name, value)``."""
    options = [params.get("options") or environ.get("PGOPTIONS", "")]
    for name, value in settings:
        escaped = _ENDING.sub(r"\\\g<0>", value)
        options.append(f"-c {name}={escaped}")
    return {**params, "options": " ".join(filter(None, options))}


def primary_uri(uri: str) -> str:
    """Return the connection string that leads to the primary among the servers that a URI leads to.

    One server is taken as it is: there is nothing to choose.
    """
    params = connection_parameters(uri)
    hosts, addresses, _ = _lists(params)
    chooses = len(hosts) > 1 or len(addresses) > 1 or has_names(params)
    if not chooses or params.get(ATTRIBUTES) in ("read-write", "primary"):
        return uri
    return _connection_string({**params, ATTRIBUTES: "primary"})


def balances(uri: str) -> bool:
    """Return whether ``load_balance_hosts`` asks for the hosts in a random order."""
    return connection_parameters(uri).get(BALANCE) == "random"


def names_replicas(text: str) -> bool:
    """Return whether the text is a connection string that may lead to standbys."""
    if not is_connection_string(text):
        return False
    params = connection_parameters(text, {})
    return params.get(ATTRIBUTES) not in ("primary", "read-write") and _places_listed(params) is not None


def leads_to_standbys(uri: str) -> bool:
    """Return whether ``target_session_attrs`` prefers servers that refuse writes, or takes only these."""
    return connection_parameters(uri).get(ATTRIBUTES) in ("standby", "prefer-standby", "read-only")


def servers(uri: str) -> dict[str, str]:
    """Return a connection string for each host that a URI lists, by ``host:port``.

    It leads there whatever the server is, which may change.
    """
    params = {**connection_parameters(uri), ATTRIBUTES: "any"}
    found = {}
    for host, address, port in _places_listed(params) or [(None, None, None)]:
        name = f"{host or address or 'localhost'}:{port or _DEFAULT_PORT}"
        found[name] = _connection_string(_single(params, host, address, port))
    return found


def _connection_string(params: dict[str, str]) -> str:
    return make_conninfo(**{name: value for name, value in params.items() if name != BALANCE})


def connect_timeout(params: dict[str, str]) -> float:
    """Return the seconds that connecting to one place may take."""
    seconds = params.get("connect_timeout", "")
    return float(seconds) if seconds.isdigit() and int(seconds) > 0 else 10.0


def has_names(params: dict[str, str]) -> bool:
    """Return whether the parameters have a host name that is yet to be looked up."""
    hosts, addresses, _ = _lists(params)
    return any(
        _is_name(host) and not address for host, address in zip_longest(hosts, addresses, fillvalue="")
    )


def places(
    params: dict[str, str],
    resolve: Callable[[str], list[str]],
    shuffle: Callable[[list[Any]], object] = random.shuffle,
    rank: Callable[[dict[str, str]], int] = lambda _: 0,
) -> list[Place]:
    """Return the places to try in libpq's order, one for each address of each host.

    :param resolve: returns a host name's addresses, or raises ``OSError``.
    :param shuffle: puts a list into a random order, where ``load_balance_hosts`` asks for one.
    :param rank: returns by a place's parameters after which others it is tried; 0 leaves it where it is.
    """
    listed = _places_listed(params)
    if listed is None:
        return [Place(params)]  # libpq reports the mistake
    reorder = shuffle if params.get(BALANCE) == "random" else lambda _: None
    reorder(listed)
    found = []
    for host, address, port in listed:
        several = _addressed(_single(params, host, address, port), resolve)
        reorder(several)
        found += several
    found.sort(key=lambda place: rank(place.parameters))
    return _in_passes(found or [Place(params)])


_Listed = tuple[str | None, str | None, str | None]
"""The host, address and port of a place."""


def _places_listed(params: dict[str, str]) -> list[_Listed] | None:
    """Return host, address and port of each place that is listed, None where the lists do not match."""
    hosts, addresses, ports = _lists(params)
    count = max(len(hosts), len(addresses))
    ports = ports * count if len(ports) == 1 else ports
    if not all(len(listed) in (0, count) for listed in (hosts, addresses, ports)):
        return None
    return list(zip_longest(hosts, addresses, ports, fillvalue=None))


def _lists(params: dict[str, str]) -> tuple[list[str], list[str], list[str]]:
    """Return the hosts, addresses and ports that the parameters list."""
    hosts, addresses, ports = (
        params[name].split(",") if name in params else [] for name in ("host", "hostaddr", "port")
    )
    return hosts, addresses, ports


def _single(
    params: dict[str, str], host: str | None, address: str | None, port: str | None
) -> dict[str, str]:
    """Return the parameters for one of the hosts that they list."""
    own = {"host": host, "hostaddr": address or None, "port": port}
    others = {name: value for name, value in params.items() if name not in own and name != BALANCE}
    return {**others, **{name: value for name, value in own.items() if value is not None}}


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


def lists_several(params: dict[str, str]) -> bool:
    """Return whether the parameters list several hosts."""
    return len(_places_listed(params) or []) > 1


def without(params: dict[str, str], place: dict[str, str]) -> dict[str, str]:
    """Return the parameters without one of the hosts that they list."""
    return _relisted(params, [one for one in _places_listed(params) or [] if not _leads_to(one, place)])


def _leads_to(listed: _Listed, place: dict[str, str]) -> bool:
    host, address, port = listed
    # A name's address is looked up later.
    own_address = not address or address == place.get("hostaddr")
    return own_address and (host, port) == (place.get("host"), place.get("port"))


def _relisted(params: dict[str, str], listed: list[_Listed]) -> dict[str, str]:
    """Return the parameters with other lists of hosts, addresses and ports."""
    lists = dict(zip(("host", "hostaddr", "port"), zip(*listed, strict=True), strict=False))
    joined = {name: ",".join(each or "" for each in lists[name]) for name in lists if name in params}
    return {**params, **joined}


def _in_passes(found: list[Place]) -> list[Place]:
    """Return the places once more for any server, where a standby is preferred and none might be there."""
    if len(found) == 1 or found[0].parameters.get(ATTRIBUTES) != "prefer-standby":
        return found
    return [
        replace(place, parameters={**place.parameters, ATTRIBUTES: attribute})
        for attribute in ("standby", "any")
        for place in found
    ]


def server_key(place: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return a key that distinguishes servers at different places."""
    return tuple(place.get(name) for name in ("host", "hostaddr", "port"))


def refused_by_server(reason: str) -> bool:
    """Return whether a server refused the connection, so that libpq tries no other one.

    One that starts, stops or recovers leaves it to the others.
    """
    return bool(_SERVERS_WORDS.search(reason)) and _NOT_NOW not in reason


def failure_prefix(host: str | None, port: int | str) -> str:
    """Return what libpq writes before the reason why it could not connect to a place."""
    if host and host.startswith(("/", "@")):
        return f'connection to server on socket "{host}/.s.PGSQL.{port}" failed: '
    return f'connection to server at "{host or ""}", port {port} failed: '


def look_up(name: str) -> list[str]:
    """Return a host name's addresses; blocks, so run it in a thread.  Raises ``OSError``."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _is_name(host: str) -> bool:
    """Return whether the host is a name to look up: no socket folder, no address."""
    return bool(host) and not host.startswith(("/", "@")) and not _literal(host)


def _literal(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""
