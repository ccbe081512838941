"""A message to PostgreSQL (role, settings and statements), and the defaults of a connection.

A message is one transaction. The role and the settings are local to the transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from dataapi.database import sql_text
from dataapi.database.positions import BEGINNING, Position
from dataapi.http.messages import NO_CONTEXT, RequestContext

if TYPE_CHECKING:
    from collections.abc import Sequence


SHORT = 0.002
"""Maximum time of a short statement on an unshared connection, in seconds."""

_MAX_AVERAGE = 2 * SHORT
"""Maximum average time of a short statement on shared connections, in seconds.

The time includes the wait until the daemon reads results.
"""

_MAX_COUNTED = 0.01
"""Limit of one execution's time in the average, in seconds. A busy machine can delay any execution."""

_MAX_RESULT = 8_192
"""Maximum length of a short statement's result, in bytes or characters.

Larger results gain nothing from the express lane and delay other statements (``tests/bench/lane.py``).
"""

_WEIGHT = 1 / 16

_FIRST_RUNS, _MIN_PENALTY, _MAX_PENALTY = 3, 64, 1024


class RecentTimes:
    """Recent execution times of a statement, to determine whether the statement is short.

    A statement is short after three short executions on its own connection. It is no longer short if its
    average time on shared connections is too long, or if an execution there exceeds the time limit. It then
    needs 64 more short executions. This number doubles each time, up to 1,024. An execution with a large
    result counts as long.

    :ivar missing: number of short executions that the statement still needs, 0 if it is short.
    """

    missing = _FIRST_RUNS
    _penalty = _MIN_PENALTY
    _average = 0.0

    def add_own(self, seconds: float, rows: Sequence[Sequence[object]]) -> None:
        if self.missing and seconds < SHORT and not _is_large(rows):
            self.missing -= 1

    def add_shared(self, seconds: float, rows: Sequence[Sequence[object]]) -> None:
        """Add an execution on a shared connection, without the time that it waited for other messages."""
        counted = _MAX_COUNTED if seconds > _MAX_COUNTED or _is_large(rows) else seconds
        self._average += (counted - self._average) * _WEIGHT
        if self._average > _MAX_AVERAGE:
            self.add_long()

    def add_long(self) -> None:
        self._average = 0.0
        self.missing, self._penalty = self._penalty, min(2 * self._penalty, _MAX_PENALTY)


def _is_large(rows: Sequence[Sequence[object]]) -> bool:
    """Return whether the first value, usually the body of a response, is too long."""
    value = rows[0][0] if rows and rows[0] else None
    return isinstance(value, bytes | str) and len(value) > _MAX_RESULT


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A statement with ``$1`` … ``$n`` parameters. Compared by identity, and prepared on first use.

    The text contains only identifiers from the catalog and parameters, never text from a request.

    :ivar types: SQL type names of the parameters, such as ``bigint`` or ``text[]``; ``unknown`` lets
        PostgreSQL infer the type.
    :ivar shareable: whether the statement can be rolled back and run again without side effects outside of
        the database.
    """

    text: str
    types: tuple[str, ...]
    prepared: bool = True
    shareable: bool = True
    times: RecentTimes = field(default_factory=RecentTimes, init=False)


class Bound(NamedTuple):
    """A statement and its values in text format; None is NULL."""

    statement: Statement
    values: tuple[str | None, ...] = ()


text_of = attrgetter("statement.text")


def explained(bound: Bound, options: str = "format json") -> Bound:
    text = f"explain ({options}) {bound.statement.text}"
    return Bound(Statement(text, bound.statement.types, prepared=False), bound.values)


class Message(NamedTuple):
    """Everything to send in one round trip.

    :ivar role: role of the transaction; never empty.
    :ivar settings: further transaction-local settings, set after the role.
    :ivar statements: statements to run in order. The rows of the last statement are the result.
    :ivar rollback: whether to roll back after the result. This takes another round trip.
    :ivar caller: key for distributing connections fairly among transactions of several messages, or "".
    :ivar isolation: upper-case isolation level such as ``SERIALIZABLE``; None for the login role's
        ``default_transaction_isolation``.
    :ivar required_position: WAL position that a replica must have replayed.
    :ivar positioned: whether to report the WAL position after the commit. This takes another round trip.
    :ivar shareable: whether the message may share a connection with other messages.
    """

    role: str
    settings: tuple[tuple[str, str], ...]
    statements: tuple[Bound, ...]
    read_only: bool = True
    rollback: bool = False
    caller: str = ""
    isolation: str | None = None
    context: RequestContext = NO_CONTEXT
    by_replica: bool = False
    required_position: Position = BEGINNING
    positioned: bool = False
    shareable: bool = False


FACTS = f"""
select pg_catalog.pg_backend_pid(), name, reset_val, source from pg_catalog.pg_settings
where name {sql_text.EQUAL} any (array['DateStyle', 'jit', 'statement_timeout'])
    or name {sql_text.EQUAL} 'citus.propagate_set_commands'
        and exists (select from pg_catalog.pg_extension where extname {sql_text.EQUAL} 'citus')
"""
"""Query for a connection's server process and the initial settings of its session."""

Settings = tuple[tuple[str, str], ...]

_DEFAULT_SOURCES = frozenset({"default", "configuration file", "session"})
"""Sources of settings that are not specific to a role or database."""


@dataclass(frozen=True, slots=True, eq=False)
class Defaults:
    """Settings for each message of a connection. Compared by identity for speed.

    :ivar undo: whether each message resets the session settings of the previous message. False through a
        pooler, because a reset would affect the pooler's own settings.
    :ivar settings: settings for each transaction, set before the message's own settings.
    :ivar distributed: whether Citus is loaded. Citus workers only get settings from ``SET LOCAL``.
    :ivar statement_timeout: the session's own timeout in milliseconds.
    :ivar begun: settings that the session started with. Messages do not repeat them.
    """

    undo: bool = False
    settings: Settings = ()
    distributed: bool = False
    statement_timeout: str = "0"
    begun: Settings = ()

    @property
    def own(self) -> Settings:
        """Settings of the daemon's own SQL: no timeout, and only PostgreSQL's own schema.

        Unqualified names refer to PostgreSQL's own objects, regardless of what users create.
        """
        overridden = ("statement_timeout", *dict(sql_text.OWN_SETTINGS))
        settings = [(name, value) for name, value in self.settings if name not in overridden]
        if "statement_timeout" in dict(self.begun):
            settings.append(("statement_timeout", self.statement_timeout))
        return (*settings, *sql_text.OWN_SETTINGS)

    def begin_session(self) -> Defaults:
        """Return the defaults for sessions that start with ``settings``, so that messages do not repeat them.

        Messages still set ``DateStyle``, because a session that starts with it would change the order of day
        and month.
        """
        begun = {name: value for name, value in self.settings if name != "DateStyle" and value.isascii()}
        rest = tuple([each for each in self.settings if each[0] not in begun])
        return replace(self, settings=rest, begun=tuple(begun.items()))


_shared = lru_cache(maxsize=64)(Defaults)


def defaults_of(
    facts: Sequence[tuple[int, str, str, str]],
    search_path: tuple[str, ...],
    statement_timeout: float | None,
    configured: Settings = (),
    *,
    pooled: bool,
) -> Defaults:
    """Return the defaults for a connection. Equal defaults are the same object.

    :param facts: rows of ``FACTS``.
    :param statement_timeout: timeout in seconds. A timeout of the login role or the database takes
        precedence.
    """
    settings = list(configured)
    if search_path:
        settings.append(("search_path", sql_text.search_path(search_path)))
    distributed = False
    own_limit = "0"
    for _, name, value, source in facts:
        if name == "citus.propagate_set_commands":
            distributed = True
            continue
        if name == "statement_timeout":
            own_limit = value
        override = _OVERRIDES[name](value, source, statement_timeout)
        if override is not None:
            settings.append((name, override))
    return _shared(not pooled, tuple(settings), distributed, own_limit)


def _date_style(value: str, _source: str, _limit: float | None) -> str | None:
    # We only parse ISO dates.
    return None if value.startswith("ISO") else "ISO"


def _jit(value: str, source: str, _limit: float | None) -> str | None:
    # JIT compilation of our statements takes seconds, running them takes milliseconds.
    return "off" if value == "on" and source in _DEFAULT_SOURCES else None


def _statement_timeout(value: str, source: str, limit: float | None) -> str | None:
    if limit is None or source not in _DEFAULT_SOURCES:
        return None
    milliseconds = max(1, round(limit * 1000))
    return str(milliseconds) if not 0 < int(value) <= milliseconds else None


_OVERRIDES = {"DateStyle": _date_style, "jit": _jit, "statement_timeout": _statement_timeout}
