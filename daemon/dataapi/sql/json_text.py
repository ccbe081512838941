"""JSON as text put together from fixed pieces and values.

That takes PostgreSQL half as long as its functions that build objects.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataapi.database.sql_text import CONCATENATE, EQUAL, MINUS, quote_literal


@dataclass(frozen=True, slots=True)
class JsonPiece:
    """A piece of JSON text that is always the same."""

    text: str


@dataclass(frozen=True, slots=True)
class JsonBetween:
    """SQL of type ``text`` between fixed pieces, or another fixed piece where it is NULL."""

    before: str
    sql: str
    after: str
    otherwise: str


@dataclass(frozen=True, slots=True)
class JsonQuery:
    """JSON text made by a query of exactly one row.

    :ivar source: its ``from`` clause and what follows, without the word.
    """

    json: Json
    source: str


Json = tuple[JsonPiece | JsonBetween | JsonQuery | str, ...]
"""JSON text in its pieces; a ``str`` is SQL of type ``text`` that is never NULL."""

_BESIDE = f" {CONCATENATE} "
_NEIGHBOURS = 32
"""Pieces put together at one level: PostgreSQL's stack holds a few thousand operators within one another."""

BOOL = 16
"""The oid of ``boolean``."""
INT8 = 20
"""The oid of ``bigint``."""
_JSON, _JSONB, _UUID, _NUMERIC = 114, 3802, 2950, 1700
# Output functions take no other types, so that a column whose type was changed since is an error and not
# broken JSON.  No cast depends on settings here, as those of dates do.
_JSON_AS_IT_IS = {21: "int8out", 23: "int8out", INT8: "int8out", _JSON: "json_out", _JSONB: "jsonb_out"}
_NUMBERS = {700: "float4out", 701: "float8out", _NUMERIC: "numeric_out"}
"""Types whose values are JSON numbers unless they are infinite or not a number."""
_QUOTED = {_UUID: "uuid_out"}
"""Types whose text needs no more than quotes to be a JSON string."""
_QUOTED_TEXT = {**_QUOTED, 21: "int8out", 23: "int8out", INT8: "int8out", **_NUMBERS}


def json_sql(json: Json, *, brief: bool = False) -> str:
    """Return the SQL of JSON text, of type ``text``.

    :param brief: put the pieces together by calls in place of operators.  They are planned, begun and, on
        Citus, sent to a worker in a fraction of the time, but take longer for each of many rows.
    """
    fixed, pieces = _apart(json)
    match pieces:
        case []:
            return f"{quote_literal(fixed[0])}::text"
        case [JsonQuery()]:
            return f"({json_query(json)})"
    parts: list[str] = []
    for place, piece in enumerate(pieces):
        match piece:
            case JsonBetween():
                before, after = fixed[place], fixed[place + 1]
                text = _joined([_literal(before + piece.before), piece.sql, _literal(piece.after + after)])
                parts.append(f"coalesce({text}, {quote_literal(before + piece.otherwise + after)})")
                fixed[place + 1] = ""
            case JsonQuery():
                parts += [_literal(fixed[place]), f"({json_query((piece,))})"]
            case _:
                parts += [_literal(fixed[place]), piece]
    return _joined([*parts, _literal(fixed[-1])], brief=brief)


def json_query(json: Json) -> str:
    """Return a query of one row with JSON text; fixed text around another query becomes part of that one."""
    fixed, pieces = _apart(json)
    match pieces:
        case [JsonQuery(inner, source)]:
            text = json_sql((JsonPiece(fixed[0]), *inner, JsonPiece(fixed[1])))
            return f"select {text} from {source}"
        case _:
            return f"select {json_sql(json)}"


def _apart(json: Json) -> tuple[list[str], list[JsonBetween | JsonQuery | str]]:
    """Return the fixed texts before, between and after the other pieces, and those."""
    fixed, pieces = [""], []
    for piece in json:
        if isinstance(piece, JsonPiece):
            fixed[-1] += piece.text
        else:
            pieces.append(piece)
            fixed.append("")
    return fixed, pieces


def _literal(text: str) -> str:
    return quote_literal(text) if text else ""


def _joined(texts: list[str], *, brief: bool = False) -> str:
    parts = [text for text in texts if text]
    if brief and len(parts) > 1:
        places = range(0, len(parts), _NEIGHBOURS)
        parts = [f"pg_catalog.concat({', '.join(parts[place : place + _NEIGHBOURS])})" for place in places]
    while len(parts) > _NEIGHBOURS:
        places = range(0, len(parts), _NEIGHBOURS)
        parts = [f"({_BESIDE.join(parts[place : place + _NEIGHBOURS])})" for place in places]
    return _BESIDE.join(parts)


def array_json(item: Json, order: str = "", rows: str = "", *, brief: bool = False) -> Json:
    """Return the array of an aggregated item.

    What all items begin and end with stands between them, so that it is not put to each one.

    :param order: an ``order by`` clause with its leading blank, or empty.
    :param rows: a ``filter`` clause with its leading blank, or empty.
    :param brief: see ``json_sql``.
    """
    begin, middle, end = split_json(item, brief=brief)
    listed = f"pg_catalog.string_agg({middle}, {quote_literal(f'{end},{begin}')}{order}){rows}"
    return (JsonBetween(f"[{begin}", listed, f"{end}]", "[]"),)


def split_json(json: Json, *, brief: bool = False) -> tuple[str, str, str]:
    """Return the fixed text that JSON begins with, the SQL of the rest, and the fixed text it ends with."""
    fixed, pieces = _apart(json)
    begin, end = fixed[0], fixed[-1] if pieces else ""
    inner: list[JsonPiece | JsonBetween | JsonQuery | str] = []
    for place, piece in enumerate(pieces):
        inner += [JsonPiece(fixed[place] if place else ""), piece]
    return begin, json_sql(tuple(inner), brief=brief), end


def value_json(value: str, type_: int | None = None, *, column: bool = False) -> Json:
    """Return a value as ``to_json`` writes it, null for NULL.

    :param value: its SQL.
    :param type_: the oid of its type, None where that is not known.
    :param column: whether the value is a column, which may be read several times.
    """
    if type_ == BOOL:
        if not column:
            return (f"coalesce(({value})::text, 'null')",)
        return (f"case when {value} then 'true' when {value} is null then 'null' else 'false' end",)
    if column and type_ in _NUMBERS:
        difference = f"{value} {MINUS} {value}"  # no number for what is not finite
        number = f"pg_catalog.{_NUMBERS[type_]}({value})::text"
        return (f"case when {difference} {EQUAL} 0 then {number} else {json_sql(value_json(value))} end",)
    if type_ in _QUOTED:
        return quoted_json(f"pg_catalog.{_QUOTED[type_]}({value})::text")
    function = _JSON_AS_IT_IS.get(type_ or 0, "to_json")
    return (f"coalesce(pg_catalog.{function}({value})::text, 'null')",)


def nullable_sql(pieces: Json) -> str:
    """Return JSON as a value of type ``json``, NULL for null."""
    return f"{null_if_sql(json_sql(pieces), 'null')}::json"


def null_if_sql(sql: str, text: str) -> str:
    """Return a text, NULL for a certain one; ``nullif`` looks for its operator in the search path."""
    return f"(pg_catalog.array_remove(array[{sql}], {quote_literal(text)}))[1]"


def quoted_json(text: str) -> Json:
    """Return a text in which JSON escapes nothing as a string, null for NULL."""
    return (JsonBetween('"', text, '"', "null"),)


def text_json(value: str, type_: int | None) -> Json:
    """Return a value's text as a string, null for NULL."""
    if type_ in _QUOTED_TEXT:
        return quoted_json(f"pg_catalog.{_QUOTED_TEXT[type_]}({value})::text")
    return value_json(f"({value})::text")
