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
    """Collect logged failures, with their request IDs."""
    found: list[LogEvent] = []

    @implementer(ILogObserver)
    def observer(event: LogEvent) -> None:
        # Twisted's reactor logs exceptions from protocols in the legacy format.
        if "log_failure" in event or event.get("isError"):
            found.append({**event, "request": request_id.get()})

    globalLogPublisher.addObserver(observer)
    yield found
    globalLogPublisher.removeObserver(observer)
