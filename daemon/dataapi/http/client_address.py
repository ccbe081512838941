"""The address of a client, for every limit and log line: its own, or the one that a trusted proxy reports."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_PORT = re.compile(r"^(?:\[([^\]]*)\](?::[0-9]+)?|([0-9.]+):[0-9]+)$")


def address_of(peer: object) -> str:
    """Return the address of a connection's other end, "" for a Unix socket."""
    address = _parsed(str(getattr(peer, "host", "")))
    return "" if address is None else str(address)


class TrustedProxies:
    """The proxies whose ``X-Forwarded-For`` counts and that connect for many clients (``trusted-proxies``).

    A Unix socket is trusted: its file permissions decide who connects.

    :param networks: addresses and networks in CIDR form.
    """

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = tuple(map(ip_network, networks))
        self.trusts = lru_cache(maxsize=1024)(self._is_listed)

    def _is_listed(self, address: str) -> bool:
        """Return whether an address is a trusted proxy's; "" stands for a Unix socket."""
        return not address or any(ip_address(address) in network for network in self._networks)

    def client(self, peer: str, forwarded_for: str) -> str:
        """Return the address of the client.

        Each proxy appends the address that it was contacted from. The client's is the last one that no
        trusted proxy has; what stands before it may be forged.

        :param peer: the address of the other end of the connection.
        :param forwarded_for: the value of ``X-Forwarded-For``.
        """
        client = peer
        for named in reversed(forwarded_for.split(",")):
            if not self.trusts(client):
                break
            address = _parsed(named.strip())
            if address is None:
                break
            client = str(address)
        return client


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address, which may have a port; return None if it is none. IPv4 within IPv6 becomes IPv4."""
    found = _PORT.match(text)
    try:
        address = ip_address(text if found is None else found[1] or found[2])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
