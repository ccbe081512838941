"""Ports for what the tests start in processes of its own."""

from __future__ import annotations

import itertools
import os
import socket

_PORTS = range(20_000, 32_768)
"""Below what systems take for outgoing connections, which could take a port before it is listened on."""

_NUMBERS = itertools.count(os.getpid() * 997)
"""Where to begin and go on: test runs at the same time begin elsewhere."""


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on; each call returns another one.

    :raises OSError: when there is none.
    """
    for _ in _PORTS:
        port = _PORTS[next(_NUMBERS) % len(_PORTS)]
        if _is_free(port):
            return port
    raise OSError(f"every port from {_PORTS.start} to {_PORTS.stop - 1} is taken")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
