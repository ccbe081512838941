"""Components of the daemon that few requests need, created on first use."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from twisted.internet.threads import deferToThread

T = TypeVar("T")


class OnDemand(Generic[T]):
    """A component that is created on first use.

    :param create: creates the component, in a thread, because its imports would block the reactor.
    :ivar value: the component, None until it is created.
    """

    def __init__(self, create: Callable[[], T]) -> None:
        self._create = create
        self._lock = Lock()
        self.value: T | None = None

    async def get(self) -> T:
        return self.value if self.value is not None else await deferToThread(self.created)

    def created(self) -> T:
        """Return the component. Call this in a thread, because creating the component may block."""
        with self._lock:
            if self.value is None:
                self.value = self._create()
            return self.value
