"""Parsers of configuration values. They raise ``InvalidValue``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from configparser import ConfigParser
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

from dataapi.auth.keys import check_key_url, is_url, parse_keys
from dataapi.auth.role_path import parse_role_path
from dataapi.catalog.directives import FEATURES
from dataapi.database.address import is_connection_string, is_replica_string
from dataapi.database.sql_text import is_allowed_setting
from dataapi.http.headers import is_settable
from dataapi.settings import REST_FEATURES, TransactionEnd
from dataapi.webhooks.event_types import TYPE

_WHOLE = re.compile("[0-9]{1,15}")
_DECIMAL = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_LONGEST_LIMIT = 2_000_000
_LONGEST_NAME = 63
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")
_ORIGIN = re.compile(
    r"[a-z][a-z0-9+.-]*://[A-Za-z0-9._-]+(:[0-9]{1,5})?|[a-z][a-z0-9+.-]*://\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?"
)
_SYSTEM_SCHEMAS = frozenset({"pg_catalog", "information_schema"})


class InvalidValue(ValueError):
    """Raised when a value is invalid. The message describes the expected value."""


def checked(accepts: Callable[[str], object], expected: str) -> Callable[[str], str]:
    """Return a parser that returns a value unchanged if ``accepts(value)`` is true."""

    def parse(value: str) -> str:
        if not accepts(value):
            raise InvalidValue(expected)
        return value

    return parse


def one_of(*names: str) -> Callable[[str], str]:
    return checked(names.__contains__, f"expected one of {', '.join(names)}")


def listed(value: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in re.split(r"[,\n]", value) if item.strip())


def each(
    accepts: Callable[[str], object], expected: str, convert: Callable[[str], str] = str
) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of lists. ``accepts`` must be true for every item after conversion."""

    def parse(value: str) -> tuple[str, ...]:
        items = tuple(map(convert, listed(value)))
        if not all(map(accepts, items)):
            raise InvalidValue(expected)
        return items

    return parse


def boolean(value: str, expected: str = "expected yes or no") -> bool:
    parsed = ConfigParser.BOOLEAN_STATES.get(value.lower())
    if parsed is None:
        raise InvalidValue(expected)
    return parsed


def automatic(value: str) -> bool | None:
    return None if value.lower() == "auto" else boolean(value, "expected yes, no or auto")


def whole(minimum: int, further: str = "", *, maximum: int | None = None) -> Callable[[str], int]:
    """Return a parser of integers of at least ``minimum``. ``further`` is appended to the error message."""
    expected = f"expected a whole number of at least {minimum}{further}"
    if maximum is not None:
        expected = f"expected a whole number from {minimum} to {maximum}"

    def parse(value: str) -> int:
        if (
            _WHOLE.fullmatch(value) is None
            or int(value) < minimum
            or (maximum is not None and int(value) > maximum)
        ):
            raise InvalidValue(expected)
        return int(value)

    return parse


count, positive = whole(0), whole(1)


def workers(value: str) -> int:
    return len(os.sched_getaffinity(0)) if value.lower() == "auto" else whole(1, ", or auto")(value)


def seconds(value: str) -> float:
    if _DECIMAL.fullmatch(value) is None or not float(value) > 0:
        raise InvalidValue("expected a positive number of seconds, such as 10 or 0.5")
    return float(value)


def time_limit(value: str) -> float | None:
    """Parse a number of seconds. 0 and an empty value mean no limit (None)."""
    if not value:
        return None
    if _DECIMAL.fullmatch(value) is None or float(value) > _LONGEST_LIMIT:
        raise InvalidValue(f"expected seconds up to {_LONGEST_LIMIT}, such as 30 or 0.5, or 0 for no limit")
    return float(value) or None


def waits(value: str) -> tuple[float, ...]:
    items = each(_DECIMAL.fullmatch, "expected seconds separated by commas, such as 10, 30, 90, 270")(value)
    return tuple(map(float, items))


_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'+.^_`|~-]+\*?")
header_names = each(
    _HEADER_NAME.fullmatch,
    "expected names of headers separated by commas, such as user-agent, sec-*",
    str.lower,
)

event_types = each(TYPE.fullmatch, "expected event types separated by commas, such as v1.shop.order")

event_type = checked(TYPE.fullmatch, "expected an event type such as v1.shop.order")


def transaction_end(value: str) -> TransactionEnd:
    return TransactionEnd(one_of(*(end.value for end in TransactionEnd))(value))


def schemas(value: str) -> tuple[str, ...]:
    names = listed(value)
    if not names:
        raise InvalidValue("expected at least one schema")
    if len(set(names)) < len(names):
        raise InvalidValue("expected each schema only once")
    forbidden = _SYSTEM_SCHEMAS.intersection(names)
    if forbidden:
        raise InvalidValue(
            f"expected schemas of the application; {', '.join(sorted(forbidden))} cannot be exposed"
        )
    return names


ref = checked(re.compile("[a-z]{20}").fullmatch, "expected 20 letters a-z")

slug = checked(re.compile(r"[\w-]{1,64}", re.ASCII).fullmatch, "expected up to 64 letters, digits, - and _")

hosts = each(
    _HOST.fullmatch, "expected host names without scheme and port, such as api.example.org", str.lower
)

database_uri = checked(
    is_connection_string, "expected postgresql://user:password@host:port/database or host=... dbname=..."
)

replicas_uri = checked(
    is_replica_string,
    "expected postgresql://user@host,host/database, without target_session_attrs=primary or read-write",
)


channel = checked(re.compile("[A-Za-z_][A-Za-z0-9_]{0,62}").fullmatch, "expected a name such as pgrst")


notify_channel = checked(
    lambda value: 0 < len(value.encode()) <= _LONGEST_NAME and "\0" not in value,
    f"expected the name of a channel, of at most {_LONGEST_NAME} bytes",
)
"""Parses the name of a channel. Other programs choose it, so every name that PostgreSQL accepts is valid."""


def jwt_secret(value: str) -> str:
    """Parse the key that verifies tokens: a secret for HS256, a JWK, a JWKS, or the URL of a JWKS."""
    try:
        if is_url(value):
            check_key_url(value)
        else:
            parse_keys(value)
    except ValueError as error:
        raise InvalidValue(
            f"{error}; expected a secret of 32 characters or more, a JWK, a JWKS, or the https URL of one"
        ) from None
    return value


def claim_path(value: str) -> str:
    try:
        parse_role_path(value)
    except ValueError as error:
        raise InvalidValue(str(error)) from None
    return value


def features(value: str) -> frozenset[str]:
    return frozenset(each(FEATURES.__contains__, f"expected some of {', '.join(FEATURES)}")(value))


def rest_features(value: str) -> frozenset[str]:
    return frozenset(each(REST_FEATURES.__contains__, f"expected some of {', '.join(REST_FEATURES)}")(value))


def folder(value: str) -> Path:
    """Parse the path of an existing directory, relative to the working directory at startup."""
    path = Path(value).absolute()
    if not path.is_dir():
        raise InvalidValue("expected a folder that exists")
    return path


def api_keys(value: str) -> tuple[str, ...]:
    keys = each(
        lambda key: key.isascii() and key.isprintable() and " " not in key,
        "expected keys of ASCII letters, digits and punctuation, separated by commas or newlines",
    )(value)
    if len(set(keys)) < len(keys):
        raise InvalidValue("expected each key only once")
    return keys


setting_names = each(
    is_allowed_setting, "expected names of PostgreSQL's settings, such as statement_timeout", str.lower
)
"""Parses names of settings that may be set for a request, in lower case (PostgreSQL ignores case)."""

setting_name = checked(
    is_allowed_setting, "expected a name of letters, digits and _, such as app.settings.name"
)

setting_value = checked(lambda value: "\0" not in value, "expected text without NUL characters")

header_name = checked(is_settable, "expected the name of a header, such as X-Request-Id")

origins = each(_ORIGIN.fullmatch, "expected origins without path, such as https://app.example.org")


def web_address(value: str) -> str:
    try:
        address = urlsplit(value)
        valid = address.scheme in ("http", "https") and address.hostname and (address.port or 1)
    except ValueError:
        valid = None
    if not valid or address.query or address.fragment or "@" in address.netloc:
        raise InvalidValue("expected an http or https address, such as https://api.example.org/rest/v1")
    return value


def web_addresses(value: str) -> tuple[str, ...]:
    return tuple(map(web_address, listed(value)))


def encryption_keys(value: str) -> tuple[str, ...]:
    """Parse the encryption keys of webhooks. The first key encrypts, and all keys decrypt."""
    from dataapi.webhooks.secrets import read_key  # noqa: PLC0415 - only with webhooks

    keys = listed(value)
    for number, key in enumerate(keys, 1):
        try:
            read_key(key)
        except ValueError as error:
            raise InvalidValue(
                f"key {number} is {error}; expected 32 bytes in base64, as dataapi keys prints them"
            ) from None
    return keys


def networks(value: str) -> tuple[str, ...]:
    items = listed(value)
    try:
        for item in items:
            ip_network(item)
    except ValueError:
        raise InvalidValue("expected addresses or networks such as 10.1.0.0/16, fd00::/8") from None
    return items


def proxy(value: str) -> str:
    from dataapi.webhooks.delivery.proxy import parse_proxy  # noqa: PLC0415 - only with webhooks

    try:
        parse_proxy(value)
    except ValueError:
        raise InvalidValue(
            "expected the address of an HTTP proxy, such as http://user:password@proxy.example.org:3128"
        ) from None
    return value


def bind_addresses(value: str) -> tuple[str, ...]:
    """Parse the source addresses of connections: one for IPv4, one for IPv6, or both."""
    items = listed(value)
    try:
        distinct = len({ip_address(item).version for item in items}) == len(items)
    except ValueError:
        distinct = False
    if not distinct:
        raise InvalidValue("expected an address of this machine, or one of IPv4 and one of IPv6")
    return items
