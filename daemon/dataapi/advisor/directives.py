"""Finds directives and members of directives that have no effect, and writes comments without them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

from dataapi.catalog.directive_reader import (
    GRAPHQL,
    REST,
    enum_directives,
    field_directives,
    foreign_key_directives,
    schema_directives,
    table_directives,
)
from dataapi.catalog.model import Catalog, Problem, TypeKind, describe_object
from dataapi.catalog.relationships import declared_keys
from dataapi.database.sql_text import quote_literal
from dataapi.http.strict_json import DECODER, INVALID_JSON

_DIRECTIVES = re.compile(r"\s*@(graphql|rest)\(.+\)", re.DOTALL)
_STARTS = {name: re.compile(rf"{name}\(\s*(?=\{{)") for name in (GRAPHQL, REST)}

Path = tuple[str | int, ...]


def idle_directives(
    catalog: Catalog, comments: Iterable[Mapping[str, str | None]]
) -> Iterator[tuple[str, str, str]]:
    """Yield the object, the reason and the fix for each comment with a directive that has no effect.

    The comments are rows of ``directive-without-effect.sql``.
    """
    problems: dict[str, list[str]] = {}
    for problem in catalog.problems:
        if not problem.clash:
            problems.setdefault(problem.place, []).append(problem.message)
    # Foreign keys that a directive declares are also relationships in REST.
    related = {key.table for key in catalog.foreign_keys if key.declared}
    keyless = {
        describe_object(table)
        for table in catalog.tables.values()
        if not catalog.primary_key(table) and table.oid not in related
    }
    for row in comments:
        place, comment = str(row["object"]), str(row["comment"])
        reasons = [row["why"]] if row["why"] else problems.get(place, [])
        left = comment
        if row["why"]:
            left = _DIRECTIVES.sub("", comment)
        elif reasons:
            left = _valid_part(comment, partial(_count_problems, catalog, place))
        if place in keyless and (parts := _split(left, GRAPHQL)):
            reasons = [*reasons, "GraphQL leaves out tables without a primary key"]
            left = _join(parts[0], GRAPHQL, {}, parts[2])
        if left != comment:
            yield place, "; ".join(reasons), f"{row['fix']}{quote_literal(left) if left else 'null'};"


def _valid_part(comment: str, count: Callable[[str], int]) -> str:
    """Return a comment without invalid members of its directives, or if that fails, without directives."""
    for name in (GRAPHQL, REST):
        parts = _split(comment, name)
        if parts is None:
            continue
        before, value, after = parts
        if f"{name}(" in after:
            after = _DIRECTIVES.sub("", after)
        number = count(_join(before, name, value, after))
        for path in list(_paths(value)) if number else ():
            less = _without(value, path)
            fewer = count(_join(before, name, less, after))
            if fewer < number:
                value, number = less, fewer
        value = {key: member for key, member in value.items() if member != []}
        comment = _join(before, name, value, after)
    return comment if count(comment) == 0 else _DIRECTIVES.sub("", comment)


def _split(comment: str, name: str) -> tuple[str, Any, str] | None:
    """Return the text before a directive, its JSON object, and the text after it; None if there is none."""
    match = _STARTS[name].search(comment)
    if match is None:
        return None
    try:
        value, end = DECODER.raw_decode(comment, match.end())
    except INVALID_JSON:
        return None
    after = comment[end:].lstrip()
    return (comment[: match.start()], value, after[1:]) if after.startswith(")") else None


def _join(before: str, name: str, value: Any, after: str) -> str:
    if not value:
        return (before.rstrip() + after).strip()
    return f"{before}{name}({json.dumps(value, ensure_ascii=False)}){after}"


def _paths(value: Any) -> Iterator[Path]:
    """Yield the paths of members and of objects in lists, each after the paths below it."""
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = reversed([each for each in enumerate(value) if isinstance(each[1], dict)])
    for key, child in items:
        yield from ((key, *path) for path in _paths(child))
        yield (key,)


def _without(value: Any, path: Path) -> Any:
    copied = deepcopy(value)
    parent = copied
    for key in path[:-1]:
        parent = parent[key]
    del parent[path[-1]]
    return copied


def _count_problems(catalog: Catalog, place: str, comment: str) -> int:
    problems: list[Problem] = []
    match place.partition(" ")[0]:
        case "schema":
            schema_directives(place, comment, problems)
        case "table":
            table = next(each for each in catalog.tables.values() if describe_object(each) == place)
            columns = {column.name for column in table.columns}
            directives = table_directives(place, comment, columns, problems)
            if directives and directives.foreign_keys:
                declared_keys(catalog, {table.oid: directives}, problems)
        case "foreign":
            foreign_key_directives(place, comment, problems)
        case "enum":
            enums = [each for each in catalog.types.values() if each.kind is TypeKind.ENUM]
            enum = next(each for each in enums if describe_object(each) == place)
            enum_directives(place, comment, enum.labels, problems)
        case _:
            field_directives(place, comment, problems)
    return len(problems)
