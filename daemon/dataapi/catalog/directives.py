"""Reading directives from comments, strictly: a bad member is named and left out.

The keys of ``@graphql({…})`` are the reference's (``graphql.md`` 1.2), plus those of ``FEATURES``; a table's
``@rest({…})`` has ``max_rows``.  A reader never fails: whatever can't be used becomes a ``Problem`` that
says what was done instead.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from dataapi.catalog.annotations import (
    ColumnDirectives,
    DeclaredForeignKey,
    EnumDirectives,
    ForeignKeyDirectives,
    FunctionDirectives,
    SchemaDirectives,
    TableDirectives,
)
from dataapi.catalog.comments import REST, Members, find_members
from dataapi.catalog.model import Problem

FEATURES = (
    "upsert",
    "relationFilters",
    "relationOrder",
    "nestedInserts",
    "groupBy",
    "jsonFilters",
    "fullText",
)
"""Table keys beyond the reference's, each ``{"enabled": true}``."""

_NAME = re.compile(r"[_A-Za-z][_0-9A-Za-z]*")


def is_graphql_name(text: str) -> bool:
    """Whether GraphQL allows the text as a name of a user's: ``__`` at the start is the language's own."""
    return _NAME.fullmatch(text) is not None and not text.startswith("__")


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


def column_directives(place: str, comment: str | None, problems: list[Problem]) -> ColumnDirectives | None:
    """Read a column's comment; None when it has no directive."""
    members = find_members(place, comment, problems)
    if members is None:
        return None
    result = ColumnDirectives(name=_name(members, "name"), description=members.text("description"))
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


def function_directives(
    place: str, comment: str | None, problems: list[Problem]
) -> FunctionDirectives | None:
    """Read a function's comment; None when it has no directive."""
    members = find_members(place, comment, problems)
    if members is None:
        return None
    result = FunctionDirectives(name=_name(members, "name"), description=members.text("description"))
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


def is_enum_value(text: str) -> bool:
    """Whether GraphQL allows the text as an enum value."""
    return is_graphql_name(text) and text not in ("true", "false", "null")


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
