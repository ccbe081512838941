"""Connection strings, libpq's environment variables, and the servers to try in libpq's order.

libpq blocks while it resolves host names, so we pass it addresses as well as names. In non-blocking mode it
also ignores the timeout per host, so we pass it one host at a time.
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
_MAX_PORT = 65535
_DEFAULT_PORT = 5432


def is_connection_string(text: str) -> bool:
    """Whether the text is a URI or a ``keyword=value`` string with known keywords and valid ports.

    The URI ``postgresql://`` is valid: all its parameters come from the environment.
    """
    if "\0" in text:
        # libpq would ignore all text after the NUL.
        return False
    try:
        parameters = _parse(text)
    except (psycopg.ProgrammingError, UnicodeEncodeError):
        return False
    ports = str(parameters.get("port", "")).split(",")
    return (bool(parameters) or text.startswith(_SCHEMES)) and all(
        not port or (port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT) for port in ports
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
_NEEDS_ESCAPE = re.compile(r"[\s\\]")
LOAD_BALANCE = "load_balance_hosts"


def connection_parameters(uri: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return libpq's parameters from a connection string, its service and the environment.

    :raises psycopg.ProgrammingError: if libpq cannot parse the string.
    """
    explicit = _parse(uri)
    name = explicit.get("service") or environ.get("PGSERVICE")
    service = _service(name, environ) if name else {}
    variables = {key: environ[variable] for variable, key in _VARIABLES.items() if environ.get(variable)}
    return {**variables, **service, **explicit}


def _parse(uri: str) -> dict[str, str]:
    params = {name: str(value) for name, value in conninfo_to_dict(uri).items()}
    if params.get(LOAD_BALANCE, "disable") not in ("disable", "random"):
        raise psycopg.ProgrammingError(f'invalid {LOAD_BALANCE} value: "{params[LOAD_BALANCE]}"')
    return params


def _service(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return a service's parameters from the first file that defines it. libpq reports a missing service."""
    for path in _service_files(environ):
        with suppress(OSError, UnicodeDecodeError):
            parameters = _read_service(path.read_text("utf-8").splitlines(), name)
            if parameters is not None:
                return parameters
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
    parameters: dict[str, str] | None = None
    for line in map(str.strip, lines):
        if line.startswith("["):
            if parameters is not None:
                break
            parameters = {} if line == f"[{name}]" else None
        elif parameters is not None and (setting := _SETTING.fullmatch(line)):
            parameters.setdefault(setting[1], setting[2])
    return parameters


SESSION_ATTRS = "target_session_attrs"

# Only messages from the server itself start with a (localized) severity and two spaces.
_SERVER_MESSAGE = re.compile(r"failed: \S+:  ")
_TEMPORARY_REFUSAL = "the database system is "

_DEFAULTS = {
    "fallback_application_name": "dataapi",
    # Detect a vanished peer within about a minute.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


@dataclass(frozen=True, slots=True)
class ConnectionTarget:
    """A server to try, with at most one host, address and port.

    ``problem`` is the reason not to try the server, "" if there is none.
    """

    parameters: dict[str, str]
    problem: str = ""


def parameters(uri: str) -> dict[str, str]:
    """Return libpq's parameters from a connection string and the environment, with our defaults.

    :raises psycopg.ProgrammingError: if libpq cannot parse the string.
    """
    return {**_DEFAULTS, **connection_parameters(uri), "client_encoding": "UTF8"}


def with_settings(
    params: dict[str, str], settings: Iterable[tuple[str, str]], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    options = [params.get("options") or environ.get("PGOPTIONS", "")]
    for name, value in settings:
        escaped = _NEEDS_ESCAPE.sub(r"\\\g<0>", value)
        options.append(f"-c {name}={escaped}")
    return {**params, "options": " ".join(filter(None, options))}


def primary_uri(uri: str) -> str:
    """Return a connection string that selects the primary among the servers of a URI.

    The URI is returned unchanged if it has only one address or socket, or already selects the primary.
    """
    params = connection_parameters(uri)
    hosts, addresses, _ = _lists(params)
    has_choice = len(hosts) > 1 or len(addresses) > 1 or has_host_names(params)
    if not has_choice or params.get(SESSION_ATTRS) in ("read-write", "primary"):
        return uri
    return _connection_string({**params, SESSION_ATTRS: "primary"})


def balances(uri: str) -> bool:
    return connection_parameters(uri).get(LOAD_BALANCE) == "random"


def is_replica_string(text: str) -> bool:
    """Whether the text is a connection string that may connect to a standby."""
    if not is_connection_string(text):
        return False
    params = connection_parameters(text, {})
    return params.get(SESSION_ATTRS) not in ("primary", "read-write") and _listed_hosts(params) is not None


def prefers_standbys(uri: str) -> bool:
    return connection_parameters(uri).get(SESSION_ATTRS) in ("standby", "prefer-standby", "read-only")


def servers(uri: str) -> dict[str, str]:
    """Return a connection string for each host of a URI, by ``host:port``.

    Each string accepts its server as a primary or as a standby, because that can change.
    """
    params = {**connection_parameters(uri), SESSION_ATTRS: "any"}
    uris = {}
    for host, address, port in _listed_hosts(params) or [(None, None, None)]:
        name = f"{host or address or 'localhost'}:{port or _DEFAULT_PORT}"
        uris[name] = _connection_string(_with_host(params, host, address, port))
    return uris


def _connection_string(params: dict[str, str]) -> str:
    return make_conninfo(**{name: value for name, value in params.items() if name != LOAD_BALANCE})


def connect_timeout(params: dict[str, str]) -> float:
    seconds = params.get("connect_timeout", "")
    return float(seconds) if seconds.isdigit() and int(seconds) > 0 else 10.0


def has_host_names(params: dict[str, str]) -> bool:
    hosts, addresses, _ = _lists(params)
    return any(
        _is_name(host) and not address for host, address in zip_longest(hosts, addresses, fillvalue="")
    )


def targets(
    params: dict[str, str],
    resolve: Callable[[str], list[str]],
    shuffle: Callable[[list[Any]], object] = random.shuffle,
    rank: Callable[[dict[str, str]], int] = lambda _: 0,
) -> list[ConnectionTarget]:
    """Return the servers to try in libpq's order, one for each address of each host.

    :param resolve: returns the addresses of a host name, or raises ``OSError``.
    :param shuffle: shuffles a list, used if ``load_balance_hosts`` is ``random``.
    :param rank: returns a sort key for a server's parameters. Servers with equal keys retain their order.
    """
    listed = _listed_hosts(params)
    if listed is None:
        return [ConnectionTarget(params)]  # libpq reports the error
    reorder = shuffle if params.get(LOAD_BALANCE) == "random" else lambda _: None
    reorder(listed)
    result = []
    for host, address, port in listed:
        addresses = _targets_of_host(_with_host(params, host, address, port), resolve)
        reorder(addresses)
        result += addresses
    result.sort(key=lambda target: rank(target.parameters))
    return _in_passes(result or [ConnectionTarget(params)])


def next_server(params: dict[str, str], failures: int) -> dict[str, str]:
    """Return the parameters of the server to try after a number of failures. Blocks.

    :raises OSError: if the host name cannot be resolved.
    """
    listed = targets(params, resolve_host)
    target = listed[failures % len(listed)]
    if target.problem:
        raise OSError(target.problem)
    return target.parameters


_HostEntry = tuple[str | None, str | None, str | None]
"""Host, address and port."""


def _listed_hosts(params: dict[str, str]) -> list[_HostEntry] | None:
    hosts, addresses, ports = _lists(params)
    count = max(len(hosts), len(addresses))
    ports = ports * count if len(ports) == 1 else ports
    if not all(len(listed) in (0, count) for listed in (hosts, addresses, ports)):
        return None
    return list(zip_longest(hosts, addresses, ports, fillvalue=None))


def _lists(params: dict[str, str]) -> tuple[list[str], list[str], list[str]]:
    hosts, addresses, ports = (
        params[name].split(",") if name in params else [] for name in ("host", "hostaddr", "port")
    )
    return hosts, addresses, ports


def _with_host(
    params: dict[str, str], host: str | None, address: str | None, port: str | None
) -> dict[str, str]:
    own = {"host": host, "hostaddr": address or None, "port": port}
    others = {name: value for name, value in params.items() if name not in own and name != LOAD_BALANCE}
    return {**others, **{name: value for name, value in own.items() if value is not None}}


def _targets_of_host(params: dict[str, str], resolve: Callable[[str], list[str]]) -> list[ConnectionTarget]:
    host = params.get("host", "")
    if "hostaddr" in params or not _is_name(host):
        return [ConnectionTarget(params)]
    try:
        return [ConnectionTarget({**params, "hostaddr": address}) for address in resolve(host)]
    except OSError as error:
        reason = error.strerror or str(error)
        return [ConnectionTarget(params, f'could not translate host name "{host}" to address: {reason}')]


def has_several_hosts(params: dict[str, str]) -> bool:
    return len(_listed_hosts(params) or []) > 1


def without_server(params: dict[str, str], server: dict[str, str]) -> dict[str, str]:
    return _with_hosts(params, [one for one in _listed_hosts(params) or [] if not _matches(one, server)])


def _matches(listed: _HostEntry, server: dict[str, str]) -> bool:
    host, address, port = listed
    # Entries with only a host name have no address yet.
    own_address = not address or address == server.get("hostaddr")
    return own_address and (host, port) == (server.get("host"), server.get("port"))


def _with_hosts(params: dict[str, str], listed: list[_HostEntry]) -> dict[str, str]:
    lists = dict(zip(("host", "hostaddr", "port"), zip(*listed, strict=True), strict=False))
    joined = {name: ",".join(each or "" for each in lists[name]) for name in lists if name in params}
    return {**params, **joined}


def _in_passes(targets: list[ConnectionTarget]) -> list[ConnectionTarget]:
    """Return the targets. If standbys are preferred, list the targets as standbys, then again in any role."""
    if len(targets) == 1 or targets[0].parameters.get(SESSION_ATTRS) != "prefer-standby":
        return targets
    return [
        replace(target, parameters={**target.parameters, SESSION_ATTRS: attribute})
        for attribute in ("standby", "any")
        for target in targets
    ]


def server_key(server: Mapping[str, str]) -> tuple[str | None, ...]:
    return tuple(server.get(name) for name in ("host", "hostaddr", "port"))


def refused_by_server(reason: str) -> bool:
    """Whether a server rejected the connection, so that libpq would not try the next host.

    Servers that are starting, stopping or recovering do not count.
    """
    return bool(_SERVER_MESSAGE.search(reason)) and _TEMPORARY_REFUSAL not in reason


def failure_prefix(host: str | None, port: int | str) -> str:
    if host and host.startswith(("/", "@")):
        return f'connection to server on socket "{host}/.s.PGSQL.{port}" failed: '
    return f'connection to server at "{host or ""}", port {port} failed: '


def resolve_host(name: str) -> list[str]:
    """Return the addresses of a host name. Blocks, so call it in a thread.

    :raises OSError: if the name cannot be resolved.
    """
    entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def _is_name(host: str) -> bool:
    return bool(host) and not host.startswith(("/", "@")) and not _literal(host)


def _literal(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""
