"""The insides of txpostgres and psycopg2 that ``driver`` borrows are still there."""

from __future__ import annotations

import inspect

import psycopg2
import pytest
from dataapi.database import driver
from psycopg2 import _psycopg
from psycopg2.extensions import connection
from twisted.internet.task import Clock
from txpostgres import txpostgres


class Reactor(Clock):
    """A clock whose readers and writers are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.watched: set[object] = set()

    def _watch(self, descriptor: object) -> None:
        self.watched.add(descriptor)

    def _leave(self, descriptor: object) -> None:
        self.watched.discard(descriptor)

    addReader = addWriter = _watch  # noqa: N815 - Twisted's names
    removeReader = removeWriter = _leave  # noqa: N815


@pytest.fixture
def attempt() -> driver.ConnectionAttempt:
    """Give an attempt to connect to an address that never answers."""
    return driver.ConnectionAttempt(Reactor(), {"host": "192.0.2.1", "connect_timeout": "5"})


@pytest.mark.parametrize("name", ["poll", "doRead", "doWrite", "connectionLost", "fileno", "pollable"])
def test_txpostgres_polls_by_these_methods(name: str) -> None:
    assert callable(getattr(txpostgres.Connection, name, None)), f"txpostgres.Connection.{name} is gone"


def test_txpostgres_keeps_psycopg2s_connection_and_the_polls_deferred_there() -> None:
    """``ConnectionAttempt`` sets ``_connection`` and takes ``_pollingD``."""
    assert "self._connection = None" in inspect.getsource(txpostgres.Connection.__init__)
    assert "self._pollingD = defer.Deferred" in inspect.getsource(txpostgres._PollingMixin.poll)


async def test_an_attempt_that_is_given_up_fails_with_the_error(attempt: driver.ConnectionAttempt) -> None:
    made = attempt.made()
    assert attempt.reactor.watched == {attempt}
    attempt.give_up(psycopg2.InterfaceError("closed"))
    assert attempt.reactor.watched == set()
    with pytest.raises(psycopg2.InterfaceError, match="closed"):
        await made


def test_an_attempt_that_is_cancelled_leaves_nothing_behind(attempt: driver.ConnectionAttempt) -> None:
    made = attempt.made()
    made.addErrback(lambda _: None)
    made.cancel()
    assert attempt.reactor.watched == set()
    assert attempt.pollable().closed


@pytest.mark.parametrize("name", ["PQgetCancel", "PQcancel", "PQfreeCancel"])
def test_psycopg2_links_libpq_so_that_its_functions_are_found(name: str) -> None:
    assert hasattr(driver._libpq, name), f"{name} is not found through {_psycopg.__file__}"


def test_psycopg2_gives_libpqs_connection() -> None:
    assert hasattr(connection, "pgconn_ptr"), "psycopg2's connection has no pgconn_ptr"
