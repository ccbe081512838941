"""From the text of a value to the value: one function per kind, each raising ``Rejected``."""

from __future__ import annotations

import ipaddress
import json
import math
import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from jwt import PyJWK, PyJWTError

from dataapi.settings.endpoints import check_endpoint, split_endpoints
from dataapi.settings.mistakes import Rejected
from dataapi.settings.model import TransactionEnd

if TYPE_CHECKING:
    from collections.abc import Callable

_WORDS = {
    "yes": True,
    "true": True,
    "on": True,
    "1": True,
    "no": False,
    "false": False,
    "off": False,
    "0": False,
}
_WHOLE = re.compile("[0-9]{1,15}")
_DECIMAL = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_REF = re.compile("[a-z]{20}")
_SLUG = re.compile(r"[\w-]{1,64}", re.ASCII)
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")
_KEYWORDS = re.compile(r"\s*[a-z_]+\s*=")
# PostgREST's JSPath: member names, quoted member names and indexes.
_CLAIM_PATH = re.compile(r'(\.[A-Za-z0-9_$@]+|\."[^"]+"|\[[0-9]{1,9}\])+')
_SYSTEM_SCHEMAS = frozenset({"pg_catalog", "information_schema"})
_MINIMUM_SECRET = 32


def text(value: str) -> str:
    """Take the value as it stands."""
    return value


def boolean(value: str) -> bool:
    """Read yes or no, also spelt true, on, 1 and false, off, 0."""
    try:
        return _WORDS[value.lower()]
    except KeyError:
        raise Rejected("expected yes or no") from None


def whole(minimum: int) -> Callable[[str], int]:
    """Return a parser of whole numbers of at least ``minimum``."""

    def parse(value: str) -> int:
        if _WHOLE.fullmatch(value) is None or int(value) < minimum:
            raise Rejected(f"expected a whole number of at least {minimum}")
        return int(value)

    return parse


def seconds(value: str) -> float:
    """Read a positive number of seconds."""
    if _DECIMAL.fullmatch(value) is None or not float(value) > 0:
        raise Rejected("expected a positive number of seconds, such as 10 or 0.5")
    return float(value)


def waits(value: str) -> tuple[float, ...]:
    """Read a list of waits in seconds; zero is allowed."""
    items = listed(value)
    if not all(_DECIMAL.fullmatch(item) and math.isfinite(float(item)) for item in items):
        raise Rejected("expected seconds separated by commas, such as 10, 30, 90, 270")
    return tuple(float(item) for item in items)


def workers(value: str) -> int:
    """Read a number of processes; ``auto`` is one per core that the process may use."""
    if value.lower() == "auto":
        return len(os.sched_getaffinity(0))
    try:
        return whole(1)(value)
    except Rejected:
        raise Rejected("expected a whole number of at least 1, or auto") from None


def one_of(*names: str) -> Callable[[str], str]:
    """Return a parser that accepts exactly ``names``."""

    def parse(value: str) -> str:
        if value not in names:
            raise Rejected(f"expected one of {', '.join(names)}")
        return value

    return parse


def transaction_end(value: str) -> TransactionEnd:
    """Read ``db-tx-end``."""
    return TransactionEnd(one_of(*(end.value for end in TransactionEnd))(value))


def listed(value: str) -> tuple[str, ...]:
    """Split at commas and line ends, dropping what is empty."""
    return tuple(item.strip() for item in re.split(r"[,\n]", value) if item.strip())


def endpoints(value: str) -> tuple[str, ...]:
    """Read endpoint strings; an empty list is for the caller to judge."""
    return tuple(check_endpoint(item) for item in split_endpoints(value))


def some_endpoints(value: str) -> tuple[str, ...]:
    """Read at least one endpoint string."""
    found = endpoints(value)
    if not found:
        raise Rejected("expected at least one Twisted endpoint, such as tcp:8000:interface=127.0.0.1")
    return found


def schemas(value: str) -> tuple[str, ...]:
    """Read the exposed schemas: at least one, each once, none of the system's."""
    names = listed(value)
    if not names:
        raise Rejected("expected at least one schema")
    if len(set(names)) < len(names):
        raise Rejected("expected each schema only once")
    forbidden = _SYSTEM_SCHEMAS.intersection(names)
    if forbidden:
        raise Rejected(
            f"expected schemas of the application; {', '.join(sorted(forbidden))} cannot be exposed"
        )
    return names


def ref(value: str) -> str:
    """Read a project reference."""
    if _REF.fullmatch(value) is None:
        raise Rejected("expected 20 letters a-z")
    return value


def slug(value: str) -> str:
    """Read an organization's slug."""
    if _SLUG.fullmatch(value) is None:
        raise Rejected("expected up to 64 letters, digits, - and _")
    return value


def hosts(value: str) -> tuple[str, ...]:
    """Read host names, in lower case and without a port."""
    names = tuple(name.lower() for name in listed(value))
    for name in names:
        if _HOST.fullmatch(name) is None:
            raise Rejected("expected host names without scheme and port, such as api.example.org")
    return names


def database_uri(value: str) -> str:
    """Read a connection string: a URI or libpq's ``keyword=value`` form."""
    if value.startswith(("postgresql://", "postgres://")):
        try:
            urlsplit(value).port  # noqa: B018 - the property raises on a port out of range
        except ValueError:
            # Several hosts, host1:5432,host2:5432, are libpq's own and no URL of RFC 3986.
            if "," not in value:
                raise Rejected("expected a connection URI with a port from 0 to 65535") from None
        return value
    if _KEYWORDS.match(value) is None:
        raise Rejected("expected postgresql://user:password@host:port/database or host=… dbname=…")
    return value


def jwt_secret(value: str) -> str:
    """Read what verifies tokens: a secret for HS256, a JWK or a JWKS."""
    if not value.lstrip().startswith("{"):
        if len(value) < _MINIMUM_SECRET:
            raise Rejected(f"expected a secret of {_MINIMUM_SECRET} characters or more, a JWK, or a JWKS")
        return value
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        raise Rejected("begins like a JWK or a JWKS and is no valid JSON") from None
    keys = document.get("keys") if "keys" in document else [document]
    if not isinstance(keys, list) or not keys:
        raise Rejected("expected a JWKS with at least one key")
    for number, key in enumerate(keys, 1):
        _check_key(key, f"key {number} of the JWKS" if "keys" in document else "the JWK")
    return value


def _check_key(key: Any, name: str) -> None:
    if not isinstance(key, dict):
        raise Rejected(f"{name} is no JSON object")
    if key.get("kty") not in ("oct", "RSA", "EC", "OKP"):
        raise Rejected(f"{name} needs a kty of oct, RSA, EC or OKP")
    try:
        PyJWK(key)
    except (PyJWTError, ValueError, TypeError, KeyError):
        raise Rejected(f"{name} cannot be read as a key of its kty and alg") from None


def claim_path(value: str) -> str:
    """Read the path of the role in the claims, as PostgREST writes it."""
    if _CLAIM_PATH.fullmatch(value) is None:
        raise Rejected('expected a path such as .role, .app.roles[0] or ."https://example.org/claims".role')
    return value


def api_keys(value: str) -> tuple[str, ...]:
    """Read opaque keys, each once."""
    keys = listed(value)
    if not all(key.isascii() and key.isprintable() and " " not in key for key in keys):
        raise Rejected("expected keys of ASCII letters, digits and signs, separated by commas or line ends")
    if len(set(keys)) < len(keys):
        raise Rejected("expected each key only once")
    return keys


def networks(value: str) -> tuple[str, ...]:
    """Read networks in CIDR form or single addresses."""
    items = listed(value)
    for item in items:
        try:
            ipaddress.ip_network(item)
        except ValueError:
            raise Rejected("expected addresses or networks such as 10.1.0.0/16, fd00::/8") from None
    return items
