"""The steps that a message is: SQL statements with their values, sent in one round trip.

What goes to PostgreSQL between two ``Sync`` messages of the protocol is one implicit transaction: role and
settings are local to it and end with it.  Values travel separately, in PostgreSQL's text format, and are
never part of the SQL.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg.adapt import AdaptersMap, Dumper, Loader, PyFormat, Transformer

from dataapi.database import errors, sql_text
from dataapi.database.message import Statement
from dataapi.http.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from psycopg.abc import Buffer
    from psycopg.pq.abc import PGresult

    from dataapi.database.message import Bound, Defaults, Message, Settings


Rows = list[tuple[Any, ...]]

_TEXT = psycopg.pq.Format.TEXT
_JSON = ("json", "jsonb")


class _BytesLoader(Loader):
    def load(self, data: Buffer) -> bytes:
        return bytes(data)


class _Hexadecimal(Dumper):
    """Writes bytes without libpq, whose own way depends on the connection made last."""

    oid = psycopg.adapters.types["bytea"].oid

    def dump(self, value: bytes) -> bytes:
        return b"\\x" + value.hex().encode()


class _TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        return bytes(data).decode()


@dataclass(frozen=True)
class LoadingContext:
    """How values are adapted, for psycopg: JSON is passed through as it is, and identifiers are text."""

    adapters: AdaptersMap
    connection: None = None


def _context() -> LoadingContext:
    adapters = AdaptersMap(psycopg.adapters)
    for name in _JSON:
        adapters.register_loader(name, _BytesLoader)
    for name in ("cidr", "inet", "record", "uuid"):
        adapters.register_loader(name, _TextLoader)
    adapters.register_dumper(bytes, _Hexadecimal)
    return LoadingContext(adapters)


CONTEXT = _context()

_transformer = Transformer(CONTEXT)
_loads: dict[int, Callable[[bytes], Any]] = {psycopg.adapters.types[name].oid: bytes for name in _JSON}


def rows(result: PGresult) -> Rows:
    """Return the rows of a result."""
    columns = range(result.nfields)
    loads = []
    for column in columns:
        kind = result.ftype(column)
        load = _loads.get(kind)
        if load is None:
            load = _loads[kind] = _transformer.get_loader(kind, _TEXT).load
        loads.append(load)
    found = []
    for row in range(result.ntuples):
        values = []
        for column in columns:
            value = result.get_value(row, column)
            values.append(None if value is None else loads[column](value))
        found.append(tuple(values))
    return found


def encoded(values: Sequence[str | None]) -> list[bytes | None]:
    """Return values as they are sent; raises ``ApiError`` for those that PostgreSQL cannot hold."""
    found: list[bytes | None] = []
    try:
        for value in values:
            if value is None:
                found.append(None)
            elif "\0" in value:
                raise errors.unsendable("the character NUL (U+0000)")
            else:
                found.append(value.encode())
    except UnicodeEncodeError:
        raise errors.unsendable("a lone surrogate (U+D800 to U+DFFF)") from None
    return found


def adapted(values: Sequence[object]) -> tuple[list[bytes | None], list[int]]:
    """Return values of Python's types as they are sent, and the oids of their types.

    Raises ``TypeError`` for one of a type that psycopg does not know, and ``ApiError`` for one that
    PostgreSQL cannot hold.
    """
    transformer = Transformer(CONTEXT)
    try:
        sent = transformer.dump_sequence(values, [PyFormat.TEXT] * len(values))
    except UnicodeEncodeError:
        raise errors.unsendable("a lone surrogate (U+D800 to U+DFFF)") from None
    except psycopg.DataError as error:
        if "NUL" not in str(error):
            raise TypeError(str(error)) from error
        raise errors.unsendable("the character NUL (U+0000)") from None
    except psycopg.ProgrammingError as error:
        raise TypeError(str(error)) from error
    return [None if value is None else bytes(value) for value in sent], list(transformer.types or ())


KEPT = 200
"""Statements that stay prepared on a connection to PostgreSQL."""

KEPT_BY_POOLER = 500
"""Statements that are prepared on one connection to a pooler, which forgets them with the connection."""

_UNSAFE = re.compile(r"[^a-z0-9_]+")


@dataclass(slots=True, eq=False)
class Prepared:
    """A statement that is prepared under a name.

    :ivar order: the slots whose values it takes, None for all in their order.
    :ivar ready: whether the server has it; None as long as it was not sent.
    """

    name: bytes
    text: bytes
    order: tuple[int, ...] | None = None
    ready: bool | None = None

    @property
    def deallocation(self) -> Step:
        """The step that ends it."""
        return Step(b"deallocate " + self.name)


class Step(NamedTuple):
    """A statement to run.

    :ivar values: in PostgreSQL's text format, None for NULL; None instead of the list for no values.
    :ivar types: the oids of their types; 0, or none at all, leaves them to PostgreSQL to infer.
    :ivar prepared: the name that it is prepared under; without values it is prepared and not run.
    """

    text: bytes
    values: list[bytes | None] | None = None
    types: list[int] | None = None
    prepared: Prepared | None = None


def steps_of(text: str, values: Sequence[object] = ()) -> list[Step]:
    """Return the steps that SQL with Python's values is, one for each of its statements.

    Raises ``TypeError`` for a value of a type that psycopg does not know, and ``ApiError`` for one that
    PostgreSQL cannot hold.
    """
    sent, types = adapted(values) if values else ([], [])
    return [
        Step(part.text.encode(), part.arrange(sent), part.arrange(types)) for part in sql_text.split(text)
    ]


@dataclass(slots=True)
class PreparedStatements:
    """The statements that one connection has prepared, the longest unused first.

    A name belongs to one role: PostgreSQL plans a statement again whenever it runs under another role than
    before.

    :ivar prefix: begins every name: letters of this connection's own, as an unnoticed pooler would let it
        meet the statements of others.
    :ivar shared: whether a pooler keeps them, which shares those of the same text among its clients, so that
        the text begins with the role.
    :ivar surplus: those that are to be deallocated.
    :ivar full: whether the connection has prepared as many as it may.
    """

    prefix: str
    shared: bool = False
    _known: OrderedDict[tuple[str, Statement], Prepared] = field(default_factory=OrderedDict)
    surplus: list[Prepared] = field(default_factory=list)
    full: bool = False
    _edition: str = ""
    _count: int = 0

    def step(self, role: str, statement: Statement, values: Sequence[str | None]) -> Step:
        """Return the step that runs a statement."""
        key = (role, statement)
        prepared = self._known.get(key)
        if prepared is None or prepared.ready is False:
            prepared = self._known[key] = self._prepared(role, statement)
            if len(self._known) > KEPT and not self.shared:
                self.surplus.append(self._known.popitem(last=False)[1])
        self._known.move_to_end(key)
        sent = encoded(values)
        if prepared.order is not None:
            sent = [sent[slot] for slot in prepared.order]
        return Step(prepared.text, sent, None, prepared)

    def deallocations(self, number: int) -> list[Step]:
        """Return what ends the first so many of the surplus."""
        surplus, self.surplus = self.surplus[:number], self.surplus[number:]
        return [one.deallocation for one in surplus if one.ready]

    def renew(self) -> None:
        """Prepare everything again; for a pooler with texts that are new to it, by which it knows them."""
        self._known.clear()
        self._edition = f"{self.prefix}{self._count} "
        self.surplus = [] if self.shared else [_ALL]

    def _prepared(self, role: str, statement: Statement) -> Prepared:
        self._count += 1
        template = sql_text.typed(statement.text, statement.types)
        text = template.text
        if self.shared:
            self.full = self._count >= KEPT_BY_POOLER
            text = f"/*{self._edition}{_UNSAFE.sub('_', role.lower())}*/{text}"
        in_order = template.order == tuple(range(len(statement.types)))
        name = f"{self.prefix}{self._count}"
        return Prepared(name.encode(), text.encode(), None if in_order else template.order)


_ALL = Prepared(b"all", b"", ready=True)

COMMITTING = [Step(b"commit")]
ROLLING_BACK = [Step(b"rollback")]
UNDOING = [Step(b"set constraints all immediate"), *ROLLING_BACK]
"""Ends a transaction for nothing; deferred constraints are checked as a commit would check them."""

BEGIN = Step(b"begin")
_RESET = Statement("reset all", ())
_UNDO = [BEGIN, Step(_RESET.text.encode()), *COMMITTING]
"""Undoes a message's settings for the session, in a transaction of its own.

A default such as ``default_transaction_read_only`` counts when a transaction begins.
"""


class Composer:
    """Composes the messages of one connection.

    A message that is a transaction by itself begins with ``reset all``, in the same transaction: what its
    predecessor set for the session is gone before its role is taken on.  That comes too late for the defaults
    of transactions, which PostgreSQL has read by then, so the opening looks whether the transaction is one as
    the login role has it; else it fails (see ``errors.began_with_leftovers``) and the message is sent again
    as ``repeated``.

    :param defaults: what messages begin with.
    :param prepared: None where nothing is to stay prepared.
    :cvar blocked: whether each message is a transaction block, which the sender ends.
    """

    blocked = False

    def __init__(self, defaults: Defaults, prepared: PreparedStatements | None) -> None:
        self.prepared = prepared
        self._defaults = defaults

    def whole(self, message: Message, comment: str = "", *, repeated: bool = False) -> list[Step]:
        """Return the steps of a message that is a transaction; one that is to be rolled back is left open.

        :param comment: begins each of its statements, which are not prepared then.
        :param repeated: whether it is sent again, after an error.
        """
        defaults, role, prepared = self._defaults, message.role, self.prepared
        if not role or role == "none":
            raise _unknown_role(role)
        # Statements that give way to this message's are deallocated by the next one.
        surplus = 0 if prepared is None else len(prepared.surplus)
        step = _plain if prepared is None else prepared.step
        steps: list[Step] = []
        guarded = False
        if message.isolation is not None or message.rollback:
            steps += self._beginning(message.isolation)
        elif not defaults.undo:
            pass
        elif repeated:
            steps += _UNDO
        else:
            guarded = True
            steps.append(step("", _RESET, ()))
        names, values = zip(*message.settings, strict=True) if message.settings else ((), ())
        opening = _opening(names, defaults, message.read_only, guarded)
        # The opening runs as the login role still.
        steps.append(step("", opening, (role, *values)))
        for bound in message.statements:
            statement = bound.statement
            if prepared is None or comment or not statement.prepared:
                steps.append(self._unprepared(bound, comment))
            elif len(bound.values) != len(statement.types):
                raise _wrong_number(bound)
            else:
                steps.append(step(role, statement, bound.values))
        return prepared.deallocations(surplus) + steps if prepared is not None and surplus else steps

    def begun(self, message: Message, comment: str, *, cursor: bool = False) -> list[Step]:
        """Return the steps that begin a transaction of several messages with this one.

        :param cursor: whether the last statement's rows are for a cursor to give.
        """
        steps = self._beginning(message.isolation)
        steps += self._opened(message.role, message.settings, read_only=message.read_only)
        last = len(message.statements) - 1
        for number, bound in enumerate(message.statements):
            head = f"declare {sql_text.CURSOR} no scroll cursor for " if cursor and number == last else ""
            steps.append(self._unprepared(bound, comment + head))
        return steps

    def onward(
        self,
        role: str,
        settings: Settings,
        statements: Sequence[Bound],
        restored: tuple[str, ...],
        comment: str,
        *,
        read_only: bool,
    ) -> list[Step]:
        """Return the steps of a message that goes on in a transaction begun before.

        :param restored: names of settings that take their default value again before.
        """
        steps: list[Step] = []
        if restored:
            # A function may have changed the role.
            steps.append(_plain(role, Statement(sql_text.opening((), (), False), ("unknown",)), (role,)))
            steps += [Step(f"set local {sql_text.checked(name)} to default".encode()) for name in restored]
        steps += self._opened(role, settings, read_only=read_only)
        return steps + [self._unprepared(bound, comment) for bound in statements]

    def own(self, statements: Sequence[Step], *, repeated: bool = False) -> list[Step]:
        """Return the steps of the daemon's own SQL, which runs as the login role.

        Only its beginning is prepared, which is the same each time.
        """
        defaults, prepared = self._defaults, self.prepared
        surplus = 0 if prepared is None else len(prepared.surplus)
        step = _plain if prepared is None else prepared.step
        steps: list[Step] = []
        guarded = defaults.undo and not repeated
        if guarded:
            steps.append(step("", _RESET, ()))
        elif defaults.undo:
            steps += _UNDO
        steps += [step("", _as_login_role(defaults, guarded), ()), *statements]
        return prepared.deallocations(surplus) + steps if prepared is not None and surplus else steps

    def _beginning(self, isolation: str | None) -> list[Step]:
        """Return what begins a transaction that does not end with the message."""
        begin = BEGIN if isolation is None else Step(sql_text.begin(isolation).encode())
        return [*(_UNDO if self._defaults.undo else []), begin]

    def _opened(self, role: str, settings: Settings, *, read_only: bool) -> list[Step]:
        """Return the steps that take on a role and make settings, preparing nothing."""
        if not role or role == "none":
            raise _unknown_role(role)
        opening = _opening(tuple([name for name, _ in settings]), self._defaults, read_only, False)
        return [_plain(role, opening, (role, *[value for _, value in settings]))]

    def _unprepared(self, bound: Bound, comment: str) -> Step:
        statement, values = bound
        if len(values) != len(statement.types):
            raise _wrong_number(bound)
        return _plain("", statement, values, comment)


def _plain(_role: str, statement: Statement, values: Sequence[str | None], before: str = "") -> Step:
    """Return the step that runs a statement without preparing it."""
    template = sql_text.typed(statement.text, statement.types)
    return Step((before + template.text).encode(), template.arrange(encoded(values)))


@lru_cache(maxsize=1024)
def _opening(names: tuple[str, ...], defaults: Defaults, read_only: bool, guarded: bool) -> Statement:
    text = sql_text.opening(names, defaults.settings, read_only, guarded=guarded)
    return Statement(text, ("unknown",) * (1 + len(names)))


@lru_cache(maxsize=64)
def _as_login_role(defaults: Defaults, guarded: bool) -> Statement:
    return Statement(sql_text.as_login_role(defaults.own, guarded=guarded), ())


def _unknown_role(role: str) -> DatabaseError:
    """Return PostgreSQL's error for a role that cannot exist: ``none`` would mean the login role itself."""
    headers = (("WWW-Authenticate", "Bearer"),)
    return DatabaseError(401, "22023", f'role "{role}" does not exist', headers=headers)


def _wrong_number(bound: Bound) -> ValueError:
    return ValueError(f"{len(bound.values)} values for {len(bound.statement.types)} slots")
