"""The longest documents that are read, checked and compiled: all of it pauses often.

What counts is how much happens between two pauses, in calls of functions, of which a million take less than a
tenth of a second.  It may grow with the document, of which these here are a quarter.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.concurrency.pauses import pausing
from dataapi.graphql import engine
from support.long_documents import TABLES, documents
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

TOKENS = 5_000
"""A quarter of what is allowed by default."""
DOCUMENTS = documents(TOKENS)
CALLS = 300_000


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(TABLES), graphql_max_tokens=TOKENS) as service:
        yield service


class Calls:
    """Counts calls of functions from one pause to the next.

    :ivar maximum: the most that there were between two.
    """

    def __init__(self) -> None:
        self.maximum = 0
        self._since = 0

    def pause(self) -> None:
        """Begin to count anew."""
        self.maximum = max(self.maximum, self._since)
        self._since = 0

    def count(self, _frame: Any, event: str, _argument: Any) -> None:
        """Take note of what the interpreter does."""
        if event in ("call", "c_call"):
            self._since += 1


@contextmanager
def counting() -> Iterator[Calls]:
    """Count what runs inside."""
    calls = Calls()
    sys.setprofile(calls.count)
    try:
        with pausing(calls.pause):
            yield calls
    finally:
        sys.setprofile(None)
        calls.pause()


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_little_happens_between_two_pauses(
    api: Service, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    counted = []

    async def in_turn(work: Any) -> Any:
        with counting() as calls:
            try:
                return work()
            finally:
                counted.append(calls)

    monkeypatch.setattr(engine, "in_turn", in_turn)
    await api.ask(DOCUMENTS[name], check=False)
    assert counted
    assert max(calls.maximum for calls in counted) <= CALLS
