"""The items of ``select`` as members of a record; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from dataapi.database.sql_text import ALIAS, LONGEST_IDENTIFIER
from dataapi.rest.media_output import Body, HandlerBody
from dataapi.rest.parse.syntax import Embed, Field, Star, Step, Term
from dataapi.rest.plan.embed_tree import Resource
from dataapi.rest.plan.expressions import FixedText, TypedExpression, field_of, has_field
from dataapi.rest.plan.tables import Relation, RoleTables
from dataapi.sql.algebra import (
    AggregateFunction,
    AggregateOf,
    CastOf,
    Expression,
    FunctionOf,
    Parameter,
    Rows,
)
from dataapi.sql.outputs import Key, Output, Text, Value
from dataapi.sql.row_output import Many, One, Record, Spread

_AGGREGATES = {
    "sum": AggregateFunction.SUM,
    "avg": AggregateFunction.AVG,
    "count": AggregateFunction.COUNT,
    "max": AggregateFunction.MAX,
    "min": AggregateFunction.MIN,
}

COUNT = AggregateFunction.COUNT.value

Member = tuple[Key, Output]


def record_of(tables: RoleTables, resource: Resource, rows_of: Callable[[Resource], Rows]) -> Record:
    """Return the record of a resource's rows, with those of the resources embedded in it.

    :param rows_of: makes the rows of an embedded resource.
    :raises ApiError: 42703 and 42704 (400) for columns and types that are not there.
    """
    members: list[Member | Spread] = []
    grouped = False
    children = iter(resource.children)
    for item in resource.items:
        match item:
            case Star():
                members += _all(tables, resource.relation)
            case Field():
                field = _counting(tables, resource.relation, item)
                members.append(_field(tables, resource.relation, field))
                grouped = grouped or field.aggregate is not None
            case Embed():
                member = _embedded(tables, next(children), rows_of)
                if member is not None:
                    members.append(member)
                    grouped = grouped or (
                        isinstance(member, Spread) and not member.many and member.record.grouped
                    )
    return Record(tuple(members), grouped)


def value_named(tables: RoleTables, resource: Resource, term: Term) -> TypedExpression | None:
    """Return the value of the member that a term names; None without such a member.

    :raises ApiError: 42703 and 42704 (400) for columns and types that are not there.
    """
    for item in resource.items:
        if isinstance(item, Star) and term.name in (resource.relation.columns or ()):
            return field_of(tables, resource.relation, term.name, term.path)
        if isinstance(item, Field) and item.aggregate is None and _text_key(item) == term.name:
            path = item.path if item.cast is not None else (*item.path, *term.path)
            typed = field_of(tables, resource.relation, item.name, path)
            return (
                typed
                if item.cast is None
                else TypedExpression(_cast(tables, typed.expression, item.cast), None)
            )
    return None


def _embedded(
    tables: RoleTables, child: Resource, rows_of: Callable[[Resource], Rows]
) -> Member | Spread | None:
    """Return the member of an embedded resource; None if the resource is only filtered by."""
    embed, relationship = child.embed, child.relationship
    assert embed is not None, "only the outermost resource is not embedded"
    assert relationship is not None, "an embedded resource is related"
    record, rows = record_of(tables, child, rows_of), rows_of(child)
    if embed.silent:
        return None
    if embed.spread:
        return Spread(rows, record, many=not relationship.to_one)
    is_table = embed.key == relationship.target.name
    key: Key = Text(embed.key) if is_table else Parameter(FixedText(embed.key), "text")
    return key, One(rows, record) if relationship.to_one else Many(rows, record)


def _all(tables: RoleTables, relation: Relation) -> Iterator[Member]:
    for name in relation.columns or ():
        typed = field_of(tables, relation, name)
        yield Text(name), Value(_json_value(tables, typed))


def _counting(tables: RoleTables, relation: Relation, field: Field) -> Field:
    """Return the field with ``count`` as an aggregate, unless there is a column of that name.

    In PostgREST this is PostgreSQL's ``table.function`` at work, so that it needs no setting to allow it.
    """
    if field.name != COUNT or field.path or field.aggregate or has_field(tables, relation, COUNT):
        return field
    return replace(field, name="", cast=None, aggregate=COUNT, aggregate_cast=field.cast)


def _field(tables: RoleTables, relation: Relation, field: Field) -> Member:
    key = _key(field)
    if not field.name:
        return key, Value(_cast(tables, AggregateOf(AggregateFunction.COUNT), field.aggregate_cast))
    typed = field_of(tables, relation, field.name, field.path)
    value = typed.expression if field.path or field.aggregate else _json_value(tables, typed)
    expression = _cast(tables, value, field.cast)
    if field.aggregate is not None:
        builtin = field.cast is not None or (typed.type is not None and tables.types.is_own(typed.type))
        expression = AggregateOf(_AGGREGATES[field.aggregate], expression, builtin=builtin)
        expression = _cast(tables, expression, field.aggregate_cast)
    return key, Value(expression)


def _key(field: Field) -> Key:
    """Return a member's name: one of the schema or the dialect, or the client's as a value."""
    if field.alias is not None:
        return Parameter(FixedText(field.alias), "text")
    if field.aggregate is not None:
        return Text(_AGGREGATES[field.aggregate].value)
    if field.path:
        return Parameter(FixedText(_last_name(field.path) or field.name), "text")
    return Text(field.name)


def _text_key(field: Field) -> str:
    """Return the name of a member that is not an aggregate."""
    return field.alias or _last_name(field.path) or field.name


def _last_name(path: tuple[Step, ...]) -> str | None:
    """Return the last member that a path names, indexes of arrays left out."""
    return next((step.operand for step in reversed(path) if not step.is_index), None)


def _json_value(tables: RoleTables, typed: TypedExpression) -> Expression:
    """Return a value as it becomes JSON: by a domain's own function where it has one."""
    function = tables.types.json_function(typed.type) if typed.type is not None else None
    return typed.expression if function is None else FunctionOf(function, typed.expression)


def _cast(tables: RoleTables, expression: Expression, name: str | None) -> Expression:
    return expression if name is None else CastOf(expression, tables.types.cast(name))


def with_column_names(record: Record, body: Body) -> Record:
    """Return the record with names of columns for members, if the body is made by an aggregate over any rows.

    Such an aggregate finds the names in the type of the row, so an alias, elsewhere a value, becomes part of
    the statement, quoted.  One that PostgreSQL would cut, or take for an alias of ours, remains a value.
    """
    if not isinstance(body, HandlerBody) or body.table is not None:
        return record
    return _named(record)


def _named(record: Record) -> Record:
    return Record(tuple(map(_member, record.members)), record.grouped)


def _member(member: tuple[Key, Output] | Spread) -> tuple[Key, Output] | Spread:
    if isinstance(member, Spread):
        return Spread(member.rows, _named(member.record), member.many)
    key, output = member
    return _column_key(key), output


def _column_key(key: Key) -> Key:
    if not isinstance(key, Parameter) or not isinstance(key.source, FixedText):
        return key
    name = key.source.text
    fits = 0 < len(name.encode("utf-8", "replace")) <= LONGEST_IDENTIFIER and not name.startswith(ALIAS)
    return Text(name) if fits and name.isprintable() else key
