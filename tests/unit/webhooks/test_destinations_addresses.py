"""Every range of reserved addresses, its ends and neighbours (docs/reference/webhooks.md, Addresses)."""

from __future__ import annotations

import ipaddress

import pytest
from dataapi.webhooks.delivery.destinations import is_refused, networks
from hypothesis import given
from hypothesis import strategies as st

# First and last address of each range, and whether the addresses before and after it are also rejected.
RANGES = [
    ("0.0.0.0", "0.255.255.255", None, False),
    ("10.0.0.0", "10.255.255.255", False, False),
    ("100.64.0.0", "100.127.255.255", False, False),
    ("127.0.0.0", "127.255.255.255", False, False),
    ("168.63.129.16", "168.63.129.16", False, False),
    ("169.254.0.0", "169.254.255.255", False, False),
    ("172.16.0.0", "172.31.255.255", False, False),
    ("192.0.0.0", "192.0.0.255", False, False),
    ("192.0.2.0", "192.0.2.255", False, False),
    ("192.31.196.0", "192.31.196.255", False, False),
    ("192.52.193.0", "192.52.193.255", False, False),
    ("192.88.99.0", "192.88.99.255", False, False),
    ("192.168.0.0", "192.168.255.255", False, False),
    ("192.175.48.0", "192.175.48.255", False, False),
    ("198.18.0.0", "198.19.255.255", False, False),
    ("198.51.100.0", "198.51.100.255", False, False),
    ("203.0.113.0", "203.0.113.255", False, False),
    ("224.0.0.0", "239.255.255.255", False, True),
    ("240.0.0.0", "255.255.255.255", True, None),
    ("::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, False),
    ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", False, False),
    ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", False, False),
    ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", False, False),
    ("2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff", False, False),
    ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", False, False),
    ("4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", False, None),
]


@pytest.mark.parametrize(("first", "last", "before", "after"), RANGES)
def test_ranges_are_rejected_up_to_their_edges(
    first: str, last: str, before: bool | None, after: bool | None
) -> None:
    low, high = ipaddress.ip_address(first), ipaddress.ip_address(last)
    assert is_refused(low)
    assert is_refused(high)
    if before is not None:
        assert is_refused(low - 1) is before
    if after is not None:
        assert is_refused(high + 1) is after


@pytest.mark.parametrize(
    "address",
    [
        "::ffff:93.184.215.14",  # IPv4-mapped
        "::7f00:1",  # IPv4-compatible
        "64:ff9b::7f00:1",  # NAT64
        "64:ff9b:1::1",  # local-use NAT64
        "2002:7f00:1::1",  # 6to4
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",  # Teredo
        "224.0.0.1",
        "ff0e::1",
        "fec0::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "3fff::1",
        "5f00::1",
        "::1",
        "168.63.129.16",
        "255.255.255.255",
    ],
)
def test_special_addresses_are_rejected(address: str) -> None:
    """``ipaddress`` regards several of these addresses as global."""
    assert is_refused(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", ["93.184.215.14", "8.8.8.8", "2606:4700::1111", "2a00:1450::1", "2001:4860::1"]
)
def test_public_addresses_are_accepted(address: str) -> None:
    assert not is_refused(ipaddress.ip_address(address))


def test_only_allowed_networks_are_exempt() -> None:
    allowed = networks(["10.1.0.0/16", "fd00::/8", "127.0.0.1"])
    for address in ("10.1.0.0", "10.1.255.255", "fd00::1", "127.0.0.1"):
        assert not is_refused(ipaddress.ip_address(address), allowed)
    for address in ("10.0.255.255", "10.2.0.0", "fe00::", "127.0.0.2", "::ffff:10.1.0.1", "::ffff:127.0.0.1"):
        assert is_refused(ipaddress.ip_address(address), allowed)


def test_network_with_host_bits_is_invalid() -> None:
    with pytest.raises(ValueError, match="host bits"):
        networks(["10.1.0.1/16"])


V4_PREFIXES = {
    "00000000", "00001010", "0110010001", "01111111", "1010100000111111" "1000000100010000",
    "1010100111111110", "101011000001", "110000000000000000000000", "110000000000000000000010",
    "110000000001111111000100", "110000000011010011000001", "110000000101100001100011",
    "1100000010101000", "110000001010111100110000", "110001100001001", "110001100011001101100100",
    "110010110000000001110001", "1110", "1111",
}  # fmt: skip
"""The IPv4 ranges as binary prefixes."""


@given(
    st.integers(0, 2**32 - 1)
    | st.sampled_from(RANGES[:19]).flatmap(
        lambda entry: st.integers(-2, 2).map(
            lambda step: (int(ipaddress.IPv4Address(str(entry[step % 2]))) + step) % 2**32
        )
    )
)
def test_ipv4_is_rejected_by_its_binary_prefix(number: int) -> None:
    bits = f"{number:032b}"
    expected = any(bits.startswith(prefix) for prefix in V4_PREFIXES)
    assert is_refused(ipaddress.IPv4Address(number)) is expected


@given(
    st.integers(0, 2**128 - 1)
    | st.integers(0x2 << 124, 0x4 << 124)
    | st.integers(0x20010000 << 96, 0x20020001 << 96)
)
def test_ipv6_is_rejected_by_its_prefix(number: int) -> None:
    top = number >> 96
    expected = (
        top >> 29 != 1
        or 0x20010000 <= top <= 0x200101FF
        or top == 0x20010DB8
        or top >> 16 == 0x2002
        or number >> 80 == 0x2620004F8000
        or top >> 12 == 0x3FFF0
    )
    assert is_refused(ipaddress.IPv6Address(number)) is expected
