"""Parts of the daemon that few requests need, created when they are first needed."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from twisted.internet.threads import deferToThread

T = TypeVar("T")


class OnDemand(Generic[T]):
    """A part that is created when it is first needed.

    :param create: creates the part, in a thread, because its imports would block the reactor.
    :ivar value: the part, None until it is created.
    """

    def __init__(self, create: Callable[[], T]) -> None:
        self._create = create
        self._lock = Lock()
        self.value: T | None = None

    async def get(self) -> T:
        return self.value if self.value is not None else await deferToThread(self.created)

    def created(self) -> T:
        """Return the part. Called in a thread, because creating the part may block."""
        with self._lock:
            if self.value is None:
                self.value = self._create()
            return self.value
