"""What systemd is told: ready, reloading, stopping, and that we are alive (``sd_notify(3)``)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


def _send(address: str, message: bytes) -> None:
    """Send one datagram to the notification socket; ``@`` is the abstract namespace."""
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notifier:
        notifier.sendto(message, address)


@dataclass(frozen=True, slots=True)
class Notifier:
    """Tells the service manager about us; silent when there is none.

    :ivar address: ``NOTIFY_SOCKET``, or None.
    :ivar watchdog: seconds between two signs of life, half of what systemd allows, or None.
    """

    address: str | None = None
    watchdog: float | None = None
    send: Callable[[str, bytes], None] = _send

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Notifier:
        """Read ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID``."""
        microseconds = environ.get("WATCHDOG_USEC", "")
        ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watchdog = int(microseconds) / 2_000_000 if microseconds.isdigit() and ours else None
        return cls(environ.get("NOTIFY_SOCKET") or None, watchdog or None)

    def ready(self, status: str) -> None:
        """Say that we serve; ``status`` is the line that ``systemctl status`` shows."""
        self._tell(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """Say that the catalogs are read again; ``ready`` follows."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}\nSTATUS=reloading")

    def stopping(self) -> None:
        """Say that we finish requests in flight and then leave."""
        self._tell("STOPPING=1\nSTATUS=finishing requests in flight")

    def alive(self) -> None:
        """Pat the watchdog."""
        self._tell("WATCHDOG=1")

    def _tell(self, message: str) -> None:
        if self.address is not None:
            self.send(self.address, message.encode())
