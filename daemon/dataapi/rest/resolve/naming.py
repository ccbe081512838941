"""Names that clients give to members, where an aggregate of the database reads them; pure."""

from __future__ import annotations

from dataapi.database.quoting import ALIAS, LONGEST_IDENTIFIER
from dataapi.query.algebra import Parameter
from dataapi.query.bodies import Body, Handled
from dataapi.query.results import Key, Output, Record, Spread, Text
from dataapi.rest.resolve.fields import Constant


def named_for(record: Record, body: Body) -> Record:
    """Return the record as a body needs it.

    An aggregate over rows of any kind finds the members' names in the row's type, so that they must be
    names of columns: a client's own stands in the statement then, quoted, where else it is a value.  Those
    that PostgreSQL would cut, or take for an alias, stay what they are.
    """
    if not isinstance(body, Handled) or body.table is not None:
        return record
    return _named(record)


def _named(record: Record) -> Record:
    return Record(tuple(map(_member, record.members)), record.grouped)


def _member(member: tuple[Key, Output] | Spread) -> tuple[Key, Output] | Spread:
    if isinstance(member, Spread):
        return Spread(member.rows, _named(member.record), member.many)
    key, output = member
    return _key(key), output


def _key(key: Key) -> Key:
    if not isinstance(key, Parameter) or not isinstance(key.source, Constant):
        return key
    name = key.source.text
    fits = 0 < len(name.encode("utf-8", "replace")) <= LONGEST_IDENTIFIER and not name.startswith(ALIAS)
    return Text(name) if fits and name.isprintable() else key
