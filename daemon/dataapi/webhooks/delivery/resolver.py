"""Resolving a receiver's host name and checking its addresses (docs/reference/webhooks.md, Addresses).

What is checked is what is connected to: a delivery goes to one of the addresses returned here and the name is
not resolved again, so a name server that changes its answer gains nothing.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Thread
from typing import Protocol

from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from dataapi.concurrency.tasks import SingleFlights
from dataapi.webhooks.delivery.destinations import Address, Destination, Network, is_refused

MAX_REMEMBERED = 10_000
"""Slow names that are remembered."""

THREADS = 32
"""Look-ups at once."""

SLOW = 2.0
"""Seconds from which a look-up is slow."""


class Unresolvable(Exception):
    """The receiver's host name has no address."""


class AddressRefused(Exception):
    """An address of the receiver is reserved, or a connection leads to another address than was checked."""


class Resolver(Protocol):
    """Finds the addresses of host names."""

    async def addresses(self, name: str) -> Sequence[Address]:
        """Return the IPv4 and IPv6 addresses of a name, best first; ``OSError`` when it has none."""


def look_up(name: str) -> tuple[Address, ...]:
    """Return the system's addresses of a name; blocks, so call it in a thread.  Raises ``OSError``."""
    # As bytes: Python would encode text by IDNA 2003.
    found = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in found))


class SystemResolver:
    """The system's resolver, in threads of its own.

    They are not the reactor's: receivers choose their name servers, and slow ones would delay the daemon's
    own look-ups.  Nor do they delay those of other receivers: names that were slow the last time share a few
    threads, and a look-up whose caller has gone is skipped.  Concurrent look-ups of a name are one.

    :param function: looks a name up, in a thread.
    :param threads: look-ups at once, besides a quarter as many of slow names.
    :param seconds: times look-ups.
    """

    def __init__(
        self,
        reactor: IReactorFromThreads,
        function: Callable[[str], Sequence[Address]] = look_up,
        threads: int = THREADS,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reactor = reactor
        self._function = function
        self._seconds = seconds
        self._flights: SingleFlights[str, Sequence[Address]] = SingleFlights()
        # Names whose last look-up was slow; threads change it.
        self._slow: set[str] = set()
        self._pool = _threads(threads)
        self._slow_pool = _threads(max(1, threads // 4))

    async def addresses(self, name: str) -> Sequence[Address]:
        """Return the addresses of a name; ``OSError`` when it has none."""
        return await self._flights.run(name, partial(self._resolve, name))

    def stop(self) -> None:
        """Let the threads end after their current look-ups, without waiting for them."""
        self._pool.adjustPoolsize(0, 0)
        self._slow_pool.adjustPoolsize(0, 0)

    async def _resolve(self, name: str) -> Sequence[Address]:
        pool = self._slow_pool if name in self._slow else self._pool
        while True:
            found = await deferToThreadPool(self._reactor, pool, self._look_up, name)
            # Another caller may have come while the look-up was being skipped.
            if found is not None or not self._flights.awaited(name):
                return found or ()

    def _look_up(self, name: str) -> Sequence[Address] | None:
        """Look a name up, in a thread; None when its callers have gone."""
        if not self._flights.awaited(name):
            return None
        began = self._seconds()
        try:
            return self._function(name)
        finally:
            if self._seconds() - began < SLOW:
                self._slow.discard(name)
            elif len(self._slow) < MAX_REMEMBERED:
                self._slow.add(name)


def _threads(maximum: int) -> ThreadPool:
    """Make a pool without initial threads; a hanging thread does not keep the process alive."""
    pool = ThreadPool(0, maximum, "dataapi-names")
    pool.threadFactory = partial(Thread, daemon=True)  # type: ignore[assignment]
    pool.start()
    return pool


class AddressCheck:
    """Resolves a destination and checks its addresses; the networks of ``allow-addresses`` are exempt."""

    def __init__(self, resolver: Resolver, allowed: Sequence[Network] = ()) -> None:
        self._resolver = resolver
        self.allowed = tuple(allowed)

    async def addresses(self, destination: Destination) -> tuple[Address, ...]:
        """Return the destination's addresses, best first.

        :raises Unresolvable: there is none.
        :raises AddressRefused: *any* of them is reserved.
        """
        literal = destination.address
        found = (literal,) if literal is not None else await self._look_up(destination.host)
        if any(is_refused(address, self.allowed) for address in found):
            raise AddressRefused(f"An address of {destination.host} is reserved")
        return found

    async def _look_up(self, name: str) -> tuple[Address, ...]:
        try:
            found = tuple(await self._resolver.addresses(name))
        except OSError:
            found = ()
        if not found:
            raise Unresolvable(f"{name} has no address")
        return found
