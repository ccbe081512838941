"""The addresses of a receiver's host, looked up and checked (reference/webhooks.md section 4).

What is checked is what is connected to: a delivery goes to one of the addresses returned here and the name is
not looked up again, so a name server that changes its answer gains nothing.
"""

from __future__ import annotations

import ipaddress
import socket
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from dataapi.webhooks.addresses import is_refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twisted.internet.interfaces import IReactorFromThreads

    from dataapi.webhooks.addresses import Address, Network
    from dataapi.webhooks.urls import Target

THREADS = 32
"""Names that are looked up at once."""


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
    look-ups waiting.  Look-ups of one name that overlap are one.

    :param function: what runs in the thread.
    """

    def __init__(
        self,
        reactor: IReactorFromThreads,
        function: Callable[[str], Sequence[Address]] = look_up,
        threads: int = THREADS,
    ) -> None:
        self._reactor = reactor
        self._function = function
        self._waiting: dict[str, list[Deferred[Sequence[Address]]]] = {}
        self._pool = ThreadPool(0, threads, "dataapi-names")
        # A look-up that hangs does not keep the process from ending.
        self._pool.threadFactory = partial(Thread, daemon=True)  # type: ignore[assignment]
        self._pool.start()

    async def addresses(self, name: str) -> Sequence[Address]:
        """Return the addresses of a name; ``OSError`` when it has none."""
        answer: Deferred[Sequence[Address]] = Deferred()
        waiting = self._waiting.setdefault(name, [])
        waiting.append(answer)
        if len(waiting) == 1:
            asked = deferToThreadPool(self._reactor, self._pool, self._function, name)
            asked.addBoth(self._tell, name)
        return await answer

    def stop(self) -> None:
        """Let the threads end, each after its look-up; nobody waits for them."""
        self._pool.adjustPoolsize(0, 0)

    def _tell(self, result: Sequence[Address] | Failure, name: str) -> None:
        # Whoever gave up meanwhile has a cancelled Deferred, which ignores this.
        for answer in self._waiting.pop(name):
            if isinstance(result, Failure):
                answer.errback(result.value)
            else:
                answer.callback(result)


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
