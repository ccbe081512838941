"""The directives of a whole catalog, read from its comments, and the foreign keys that they declare; pure.

The keys of ``@graphql({…})`` are those of ``docs/reference/graphql.md``, Directives; a table's ``@rest({…})``
has ``max_rows``.  Reading never fails: what cannot be used is left out and becomes a ``Problem``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from dataapi.catalog.comments import REST, Members, find_members
from dataapi.catalog.directives import (
    FEATURES,
    DeclaredForeignKey,
    Directives,
    EnumDirectives,
    FieldDirectives,
    ForeignKeyDirectives,
    SchemaDirectives,
    TableDirectives,
    is_enum_value,
    is_graphql_name,
)
from dataapi.catalog.model import Catalog, Column, ForeignKey, Problem, Table, TypeKind


def _name(members: Members, key: str) -> str | None:
    result: str | None = members.take(
        key,
        lambda value: isinstance(value, str) and is_graphql_name(value),
        "a GraphQL name (letters, digits and _, not beginning with a digit or __)",
    )
    return result


def schema_directives(place: str, comment: str | None, problems: list[Problem]) -> SchemaDirectives | None:
    """Read a schema's comment; None when it has no directive."""
    members = find_members(place, comment, problems)
    if members is None:
        return None
    result = SchemaDirectives(
        inflect_names=members.flag("inflect_names"),
        max_rows=members.rows("max_rows"),
        introspection=members.flag("introspection"),
    )
    members.finish()
    return result


def table_directives(
    place: str, comment: str | None, columns: Collection[str], problems: list[Problem]
) -> TableDirectives | None:
    """Read the comment of a table with those columns; None when it has no directive of either API.

    Foreign keys come back with their local side checked; the foreign side is for the caller, who
    knows the other tables.
    """
    rest_max_rows = _rest_max_rows(place, comment, problems)
    members = find_members(place, comment, problems)
    if members is None:
        return TableDirectives(rest_max_rows=rest_max_rows) if rest_max_rows else None
    result = TableDirectives(
        name=_name(members, "name"),
        description=members.text("description"),
        total_count=members.enabled("totalCount"),
        aggregate=members.enabled("aggregate"),
        max_rows=members.rows("max_rows"),
        primary_key_columns=_primary_key(members, columns),
        foreign_keys=_foreign_keys(place, members, columns, problems),
        features=frozenset(feature for feature in FEATURES if members.enabled(feature)),
        rest_max_rows=rest_max_rows,
    )
    members.finish()
    return result


def _rest_max_rows(place: str, comment: str | None, problems: list[Problem]) -> int | None:
    members = find_members(place, comment, problems, REST)
    if members is None:
        return None
    rows = members.rows("max_rows")
    members.finish()
    return rows


def _primary_key(members: Members, columns: Collection[str]) -> tuple[str, ...]:
    names = members.strings("primary_key_columns")
    mistake = column_mistake(names, columns)
    if mistake:
        members.problem(f"@graphql: primary_key_columns {mistake}; the table is taken without a declared key")
        return ()
    return names


def column_mistake(names: Sequence[str], columns: Collection[str]) -> str | None:
    """Say what is wrong with a list of column names, or None."""
    unknown = [name for name in names if name not in columns]
    if unknown:
        return f"names the unknown column {unknown[0]!r}"
    if len(set(names)) < len(names):
        return "names a column twice"
    return None


def _foreign_keys(
    place: str, members: Members, columns: Collection[str], problems: list[Problem]
) -> tuple[DeclaredForeignKey, ...]:
    value = members.take("foreign_keys", lambda value: isinstance(value, list), "a list of objects")
    keys = []
    for index, entry in enumerate(value or ()):
        label = f"foreign_keys[{index}]"
        if not isinstance(entry, dict):
            members.problem(f"@graphql: {label} must be an object; it is ignored")
            continue
        key = _foreign_key(Members(place, entry, problems, f"{label}."), label, columns)
        if key is not None:
            keys.append(key)
    return tuple(keys)


def _foreign_key(entry: Members, label: str, columns: Collection[str]) -> DeclaredForeignKey | None:
    key = DeclaredForeignKey(
        local_name=_name(entry, "local_name"),
        local_columns=entry.strings("local_columns"),
        foreign_name=_name(entry, "foreign_name"),
        foreign_schema=entry.text("foreign_schema") or "",
        foreign_table=entry.text("foreign_table") or "",
        foreign_columns=entry.strings("foreign_columns"),
    )
    entry.finish()
    required = ("local_columns", "foreign_schema", "foreign_table", "foreign_columns")
    missing = [name for name in required if not getattr(key, name)]
    if missing:
        entry.problem(f"@graphql: {label} needs {', '.join(missing)}; that foreign key is left out")
        return None
    if len(key.local_columns) != len(key.foreign_columns):
        entry.problem(f"@graphql: {label} has unequally many local and foreign columns; it is left out")
        return None
    mistake = column_mistake(key.local_columns, columns)
    if mistake:
        entry.problem(f"@graphql: {label}.local_columns {mistake}; that foreign key is left out")
        return None
    return key


def field_directives(place: str, comment: str | None, problems: list[Problem]) -> FieldDirectives | None:
    """Read the comment of a column or function; None when it has no directive."""
    members = find_members(place, comment, problems)
    if members is None:
        return None
    result = FieldDirectives(name=_name(members, "name"), description=members.text("description"))
    members.finish()
    return result


def foreign_key_directives(
    place: str, comment: str | None, problems: list[Problem]
) -> ForeignKeyDirectives | None:
    """Read a foreign key constraint's comment; None when it has no directive."""
    members = find_members(place, comment, problems)
    if members is None:
        return None
    result = ForeignKeyDirectives(
        local_name=_name(members, "local_name"), foreign_name=_name(members, "foreign_name")
    )
    members.finish()
    return result


def enum_directives(
    place: str, comment: str | None, labels: Collection[str], problems: list[Problem]
) -> EnumDirectives | None:
    """Read the comment of an enum with those labels; None when it has no directive."""
    members = find_members(place, comment, problems)
    if members is None:
        return None
    result = EnumDirectives(
        name=_name(members, "name"),
        description=members.text("description"),
        mappings=_mappings(members, labels),
    )
    members.finish()
    return result


def _mappings(members: Members, labels: Collection[str]) -> Mapping[str, str]:
    value = members.take(
        "mappings", lambda value: isinstance(value, dict), "an object from label to GraphQL name"
    )
    mappings: dict[str, str] = {}
    for label, target in (value or {}).items():
        if label not in labels:
            members.problem(f"@graphql: mappings names the unknown label {label!r}; it is ignored")
        elif not isinstance(target, str) or not is_enum_value(target):
            members.problem(
                f"@graphql: mappings gives {label!r} no valid GraphQL enum value; it keeps its own"
            )
        else:
            mappings[label] = target
    names = [mappings.get(label, label) for label in labels]
    if len(set(names)) < len(names):
        members.problem("@graphql: mappings gives two labels the same value; all mappings are ignored")
        return {}
    return mappings


_PAUSE_EVERY = 50


def read_directives(
    catalog: Catalog, pause: Callable[[], None]
) -> tuple[Directives, tuple[ForeignKey, ...], tuple[Problem, ...]]:
    """Read all comments; return the directives, the declared foreign keys and what could not be used."""
    problems: list[Problem] = []
    tables, columns = _of_tables(catalog, pause, problems)
    pause()
    foreign_keys = _of_foreign_keys(catalog, problems)
    pause()
    declared, declared_names = _declared(catalog, tables, problems)
    directives = Directives(
        schemas=_of_schemas(catalog, problems),
        tables=tables,
        columns=columns,
        foreign_keys={**foreign_keys, **declared_names},
        functions=_of_functions(catalog, problems),
        enums=_of_enums(catalog, problems),
    )
    return directives, declared, tuple(problems)


def _of_schemas(catalog: Catalog, problems: list[Problem]) -> dict[str, SchemaDirectives]:
    found = {
        name: schema_directives(f"schema {name}", schema.comment, problems)
        for name, schema in catalog.schemas.items()
    }
    return {name: directives for name, directives in found.items() if directives}


def _of_tables(
    catalog: Catalog, pause: Callable[[], None], problems: list[Problem]
) -> tuple[dict[int, TableDirectives], dict[tuple[int, str], FieldDirectives]]:
    tables: dict[int, TableDirectives] = {}
    columns: dict[tuple[int, str], FieldDirectives] = {}
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
                found = field_directives(place, column.comment, problems)
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


def _of_functions(catalog: Catalog, problems: list[Problem]) -> dict[int, FieldDirectives]:
    result = {}
    for function in catalog.functions:
        if function.comment:
            found = field_directives(
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
