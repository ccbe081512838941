"""Rules for URLs and addresses of receivers (docs/reference/webhooks.md, Addresses).

URLs are parsed only with the strict grammar below: ``urlsplit`` drops characters that other parsers keep, and
resolvers accept ``127.1`` and ``0x7f000001`` as addresses. ``ipaddress.is_global`` is insufficient, because
it accepts NAT64, 6to4, multicast and other addresses that may reach internal hosts.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import quote, urlsplit

import idna

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, texts))


REFUSED_IPV4 = networks(
    (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carriers' NAT
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's host
        "169.254.0.0/16",  # link-local, clouds' metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and 255.255.255.255
    )
)

GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
"""Public unicast addresses. Excludes mapped, NAT64, unique local, link-local and multicast addresses."""

REFUSED_IPV6 = networks(
    (
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)

MAX_URL_LENGTH = 2048
"""Maximum length of a URL in characters, before and after normalization."""

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?]*)(?P<path>[^?]*)(?P<query>\?.*)?", re.DOTALL
)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[^:]*))?")
_PORT = re.compile("[1-9][0-9]{0,4}")
_LABEL = re.compile("[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER = re.compile("[0-9]+|0x[0-9a-f]*")
_PORTS = {"http": 80, "https": 443}
_INTERNAL_ZONES = frozenset({"localhost", "local", "internal", "arpa"})
_PATH_CHARACTERS = "!$%&'()*+,/:;=@~"
_QUERY_CHARACTERS = _PATH_CHARACTERS + "?[]"
_MAX_NAME_LENGTH = 253


def is_allowed(address: Address, allowed: Iterable[Network]) -> bool:
    return any(address in network for network in allowed)


def is_refused(address: Address, allowed: Iterable[Network] = ()) -> bool:
    if is_allowed(address, allowed):
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return any(address in network for network in REFUSED_IPV4)
    return address not in GLOBAL_IPV6 or any(address in network for network in REFUSED_IPV6)


class UrlRule(StrEnum):
    """Messages for URLs that violate a rule."""

    LENGTH = f"The URL is longer than {MAX_URL_LENGTH} characters"
    CHARACTERS = "The URL contains a blank, a backslash, or a control or invisible character"
    FRAGMENT = "The URL has a fragment"
    SYNTAX = "The URL is not of the form scheme://host:port/path?query"
    SCHEME = "The URL's scheme is not accepted"
    USERINFO = "The URL contains a user name or password"
    HOST = "The URL's host is not the name of a public host"
    ADDRESS = "The URL's host must be a name, not an address"
    PORT = "The URL's port is not a number from 1 to 65535"


class UrlRefused(ValueError):
    """Raised for a URL that violates a rule."""

    def __init__(self, rule: UrlRule) -> None:
        super().__init__(rule)
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Destination:
    """The parsed and checked URL of an endpoint.

    :ivar host: ASCII name in lower case, or an allowed address.
    :ivar path_and_query: request target, never empty.
    :ivar host_header: host, with the port unless it is the default one.
    """

    scheme: str
    host: str
    port: int
    path_and_query: str
    host_header: str

    @property
    def address(self) -> Address | None:
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host_header}{self.path_and_query}"


def parse(url: str, *, require_https: bool = False, allowed: Sequence[Network] = ()) -> Destination:
    """Parse an endpoint's URL. Raises ``UrlRefused``.

    Addresses are rejected unless they are in an ``allowed`` network. Names of internal zones, such as
    ``localhost`` and ``*.internal``, are always rejected: otherwise, creators of endpoints could select a
    virtual host of an allowed server.
    """
    if len(url) > MAX_URL_LENGTH:
        raise UrlRefused(UrlRule.LENGTH)
    if any(map(_is_ambiguous, url)):
        raise UrlRefused(UrlRule.CHARACTERS)
    if "#" in url:
        raise UrlRefused(UrlRule.FRAGMENT)
    parts = _URL.fullmatch(url)
    if parts is None:
        raise UrlRefused(UrlRule.SYNTAX)
    scheme = parts["scheme"].lower()
    if scheme not in _PORTS or (require_https and scheme != "https"):
        raise UrlRefused(UrlRule.SCHEME)
    host, port = _split_authority(parts["authority"], _PORTS[scheme])
    host = _checked_address(host[1:-1], allowed) if host.startswith("[") else _checked_host(host, allowed)
    path = quote(parts["path"] or "/", safe=_PATH_CHARACTERS) + quote(
        parts["query"] or "", safe=_QUERY_CHARACTERS
    )
    bracketed = f"[{host}]" if ":" in host else host
    destination = Destination(
        scheme, host, port, path, bracketed if port == _PORTS[scheme] else f"{bracketed}:{port}"
    )
    if len(destination.url) > MAX_URL_LENGTH:
        raise UrlRefused(UrlRule.LENGTH)
    return destination


def _is_ambiguous(character: str) -> bool:
    # Parsers disagree about backslashes, and about blank, control and invisible characters.
    return character == "\\" or unicodedata.category(character)[0] in "CZ"


def _split_authority(authority: str, default: int) -> tuple[str, int]:
    if "@" in authority:
        raise UrlRefused(UrlRule.USERINFO)
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        raise UrlRefused(UrlRule.SYNTAX)
    if parts["port"] is None:
        return parts["host"], default
    if _PORT.fullmatch(parts["port"]) is None or int(parts["port"]) > 65535:
        raise UrlRefused(UrlRule.PORT)
    return parts["host"], int(parts["port"])


def _checked_address(text: str, allowed: Sequence[Network]) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise UrlRefused(UrlRule.HOST) from None
    # Networks do not contain addresses with a zone, such as "%eth0".
    if "%" in text or not is_allowed(address, allowed):
        raise UrlRefused(UrlRule.ADDRESS)
    return str(address)


def _checked_host(host: str, allowed: Sequence[Network]) -> str:
    try:
        labels = [_ascii_label(label) for label in host.split(".")]
    except UnicodeError:
        raise UrlRefused(UrlRule.HOST) from None
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise UrlRefused(UrlRule.HOST)
    name = ".".join(labels)
    if _NUMBER.fullmatch(labels[-1]):
        return _checked_address(name, allowed)
    if len(labels) < 2 or len(name) > _MAX_NAME_LENGTH or labels[-1] in _INTERNAL_ZONES:
        raise UrlRefused(UrlRule.HOST)
    return name


def _ascii_label(label: str) -> str:
    # IDNA 2008. Labels that NFKC changes are rejected, because other programs may normalize them.
    if unicodedata.normalize("NFKC", label) != label:
        raise UnicodeError
    lowered = label.lower()
    if lowered.isascii() and not lowered.startswith("xn--"):
        return lowered
    return idna.alabel(lowered).decode("ascii")


@lru_cache(4096)
def host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or url
    except ValueError:
        return url
