"""From the reflection query's rows to functions, media handlers, representations and roles; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dataapi.catalog.formats import MediaHandler, QualifiedName, media_type_named
from dataapi.catalog.model import Acl, Argument, Function, ResultColumn, Role, Table, Volatility
from dataapi.database.render import may_travel

ANYELEMENT = 2283
"""The oid of the pseudo-type that stands for rows of any table."""

_INPUT_MODES = ("i", "b", "v")
_OUTPUT_MODES = ("o", "b", "t")


def build_function(row: Any, schemas: Mapping[int, str], acls: Mapping[str | None, Acl]) -> Function:
    """Build a function from its row."""
    (oid, schema, name, types, modes, names, defaults, variadic, returns, returns_set) = row[:10]
    rows, volatility, settings, comment, acl = row[10:]
    modes = modes or ["i"] * len(types)
    names = names or [""] * len(types)
    defaults = defaults or [None] * len(types)
    inputs = [
        Argument(argument, int(type_), default, mode == "v" and variadic)
        for argument, type_, mode, default in zip(names, types, modes, defaults, strict=True)
        if mode in _INPUT_MODES
    ]
    outputs = [
        ResultColumn(column, int(type_))
        for column, type_, mode in zip(names, types, modes, strict=True)
        if mode in _OUTPUT_MODES
    ]
    return Function(
        oid=int(oid),
        schema=schemas[int(schema)],
        name=name,
        arguments=tuple(inputs),
        returns=int(returns),
        returns_set=returns_set,
        rows=float(rows),
        columns=tuple(outputs),
        volatility=Volatility(volatility),
        settings=tuple(_pairs(settings or ())),
        comment=comment,
        acl=acls[acl],
    )


def build_handlers(
    rows: Iterable[Any], tables: Iterable[Table], acls: Mapping[str | None, Acl]
) -> Iterator[MediaHandler]:
    """Build the aggregates that take rows of any table or of one that is exposed."""
    by_type = {ANYELEMENT: 0, **{table.type: table.oid for table in tables}}
    for name, schema, aggregate, type_, argument, acl in rows:
        table = by_type.get(int(argument))
        media_type = media_type_named(name)
        if table is not None and media_type is not None:
            yield MediaHandler(media_type, schema, aggregate, table, int(type_), acls[acl])


def build_representation(row: Any) -> tuple[tuple[int, int], QualifiedName]:
    """Build a cast: the oids of its source and target, and its function."""
    source, target, schema, name = row
    return (int(source), int(target)), QualifiedName(schema, name)


def build_role(row: Any) -> Role:
    """Build a role from its row."""
    oid, name, superuser, memberships, settings, login = row
    # The same setting for this database alone comes later and wins.
    return Role(
        oid=int(oid),
        name=name,
        superuser=superuser,
        grantees=frozenset({0, int(oid), *map(int, memberships)}),
        settings=tuple({name: value for name, value in _pairs(settings) if may_travel(name)}.items()),
        login=login,
    )


def _pairs(settings: Iterable[str]) -> Iterator[tuple[str, str]]:
    for setting in settings:
        name, _, value = setting.partition("=")
        yield name, value
