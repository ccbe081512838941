"""What holds for every message of a connection unless the message itself says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from dataapi.database import render

if TYPE_CHECKING:
    from collections.abc import Sequence

FACTS = """
select pg_catalog.pg_backend_pid(), name, reset_val, source from pg_catalog.pg_settings
where name in ('DateStyle', 'jit', 'statement_timeout')
"""
"""Asks a connection for its server process, and for what its session began with."""

UNDO = "begin;reset all;commit;"
"""Undoes what a message has set for the session.

It is a transaction of its own: an error in what follows does not bring the old values back, and a default
such as ``default_transaction_read_only`` counts when a transaction begins.
"""

Settings = tuple[tuple[str, str], ...]

_UNCHOSEN = frozenset({"default", "configuration file", "session"})
"""Sources of settings that nobody chose for this role or database."""


@dataclass(frozen=True, slots=True, eq=False)
class Defaults:
    """What the messages of a connection begin with; compared by identity, which is faster.

    :ivar undo: SQL before a transaction; empty behind a pooler, whose own settings it would undo.
    :ivar settings: made for each transaction before its own ones, ``(name, value)``.
    """

    undo: str = ""
    settings: Settings = ()

    @property
    def own(self) -> Settings:
        """The settings that hold for the daemon's own SQL, too, which may take its time."""
        return tuple([(name, value) for name, value in self.settings if name != "statement_timeout"])


NO_DEFAULTS = Defaults()

_shared = lru_cache(maxsize=64)(Defaults)


def defaults_of(
    facts: Sequence[tuple[int, str, str, str]],
    search_path: tuple[str, ...],
    statement_timeout: float | None,
    *,
    pooled: bool,
) -> Defaults:
    """Return the defaults for a connection, the same object for the same ones.

    :param facts: the rows of ``FACTS``.
    :param statement_timeout: in seconds; what the login role or the database has of its own wins.
    """
    settings = []
    if search_path:
        settings.append(("search_path", render.search_path(search_path)))
    for _, name, value, source in facts:
        wanted = _WANTED[name](value, source, statement_timeout)
        if wanted is not None:
            settings.append((name, wanted))
    return _shared("" if pooled else UNDO, tuple(settings))


def _date_style(value: str, _source: str, _limit: float | None) -> str | None:
    # psycopg2 reads no other style.
    return None if value.startswith("ISO") else "ISO"


def _jit(value: str, source: str, _limit: float | None) -> str | None:
    # Compiling a statement of many small queries takes seconds, running it milliseconds.
    return "off" if value == "on" and source in _UNCHOSEN else None


def _statement_timeout(value: str, source: str, limit: float | None) -> str | None:
    if limit is None or source not in _UNCHOSEN:
        return None
    milliseconds = max(1, round(limit * 1000))
    return str(milliseconds) if not 0 < int(value) <= milliseconds else None


_WANTED = {"DateStyle": _date_style, "jit": _jit, "statement_timeout": _statement_timeout}
