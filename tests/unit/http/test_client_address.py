"""Client addresses for limits and logs."""

from __future__ import annotations

import pytest
from dataapi.http.client_address import TrustedProxies
from dataapi.settings import Settings

DEFAULT = Settings(()).trusted_proxies


@pytest.mark.parametrize(
    ("trusted", "peer", "forwarded", "client"),
    [
        (DEFAULT, "127.0.0.1", "192.0.2.7", "192.0.2.7"),
        (DEFAULT, "::1", "192.0.2.7, 198.51.100.4", "198.51.100.4"),
        (DEFAULT, "", "192.0.2.7", "192.0.2.7"),
        (DEFAULT, "10.0.0.7", "192.0.2.7", "10.0.0.7"),
        (DEFAULT, "203.0.113.1", "127.0.0.1", "203.0.113.1"),
        ((), "127.0.0.1", "192.0.2.7", "127.0.0.1"),
        ((), "10.0.0.7", "192.0.2.7", "10.0.0.7"),
        ((), "fd00::1", "192.0.2.7", "fd00::1"),
        (("10.0.0.0/8",), "10.0.0.7", "6.6.6.6, 192.0.2.7, 10.0.0.8", "192.0.2.7"),
        (("10.0.0.0/8",), "10.0.0.7", "10.0.0.9, 10.0.0.8", "10.0.0.9"),
        (("10.0.0.0/8",), "10.0.0.7", "192.0.2.7, unknown", "10.0.0.7"),
        (("10.0.0.0/8",), "10.0.0.7", "", "10.0.0.7"),
        (("10.0.0.0/8",), "10.0.0.7", "192.0.2.7:4711", "192.0.2.7"),
        (("10.0.0.0/8",), "10.0.0.7", "[2001:db8::1]:4711", "2001:db8::1"),
        (("10.0.0.0/8",), "10.0.0.7", "::ffff:192.0.2.7", "192.0.2.7"),
    ],
)
def test_only_trusted_proxies_set_the_client_address(
    trusted: tuple[str, ...], peer: str, forwarded: str, client: str
) -> None:
    assert TrustedProxies(trusted).client(peer, forwarded) == client
