"""Parses the rows of a request's body, whatever its media type; pure.

PostgreSQL receives them as one JSON text, whose values it reads by the rules of each type; here the text is
parsed only for the names of its columns.  Messages are PostgREST's (PGRST102).
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dataapi.http import query_string as querystring
from dataapi.http.errors import ApiError
from dataapi.http.headers import media_type
from dataapi.http.strict_json import INVALID_JSON, TooDeep, decode

JSON = "application/json"
CSV = "text/csv"
FORM = "application/x-www-form-urlencoded"
BINARY = "application/octet-stream"

NULL = "NULL"
"""Null in CSV, unless it is quoted; so is nothing at all."""
_NULLS = frozenset({"", NULL})

_QUOTED = re.compile(r'(?<![^,\r\n])"([^"]*(?:""[^"]*)*)"')
"""A quoted field of CSV."""
_MARK = "\ud800"
"""Marks quoted fields that are not null; no decoded text has this character."""

ROWS_AT_ONCE = 1000
"""Rows that are encoded at once."""

MAX_REPEATED = 16
"""How many times as long as a CSV body its rows may be as JSON, which repeats the columns' names."""
SHORT = 1_000_000
"""Characters that these rows may have in any case."""

EMPTY = "Empty or invalid json"
UNEQUAL_KEYS = "All object keys must match"
UNEQUAL_LINES = "All lines must have same number of fields"
LONG_NAMES = "The columns' names, repeated for every line, are much longer than the lines"


class RowShape(NamedTuple):
    """The form of the rows in a body.

    :ivar columns: the names of the columns, sorted.
    :ivar many: whether the body is an array of objects and not one object.
    :ivar as_text: whether all values are texts, as those of CSV and forms are, even those of JSON columns.
    :ivar common: the columns that every object has; read only for objects that name their rows.
    """

    columns: tuple[str, ...]
    many: bool
    as_text: bool = False
    common: tuple[str, ...] = ()


Objects = Sequence[Mapping[str, Any]]


class Payload(NamedTuple):
    """Rows as a JSON text.

    :ivar objects: the parsed objects, if each of them names its row.
    """

    shape: RowShape
    text: str
    objects: Objects = ()


NO_ROWS = Payload(RowShape((), True), "[]")
"""No rows at all."""


def read_rows(body: bytes, content_type: str | None, columns: tuple[str, ...] | None) -> Payload:
    """Return the rows of a body; its objects must have the same keys, unless ``columns`` are chosen.

    JSON is not parsed when the columns are chosen.

    :param content_type: the header; None means JSON.
    :param columns: the members to take of each object, None for all.
    :raises ApiError: PGRST102 (400), the body or its type cannot be understood.
    """
    form = media_type(content_type or JSON)
    if form == JSON and columns is not None:
        text = _text(body)
        return Payload(RowShape(_sorted(columns), not text.lstrip().startswith("{")), text)
    text, value = _parsed(body, form)
    as_text = form != JSON
    if columns is not None:
        return Payload(RowShape(_sorted(columns), isinstance(value, list), as_text), text)
    if isinstance(value, dict):
        return Payload(RowShape(_sorted(value), False, as_text), text)
    if not isinstance(value, list) or not value:
        return NO_ROWS  # a lone number or text is no row
    keys = value[0].keys() if isinstance(value[0], dict) else ()
    if not all(isinstance(row, dict) and row.keys() == keys for row in value):
        raise invalid(UNEQUAL_KEYS)
    return Payload(RowShape(_sorted(keys), True, as_text), text)


def read_objects(body: bytes, content_type: str | None) -> Payload:
    """Return the objects of a body, each of which names a row by its key and may have members of its own.

    :raises ApiError: PGRST102 (400), the body or its type cannot be understood, or has other values.
    """
    form = media_type(content_type or JSON)
    text, value = _parsed(body, form)
    objects = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in objects):
        raise invalid(UNEQUAL_KEYS)
    names = _sorted({name for each in objects for name in each})
    common = tuple([name for name in names if all(name in each for each in objects)])
    return Payload(RowShape(names, isinstance(value, list), form != JSON, common), text, objects)


def check_keys(objects: Objects, key: tuple[str, ...]) -> None:
    """Check that each object has a key of its own.

    :raises ApiError: PGRST102 (400), an object lacks a column of the key or has the key of another object.
    """
    keys = [tuple([each.get(name) for name in key]) for each in objects]
    if any(None in values for values in keys):
        raise invalid(f"All objects must have the key columns: {', '.join(key)}")
    if len({str(values) for values in keys}) < len(keys):
        raise invalid(f"All objects must differ in the key columns: {', '.join(key)}")


def form_hint(names: Iterable[str]) -> str | None:
    """Return a hint about names that look like JSON: curl calls any body a form by default."""
    if any(name.lstrip().startswith(("{", "[")) for name in names):
        return f"The body was read as a form. Send JSON with the header Content-Type: {JSON}"
    return None


def invalid(message: str) -> ApiError:
    """Return the error of a body that cannot be understood."""
    return ApiError(400, "PGRST102", message)


def _parsed(body: bytes, form: str) -> tuple[str, Any]:
    """Return the JSON text of a body, and the value that it is of."""
    text = _text(body)
    if form == JSON:
        try:
            return text, decode(text)
        except TooDeep as error:
            raise invalid(f"The body cannot be read: {error}") from None
        except INVALID_JSON:
            raise invalid(EMPTY) from None
    if form == CSV:
        rows = _lines(text)
        return _dumped(rows), rows
    if form == FORM:
        fields = dict(querystring.pairs(text))
        return json.dumps(fields, ensure_ascii=False), fields
    raise invalid(f"Content-Type not acceptable: {form}")


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise invalid(EMPTY) from None


def _lines(text: str) -> list[dict[str, str | None]]:
    """Return the lines of a CSV text below its header, empty ones left out."""
    csv.field_size_limit(sys.maxsize)  # a setting of the whole module ``csv``; ``max-body`` limits the text
    # Spreadsheets write a byte order mark.
    text = text.removeprefix("\ufeff")
    marked = _QUOTED.sub(_marked, text) if '""' in text or f'"{NULL}"' in text else text
    reader = csv.reader(io.StringIO(marked, newline=""), strict=True)
    try:
        header, *lines = [line for line in reader if line]
    except csv.Error as error:
        raise invalid(f"parse error ({error}) in line {reader.line_num}") from None
    except ValueError:
        raise invalid('parse error (not enough input) at ""') from None
    if any(len(line) != len(header) for line in lines):
        raise invalid(UNEQUAL_LINES)
    if len(lines) * sum(len(name) + 6 for name in header) > max(SHORT, MAX_REPEATED * len(text)):
        raise invalid(LONG_NAMES)
    names = [name.removeprefix(_MARK) for name in header]
    return [
        dict(zip(names, [None if cell in _NULLS else cell.removeprefix(_MARK) for cell in line], strict=True))
        for line in lines
    ]


def _marked(field: re.Match[str]) -> str:
    """Return a quoted field with a mark if it would be null without its quotes."""
    return f'"{_MARK}{field[1]}"' if field[1] in _NULLS else field[0]


def _dumped(rows: list[dict[str, str | None]]) -> str:
    """Return the JSON text of rows, made in pieces: one call would not let other threads run meanwhile."""
    pieces = [rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE)]
    return "[" + ",".join([json.dumps(piece, ensure_ascii=False)[1:-1] for piece in pieces]) + "]"


def _sorted(names: Any) -> tuple[str, ...]:
    return tuple(sorted(set(names)))
