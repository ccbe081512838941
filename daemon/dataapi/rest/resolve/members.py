"""What is shown of a row: the items of ``select`` as members of a record; pure (reference/rest.md 1.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from dataapi.query.algebra import (
    AggregateFunction,
    AggregateOf,
    CastOf,
    Expression,
    FunctionOf,
    Parameter,
    Rows,
)
from dataapi.query.results import Key, Many, One, Output, Record, Spread, Text, Value
from dataapi.rest.request.syntax import Embed, Field, Star, Step, Term
from dataapi.rest.resolve.fields import Constant, Typed, field_of, has_field
from dataapi.rest.resolve.relations import Relation
from dataapi.rest.resolve.resources import Resource
from dataapi.rest.resolve.tables import ReadableTables

_AGGREGATES = {
    "sum": AggregateFunction.SUM,
    "avg": AggregateFunction.AVG,
    "count": AggregateFunction.COUNT,
    "max": AggregateFunction.MAX,
    "min": AggregateFunction.MIN,
}

COUNT = AggregateFunction.COUNT.value

Member = tuple[Key, Output]


def record_of(tables: ReadableTables, resource: Resource, rows_of: Callable[[Resource], Rows]) -> Record:
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


def shown_as(tables: ReadableTables, resource: Resource, term: Term) -> Typed | None:
    """Return the value that a resource's rows show under a term's name; None where none does.

    :raises ApiError: 42703 and 42704 (400) for columns and types that are not there.
    """
    for item in resource.items:
        if isinstance(item, Star) and term.name in (resource.relation.columns or ()):
            return field_of(tables, resource.relation, term.name, term.path)
        if isinstance(item, Field) and item.aggregate is None and _text_key(item) == term.name:
            path = item.path if item.cast is not None else (*item.path, *term.path)
            typed = field_of(tables, resource.relation, item.name, path)
            return typed if item.cast is None else Typed(_cast(tables, typed.expression, item.cast), None)
    return None


def _embedded(
    tables: ReadableTables, child: Resource, rows_of: Callable[[Resource], Rows]
) -> Member | Spread | None:
    """Return what is shown of an embedded resource; None when it is only there to filter by."""
    embed, way = child.embed, child.way
    assert embed is not None, "only the outermost resource is not embedded"
    assert way is not None, "an embedded resource has a way to it"
    record, rows = record_of(tables, child, rows_of), rows_of(child)
    if embed.silent:
        return None
    if embed.spread:
        return Spread(rows, record, many=not way.to_one)
    key: Key = Text(embed.key) if embed.key == way.target.name else Parameter(Constant(embed.key), "text")
    return key, One(rows, record) if way.to_one else Many(rows, record)


def _all(tables: ReadableTables, relation: Relation) -> Iterator[Member]:
    for name in relation.columns or ():
        typed = field_of(tables, relation, name)
        yield Text(name), Value(_shown(tables, typed))


def _counting(tables: ReadableTables, relation: Relation, field: Field) -> Field:
    """Return a field as it is meant: ``count`` alone counts the rows, unless there is a column of that name.

    In PostgREST this is PostgreSQL's ``table.function`` at work, so that it needs no setting to allow it.
    """
    if field.name != COUNT or field.path or field.aggregate or has_field(tables, relation, COUNT):
        return field
    return replace(field, name="", cast=None, aggregate=COUNT, aggregate_cast=field.cast)


def _field(tables: ReadableTables, relation: Relation, field: Field) -> Member:
    key = _key(field)
    if not field.name:
        return key, Value(_cast(tables, AggregateOf(AggregateFunction.COUNT), field.aggregate_cast))
    typed = field_of(tables, relation, field.name, field.path)
    shown = typed.expression if field.path or field.aggregate else _shown(tables, typed)
    expression = _cast(tables, shown, field.cast)
    if field.aggregate is not None:
        builtin = field.cast is not None or (typed.type is not None and tables.types.is_own(typed.type))
        expression = AggregateOf(_AGGREGATES[field.aggregate], expression, builtin=builtin)
        expression = _cast(tables, expression, field.aggregate_cast)
    return key, Value(expression)


def _key(field: Field) -> Key:
    """Return a member's name: one of the schema or the dialect, or the client's as a value."""
    if field.alias is not None:
        return Parameter(Constant(field.alias), "text")
    if field.aggregate is not None:
        return Text(_AGGREGATES[field.aggregate].value)
    if field.path:
        return Parameter(Constant(_last_name(field.path) or field.name), "text")
    return Text(field.name)


def _text_key(field: Field) -> str:
    """Return the name of a member that is no aggregate."""
    return field.alias or _last_name(field.path) or field.name


def _last_name(path: tuple[Step, ...]) -> str | None:
    """Return the last member that a path names, whatever places in arrays follow it."""
    return next((step.operand for step in reversed(path) if not step.place), None)


def _shown(tables: ReadableTables, typed: Typed) -> Expression:
    """Return a value as JSON shows it: by a domain's own function where it has one."""
    function = tables.types.shown_by(typed.type) if typed.type is not None else None
    return typed.expression if function is None else FunctionOf(function, typed.expression)


def _cast(tables: ReadableTables, expression: Expression, name: str | None) -> Expression:
    return expression if name is None else CastOf(expression, tables.types.cast(name))
