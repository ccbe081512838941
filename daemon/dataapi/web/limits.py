"""How much of what is scarce may be held at a time; pure."""

from __future__ import annotations


class Budget:
    """Bytes that may be held at a time, by all together.

    :ivar free: bytes that nobody holds.
    """

    def __init__(self, size: int) -> None:
        self.free = size

    def take(self, count: int) -> bool:
        """Take so many bytes, unless fewer are left."""
        if count > self.free:
            return False
        self.free -= count
        return True

    def give_back(self, count: int) -> None:
        """Let others have what was taken."""
        self.free += count
