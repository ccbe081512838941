"""Parses the rows in a request body of any media type.

PostgreSQL receives the rows as one JSON text and converts each value to its column's type. This module only
parses the text to find the column names. Messages are PostgREST's (PGRST102).
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
"""Text that means NULL in CSV, unless quoted. An empty field also means NULL."""
_NULLS = frozenset({"", NULL})

_QUOTED = re.compile(r'(?<![^,\r\n])"([^"]*(?:""[^"]*)*)"')
_MARK = "\ud800"
"""Marks quoted fields that are not NULL. Decoded text never contains this character."""

ROWS_PER_PIECE = 1000
"""Number of rows to encode before other threads can run."""

MAX_REPEATED = 16
"""Maximum ratio of a CSV body's size as JSON to its original size. JSON repeats the column names."""
SHORT = 1_000_000
"""Size of a CSV body as JSON, in characters, up to which ``MAX_REPEATED`` is ignored."""

EMPTY = "Empty or invalid json"
UNEQUAL_KEYS = "All object keys must match"
UNEQUAL_LINES = "All lines must have same number of fields"
LONG_NAMES = "The column names are too long: repeated for every line, they are much longer than the lines"


Objects = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows that one insert writes, without values: one row with related rows, or several rows without any.

    ``number`` is the position of the rows in ``Values.groups``. The column names are sorted.
    """

    number: int
    columns: tuple[str, ...]
    many: bool
    related: tuple[RelatedGroups, ...] = ()


@dataclass(frozen=True, slots=True)
class RelatedGroups:
    """The structure of the related rows in one member of an object, without values.

    ``columns`` and ``conflict`` are the names in the parameters ``columns`` and ``on_conflict``, if sent.
    """

    member: str
    groups: tuple[RowGroup, ...]
    columns: tuple[str, ...] | None = None
    conflict: tuple[str, ...] | None = None


class WrittenRows(NamedTuple):
    """The rows of a ``RowGroup`` as JSON objects, and the name of their table.

    ``place`` is the first row's path in the body, such as ``lines[0]``, or "" for the body itself.
    """

    rows: Objects
    place: str
    table: str

    def place_of(self, index: int) -> str:
        if not index:
            return self.place
        array, _, first = self.place.rpartition("[")
        return f"{array}[{int(first[:-1]) + index}]"


class RowShape(NamedTuple):
    """The structure of the rows in a body, without values.

    :ivar columns: column names, sorted.
    :ivar many: whether the body is an array of objects rather than one object.
    :ivar as_text: whether all values are text, as in CSV and forms, even those of JSON columns.
    :ivar common: columns that every object has. Only set if each object identifies a row by its key.
    :ivar groups: groups that contain all rows if any row has related rows, else empty.
    """

    columns: tuple[str, ...]
    many: bool
    as_text: bool = False
    common: tuple[str, ...] = ()
    groups: tuple[RowGroup, ...] = ()


class Payload(NamedTuple):
    """Rows as JSON text. ``objects`` contains the parsed rows if each of them identifies a row by its key."""

    shape: RowShape
    text: str
    objects: Objects = ()


NO_ROWS = Payload(RowShape((), True), "[]")


def read_rows(body: bytes, content_type: str | None, columns: tuple[str, ...] | None) -> Payload:
    """Return the rows of a body. Without a content type, the body is JSON.

    If ``columns`` is given, JSON is not parsed. Otherwise, all objects must have the same keys.

    :raises ApiError: PGRST102 (400) if the body or its type is invalid.
    """
    body_type = media_type(content_type or JSON)
    if body_type == JSON and columns is not None:
        text = _text(body)
        return Payload(RowShape(_sorted(columns), not text.lstrip().startswith("{")), text)
    text, value = _parsed(body, body_type)
    as_text = body_type != JSON
    if columns is not None:
        return Payload(RowShape(_sorted(columns), isinstance(value, list), as_text), text)
    if isinstance(value, dict):
        return Payload(RowShape(_sorted(value), False, as_text), text)
    if not isinstance(value, list) or not value:
        return NO_ROWS  # Scalars are not rows.
    keys = value[0].keys() if isinstance(value[0], dict) else ()
    if not all(isinstance(row, dict) and row.keys() == keys for row in value):
        raise invalid(UNEQUAL_KEYS)
    return Payload(RowShape(_sorted(keys), True, as_text), text)


def read_objects(body: bytes, content_type: str | None) -> Payload:
    """Return the objects in a body. Each object identifies a row by its key. Their members may differ.

    :raises ApiError: PGRST102 (400) if the body or its type is invalid, or if the body contains values other
        than objects.
    """
    body_type = media_type(content_type or JSON)
    text, value = _parsed(body, body_type)
    objects = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in objects):
        raise invalid(UNEQUAL_KEYS)
    names = _sorted({name for each in objects for name in each})
    common = tuple([name for name in names if all(name in each for each in objects)])
    return Payload(RowShape(names, isinstance(value, list), body_type != JSON, common), text, objects)


def check_keys(objects: Objects, key: tuple[str, ...]) -> None:
    """Check that the objects have distinct keys.

    :raises ApiError: PGRST102 (400) if an object lacks a key column or has the key of another object.
    """
    keys = [tuple([each.get(name) for name in key]) for each in objects]
    if any(None in values for values in keys):
        raise invalid(f"All objects must have the key columns: {', '.join(key)}")
    if len({str(values) for values in keys}) < len(keys):
        raise invalid(f"All objects must differ in the key columns: {', '.join(key)}")


def form_hint(names: Iterable[str]) -> str | None:
    """Return a hint if column names look like JSON. By default, curl sends any body as a form."""
    if any(name.lstrip().startswith(("{", "[")) for name in names):
        return f"The body was read as a form. Send JSON with the header Content-Type: {JSON}"
    return None


def invalid(message: str) -> ApiError:
    return ApiError(400, "PGRST102", message)


def _parsed(body: bytes, body_type: str) -> tuple[str, Any]:
    text = _text(body)
    if body_type == JSON:
        try:
            return text, decode(text)
        except TooDeep as error:
            raise invalid(f"The body cannot be read: {error}") from None
        except INVALID_JSON:
            raise invalid(EMPTY) from None
    if body_type == CSV:
        rows = _lines(text)
        return _dumped(rows), rows
    if body_type == FORM:
        fields = dict(querystring.pairs(text))
        return json.dumps(fields, ensure_ascii=False), fields
    raise invalid(f"Content-Type not acceptable: {body_type}")


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise invalid(EMPTY) from None


def _lines(text: str) -> list[dict[str, str | None]]:
    csv.field_size_limit(sys.maxsize)  # ``max-body`` already limits the size of fields
    text = text.removeprefix("\ufeff")  # the byte order mark that spreadsheet programs write
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
    return f'"{_MARK}{field[1]}"' if field[1] in _NULLS else field[0]


def _dumped(rows: list[dict[str, str | None]]) -> str:
    """Return rows as JSON. They are encoded in pieces so that other threads can run in between."""
    pieces = [rows[start : start + ROWS_PER_PIECE] for start in range(0, len(rows), ROWS_PER_PIECE)]
    return "[" + ",".join([json.dumps(piece, ensure_ascii=False)[1:-1] for piece in pieces]) + "]"


def _sorted(names: Any) -> tuple[str, ...]:
    return tuple(sorted(set(names)))
