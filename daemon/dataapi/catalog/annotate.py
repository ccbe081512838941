"""The directives of a whole catalog, and the foreign keys that they declare; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dataapi.catalog.annotations import (
    Annotations,
    ColumnDirectives,
    DeclaredForeignKey,
    EnumDirectives,
    ForeignKeyDirectives,
    FunctionDirectives,
    SchemaDirectives,
    TableDirectives,
)
from dataapi.catalog.directives import (
    column_directives,
    column_mistake,
    enum_directives,
    foreign_key_directives,
    function_directives,
    schema_directives,
    table_directives,
)
from dataapi.catalog.model import Catalog, Column, ForeignKey, Problem, Table, TypeKind

_PAUSE_EVERY = 50


def annotate(
    catalog: Catalog, pause: Callable[[], None]
) -> tuple[Annotations, tuple[ForeignKey, ...], tuple[Problem, ...]]:
    """Read all comments; return the directives, the declared foreign keys and what could not be used."""
    problems: list[Problem] = []
    tables, columns = _of_tables(catalog, pause, problems)
    pause()
    foreign_keys = _of_foreign_keys(catalog, problems)
    pause()
    declared, declared_names = _declared(catalog, tables, problems)
    annotations = Annotations(
        schemas=_of_schemas(catalog, problems),
        tables=tables,
        columns=columns,
        foreign_keys={**foreign_keys, **declared_names},
        functions=_of_functions(catalog, problems),
        enums=_of_enums(catalog, problems),
    )
    return annotations, declared, tuple(problems)


def _of_schemas(catalog: Catalog, problems: list[Problem]) -> dict[str, SchemaDirectives]:
    found = {
        name: schema_directives(f"schema {name}", schema.comment, problems)
        for name, schema in catalog.schemas.items()
    }
    return {name: directives for name, directives in found.items() if directives}


def _of_tables(
    catalog: Catalog, pause: Callable[[], None], problems: list[Problem]
) -> tuple[dict[int, TableDirectives], dict[tuple[int, str], ColumnDirectives]]:
    tables: dict[int, TableDirectives] = {}
    columns: dict[tuple[int, str], ColumnDirectives] = {}
    for number, table in enumerate(catalog.tables.values()):
        if number % _PAUSE_EVERY == 0:
            pause()
        if table.comment:
            names = {column.name for column in table.columns}
            directives = table_directives(_place(table), table.comment, names, problems)
            if directives:
                tables[table.oid] = directives
        for column in table.columns:
            if column.comment:
                place = f"column {table.schema}.{table.name}.{column.name}"
                found = column_directives(place, column.comment, problems)
                if found:
                    columns[table.oid, column.name] = found
    return tables, columns


def _of_foreign_keys(
    catalog: Catalog, problems: list[Problem]
) -> dict[tuple[int, str], ForeignKeyDirectives]:
    result = {}
    for key in catalog.foreign_keys:
        if key.comment:
            place = f"foreign key {key.name} of {_place(catalog.tables[key.table])}"
            found = foreign_key_directives(place, key.comment, problems)
            if found:
                result[key.table, key.name] = found
    return result


def _of_functions(catalog: Catalog, problems: list[Problem]) -> dict[int, FunctionDirectives]:
    result = {}
    for function in catalog.functions:
        if function.comment:
            found = function_directives(
                f"function {function.schema}.{function.name}", function.comment, problems
            )
            if found:
                result[function.oid] = found
    return result


def _of_enums(catalog: Catalog, problems: list[Problem]) -> dict[int, EnumDirectives]:
    result = {}
    for type_ in catalog.types.values():
        if type_.kind is TypeKind.ENUM and type_.comment:
            place = f"enum {type_.schema}.{type_.name}"
            found = enum_directives(place, type_.comment, type_.labels, problems)
            if found:
                result[type_.oid] = found
    return result


def _place(table: Table) -> str:
    return f"table {table.schema}.{table.name}"


def _declared(
    catalog: Catalog, directives: Mapping[int, TableDirectives], problems: list[Problem]
) -> tuple[tuple[ForeignKey, ...], dict[tuple[int, str], ForeignKeyDirectives]]:
    """Resolve the declared foreign keys; each gets a name that no constraint has."""
    tables = {(table.schema, table.name): table for table in catalog.tables.values()}
    keys: list[ForeignKey] = []
    names: dict[tuple[int, str], ForeignKeyDirectives] = {}
    for oid, annotation in directives.items():
        table = catalog.tables[oid]
        unique = [*(key.columns for key in table.unique_keys), annotation.primary_key_columns]
        for index, declared in enumerate(annotation.foreign_keys):
            key = _resolve(catalog, table, unique, declared, tables)
            if isinstance(key, str):
                message = f"@graphql: foreign_keys: {key}; that foreign key is left out"
                problems.append(Problem(_place(table), message))
                continue
            key = replace(key, name=f"@graphql foreign_keys[{index}]")
            keys.append(key)
            names[oid, key.name] = ForeignKeyDirectives(declared.local_name, declared.foreign_name)
    return tuple(keys), names


def _resolve(
    catalog: Catalog,
    table: Table,
    unique: Sequence[tuple[str, ...]],
    declared: DeclaredForeignKey,
    tables: Mapping[tuple[str, str], Table],
) -> ForeignKey | str:
    """Find the declared key's foreign table and columns; a text says why they don't fit."""
    foreign = tables.get((declared.foreign_schema, declared.foreign_table))
    if foreign is None:
        return f"no table {declared.foreign_schema}.{declared.foreign_table} is exposed"
    mistake = column_mistake(declared.foreign_columns, {column.name for column in foreign.columns})
    if mistake:
        return f"foreign_columns {mistake}"
    for local_name, foreign_name in zip(declared.local_columns, declared.foreign_columns, strict=True):
        ours, theirs = table.column(local_name), foreign.column(foreign_name)
        if ours and theirs and _category(catalog, ours) != _category(catalog, theirs):
            return f"column {local_name!r} can't be compared with {foreign_name!r}"
    local = set(declared.local_columns)
    return ForeignKey(
        name="",
        table=table.oid,
        columns=declared.local_columns,
        foreign_table=foreign.oid,
        foreign_columns=declared.foreign_columns,
        unique=any(set(columns) <= local for columns in unique if columns),
        comment=None,
        declared=True,
    )


def _category(catalog: Catalog, column: Column) -> str:
    return catalog.types[column.type].category
