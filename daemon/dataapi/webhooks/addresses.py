"""Which addresses a delivery may never be sent to.

The lists are those of reference/webhooks.md section 4.  ``ipaddress.is_global`` is not used: it lets through
NAT64, 6to4, multicast and other forms that lead back inside.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

REFUSED_IPV4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
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
"""Outside of it nothing is a public unicast address: mapped, NAT64, unique local, link-local, multicast."""

REFUSED_IPV6 = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Read the networks of ``allow-addresses``; ``ValueError`` for what is none."""
    return tuple(ipaddress.ip_network(text) for text in texts)


def is_allowed(address: Address, allowed: Iterable[Network]) -> bool:
    """Tell whether the operator exempts the address.

    A network counts for addresses of its own kind only: one of IPv4 says nothing about mapped forms.
    """
    return any(address in network for network in allowed)


def is_refused(address: Address, allowed: Iterable[Network] = ()) -> bool:
    """Tell whether nothing may be sent to the address.

    :param allowed: the operator's networks, exempt from the rule.
    """
    if is_allowed(address, allowed):
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return any(address in network for network in REFUSED_IPV4)
    return address not in GLOBAL_IPV6 or any(address in network for network in REFUSED_IPV6)
