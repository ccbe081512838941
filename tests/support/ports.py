"""Ports for processes that the tests start."""

from __future__ import annotations

import itertools
import os
import socket

_PORTS = range(20_000, 32_768)
"""Ports below the range for outgoing connections."""

_NUMBERS = itertools.count(os.getpid() * 997)
"""Sequence of candidate ports. Concurrent test runs start at different ones."""


def free_port() -> int:
    """Return an unused port of 127.0.0.1; each call returns a different one.

    :raises OSError: if there is none.
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
