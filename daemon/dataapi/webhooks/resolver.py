"""The addresses of a receiver's host, looked up and checked (reference/webhooks.md section 4).

What is checked is what is connected to: a delivery goes to one of the addresses returned here and the name is
not looked up again, so a name server that changes its answer gains nothing.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from dataapi.webhooks.addresses import is_refused
from dataapi.webhooks.slow import SlowNames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twisted.internet.interfaces import IReactorFromThreads

    from dataapi.webhooks.addresses import Address, Network
    from dataapi.webhooks.urls import Target

THREADS = 32
"""Names that are looked up at once."""

SLOW = 2.0
"""Seconds that make a look-up a slow one."""


class Unresolvable(Exception):
    """The receiver's host name has no address."""


class AddressRefused(Exception):
    """One of the receiver's addresses is reserved, or the connection leads to another than was checked."""


class Resolver(Protocol):
    """Whatever knows the addresses of host names."""

    async def addresses(self, name: str) -> Sequence[Address]:
        """Return the IPv4 and IPv6 addresses of a name, best first; ``OSError`` when it has none."""
        ...


def look_up(name: str) -> tuple[Address, ...]:
    """Ask the system for the addresses of a name; blocks, so run it in a thread.  Raises ``OSError``."""
    # As bytes: Python would translate text once more, by rules older than ours.
    found = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in found))


class SystemResolver:
    """Looks names up as the system does, in threads of its own.

    Not in the reactor's: receivers choose their name servers, and slow ones would keep the daemon's own
    look-ups waiting.  Nor may they keep those of other receivers waiting: names that were slow the last time
    share a few threads, and a look-up that nobody waits for any more is not begun.  Look-ups of one name that
    overlap are one.

    :param function: what runs in the thread.
    :param threads: names that are looked up at once, beside a quarter as many slow ones.
    :param seconds: the clock that look-ups are timed by.
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
        # A name is here while it is looked up, or waits to be.
        self._waiting: dict[str, list[Deferred[Sequence[Address]]]] = {}
        self._slow = SlowNames(SLOW)
        self._pool = _threads(threads)
        self._slow_pool = _threads(max(1, threads // 4))

    async def addresses(self, name: str) -> Sequence[Address]:
        """Return the addresses of a name; ``OSError`` when it has none."""
        begun = name in self._waiting
        waiting = self._waiting.setdefault(name, [])
        # Who gives up leaves the list.
        answer: Deferred[Sequence[Address]] = Deferred(waiting.remove)
        waiting.append(answer)
        if not begun:
            self._begin(name)
        return await answer

    def stop(self) -> None:
        """Let the threads end, each after its look-up; nobody waits for them."""
        self._pool.adjustPoolsize(0, 0)
        self._slow_pool.adjustPoolsize(0, 0)

    def _begin(self, name: str) -> None:
        pool = self._slow_pool if name in self._slow else self._pool
        deferToThreadPool(self._reactor, pool, self._look_up, name).addBoth(self._tell, name)

    def _look_up(self, name: str) -> Sequence[Address] | Failure | None:
        """Look a name up, in a thread; None when nobody waits for it."""
        if not self._waiting.get(name):
            return None
        began = self._seconds()
        try:
            return self._function(name)
        except Exception:
            return Failure()
        finally:
            self._slow.took(name, self._seconds() - began)

    def _tell(self, result: Sequence[Address] | Failure | None, name: str) -> None:
        if result is None and self._waiting[name]:
            # Somebody came just when the look-up was left out.
            self._begin(name)
            return
        waiting = self._waiting.pop(name)
        while waiting:
            if isinstance(result, Failure):
                waiting.pop(0).errback(result.value)
            else:
                waiting.pop(0).callback(result or ())


def _threads(most: int) -> ThreadPool:
    """Make threads, none of them at once; one that hangs does not keep the process from ending."""
    pool = ThreadPool(0, most, "dataapi-names")
    pool.threadFactory = partial(Thread, daemon=True)  # type: ignore[assignment]
    pool.start()
    return pool


class Vetting:
    """Says where a target's connection may go to.

    :param allowed: the operator's ``allow-addresses``.
    """

    def __init__(self, resolver: Resolver, allowed: Sequence[Network] = ()) -> None:
        self._resolver = resolver
        self.allowed = tuple(allowed)

    async def addresses(self, target: Target) -> tuple[Address, ...]:
        """Return the target's addresses, best first, all of them checked.

        Raises ``Unresolvable`` when there is none, ``AddressRefused`` when *any* may not be sent to.
        """
        literal = target.address
        found = (literal,) if literal is not None else await self._look_up(target.host)
        if any(is_refused(address, self.allowed) for address in found):
            raise AddressRefused(f"An address of {target.host} is reserved")
        return found

    async def _look_up(self, name: str) -> tuple[Address, ...]:
        try:
            found = tuple(await self._resolver.addresses(name))
        except OSError:
            found = ()
        if not found:
            raise Unresolvable(f"{name} has no address")
        return found
