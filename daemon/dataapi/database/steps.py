"""Steps of a message: SQL statements with their values, sent in one round trip.

PostgreSQL treats everything between two ``Sync`` messages as one implicit transaction. The role and the
settings are local to the transaction. Values are sent separately in text format, and are never part of the
SQL.
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
    from collections.abc import Sequence

    from psycopg.abc import Buffer
    from psycopg.pq.abc import PGresult

    from dataapi.database.message import Bound, Defaults, Message, Settings


Rows = list[tuple[Any, ...]]

_TEXT = psycopg.pq.Format.TEXT
_JSON = ("json", "jsonb")


class _BytesLoader(Loader):
    def load(self, data: Buffer) -> bytes:
        return bytes(data)


class _HexDumper(Dumper):
    """Writes bytes in hex format. libpq would choose the format for the connection that was opened last."""

    oid = psycopg.adapters.types["bytea"].oid

    def dump(self, value: bytes) -> bytes:
        return b"\\x" + value.hex().encode()


class _TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        return bytes(data).decode()


@dataclass(frozen=True)
class LoadingContext:
    """psycopg's adaptation context: JSON is returned as bytes, and identifiers as strings."""

    adapters: AdaptersMap
    connection: None = None


def _context() -> LoadingContext:
    adapters = AdaptersMap(psycopg.adapters)
    for name in _JSON:
        adapters.register_loader(name, _BytesLoader)
    for name in ("cidr", "inet", "record", "uuid"):
        adapters.register_loader(name, _TextLoader)
    adapters.register_dumper(bytes, _HexDumper)
    return LoadingContext(adapters)


CONTEXT = _context()

_transformer = Transformer(CONTEXT)


def rows(result: PGresult) -> Rows:
    _transformer.set_pgresult(result, format=_TEXT)
    loaded = _transformer.load_rows(0, result.ntuples, tuple)
    _transformer.set_pgresult(None, set_loaders=False)  # frees the memory of a large result
    return loaded


def encode_values(values: Sequence[str | None]) -> list[bytes | None]:
    """Encode values for sending.

    :raises ApiError: if PostgreSQL cannot store a value.
    """
    encoded: list[bytes | None] = []
    try:
        for value in values:
            encoded.append(None if value is None else value.encode())
    except UnicodeEncodeError:
        raise errors.unstorable("a lone surrogate (U+D800 to U+DFFF)") from None
    if b"\0" in b"".join(filter(None, encoded)):
        raise errors.unstorable("the character NUL (U+0000)")
    return encoded


def adapt_values(values: Sequence[object]) -> tuple[list[bytes | None], list[int]]:
    """Return Python values encoded for sending, and the OIDs of their types.

    :raises TypeError: if psycopg does not support a type.
    :raises ApiError: if PostgreSQL cannot store a value.
    """
    transformer = Transformer(CONTEXT)
    try:
        sent = transformer.dump_sequence(values, [PyFormat.TEXT] * len(values))
    except UnicodeEncodeError:
        raise errors.unstorable("a lone surrogate (U+D800 to U+DFFF)") from None
    except psycopg.DataError as error:
        if "NUL" not in str(error):
            raise TypeError(str(error)) from error
        raise errors.unstorable("the character NUL (U+0000)") from None
    except psycopg.ProgrammingError as error:
        raise TypeError(str(error)) from error
    return [None if value is None else bytes(value) for value in sent], list(transformer.types or ())


MAX_PREPARED = 200
"""Maximum number of prepared statements per connection."""

MAX_PREPARED_POOLED = 500
"""Maximum number of statements prepared on a pooler connection before it is replaced."""

_UNSAFE = re.compile(r"[^a-z0-9_]+")


@dataclass(slots=True, eq=False)
class Prepared:
    """A named prepared statement.

    :ivar order: indexes of the values for its parameters, None for all values in order.
    :ivar ready: whether the statement exists on the server, None until it is sent.
    """

    name: bytes
    text: bytes
    order: tuple[int, ...] | None = None
    ready: bool | None = None
    step: Step = field(init=False)

    @property
    def deallocation(self) -> Step:
        return Step(b"deallocate " + self.name)


class Step(NamedTuple):
    """A statement to run.

    :ivar values: values in text format, with None for NULL.
    :ivar types: OIDs of the values' types. PostgreSQL infers types that are 0 or missing.
    :ivar prepared: the prepared statement to use. If ``values`` is None, it is prepared without being run.
    """

    text: bytes
    values: list[bytes | None] | None = None
    types: list[int] | None = None
    prepared: Prepared | None = None


def steps_of(text: str, values: Sequence[object] = ()) -> list[Step]:
    """Return the steps for SQL with Python values, one for each statement.

    :raises TypeError: if psycopg does not support a type.
    :raises ApiError: if PostgreSQL cannot store a value.
    """
    sent, types = adapt_values(values) if values else ([], [])
    return [
        Step(part.text.encode(), part.arrange(sent), part.arrange(types)) for part in sql_text.split(text)
    ]


@dataclass(slots=True)
class PreparedStatements:
    """Prepared statements of one connection, least recently used first.

    Each statement is prepared per role, because PostgreSQL replans it whenever the role changes.

    :ivar prefix: unique prefix of all names, because an undetected pooler may mix the statements of clients.
    :ivar shared: whether a pooler manages the statements. A pooler shares statements with equal texts among
        its clients, so each text starts with the role.
    :ivar full: whether the limit for a connection to a pooler is reached.
    """

    prefix: str
    shared: bool = False
    _statements: OrderedDict[tuple[str, Statement], Prepared] = field(default_factory=OrderedDict)
    surplus: list[Prepared] = field(default_factory=list)
    full: bool = False
    _edition: str = ""
    _count: int = 0

    def step(self, role: str, statement: Statement, values: Sequence[str | None]) -> Step:
        key = (role, statement)
        prepared = self._statements.get(key)
        if prepared is None or prepared.ready is False:
            prepared = self._statements[key] = self._prepared(role, statement)
            if len(self._statements) > MAX_PREPARED and not self.shared:
                self.surplus.append(self._statements.popitem(last=False)[1])
        self._statements.move_to_end(key)
        if not values:
            return prepared.step
        sent = encode_values(values)
        if prepared.order is not None:
            sent = [sent[slot] for slot in prepared.order]
        return Step(prepared.text, sent, None, prepared)

    def deallocations(self, number: int) -> list[Step]:
        surplus, self.surplus = self.surplus[:number], self.surplus[number:]
        return [one.deallocation for one in surplus if one.ready]

    def renew(self) -> None:
        """Prepare all statements again. Change their text if a pooler reuses statements with equal text."""
        self._statements.clear()
        self._edition = f"{self.prefix}{self._count} "
        self.surplus = [] if self.shared else [_ALL]

    def _prepared(self, role: str, statement: Statement) -> Prepared:
        self._count += 1
        template = sql_text.with_types(statement.text, statement.types)
        text = template.text
        if self.shared:
            self.full = self._count >= MAX_PREPARED_POOLED
            text = f"/*{self._edition}{_UNSAFE.sub('_', role.lower())}*/{text}"
        in_order = template.order == tuple(range(len(statement.types)))
        name = f"{self.prefix}{self._count}"
        prepared = Prepared(name.encode(), text.encode(), None if in_order else template.order)
        prepared.step = Step(prepared.text, [], None, prepared)
        return prepared


_ALL = Prepared(b"all", b"", ready=True)

COMMITTING = [Step(b"commit")]
ROLLING_BACK = [Step(b"rollback")]
UNDOING = [Step(b"set constraints all immediate"), *ROLLING_BACK]
"""Checks deferred constraints, as a commit would, and then rolls the transaction back."""

BEGIN = Step(b"begin")
_RESET = Statement("reset all", ())
_UNDO = [BEGIN, Step(_RESET.text.encode()), *COMMITTING]
"""Resets session settings in a separate transaction.

Defaults such as ``default_transaction_read_only`` only affect transactions that begin after the reset.
"""


class Composer:
    """Composes the messages of one connection.

    A message that is a complete transaction starts with ``reset all``, to discard session settings of the
    previous message before setting the role. This is too late for transaction defaults, because PostgreSQL
    has already applied them. So the setup statement fails if the defaults do not match (see
    ``errors.has_leftover_settings``), and the caller composes the message again with ``repeated=True``.

    :param prepared: prepared statements, None to prepare none.
    :cvar blocked: whether ``compose`` begins a transaction block that the caller must end.
    """

    blocked = False

    def __init__(self, defaults: Defaults, prepared: PreparedStatements | None) -> None:
        self.prepared = prepared
        self._defaults = defaults

    def compose(
        self, message: Message, comment: str = "", *, repeated: bool = False, time_limit: int | None = None
    ) -> list[Step]:
        """Return the steps of a message that is a whole transaction.

        The caller must end the transaction if ``isolation``, ``rollback`` or ``blocked`` is set.

        :param comment: prefix of the statements. Statements with a comment are not prepared.
        :param repeated: whether the message is sent again after an error.
        :param time_limit: timeout of each statement in milliseconds, None to keep the timeout in the
            settings.
        """
        defaults, role, prepared = self._defaults, message.role, self.prepared
        if not role or role == "none":
            raise _unknown_role(role)
        # Statements evicted by this message are deallocated by the next one.
        surplus = 0 if prepared is None else len(prepared.surplus)
        step = _plain if prepared is None else prepared.step
        steps: list[Step] = []
        guarded = False
        if message.isolation is not None or message.rollback:
            steps += self._begin_steps(message.isolation)
        elif not defaults.undo:
            pass
        elif repeated:
            steps += _UNDO
        else:
            guarded = True
            steps.append(step("", _RESET, ()))
        names, values = zip(*message.settings, strict=True) if message.settings else ((), ())
        setup = _setup(names, defaults, message.read_only, guarded, time_limit)
        # The setup statement still runs as the login role.
        steps.append(step("", setup, (role, *values)))
        for bound in message.statements:
            statement = bound.statement
            if prepared is None or comment or not statement.prepared:
                steps.append(self._unprepared(bound, comment))
            elif len(bound.values) != len(statement.types):
                raise _wrong_value_count(bound)
            else:
                steps.append(step(role, statement, bound.values))
        return prepared.deallocations(surplus) + steps if prepared is not None and surplus else steps

    def compose_begin(self, message: Message, comment: str, *, cursor: bool = False) -> list[Step]:
        """Return the steps that begin a transaction of several messages with this message.

        :param cursor: whether to declare a cursor for the last statement.
        """
        steps = self._begin_steps(message.isolation)
        steps += self._setup_steps(message.role, message.settings, read_only=message.read_only)
        last = len(message.statements) - 1
        for number, bound in enumerate(message.statements):
            prefix = f"declare {sql_text.CURSOR} no scroll cursor for " if cursor and number == last else ""
            steps.append(self._unprepared(bound, comment + prefix))
        return steps

    def compose_continuation(
        self,
        role: str,
        settings: Settings,
        statements: Sequence[Bound],
        restored: tuple[str, ...],
        comment: str,
        *,
        read_only: bool,
    ) -> list[Step]:
        """Return the steps of a message in an open transaction.

        :param restored: names of settings to reset to their defaults first.
        """
        steps: list[Step] = []
        if restored:
            # A function may have changed the role.
            steps.append(_plain(role, Statement(sql_text.opening((), (), False), ("unknown",)), (role,)))
            steps += [
                Step(f"set local {sql_text.checked_setting(name)} to default".encode()) for name in restored
            ]
        steps += self._setup_steps(role, settings, read_only=read_only)
        return steps + [self._unprepared(bound, comment) for bound in statements]

    def compose_own(self, statements: Sequence[Step], *, repeated: bool = False) -> list[Step]:
        """Return the steps of the daemon's own SQL. The SQL runs as the login role.

        Only the setup statement is prepared, because it is always the same.
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

    def _begin_steps(self, isolation: str | None) -> list[Step]:
        begin = BEGIN if isolation is None else Step(sql_text.begin(isolation).encode())
        return [*(_UNDO if self._defaults.undo else []), begin]

    def _setup_steps(self, role: str, settings: Settings, *, read_only: bool) -> list[Step]:
        if not role or role == "none":
            raise _unknown_role(role)
        setup = _setup(tuple([name for name, _ in settings]), self._defaults, read_only, False, None)
        return [_plain(role, setup, (role, *[value for _, value in settings]))]

    def _unprepared(self, bound: Bound, comment: str) -> Step:
        statement, values = bound
        if len(values) != len(statement.types):
            raise _wrong_value_count(bound)
        return _plain("", statement, values, comment)


def _plain(_role: str, statement: Statement, values: Sequence[str | None], prefix: str = "") -> Step:
    template = sql_text.with_types(statement.text, statement.types)
    return Step((prefix + template.text).encode(), template.arrange(encode_values(values)))


@lru_cache(maxsize=1024)
def _setup(
    names: tuple[str, ...], defaults: Defaults, read_only: bool, guarded: bool, time_limit: int | None
) -> Statement:
    text = sql_text.opening(names, defaults.settings, read_only, guarded=guarded, time_limit=time_limit)
    return Statement(text, ("unknown",) * (1 + len(names)))


@lru_cache(maxsize=64)
def _as_login_role(defaults: Defaults, guarded: bool) -> Statement:
    return Statement(sql_text.as_login_role(defaults.own, guarded=guarded), ())


def _unknown_role(role: str) -> DatabaseError:
    """Return PostgreSQL's unknown-role error. ``none`` is rejected because it would select the login role."""
    headers = (("WWW-Authenticate", "Bearer"),)
    return DatabaseError(401, "22023", f'role "{role}" does not exist', headers=headers)


def _wrong_value_count(bound: Bound) -> ValueError:
    return ValueError(f"{len(bound.values)} values for {len(bound.statement.types)} parameters")
