"""Parses bodies whose rows may contain related rows (``rest-features = nested-inserts``).

Which members are related rows depends on the role's tables: ``plan.nested`` finds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dataapi.http import query_string as querystring
from dataapi.http.headers import media_type
from dataapi.http.messages import Request
from dataapi.http.strict_json import DIGITS_DECODER, INVALID_JSON
from dataapi.rest.parse.body import JSON
from dataapi.rest.parse.select import MAX_EMBED_DEPTH, parse_names

MAX_DEPTH = MAX_EMBED_DEPTH
"""Maximum nesting depth of related rows. The response can embed rows to the same depth."""
MAX_GROUPS = 1_000
"""Maximum number of inserts in a request."""

_OPTIONS = ("columns", "on_conflict")
"""Parameters that may follow the path of related rows, as in ``customer.on_conflict``."""

MemberPath = tuple[str, ...]
"""Names of nested members, outermost first."""
Options = Mapping[MemberPath, tuple[str, ...]]


class NestedBody(NamedTuple):
    """A JSON body whose rows may contain related rows.

    ``columns`` and ``conflicts`` are the parameters ``columns`` and ``on_conflict`` by path.
    """

    body: bytes
    rows: Sequence[Mapping[str, Any]]
    many: bool
    columns: Options
    conflicts: Options


def read_nested(request: Request) -> tuple[str, NestedBody | None]:
    """Return the query string without the parameters of related rows, and the body.

    The body is None if it is not JSON, is nested too deeply to decode, or contains no objects.

    :raises ApiError: PGRST100 (400) for a syntax error in a parameter.
    """
    query, options = _split(request.query)
    if media_type(request.headers.get("content-type") or JSON) != JSON:
        return query, None
    try:
        value = DIGITS_DECODER.decode(request.body.decode())
    except INVALID_JSON:
        return query, None
    rows = value if isinstance(value, list) else [value]
    if not rows or not all(isinstance(row, dict) for row in rows):
        return query, None
    columns, conflicts = options["columns"], options["on_conflict"]
    return query, NestedBody(request.body, rows, isinstance(value, list), columns, conflicts)


def _split(query: str) -> tuple[str, Mapping[str, Options]]:
    options: dict[str, dict[MemberPath, tuple[str, ...]]] = {name: {} for name in _OPTIONS}
    others = []
    for part in query.split("&"):
        encoded, equals, _ = part.partition("=")
        *_, word = encoded.rpartition(".")
        if not equals or word not in _OPTIONS or word == encoded:
            others.append(part)
            continue
        [(name, value)] = querystring.pairs(part)
        path = tuple(name.split(".")[:-1])
        options[word].setdefault(path, parse_names(value, name))
    return "&".join(others), options
