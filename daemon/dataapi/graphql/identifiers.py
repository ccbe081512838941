"""Node ids and cursors: base64 of a JSON array's text (reference/graphql.md 1.4).

PostgreSQL writes them (``query.forms.base64_sql``); here they are read.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

from graphql import GraphQLError

from dataapi.graphql.scalars import UUID_TEXT
from dataapi.strict_json import NO_JSON

_INTEGER_BITS = {f'pg_catalog."int{size}"': 8 * size for size in (2, 4, 8)}
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class NodeKey:
    """What a node id names.

    :ivar values: the key's values in text form.
    """

    schema: str
    table: str
    values: tuple[str, ...]


class _Undecodable(Exception):
    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step


def _decode(text: str) -> list[str | None]:
    """Return the array's values in text form; raise _Undecodable with the step that failed."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        raise _Undecodable(1) from None
    try:
        values = json.loads(raw.decode("utf-8"), parse_int=str, parse_float=str)
    except NO_JSON:
        raise _Undecodable(2) from None
    if not isinstance(values, list):
        raise _Undecodable(3)
    return [_text(value) for value in values]


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def decode_cursor(text: str) -> tuple[str | None, ...]:
    """Return the ordering values of a cursor.

    :raises GraphQLError: it is no cursor; the number tells whether base64 (1), JSON (2) or the
        array (3) failed.
    """
    try:
        return tuple(_decode(text))
    except _Undecodable as error:
        raise GraphQLError(f"Failed to decode cursor, error {error.step}") from None


def decode_node_id(text: str) -> NodeKey:
    """Return what a node id names.

    :raises GraphQLError: it is no node id; the number tells the step that failed, as for cursors,
        4 when the array is not a schema, a table and a key.
    """
    try:
        values = _decode(text)
        if len(values) < 3 or None in values:
            raise _Undecodable(4)
    except _Undecodable as error:
        raise GraphQLError(f"Invalid value passed to nodeId argument. Error {error.step}") from None
    schema, table, *key = (value or "" for value in values)
    return NodeKey(schema, table, tuple(key))


def is_key_value(text: str, type_: str) -> bool:
    """Whether a key's column may have the value; PostgreSQL has the last word on types other than these.

    What it refuses fails the whole statement, with all that is asked for beside the row.
    """
    bits = _INTEGER_BITS.get(type_)
    if bits is not None:
        return _INTEGER.fullmatch(text) is not None and -(1 << bits - 1) <= int(text) < 1 << bits - 1
    return type_ != 'pg_catalog."uuid"' or UUID_TEXT.fullmatch(text) is not None
