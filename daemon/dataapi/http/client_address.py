"""The client's IP address, taking trusted proxies into account."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_PORT = re.compile(r"^(?:\[([^\]]*)\](?::[0-9]+)?|([0-9.]+):[0-9]+)$")


def address_of(peer: object) -> str:
    address = _parse(str(getattr(peer, "host", "")))
    return "" if address is None else str(address)


class TrustedProxies:
    """Proxies that may report their clients' addresses in ``X-Forwarded-For`` (``trusted-proxies``).

    A Unix socket is trusted: its file permissions decide who connects.

    :param networks: addresses and networks in CIDR notation.
    """

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = tuple(map(ip_network, networks))
        self.trusts = lru_cache(maxsize=1024)(self._is_listed)

    def _is_listed(self, address: str) -> bool:
        return not address or any(ip_address(address) in network for network in self._networks)

    def client(self, peer: str, forwarded_for: str) -> str:
        """Return the address of the client: the last address that is not a trusted proxy's.

        Each proxy appends the address of its peer. A client can forge everything before its own address.

        :param peer: address of the connection's peer, "" for a Unix socket.
        :param forwarded_for: value of ``X-Forwarded-For``.
        """
        client = peer
        for hop in reversed(forwarded_for.split(",")):
            if not self.trusts(client):
                break
            address = _parse(hop.strip())
            if address is None:
                break
            client = str(address)
        return client


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    match = _PORT.match(text)
    try:
        address = ip_address(text if match is None else match[1] or match[2])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
