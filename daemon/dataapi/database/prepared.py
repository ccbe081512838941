"""Which statements a connection has prepared, and the message text that follows from it."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from dataapi.database import sql_text
from dataapi.database.message import NO_DEFAULTS, Statement
from dataapi.http.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dataapi.database.message import Bound, Defaults, Message, Settings

_Key = tuple[str, Statement]
_Shape = tuple[object, ...]
_ROLE_LENGTH = 30
"""Characters of a role's name in that of a statement, of which PostgreSQL reads 63."""
_BLOCK = "do %s;"
_UNSAFE = re.compile(r"[^a-z0-9_]+")


class Composed(NamedTuple):
    """A message ready to be sent.

    :ivar text: a template with ``%s`` places.
    :ivar values: what fills them.
    :ivar changes: whether it prepares or deallocates, so that an error leaves it open what is prepared.
    :ivar reuses: whether it executes what an earlier message prepared.
    """

    text: str
    values: list[object]
    changes: bool
    reuses: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    execute: str


@dataclass(slots=True)
class Prepared:
    """The statements that one connection has prepared, the longest unused first.

    A name belongs to one role: PostgreSQL plans a statement again whenever it runs under
    another role than before.

    :ivar prefix: begins every name: letters of this connection's own, as an unnoticed pooler would let it
        meet the statements of others.
    :ivar capacity: how many stay prepared.
    """

    prefix: str = "p"
    capacity: int = 200
    _entries: OrderedDict[_Key, _Entry] = field(default_factory=OrderedDict)
    _surplus: list[str] = field(default_factory=list)
    _count: int = 0
    _texts: dict[_Shape, tuple[str, tuple[_Key, ...]]] = field(default_factory=dict)

    def compose(self, message: Message, defaults: Defaults = NO_DEFAULTS) -> Composed:
        """Return the message's text, preparing what is not yet and deallocating what is too much.

        Runs for every request, so a text that only executes is remembered, with the entries that it uses.
        """
        _check_values(message.statements)
        opening, values = opened(message, defaults)
        propagated = _propagated(message.settings, defaults)
        values += propagated
        role, statements = message.role, [bound.statement for bound in message.statements]
        shape = (role, opening, len(propagated), message.isolation, message.rollback, *statements)
        if (known := self._texts.get(shape)) is not None and not self._surplus:
            text, keys = known
            for key in keys:
                self._entries.move_to_end(key)
            for bound, key in zip(message.statements, keys[1:], strict=True):
                if bound.statement.block is None:
                    values += bound.values
                else:
                    values.append(_in_block(bound, self._entries[key].execute))
            return Composed(text, values, False, True)
        parts = _beginning(message, defaults)
        parts.extend(f"deallocate {name};" for name in self._surplus)
        surplus, count = bool(self._surplus), self._count
        self._surplus.clear()
        # The opening runs as the login role still.
        keys = (("", opening), *[(role, statement) for statement in statements if statement.prepared])
        parts.append(self._execution(keys[0], parts))
        parts.append(_BLOCK * len(propagated))
        for bound in message.statements:
            if bound.statement.prepared and bound.statement.block is None:
                parts.append(self._execution((role, bound.statement), parts))
                values += bound.values
            elif bound.statement.prepared:
                values.append(_in_block(bound, self._execution((role, bound.statement), parts)))
                parts.append(_BLOCK)
            else:
                _inline(bound.statement, bound.values, parts, values)
        made, text = self._count - count, "".join(parts)
        if not surplus and not made and len(keys) == 1 + len(statements):
            if len(self._texts) >= self.capacity:
                self._texts.clear()
            self._texts[shape] = (text, keys)
        return Composed(text, values, changes=surplus or made > 0, reuses=len(keys) > made)

    def _execution(self, key: _Key, parts: list[str]) -> str:
        """Return what executes a statement, once the parts have what prepares it."""
        entry = self._entries.get(key)
        if entry is None:
            parts.append(self._make_room())
            entry = self._entries[key] = self._new_entry(*key)
            parts.append(sql_text.prepare(entry.name, key[1].text, key[1].types))
        else:
            self._entries.move_to_end(key)
        return entry.execute

    def forget(self, names: Collection[str]) -> None:
        """Have the next message deallocate everything that the server says is prepared."""
        self._texts.clear()
        self._entries.clear()
        self._surplus = list(names)

    def reconcile(self, names: Collection[str]) -> None:
        """Keep only what the server says is prepared, and have the next message deallocate the rest."""
        self._texts.clear()
        for key, entry in list(self._entries.items()):
            if entry.name not in names:
                del self._entries[key]
        known = {entry.name for entry in self._entries.values()}
        self._surplus = [name for name in names if name not in known]

    def _new_entry(self, role: str, statement: Statement) -> _Entry:
        self._count += 1
        name = f"{self.prefix}{self._count}_{_UNSAFE.sub('_', role.lower())[:_ROLE_LENGTH]}"
        return _Entry(name, sql_text.execute(name, len(statement.types)))

    def _make_room(self) -> str:
        """Return the ``DEALLOCATE`` of the longest unused entry when there is no room for another."""
        if len(self._entries) < self.capacity:
            return ""
        self._texts.clear()
        _, entry = self._entries.popitem(last=False)
        return f"deallocate {entry.name};"


def compose_inlined(message: Message, defaults: Defaults = NO_DEFAULTS, *, cursor: bool = False) -> Composed:
    """Return the text of a message that prepares nothing and relies on nothing that was prepared.

    :param cursor: whether the last statement's rows are for a cursor to give.
    """
    _check_values(message.statements)
    parts, values = _beginning(message, defaults), list[object]()
    _inline(*opened(message, defaults), parts, values)
    _propagate(message.settings, defaults, parts, values)
    for bound in message.statements:
        if cursor and bound is message.statements[-1]:
            parts.append(f"declare {sql_text.CURSOR} no scroll cursor for ")
        _inline(bound.statement, bound.values, parts, values)
    return Composed("".join(parts), values, changes=False, reuses=False)


def compose_onward(
    role: str,
    settings: Settings,
    statements: Sequence[Bound],
    restored: tuple[str, ...],
    defaults: Defaults,
    *,
    read_only: bool,
) -> tuple[str, list[object]]:
    """Return text and values of a message that goes on in a transaction begun before.

    :param restored: names of settings that take their default value again before.
    """
    _check_values(statements)
    parts: list[str] = []
    values: list[object] = []
    if restored:
        # A function may have changed the role.
        _inline(*_opening(role, (), NO_DEFAULTS, read_only=False), parts, values)
        parts.extend(f"set local {sql_text.checked(name)} to default;" for name in restored)
    _inline(*_opening(role, settings, defaults, read_only), parts, values)
    _propagate(settings, defaults, parts, values)
    for bound in statements:
        _inline(bound.statement, bound.values, parts, values)
    return "".join(parts), values


def _inline(
    statement: Statement, slot_values: Sequence[object], parts: list[str], values: list[object]
) -> None:
    template = sql_text.inlined(statement.text, statement.types)
    arranged = template.arrange(tuple(slot_values))
    if statement.block is None:
        parts.append(template.text + ";")
        values.extend(arranged)
    else:
        parts.append(_BLOCK)
        values.append(statement.block.around(sql_text.written(template.text, arranged)))


def _in_block(bound: Bound, execution: str) -> str:
    """Return the body of the block of a statement that is prepared."""
    assert bound.statement.block is not None, "only a block has a body"
    return bound.statement.block.around(sql_text.written(execution, bound.values))


def _check_values(statements: Sequence[Bound]) -> None:
    """Raise ``ValueError`` when a statement has another number of values than of slots."""
    for bound in statements:
        if len(bound.values) != len(bound.statement.types):
            raise ValueError(f"{len(bound.values)} values for {len(bound.statement.types)} slots")


def opened(message: Message, defaults: Defaults) -> tuple[Statement, list[object]]:
    """Return the statement that takes on a message's role and makes its settings, and its values.

    Raises ``DatabaseError`` as PostgreSQL does for a role that cannot exist: ``none`` would
    mean the login role itself.
    """
    role = message.role
    if not role or role == "none":
        headers = (("WWW-Authenticate", "Bearer"),)
        raise DatabaseError(401, "22023", f'role "{role}" does not exist', headers=headers)
    return _opening(role, message.settings, defaults, message.read_only)


def _opening(
    role: str, settings: Settings, defaults: Defaults, read_only: bool
) -> tuple[Statement, list[object]]:
    if defaults.distributed:
        settings = tuple([each for each in settings if not each[0].startswith(sql_text.REQUEST)])
    names, values = zip(*settings, strict=True) if settings else ((), ())
    return _opening_statement(names, defaults, read_only), [role, *values]


@lru_cache(maxsize=1024)
def _opening_statement(names: tuple[str, ...], defaults: Defaults, read_only: bool) -> Statement:
    own = defaults.settings + (_PROPAGATING if defaults.distributed else ())
    return Statement(sql_text.opening(names, own, read_only), ("unknown",) * (1 + len(names)))


_PROPAGATING = (("citus.propagate_set_commands", "local"),)
"""Lets Citus make on workers what ``SET LOCAL`` makes here."""


def _propagated(settings: Settings, defaults: Defaults) -> list[object]:
    """Return the body of the block that makes the request's settings where the database has workers, if any.

    Others are PostgreSQL's own, and those of the coordinator hold for workers, too.
    """
    if not defaults.distributed:
        return []
    made = [(name, value) for name, value in settings if name.startswith(sql_text.REQUEST)]
    return [sql_text.set_locally(made)] if made else []


def _propagate(settings: Settings, defaults: Defaults, parts: list[str], values: list[object]) -> None:
    propagated = _propagated(settings, defaults)
    parts.append(_BLOCK * len(propagated))
    values += propagated


def _beginning(message: Message, defaults: Defaults) -> list[str]:
    """Return what comes before any query of the message's transaction."""
    parts = [defaults.undo, "begin;" if message.rollback else ""]
    if message.isolation is not None:
        parts.append(sql_text.isolation(message.isolation))
    return parts
