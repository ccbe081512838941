"""A message to PostgreSQL: role, settings and statements; and a connection's defaults.

A message is one transaction: role and settings are local to it and end with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from dataapi.database import sql_text
from dataapi.database.positions import BEGINNING, Position
from dataapi.http.messages import NO_CONTEXT, RequestContext

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A statement's text with ``$1`` … ``$n`` slots; compared by identity, prepared at first use.

    The text holds catalog identifiers and slots only, never text of a request.

    :ivar types: the SQL type name of each slot, such as ``bigint`` or ``text[]``;
        ``unknown`` leaves it to PostgreSQL to infer from the place of the slot.
    :ivar prepared: whether it is worth to keep it prepared.
    """

    text: str
    types: tuple[str, ...]
    prepared: bool = True


class Bound(NamedTuple):
    """A statement and the text form of its values; None is NULL."""

    statement: Statement
    values: tuple[str | None, ...] = ()


text_of = attrgetter("statement.text")
"""Returns the SQL of a bound statement."""


def explained(bound: Bound, options: str = "format json") -> Bound:
    """Return the statement that shows the plan of another one, which runs only if it is analyzed.

    :param options: those of ``EXPLAIN``, separated by commas.
    """
    text = f"explain ({options}) {bound.statement.text}"
    return Bound(Statement(text, bound.statement.types, prepared=False), bound.values)


class Message(NamedTuple):
    """Everything that travels in one round trip.

    :ivar role: the role that the transaction runs under; never empty.
    :ivar settings: further transaction-local settings, ``(name, value)``, set after the role.
    :ivar statements: run in order; the last one's rows are the answer.
    :ivar read_only: whether the transaction refuses to write.
    :ivar isolation: the transaction's isolation level in upper case, such as ``SERIALIZABLE``; None leaves it
        to the login role's ``default_transaction_isolation``.
    :ivar rollback: undo everything once the answer is there, which takes a second round trip.
    :ivar caller: whose share of the connections a transaction of several messages takes; "" for none.
    :ivar context: of the request that it is for.
    :ivar by_replica: whether a replica may run it.
    :ivar required_position: the WAL position that such a one must have replayed.
    :ivar positioned: whether to report the WAL position after the commit, which takes a second round trip.
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


FACTS = f"""
select pg_catalog.pg_backend_pid(), name, reset_val, source from pg_catalog.pg_settings
where name {sql_text.EQUAL} any (array['DateStyle', 'jit', 'statement_timeout'])
    or name {sql_text.EQUAL} 'citus.propagate_set_commands'
        and exists (select from pg_catalog.pg_extension where extname {sql_text.EQUAL} 'citus')
"""
"""Asks a connection for its server process, and for the settings that its session began with."""

Settings = tuple[tuple[str, str], ...]

_UNCHOSEN = frozenset({"default", "configuration file", "session"})
"""Sources of settings that are not chosen for this role or database."""


@dataclass(frozen=True, slots=True, eq=False)
class Defaults:
    """The settings that the messages of a connection begin with; compared by identity, which is faster.

    :ivar undo: whether a message undoes session settings of the one before; not behind a pooler,
        whose own settings that would undo.
    :ivar settings: made for each transaction before its own ones, ``(name, value)``.
    :ivar distributed: whether Citus is loaded, whose workers see only the settings that ``SET LOCAL`` makes.
    :ivar statement_timeout: a session's own, in milliseconds.
    :ivar begun: settings that the session began with, which are not made again.
    """

    undo: bool = False
    settings: Settings = ()
    distributed: bool = False
    statement_timeout: str = "0"
    begun: Settings = ()

    @property
    def own(self) -> Settings:
        """The settings of the daemon's own SQL, which may take its time and names the schemas of its tables.

        Names that it leaves to the search path are PostgreSQL's own, whatever others create.
        """
        of_callers = ("statement_timeout", *dict(sql_text.OWN_SETTINGS))
        kept = [(name, value) for name, value in self.settings if name not in of_callers]
        if "statement_timeout" in dict(self.begun):
            kept.append(("statement_timeout", self.statement_timeout))
        return (*kept, *sql_text.OWN_SETTINGS)

    def begin_session(self) -> Defaults:
        """Return the defaults of sessions that begin with the settings that hold for each message.

        ``DateStyle`` is not among them: it would bring another order of day and month than the login role's.
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
    """Return the defaults for a connection, the same object for the same ones.

    :param facts: the rows of ``FACTS``.
    :param statement_timeout: in seconds; that of the login role or the database wins.
    :param configured: further settings.
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
    # The code that reads dates knows no other style.
    return None if value.startswith("ISO") else "ISO"


def _jit(value: str, source: str, _limit: float | None) -> str | None:
    # Compiling a statement of many small queries takes seconds, running it milliseconds.
    return "off" if value == "on" and source in _UNCHOSEN else None


def _statement_timeout(value: str, source: str, limit: float | None) -> str | None:
    if limit is None or source not in _UNCHOSEN:
        return None
    milliseconds = max(1, round(limit * 1000))
    return str(milliseconds) if not 0 < int(value) <= milliseconds else None


_OVERRIDES = {"DateStyle": _date_style, "jit": _jit, "statement_timeout": _statement_timeout}
