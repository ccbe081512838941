"""Twisted's endpoint strings, checked without binding a socket.

The grammar is that of ``twisted.internet.endpoints.serverFromString``: arguments are separated by ``:``,
named arguments contain ``=``, and a backslash escapes the next character.
"""

from __future__ import annotations

import re
from ipaddress import ip_address

from dataapi.service.configuration.parsers import InvalidValue

_NUMBER = re.compile(r"[0-9]{1,6}", re.ASCII)


# Arguments in positional order (the first is required) and an example, by type.
ENDPOINT_TYPES = {
    "tcp": (("port", "interface", "backlog"), "tcp:8000:interface=127.0.0.1"),
    "tcp6": (("port", "backlog", "interface"), r"tcp6:8000:interface=\:\:1"),
    "ssl": (
        (
            *("port", "privateKey", "certKey", "sslmethod"),
            *("interface", "backlog", "extraCertChain", "dhParameters"),
        ),
        "ssl:8443:privateKey=/etc/dataapi/key.pem:certKey=/etc/dataapi/cert.pem",
    ),
    "unix": (("address", "mode", "backlog", "lockfile"), "unix:/run/dataapi/http.sock:mode=660"),
    "systemd": (("domain", "index", "name"), "systemd:domain=INET:name=http"),
}
_SEPARATOR = re.compile(rf"\n|,\s*(?=(?:{'|'.join(ENDPOINT_TYPES)}):)")


def check_endpoint(text: str) -> str:
    """Return ``text`` if it is a supported endpoint. Otherwise raise ``InvalidValue``."""
    (named, name), *rest = _tokens(text)
    if named is not None or name not in ENDPOINT_TYPES:
        port = text if _in_range(text, 65535) else "8000"
        others = ", ".join(f"{kind}:…" for kind in ENDPOINT_TYPES if kind != "tcp")
        raise InvalidValue(
            f"expected a Twisted endpoint, such as tcp:{port}:interface=127.0.0.1; others are {others}"
        )
    known, example = ENDPOINT_TYPES[name]
    arguments = _arguments(name, rest)
    if known[0] not in arguments:
        raise InvalidValue(f"expected a {known[0]}, as in {example}")
    if "port" in arguments and not _in_range(arguments["port"], 65535):
        raise InvalidValue(f"expected a port from 0 to 65535, as in {example}")
    if "backlog" in arguments and not _in_range(arguments["backlog"], 65535):
        raise InvalidValue("expected a whole number for backlog")
    if "mode" in arguments and re.fullmatch("[0-7]{3,4}", arguments["mode"]) is None:
        raise InvalidValue(f"expected an octal mode, as in {example}")
    if name == "systemd" and ("index" in arguments) == ("name" in arguments):
        raise InvalidValue(f"expected either index or name, as in {example}")
    return text


def parse_endpoints(value: str) -> tuple[str, ...]:
    return tuple(check_endpoint(part.strip()) for part in _SEPARATOR.split(value) if part.strip())


def parse_some_endpoints(value: str) -> tuple[str, ...]:
    parsed = parse_endpoints(value)
    if not parsed:
        raise InvalidValue("expected at least one Twisted endpoint, such as tcp:8000:interface=127.0.0.1")
    return parsed


def is_public(text: str) -> bool:
    """Return whether other machines can reach a valid endpoint. False for ``systemd:`` endpoints."""
    (_, name), *rest = _tokens(text)
    if name not in ("tcp", "tcp6", "ssl"):
        return False
    interface = _arguments(name, rest).get("interface", "")
    try:
        return not ip_address(interface).is_loopback
    except ValueError:
        return interface != "localhost"


def http_address(text: str) -> str | None:
    """Return the URL (without path) of a valid TCP endpoint, as seen from this machine, or None."""
    (_, name), *rest = _tokens(text)
    if name not in ("tcp", "tcp6", "ssl"):
        return None
    arguments = _arguments(name, rest)
    interface = arguments.get("interface", "")
    local = "::1" if name == "tcp6" else "127.0.0.1"
    host = local if interface in ("", "0.0.0.0", "::") else interface
    scheme = "https" if name == "ssl" else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{arguments['port']}"


def unix_path(text: str) -> str | None:
    (_, name), *rest = _tokens(text)
    return _arguments(name, rest)["address"] if name == "unix" else None


def _arguments(name: str, tokens: list[tuple[str | None, str]]) -> dict[str, str]:
    known, example = ENDPOINT_TYPES[name]
    arguments: dict[str, str] = {}
    for position, (argument, value) in enumerate(tokens):
        if argument is None:
            if position >= len(known):
                raise InvalidValue(f"expected at most {len(known)} arguments, as in {example}")
            argument = known[position]  # noqa: PLW2901 - a positional argument gets its name
        elif argument not in known:
            raise InvalidValue(f"{name} has no argument {argument!r}; expected one of {', '.join(known)}")
        if argument in arguments:
            raise InvalidValue(f"expected the argument {argument} only once")
        if not value:
            raise InvalidValue(f"expected a value for {argument}, as in {example}")
        arguments[argument] = value
    return arguments


def _in_range(text: str, highest: int) -> bool:
    return _NUMBER.fullmatch(text) is not None and int(text) <= highest


def _tokens(text: str) -> list[tuple[str | None, str]]:
    tokens: list[tuple[str | None, str]] = []
    name: str | None = None
    current = ""
    characters = iter(text)
    for character in characters:
        if character == "\\":
            current += next(characters, "")
        elif character == "=" and name is None:
            name, current = current, ""
        elif character == ":":
            tokens.append((name, current))
            name, current = None, ""
        else:
            current += character
    tokens.append((name, current))
    return tokens
