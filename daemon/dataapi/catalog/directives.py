"""Reading ``@graphql({…})`` directives from comments, strictly: a bad member is named and left out.

The keys are the reference's (``graphql.md`` 1.2), plus those of ``FEATURES``.  A reader never
fails: whatever can't be used becomes a ``Problem`` that says what was done instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

from dataapi.catalog.annotations import (
    ColumnDirectives,
    DeclaredForeignKey,
    EnumDirectives,
    ForeignKeyDirectives,
    FunctionDirectives,
    SchemaDirectives,
    TableDirectives,
)
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

_DIRECTIVE = re.compile(r"@graphql\((.+)\)", re.DOTALL)
_NAME = re.compile(r"[_A-Za-z][_0-9A-Za-z]*")
_LARGEST_PAGE = 2**31 - 1


def is_graphql_name(text: str) -> bool:
    """Whether GraphQL allows the text as a name of a user's: ``__`` at the start is the language's own."""
    return _NAME.fullmatch(text) is not None and not text.startswith("__")


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


class _Members:
    """The members of one directive, taken one by one; what can't be used is noted."""

    def __init__(
        self, place: str, members: Mapping[str, Any], problems: list[Problem], prefix: str = ""
    ) -> None:
        self._place = place
        self._left = dict(members)
        self._problems = problems
        self._prefix = prefix

    def problem(self, message: str) -> None:
        self._problems.append(Problem(self._place, message))

    def take(self, key: str, accept: Callable[[Any], bool], expected: str) -> Any:
        """Return the member if it is there and acceptable, else None."""
        if key not in self._left:
            return None
        value = self._left.pop(key)
        if accept(value):
            return value
        self.problem(f"@graphql: {self._prefix}{key} must be {expected}; it is ignored")
        return None

    def flag(self, key: str) -> bool:
        return self.take(key, lambda value: isinstance(value, bool), "true or false") is True

    def text(self, key: str) -> str | None:
        result: str | None = self.take(key, _is_text, "a text")
        return result

    def name(self, key: str) -> str | None:
        result: str | None = self.take(
            key,
            lambda value: isinstance(value, str) and is_graphql_name(value),
            "a GraphQL name (letters, digits and _, not beginning with a digit or __)",
        )
        return result

    def rows(self, key: str) -> int | None:
        result: int | None = self.take(
            key,
            lambda value: (
                isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST_PAGE
            ),
            f"a whole number from 1 to {_LARGEST_PAGE}",
        )
        return result

    def enabled(self, key: str) -> bool:
        value = self.take(
            key,
            lambda value: isinstance(value, dict) and isinstance(value.get("enabled"), bool),
            '{"enabled": true} or {"enabled": false}',
        )
        if value is None:
            return False
        for extra in value.keys() - {"enabled"}:
            self.problem(f"@graphql: {self._prefix}{key} has an unknown key {extra!r}; that key is ignored")
        return value["enabled"] is True

    def strings(self, key: str) -> tuple[str, ...]:
        value = self.take(
            key,
            lambda value: isinstance(value, list) and bool(value) and all(map(_is_text, value)),
            "a list of at least one text",
        )
        return tuple(value or ())

    def finish(self) -> None:
        for key in self._left:
            self.problem(f"@graphql: unknown key {self._prefix + key!r}; it is ignored")


def _is_text(value: Any) -> bool:
    # A lone surrogate can't be sent to anybody, and PostgreSQL's JSON has no NUL either.
    return isinstance(value, str) and "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value)


def _members(place: str, comment: str | None, problems: list[Problem]) -> _Members | None:
    """Find the directive in a comment; None when there is none that can be used."""
    if comment is None or "@graphql(" not in comment:
        return None
    found = _DIRECTIVE.search(comment)
    if found is None:
        return None
    start = found.start(1)
    while comment[start : start + 1].isspace():
        start += 1
    try:
        value, end = _DECODER.raw_decode(comment, start)
    except (ValueError, RecursionError) as error:
        reason = "is nested too deeply" if isinstance(error, RecursionError) else f"is no JSON ({error})"
        problems.append(Problem(place, f"@graphql: the directive {reason}; it is ignored"))
        return None
    rest = comment[end:].lstrip()
    if not rest.startswith(")"):
        problems.append(Problem(place, f"@graphql: {rest[:20]!r} follows the JSON; the directive is ignored"))
        return None
    if not isinstance(value, dict):
        problems.append(Problem(place, "@graphql: the directive must be a JSON object; it is ignored"))
        return None
    if "@graphql(" in rest:
        problems.append(
            Problem(place, "@graphql: the comment has several directives; only the first one is used")
        )
    return _Members(place, value, problems)


def schema_directives(place: str, comment: str | None, problems: list[Problem]) -> SchemaDirectives | None:
    """Read a schema's comment; None when it has no directive."""
    members = _members(place, comment, problems)
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
    """Read the comment of a table with those columns; None when it has no directive.

    Foreign keys come back with their local side checked; the foreign side is for the caller, who
    knows the other tables.
    """
    members = _members(place, comment, problems)
    if members is None:
        return None
    result = TableDirectives(
        name=members.name("name"),
        description=members.text("description"),
        total_count=members.enabled("totalCount"),
        aggregate=members.enabled("aggregate"),
        max_rows=members.rows("max_rows"),
        primary_key_columns=_primary_key(members, columns),
        foreign_keys=_foreign_keys(place, members, columns, problems),
        features=frozenset(feature for feature in FEATURES if members.enabled(feature)),
    )
    members.finish()
    return result


def _primary_key(members: _Members, columns: Collection[str]) -> tuple[str, ...]:
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
    place: str, members: _Members, columns: Collection[str], problems: list[Problem]
) -> tuple[DeclaredForeignKey, ...]:
    value = members.take("foreign_keys", lambda value: isinstance(value, list), "a list of objects")
    keys = []
    for index, entry in enumerate(value or ()):
        label = f"foreign_keys[{index}]"
        if not isinstance(entry, dict):
            members.problem(f"@graphql: {label} must be an object; it is ignored")
            continue
        key = _foreign_key(_Members(place, entry, problems, f"{label}."), label, columns)
        if key is not None:
            keys.append(key)
    return tuple(keys)


def _foreign_key(entry: _Members, label: str, columns: Collection[str]) -> DeclaredForeignKey | None:
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
    members = _members(place, comment, problems)
    if members is None:
        return None
    result = ColumnDirectives(name=members.name("name"), description=members.text("description"))
    members.finish()
    return result


def foreign_key_directives(
    place: str, comment: str | None, problems: list[Problem]
) -> ForeignKeyDirectives | None:
    """Read a foreign key constraint's comment; None when it has no directive."""
    members = _members(place, comment, problems)
    if members is None:
        return None
    result = ForeignKeyDirectives(
        local_name=members.name("local_name"), foreign_name=members.name("foreign_name")
    )
    members.finish()
    return result


def function_directives(
    place: str, comment: str | None, problems: list[Problem]
) -> FunctionDirectives | None:
    """Read a function's comment; None when it has no directive."""
    members = _members(place, comment, problems)
    if members is None:
        return None
    result = FunctionDirectives(name=members.name("name"), description=members.text("description"))
    members.finish()
    return result


def enum_directives(
    place: str, comment: str | None, labels: Collection[str], problems: list[Problem]
) -> EnumDirectives | None:
    """Read the comment of an enum with those labels; None when it has no directive."""
    members = _members(place, comment, problems)
    if members is None:
        return None
    result = EnumDirectives(
        name=members.name("name"),
        description=members.text("description"),
        mappings=_mappings(members, labels),
    )
    members.finish()
    return result


def is_enum_value(text: str) -> bool:
    """Whether GraphQL allows the text as an enum value."""
    return is_graphql_name(text) and text not in ("true", "false", "null")


def _mappings(members: _Members, labels: Collection[str]) -> Mapping[str, str]:
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
