"""Fixtures of the tests of the web layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from dataapi.telemetry.logs import request_id
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from zope.interface import implementer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def failures() -> Iterator[list[LogEvent]]:
    """Collect the failures that are logged, with the request id that the log would show."""
    found: list[LogEvent] = []

    @implementer(ILogObserver)
    def observer(event: LogEvent) -> None:
        # Twisted's reactor logs what escapes from a protocol in the earlier form.
        if "log_failure" in event or event.get("isError"):
            found.append({**event, "request": request_id.get()})

    globalLogPublisher.addObserver(observer)
    yield found
    globalLogPublisher.removeObserver(observer)
