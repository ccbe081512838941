"""Resolution of receivers' host names, with a check of the addresses (docs/reference/webhooks.md, Addresses).

Connections are made to the checked addresses, and names are not resolved again. This prevents DNS rebinding.
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

MAX_SLOW_NAMES = 10_000
"""Maximum number of remembered names whose last lookup was slow."""

THREADS = 32
"""Number of concurrent lookups."""

SLOW = 2.0
"""Minimum duration of a slow lookup, in seconds."""


class Unresolvable(Exception):
    """Raised when the host name has no address."""


class AddressRefused(Exception):
    """Raised when an address is reserved, or a connection's peer has an address that was not checked."""


class Resolver(Protocol):
    """Resolves host names."""

    async def addresses(self, name: str) -> Sequence[Address]:
        """Return IPv4 and IPv6 addresses in order of preference. Raises ``OSError`` if there are none."""


def resolve(name: str) -> tuple[Address, ...]:
    # As bytes, because Python encodes text with IDNA 2003.
    entries = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in entries))


class SystemResolver:
    """Resolves names with the system's resolver, in dedicated threads.

    Receivers control their name servers, so slow lookups must delay neither the lookups of other receivers
    nor the daemon's own lookups in the reactor's threads. Names whose last lookup was slow share a few
    threads. Concurrent lookups of a name are combined. A lookup is skipped if its callers have been
    cancelled.

    :param function: resolves a name. Called in a thread.
    :param threads: number of threads. A quarter of this number is added for slow names.
    """

    def __init__(
        self,
        reactor: IReactorFromThreads,
        function: Callable[[str], Sequence[Address]] = resolve,
        threads: int = THREADS,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reactor = reactor
        self._function = function
        self._seconds = seconds
        self._flights: SingleFlights[str, Sequence[Address]] = SingleFlights()
        # Names whose last lookup was slow. Modified by threads.
        self._slow: set[str] = set()
        self._pool = _threads(threads)
        self._slow_pool = _threads(max(1, threads // 4))

    async def addresses(self, name: str) -> Sequence[Address]:
        return await self._flights.run(name, partial(self._resolve_in_thread, name))

    def stop(self) -> None:
        self._pool.adjustPoolsize(0, 0)
        self._slow_pool.adjustPoolsize(0, 0)

    async def _resolve_in_thread(self, name: str) -> Sequence[Address]:
        pool = self._slow_pool if name in self._slow else self._pool
        while True:
            addresses = await deferToThreadPool(self._reactor, pool, self._lookup, name)
            # Look up the name after all if another caller arrived while the lookup was being skipped.
            if addresses is not None or not self._flights.awaited(name):
                return addresses or ()

    def _lookup(self, name: str) -> Sequence[Address] | None:
        """Resolve a name. Called in a thread. Return None if all callers have been cancelled."""
        if not self._flights.awaited(name):
            return None
        started = self._seconds()
        try:
            return self._function(name)
        finally:
            if self._seconds() - started < SLOW:
                self._slow.discard(name)
            elif len(self._slow) < MAX_SLOW_NAMES:
                self._slow.add(name)


def _threads(maximum: int) -> ThreadPool:
    # Daemon threads, so that a hanging lookup does not keep the process alive.
    pool = ThreadPool(0, maximum, "dataapi-names")
    pool.threadFactory = partial(Thread, daemon=True)  # type: ignore[assignment]
    pool.start()
    return pool


class AddressCheck:
    """Resolves destinations and checks their addresses. Addresses in allowed networks are never rejected."""

    def __init__(self, resolver: Resolver, allowed: Sequence[Network] = ()) -> None:
        self._resolver = resolver
        self.allowed = tuple(allowed)

    async def addresses(self, destination: Destination) -> tuple[Address, ...]:
        """Return the addresses of a destination in order of preference.

        :raises Unresolvable: there are none.
        :raises AddressRefused: *any* of them is reserved.
        """
        literal = destination.address
        addresses = (literal,) if literal is not None else await self._lookup(destination.host)
        if any(is_refused(address, self.allowed) for address in addresses):
            raise AddressRefused(f"An address of {destination.host} is reserved")
        return addresses

    async def _lookup(self, name: str) -> tuple[Address, ...]:
        try:
            addresses = tuple(await self._resolver.addresses(name))
        except OSError:
            addresses = ()
        if not addresses:
            raise Unresolvable(f"{name} has no address")
        return addresses
