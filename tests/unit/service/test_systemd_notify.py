"""Notifications to systemd."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from dataapi.service import root_service
from dataapi.service.root_service import Notifier
from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogPublisher
from zope.interface import implementer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_each_message_is_one_datagram(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        notifier = Notifier.from_environment({"NOTIFY_SOCKET": path})
        notifier.ready("serving")
        notifier.reloading()
        notifier.alive()
        notifier.stopping()
        messages = [manager.recv(4096).decode() for _ in range(4)]
    assert messages[0] == "READY=1\nSTATUS=serving"
    assert messages[1].startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert messages[2] == "WATCHDOG=1"
    assert messages[3].startswith("STOPPING=1")


def test_abstract_sockets_are_supported() -> None:
    """Names with the prefix ``@`` are in the abstract namespace."""
    name = f"dataapi-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name)
        Notifier.from_environment({"NOTIFY_SOCKET": "@" + name}).ready("x")
        assert manager.recv(4096).startswith(b"READY=1")


def test_nothing_is_sent_without_a_socket() -> None:
    sent: list[bytes] = []
    notifier = Notifier(None, None, lambda _address, message: sent.append(message))
    notifier.ready("serving")
    assert sent == []


def test_send_failures_are_logged_once_per_outage(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": str(path)})

    def fail() -> None:
        notifier.ready("serving")
        notifier.alive()

    with logged() as lines:
        fail()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(path))
            notifier.alive()
            assert manager.recv(4096) == b"WATCHDOG=1"
        path.unlink()
        fail()
    assert len(lines) == 2
    assert str(path) in lines[0]


@pytest.mark.parametrize(
    "address", ["/nowhere/notify", "@", "/dev/null", "/" + "x" * 200, "vsock:2:1234", "."]
)
def test_invalid_socket_only_causes_a_warning(address: str) -> None:
    with logged() as lines:
        Notifier.from_environment({"NOTIFY_SOCKET": address}).ready("serving")
    assert len(lines) == 1


def test_full_socket_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_service, "_NOTIFY_SECONDS", 0.01)
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, logged() as lines:
        manager.bind(path)
        notifier = Notifier.from_environment({"NOTIFY_SOCKET": path})
        for _ in range(1000):
            notifier.alive()
            if lines:
                break
    assert len(lines) == 1


@contextmanager
def logged() -> Iterator[list[str]]:
    lines: list[str] = []

    @implementer(ILogObserver)
    def observer(event: LogEvent) -> None:
        if event["log_level"] is LogLevel.warn:
            lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observer)
    yield lines
    globalLogPublisher.removeObserver(observer)


def test_watchdog_interval_is_half_of_watchdog_usec() -> None:
    environ = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "30000000"}
    assert Notifier.from_environment(environ).watchdog == 15
    assert Notifier.from_environment({**environ, "WATCHDOG_PID": str(os.getpid())}).watchdog == 15
    assert Notifier.from_environment({**environ, "WATCHDOG_PID": "1"}).watchdog is None
    assert Notifier.from_environment({"NOTIFY_SOCKET": "/x"}).watchdog is None
