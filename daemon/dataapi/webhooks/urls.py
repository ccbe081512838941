"""Where an endpoint's URL leads, or which rule refuses it (reference/webhooks.md section 4, "URL traps").

The URL is read by the grammar below and by nothing else: ``urlsplit`` drops characters that others keep, and
resolvers take ``127.1`` or ``0x7f000001`` for addresses.  Only a ``Target`` goes on from here.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import quote

import idna

from dataapi.webhooks.addresses import is_allowed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataapi.webhooks.addresses import Address, Network

LONGEST = 2048
"""Characters that a URL may have, as given and as sent."""

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?]*)(?P<path>[^?]*)(?P<query>\?.*)?", re.DOTALL
)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[^:]*))?")
_PORT = re.compile("[1-9][0-9]{0,4}")
_LABEL = re.compile("[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER = re.compile("[0-9]+|0x[0-9a-f]*")
_PORTS = {"http": 80, "https": 443}
_INNER_ZONES = frozenset({"localhost", "local", "internal", "arpa"})
_KEPT = "!#$%&'()*+,/:;=?@[]~"
_ALLOWED_NAME = 253


class Rule(StrEnum):
    """What an endpoint's URL is refused for."""

    LENGTH = "length"
    CHARACTERS = "characters"
    FRAGMENT = "fragment"
    SYNTAX = "syntax"
    SCHEME = "scheme"
    USERINFO = "userinfo"
    HOST = "host"
    ADDRESS = "address"
    PORT = "port"


_MESSAGES = {
    Rule.LENGTH: f"The URL is longer than {LONGEST} characters",
    Rule.CHARACTERS: "The URL has a blank, a backslash, or a control or invisible character",
    Rule.FRAGMENT: "The URL has a fragment",
    Rule.SYNTAX: "The URL is not of the form scheme://host:port/path?query",
    Rule.SCHEME: "The URL's scheme is not accepted",
    Rule.USERINFO: "The URL has a user name or password",
    Rule.HOST: "The URL's host is not the name of a public host",
    Rule.ADDRESS: "The URL's host is an address, not a name",
    Rule.PORT: "The URL's port is not a number from 1 to 65535",
}


class UrlRefused(ValueError):
    """An endpoint's URL breaks a rule.

    :ivar rule: which one.
    """

    def __init__(self, rule: Rule) -> None:
        super().__init__(_MESSAGES[rule])
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Target:
    """Where a delivery goes.

    :ivar scheme: ``http`` or ``https``.
    :ivar host: an ASCII name in lower case, or an address of a network that the operator allows.
    :ivar path_and_query: as it is sent in the request line; never empty.
    :ivar host_header: the host, with the port where it is not the scheme's own.
    """

    scheme: str
    host: str
    port: int
    path_and_query: str
    host_header: str

    @property
    def address(self) -> Address | None:
        """The host when it is an address, None when it is a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    @property
    def url(self) -> str:
        """The URL in ASCII."""
        return f"{self.scheme}://{self.host_header}{self.path_and_query}"


def parse(url: str, *, require_https: bool = False, allowed: Sequence[Network] = ()) -> Target:
    """Read an endpoint's URL, or raise ``UrlRefused``.

    A host that is an address is refused unless it lies within ``allowed``, the operator's networks.  Names of
    inner zones (``localhost``, ``*.internal`` and so on) stay refused even then: they would let whoever
    creates endpoints choose among an allowed server's virtual hosts.
    """
    if len(url) > LONGEST:
        raise UrlRefused(Rule.LENGTH)
    if any(map(_is_trap, url)):
        raise UrlRefused(Rule.CHARACTERS)
    if "#" in url:
        raise UrlRefused(Rule.FRAGMENT)
    parts = _URL.fullmatch(url)
    if parts is None:
        raise UrlRefused(Rule.SYNTAX)
    scheme = parts["scheme"].lower()
    if scheme not in _PORTS or (require_https and scheme != "https"):
        raise UrlRefused(Rule.SCHEME)
    host, port = _split_authority(parts["authority"], _PORTS[scheme])
    host = _checked_address(host[1:-1], allowed) if host.startswith("[") else _checked_host(host, allowed)
    path = quote((parts["path"] or "/") + (parts["query"] or ""), safe=_KEPT)
    shown = f"[{host}]" if ":" in host else host
    target = Target(scheme, host, port, path, shown if port == _PORTS[scheme] else f"{shown}:{port}")
    if len(target.url) > LONGEST:
        raise UrlRefused(Rule.LENGTH)
    return target


def _is_trap(character: str) -> bool:
    """Tell whether programs disagree about the character: blank, control, invisible, backslash."""
    return character == "\\" or unicodedata.category(character)[0] in "CZ"


def _split_authority(authority: str, default: int) -> tuple[str, int]:
    if "@" in authority:
        raise UrlRefused(Rule.USERINFO)
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        raise UrlRefused(Rule.SYNTAX)
    if parts["port"] is None:
        return parts["host"], default
    if _PORT.fullmatch(parts["port"]) is None or int(parts["port"]) > 65535:
        raise UrlRefused(Rule.PORT)
    return parts["host"], int(parts["port"])


def _checked_address(text: str, allowed: Sequence[Network]) -> str:
    """Return the address as it is usually written; ``UrlRefused`` unless the operator allows it."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise UrlRefused(Rule.HOST) from None
    # A zone ("%eth0") is outside of what an allowed network says.
    if "%" in text or not is_allowed(address, allowed):
        raise UrlRefused(Rule.ADDRESS)
    return str(address)


def _checked_host(host: str, allowed: Sequence[Network]) -> str:
    """Return the name in ASCII (IDNA 2008), or the address; raise ``UrlRefused`` for any other."""
    try:
        labels = [_ascii_label(label) for label in host.split(".")]
    except UnicodeError:
        raise UrlRefused(Rule.HOST) from None
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise UrlRefused(Rule.HOST)
    name = ".".join(labels)
    if _NUMBER.fullmatch(labels[-1]):
        return _checked_address(name, allowed)
    if len(labels) < 2 or len(name) > _ALLOWED_NAME or labels[-1] in _INNER_ZONES:
        raise UrlRefused(Rule.HOST)
    return name


def _ascii_label(label: str) -> str:
    """Return the label in ASCII and lower case; full-width digits and the like are refused, not translated.

    Raises ``UnicodeError``, which ``idna.IDNAError`` is.
    """
    if unicodedata.normalize("NFKC", label) != label:
        raise UnicodeError
    lowered = label.lower()
    if lowered.isascii() and not lowered.startswith("xn--"):
        return lowered
    return idna.alabel(lowered).decode("ascii")
