"""The directives in the comments of a catalog, and the foreign keys that they declare; pure.

The keys of ``@graphql({…})`` are those of ``docs/reference/graphql.md``, Directives; a table's ``@rest({…})``
has ``max_rows``.  Reading never fails: what cannot be used is left out and becomes a ``Problem``.
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
from dataapi.catalog.model import Catalog, ForeignKey, Problem, TypeKind, place_of
from dataapi.catalog.relationships import column_mistake, declared_keys
from dataapi.http.strict_json import DECODER, INVALID_JSON, is_storable

GRAPHQL = "@graphql"
REST = "@rest"

_DIRECTIVES = {name: re.compile(rf"{name}\((?=.+\))\s*", re.DOTALL) for name in (GRAPHQL, REST)}
"""Where directives of each name begin, up to their JSON."""
_LARGEST_PAGE = 2**31 - 1

Key = TypeVar("Key", bound=Hashable)
Read = TypeVar("Read")


def without_directives(comment: str | None) -> str | None:
    """Return what a comment says to people: directives that can be read are cut out; None for nothing."""
    for pattern in _DIRECTIVES.values():
        while comment and (found := pattern.search(comment)):
            try:
                _, rest = _decode(comment, found.end())
            except INVALID_JSON:
                break
            if not rest.startswith(")"):
                break
            comment = comment[: found.start()].rstrip() + rest[1:]
    return comment.strip() or None if comment else None


def _decode(comment: str, start: int) -> tuple[Any, str]:
    """Return the JSON value that begins at ``start``, and what follows; raises one of ``INVALID_JSON``."""
    value, end = DECODER.raw_decode(comment, start)
    return value, comment[end:].lstrip()


class Members:
    """The members of one directive, taken one by one; what can't be used is noted."""

    def __init__(
        self,
        place: str,
        members: Mapping[str, Any],
        problems: list[Problem],
        prefix: str = "",
        directive: str = GRAPHQL,
    ) -> None:
        self._place = place
        self._directive = directive
        self._left = dict(members)
        self._problems = problems
        self._prefix = prefix

    def problem(self, message: str) -> None:
        """Note a problem of the directive's object."""
        self._problems.append(Problem(self._place, f"{self._directive}: {message}"))

    def take(self, key: str, accept: Callable[[Any], bool], expected: str) -> Any:
        """Return the member if it is there and acceptable, else None."""
        if key not in self._left:
            return None
        value = self._left.pop(key)
        if accept(value):
            return value
        self.problem(f"{self._prefix}{key} must be {expected}; it is ignored")
        return None

    def flag(self, key: str) -> bool:
        """Take true or false; False without."""
        return self.take(key, lambda value: isinstance(value, bool), "true or false") is True

    def text(self, key: str) -> str | None:
        """Take a text that can be sent as JSON."""
        result: str | None = self.take(key, _is_text, "a text")
        return result

    def name(self, key: str) -> str | None:
        """Take a name of GraphQL."""
        result: str | None = self.take(
            key,
            lambda value: isinstance(value, str) and is_graphql_name(value),
            "a GraphQL name (letters, digits and _, not beginning with a digit or __)",
        )
        return result

    def rows(self, key: str) -> int | None:
        """Take a page size."""
        result: int | None = self.take(
            key,
            lambda value: type(value) is int and 0 < value <= _LARGEST_PAGE,  # which a bool is not
            f"a whole number from 1 to {_LARGEST_PAGE}",
        )
        return result

    def enabled(self, key: str) -> bool:
        """Take ``{"enabled": …}``; False without."""
        value = self.take(
            key,
            lambda value: isinstance(value, dict) and isinstance(value.get("enabled"), bool),
            '{"enabled": true} or {"enabled": false}',
        )
        if value is None:
            return False
        for extra in value.keys() - {"enabled"}:
            self.problem(f"{self._prefix}{key} has an unknown key {extra!r}; that key is ignored")
        return value["enabled"] is True

    def strings(self, key: str) -> tuple[str, ...]:
        """Take a list of at least one text; empty without."""
        value = self.take(
            key,
            lambda value: isinstance(value, list) and bool(value) and all(map(_is_text, value)),
            "a list of at least one text",
        )
        return tuple(value or ())

    def finish(self) -> None:
        """Note every member that was not taken."""
        for key in self._left:
            self.problem(f"unknown key {self._prefix + key!r}; it is ignored")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and is_storable(value)


def _read(
    place: str,
    comment: str | None,
    problems: list[Problem],
    build: Callable[[Members], Read],
    directive: str = GRAPHQL,
) -> Read | None:
    """Find the directive in a comment and build its value; None when there is none that can be used."""
    found = _DIRECTIVES[directive].search(comment) if comment else None
    if comment is None or found is None:
        return None
    members = Members(place, {}, problems, directive=directive)
    try:
        value, rest = _decode(comment, found.end())
    except INVALID_JSON as error:
        reason = "is nested too deeply" if isinstance(error, RecursionError) else f"is not JSON ({error})"
        members.problem(f"the directive {reason}; it is ignored")
        return None
    if not rest.startswith(")"):
        members.problem(f"{rest[:20]!r} follows the JSON; the directive is ignored")
        return None
    if not isinstance(value, dict):
        members.problem("the directive must be a JSON object; it is ignored")
        return None
    if f"{directive}(" in rest:
        members.problem("the comment has several directives; only the first one is used")
    members = Members(place, value, problems, directive=directive)
    result = build(members)
    members.finish()
    return result


def schema_directives(place: str, comment: str | None, problems: list[Problem]) -> SchemaDirectives | None:
    """Read a schema's comment; None when it has no directive."""
    return _read(
        place,
        comment,
        problems,
        lambda members: SchemaDirectives(
            members.flag("inflect_names"), members.rows("max_rows"), members.flag("introspection")
        ),
    )


def table_directives(
    place: str, comment: str | None, columns: Collection[str], problems: list[Problem]
) -> TableDirectives | None:
    """Read the comment of a table with those columns; None when it has no directive of either API.

    Foreign keys come back with their local side checked; the foreign side is for the caller, who
    knows the other tables.
    """
    rest_max_rows = _read(place, comment, problems, lambda members: members.rows("max_rows"), REST)
    directives = _read(
        place,
        comment,
        problems,
        lambda members: TableDirectives(
            name=members.name("name"),
            description=members.text("description"),
            total_count=members.enabled("totalCount"),
            aggregate=members.enabled("aggregate"),
            max_rows=members.rows("max_rows"),
            primary_key_columns=_primary_key(members, columns),
            foreign_keys=_foreign_keys(place, members, columns, problems),
            features=frozenset(feature for feature in FEATURES if members.enabled(feature)),
            rest_max_rows=rest_max_rows,
        ),
    )
    return directives or (TableDirectives(rest_max_rows=rest_max_rows) if rest_max_rows else None)


def _primary_key(members: Members, columns: Collection[str]) -> tuple[str, ...]:
    names = members.strings("primary_key_columns")
    mistake = column_mistake(names, columns)
    if mistake:
        members.problem(f"primary_key_columns {mistake}; the table is taken without a declared key")
        return ()
    return names


def _foreign_keys(
    place: str, members: Members, columns: Collection[str], problems: list[Problem]
) -> tuple[DeclaredForeignKey, ...]:
    value = members.take("foreign_keys", lambda value: isinstance(value, list), "a list of objects")
    keys = []
    for index, entry in enumerate(value or ()):
        label = f"foreign_keys[{index}]"
        if not isinstance(entry, dict):
            members.problem(f"{label} must be an object; it is ignored")
            continue
        key = _foreign_key(Members(place, entry, problems, f"{label}."), label, columns)
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
        entry.problem(f"{label} needs {', '.join(missing)}; that foreign key is left out")
    elif len(key.local_columns) != len(key.foreign_columns):
        entry.problem(f"{label} has unequally many local and foreign columns; it is left out")
    elif mistake:
        entry.problem(f"{label}.local_columns {mistake}; that foreign key is left out")
    else:
        return key
    return None


def field_directives(place: str, comment: str | None, problems: list[Problem]) -> FieldDirectives | None:
    """Read the comment of a column or function; None when it has no directive."""
    return _read(
        place,
        comment,
        problems,
        lambda members: FieldDirectives(members.name("name"), members.text("description")),
    )


def foreign_key_directives(
    place: str, comment: str | None, problems: list[Problem]
) -> ForeignKeyDirectives | None:
    """Read a foreign key constraint's comment; None when it has no directive."""
    return _read(
        place,
        comment,
        problems,
        lambda members: ForeignKeyDirectives(members.name("local_name"), members.name("foreign_name")),
    )


def enum_directives(
    place: str, comment: str | None, labels: Collection[str], problems: list[Problem]
) -> EnumDirectives | None:
    """Read the comment of an enum with those labels; None when it has no directive."""
    return _read(
        place,
        comment,
        problems,
        lambda members: EnumDirectives(
            members.name("name"), members.text("description"), _mappings(members, labels)
        ),
    )


def _mappings(members: Members, labels: Collection[str]) -> Mapping[str, str]:
    value = members.take(
        "mappings", lambda value: isinstance(value, dict), "an object from label to GraphQL name"
    )
    mappings: dict[str, str] = {}
    for label, target in (value or {}).items():
        if label not in labels:
            members.problem(f"mappings names the unknown label {label!r}; it is ignored")
        elif not isinstance(target, str) or not is_enum_value(target):
            members.problem(f"mappings gives {label!r} no valid GraphQL enum value; it keeps its own")
        else:
            mappings[label] = target
    names = [mappings.get(label, label) for label in labels]
    if len(set(names)) < len(names):
        members.problem("mappings gives two labels the same value; all mappings are ignored")
        return {}
    return mappings


def read_directives(catalog: Catalog) -> tuple[Directives, tuple[ForeignKey, ...], tuple[Problem, ...]]:
    """Read all comments; return the directives, the declared foreign keys and what could not be used."""
    problems: list[Problem] = []
    tables: dict[int, TableDirectives] = {}
    columns: dict[tuple[int, str], FieldDirectives] = {}
    for table in catalog.tables.values():
        if table.comment:
            names = {column.name for column in table.columns}
            directives = table_directives(place_of(table), table.comment, names, problems)
            if directives:
                tables[table.oid] = directives
        columns |= _present(
            ((table.oid, column.name), field_directives(place_of(column, table), column.comment, problems))
            for column in table.columns
            if column.comment
        )
    foreign_keys = _present(
        (
            (key.table, key.name),
            foreign_key_directives(place_of(key, catalog.tables[key.table]), key.comment, problems),
        )
        for key in catalog.foreign_keys
        if key.comment
    )
    declared = declared_keys(catalog, tables, problems)
    for key, source in declared:
        of_key = foreign_keys.get((key.table, key.name), ForeignKeyDirectives())
        foreign_keys[key.table, key.name] = ForeignKeyDirectives(
            source.local_name or of_key.local_name, source.foreign_name or of_key.foreign_name
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
                (function.oid, field_directives(place_of(function), function.comment, problems))
                for function in catalog.functions
                if function.comment
            ),
            enums=_present(
                (enum.oid, enum_directives(place_of(enum), enum.comment, enum.labels, problems))
                for enum in catalog.types.values()
                if enum.kind is TypeKind.ENUM and enum.comment
            ),
        ),
        tuple(key for key, _ in declared if key.declared),
        tuple(problems),
    )


def _present(found: Iterable[tuple[Key, Read | None]]) -> dict[Key, Read]:
    return {key: directives for key, directives in found if directives is not None}
