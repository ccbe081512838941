"""Parses the directives in comments, and the foreign keys that they declare.

See docs/reference/graphql.md, Directives. Invalid directives are ignored and reported as a ``Problem``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, TypeVar

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
from dataapi.catalog.model import Catalog, ForeignKey, Problem, TypeKind, describe_object
from dataapi.catalog.relationships import column_mistake, declared_keys
from dataapi.http.strict_json import DECODER, INVALID_JSON, is_storable

GRAPHQL = "@graphql"
REST = "@rest"

_DIRECTIVES = {name: re.compile(rf"{name}\((?=.+\))\s*", re.DOTALL) for name in (GRAPHQL, REST)}
_CACHE_DIRECTIVE = (
    "(?:(?:max-age|s-maxage|stale-while-revalidate|stale-if-error)=[0-9]{1,10}"
    "|immutable|must-revalidate|must-understand|no-cache|no-store|no-transform|private"
    "|proxy-revalidate|public)"
)
"""A ``Cache-Control`` directive of RFC 9111 section 5.2.2, RFC 5861 or RFC 8246."""
_CACHE_CONTROL = re.compile(f"{_CACHE_DIRECTIVE}(?:, *{_CACHE_DIRECTIVE})*")
_MAX_PAGE_SIZE = 2**31 - 1

Key = TypeVar("Key", bound=Hashable)
Read = TypeVar("Read")


def without_directives(comment: str | None) -> str | None:
    """Return a comment without its valid directives, or None if nothing is left."""
    for pattern in _DIRECTIVES.values():
        while comment and (match := pattern.search(comment)):
            try:
                _, rest = _decode(comment, match.end())
            except INVALID_JSON:
                break
            if not rest.startswith(")"):
                break
            comment = comment[: match.start()].rstrip() + rest[1:]
    return comment.strip() or None if comment else None


def _decode(comment: str, start: int) -> tuple[Any, str]:
    value, end = DECODER.raw_decode(comment, start)
    return value, comment[end:].lstrip()


class Members:
    """Members of one directive. Invalid members are reported as problems."""

    def __init__(
        self,
        location: str,
        members: Mapping[str, Any],
        problems: list[Problem],
        prefix: str = "",
        directive: str = GRAPHQL,
    ) -> None:
        self._location = location
        self._directive = directive
        self._remaining = dict(members)
        self._problems = problems
        self._prefix = prefix

    def problem(self, message: str) -> None:
        self._problems.append(Problem(self._location, f"{self._directive}: {message}"))

    def pop(self, key: str, accept: Callable[[Any], bool], expected: str) -> Any:
        if key not in self._remaining:
            return None
        value = self._remaining.pop(key)
        if accept(value):
            return value
        self.problem(f"{self._prefix}{key} must be {expected}; it is ignored")
        return None

    def flag(self, key: str) -> bool:
        return self.pop(key, lambda value: isinstance(value, bool), "true or false") is True

    def text(self, key: str) -> str | None:
        result: str | None = self.pop(key, _is_text, "a string")
        return result

    def name(self, key: str) -> str | None:
        result: str | None = self.pop(
            key,
            lambda value: isinstance(value, str) and is_graphql_name(value),
            "a GraphQL name (letters, digits and _, not starting with a digit or __)",
        )
        return result

    def rows(self, key: str) -> int | None:
        result: int | None = self.pop(
            key,
            lambda value: type(value) is int and 0 < value <= _MAX_PAGE_SIZE,  # type() excludes bool
            f"an integer from 1 to {_MAX_PAGE_SIZE}",
        )
        return result

    def enabled(self, key: str) -> bool:
        value = self.pop(
            key,
            lambda value: isinstance(value, dict) and isinstance(value.get("enabled"), bool),
            '{"enabled": true} or {"enabled": false}',
        )
        if value is None:
            return False
        for extra in value.keys() - {"enabled"}:
            self.problem(f"{self._prefix}{key} has the unknown key {extra!r}; that key is ignored")
        return value["enabled"] is True

    def strings(self, key: str) -> tuple[str, ...]:
        value = self.pop(
            key,
            lambda value: isinstance(value, list) and bool(value) and all(map(_is_text, value)),
            "a non-empty list of strings",
        )
        return tuple(value or ())

    def finish(self) -> None:
        for key in self._remaining:
            self.problem(f"unknown key {self._prefix + key!r}; it is ignored")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and is_storable(value)


def _read(
    location: str,
    comment: str | None,
    problems: list[Problem],
    build: Callable[[Members], Read],
    directive: str = GRAPHQL,
) -> Read | None:
    """Parse the directive in a comment and build its value. Return None if there is no valid directive."""
    match = _DIRECTIVES[directive].search(comment) if comment else None
    if comment is None or match is None:
        return None
    members = Members(location, {}, problems, directive=directive)
    try:
        value, rest = _decode(comment, match.end())
    except INVALID_JSON as error:
        reason = "is nested too deeply" if isinstance(error, RecursionError) else f"is not JSON ({error})"
        members.problem(f"the directive {reason}; it is ignored")
        return None
    if not rest.startswith(")"):
        members.problem(f"expected ) after the JSON, but found {rest[:20]!r}; the directive is ignored")
        return None
    if not isinstance(value, dict):
        members.problem("the directive must be a JSON object; it is ignored")
        return None
    if f"{directive}(" in rest:
        members.problem("the comment has several directives; only the first is used")
    members = Members(location, value, problems, directive=directive)
    result = build(members)
    members.finish()
    return result


def schema_directives(location: str, comment: str | None, problems: list[Problem]) -> SchemaDirectives | None:
    return _read(
        location,
        comment,
        problems,
        lambda members: SchemaDirectives(
            members.flag("inflect_names"), members.rows("max_rows"), members.flag("introspection")
        ),
    )


def table_directives(
    location: str, comment: str | None, columns: Collection[str], problems: list[Problem]
) -> TableDirectives | None:
    """Return the GraphQL and REST directives in a table's comment, or None if there are none.

    The local columns of foreign keys are checked here. The caller checks the foreign columns.
    """
    rest = _read(
        location,
        comment,
        problems,
        lambda members: TableDirectives(
            rest_max_rows=members.rows("max_rows"), rest_cache_control=_cache_control(members)
        ),
        REST,
    )
    rest = rest or TableDirectives()
    directives = _read(
        location,
        comment,
        problems,
        lambda members: TableDirectives(
            name=members.name("name"),
            description=members.text("description"),
            total_count=members.enabled("totalCount"),
            aggregate=members.enabled("aggregate"),
            max_rows=members.rows("max_rows"),
            primary_key_columns=_primary_key(members, columns),
            foreign_keys=_foreign_keys(location, members, columns, problems),
            features=frozenset(feature for feature in FEATURES if members.enabled(feature)),
            rest_max_rows=rest.rest_max_rows,
            rest_cache_control=rest.rest_cache_control,
        ),
    )
    return directives or (rest if rest != TableDirectives() else None)


def _cache_control(members: Members) -> str | None:
    value: str | None = members.pop(
        "cache_control",
        lambda value: isinstance(value, str) and _CACHE_CONTROL.fullmatch(value) is not None,
        'a Cache-Control header of a response, such as "private, max-age=60"',
    )
    return value


def _primary_key(members: Members, columns: Collection[str]) -> tuple[str, ...]:
    names = members.strings("primary_key_columns")
    mistake = column_mistake(names, columns)
    if mistake:
        members.problem(f"primary_key_columns {mistake}; the declared key is ignored")
        return ()
    return names


def _foreign_keys(
    location: str, members: Members, columns: Collection[str], problems: list[Problem]
) -> tuple[DeclaredForeignKey, ...]:
    value = members.pop("foreign_keys", lambda value: isinstance(value, list), "a list of objects")
    keys = []
    for index, entry in enumerate(value or ()):
        label = f"foreign_keys[{index}]"
        if not isinstance(entry, dict):
            members.problem(f"{label} must be an object; it is ignored")
            continue
        key = _foreign_key(Members(location, entry, problems, f"{label}."), label, columns)
        if key is not None:
            keys.append(key)
    return tuple(keys)


def _foreign_key(entry: Members, label: str, columns: Collection[str]) -> DeclaredForeignKey | None:
    key = DeclaredForeignKey(
        local_name=entry.name("local_name"),
        local_columns=entry.strings("local_columns"),
        foreign_name=entry.name("foreign_name"),
        foreign_schema=entry.text("foreign_schema") or "",
        foreign_table=entry.text("foreign_table") or "",
        foreign_columns=entry.strings("foreign_columns"),
    )
    entry.finish()
    required = ("local_columns", "foreign_schema", "foreign_table", "foreign_columns")
    missing = [name for name in required if not getattr(key, name)]
    mistake = column_mistake(key.local_columns, columns)
    if missing:
        entry.problem(f"{label} needs {', '.join(missing)}; that foreign key is ignored")
    elif len(key.local_columns) != len(key.foreign_columns):
        entry.problem(f"{label} has different numbers of local and foreign columns; it is ignored")
    elif mistake:
        entry.problem(f"{label}.local_columns {mistake}; that foreign key is ignored")
    else:
        return key
    return None


def field_directives(location: str, comment: str | None, problems: list[Problem]) -> FieldDirectives | None:
    return _read(
        location,
        comment,
        problems,
        lambda members: FieldDirectives(members.name("name"), members.text("description")),
    )


def foreign_key_directives(
    location: str, comment: str | None, problems: list[Problem]
) -> ForeignKeyDirectives | None:
    return _read(
        location,
        comment,
        problems,
        lambda members: ForeignKeyDirectives(members.name("local_name"), members.name("foreign_name")),
    )


def enum_directives(
    location: str, comment: str | None, labels: Collection[str], problems: list[Problem]
) -> EnumDirectives | None:
    return _read(
        location,
        comment,
        problems,
        lambda members: EnumDirectives(
            members.name("name"), members.text("description"), _mappings(members, labels)
        ),
    )


def _mappings(members: Members, labels: Collection[str]) -> Mapping[str, str]:
    value = members.pop(
        "mappings", lambda value: isinstance(value, dict), "an object that maps labels to GraphQL names"
    )
    mappings: dict[str, str] = {}
    for label, target in (value or {}).items():
        if label not in labels:
            members.problem(f"mappings has the unknown label {label!r}; it is ignored")
        elif not isinstance(target, str) or not is_enum_value(target):
            members.problem(f"mappings has an invalid GraphQL enum value for {label!r}; it is ignored")
        else:
            mappings[label] = target
    names = [mappings.get(label, label) for label in labels]
    if len(set(names)) < len(names):
        members.problem("mappings maps two labels to the same value; all mappings are ignored")
        return {}
    return mappings


def read_directives(catalog: Catalog) -> tuple[Directives, tuple[ForeignKey, ...], tuple[Problem, ...]]:
    problems: list[Problem] = []
    tables: dict[int, TableDirectives] = {}
    columns: dict[tuple[int, str], FieldDirectives] = {}
    for table in catalog.tables.values():
        if table.comment:
            names = {column.name for column in table.columns}
            directives = table_directives(describe_object(table), table.comment, names, problems)
            if directives:
                tables[table.oid] = directives
        columns |= _present(
            (
                (table.oid, column.name),
                field_directives(describe_object(column, table), column.comment, problems),
            )
            for column in table.columns
            if column.comment
        )
    foreign_keys = _present(
        (
            (key.table, key.name),
            foreign_key_directives(describe_object(key, catalog.tables[key.table]), key.comment, problems),
        )
        for key in catalog.foreign_keys
        if key.comment
    )
    declared = declared_keys(catalog, tables, problems)
    for key, source in declared:
        constraint = foreign_keys.get((key.table, key.name), ForeignKeyDirectives())
        foreign_keys[key.table, key.name] = ForeignKeyDirectives(
            source.local_name or constraint.local_name, source.foreign_name or constraint.foreign_name
        )
    return (
        Directives(
            schemas=_present(
                (name, schema_directives(f"schema {name}", schema.comment, problems))
                for name, schema in catalog.schemas.items()
            ),
            tables=tables,
            columns=columns,
            foreign_keys=foreign_keys,
            functions=_present(
                (function.oid, field_directives(describe_object(function), function.comment, problems))
                for function in catalog.functions
                if function.comment
            ),
            enums=_present(
                (enum.oid, enum_directives(describe_object(enum), enum.comment, enum.labels, problems))
                for enum in catalog.types.values()
                if enum.kind is TypeKind.ENUM and enum.comment
            ),
        ),
        tuple(key for key, _ in declared if key.declared),
        tuple(problems),
    )


def _present(items: Iterable[tuple[Key, Read | None]]) -> dict[Key, Read]:
    return {key: directives for key, directives in items if directives is not None}
