"""Outputs of statements. PostgreSQL builds their JSON, so that Python never iterates over rows.

Outputs for single values and objects are here, those for rows in ``row_output``. Front ends define further
outputs. Names come from the schema, and a client's alias is always a ``Parameter``. JSON text is concatenated
from constants and values, which takes half as long as PostgreSQL's functions that build objects.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from dataapi.database.sql_text import CONCATENATE, EQUAL, MINUS, quote_literal
from dataapi.sql.algebra import (
    Aggregate,
    AggregateFunction,
    ColumnRef,
    ComputedValue,
    Expression,
    Parameter,
    RelatedAggregate,
    RelatedValue,
    Rows,
)
from dataapi.sql.expressions import expression_sql
from dataapi.sql.statement import Row, Writer


@dataclass(frozen=True, slots=True)
class JsonPiece:
    """Constant JSON text."""

    text: str


@dataclass(frozen=True, slots=True)
class NullableJson:
    """A nullable SQL expression of type ``text`` between constant texts.

    :ivar otherwise: constant text that replaces all three parts if the expression is NULL.
    """

    before: str
    sql: str
    after: str
    otherwise: str


@dataclass(frozen=True, slots=True)
class JsonQuery:
    """JSON text from a query that returns exactly one row.

    :ivar source: the query's ``from`` item and following clauses, without the keyword ``from``.
    """

    json: Json
    source: str


Json = tuple[JsonPiece | NullableJson | JsonQuery | str, ...]
"""Pieces of JSON text. A ``str`` is a non-null SQL expression of type ``text``."""

_CONCAT = f" {CONCATENATE} "
MAX_OPERANDS = 32
"""Maximum number of operands in a concatenation. PostgreSQL's stack limits the nesting of operators."""

BOOL = 16
INT8 = 20
_JSON, _JSONB, _UUID, _NUMERIC = 114, 3802, 2950, 1700
# Output functions by type OID. If a column's type has changed, the function raises an error instead of
# returning broken JSON. Output functions of dates are missing, because they depend on settings.
_JSON_AS_IT_IS = {21: "int8out", 23: "int8out", INT8: "int8out", _JSON: "json_out", _JSONB: "jsonb_out"}
_NUMBERS = {700: "float4out", 701: "float8out", _NUMERIC: "numeric_out"}
"""Types whose values are JSON numbers unless they are infinite or NaN."""
_QUOTED = {_UUID: "uuid_out"}
"""Types whose text form needs only quotes to be a JSON string."""
_QUOTED_TEXT = {**_QUOTED, 21: "int8out", 23: "int8out", INT8: "int8out", **_NUMBERS}


def json_sql(json: Json) -> str:
    fixed, pieces = _split_pieces(json)
    match pieces:
        case []:
            return f"{quote_literal(fixed[0])}::text"
        case [JsonQuery()]:
            return f"({json_query(json)})"
        case _:
            return _joined(json_parts(json))


def json_parts(json: Json) -> list[str]:
    fixed, pieces = _split_pieces(json)
    parts: list[str] = []
    for index, piece in enumerate(pieces):
        match piece:
            case NullableJson():
                before, after = fixed[index], fixed[index + 1]
                text = _joined([_literal(before + piece.before), piece.sql, _literal(piece.after + after)])
                parts.append(f"coalesce({text}, {quote_literal(before + piece.otherwise + after)})")
                fixed[index + 1] = ""
            case JsonQuery():
                parts += [_literal(fixed[index]), f"({json_query((piece,))})"]
            case _:
                parts += [_literal(fixed[index]), piece]
    return list(filter(None, (*parts, _literal(fixed[-1]))))


def json_query(json: Json) -> str:
    fixed, pieces = _split_pieces(json)
    match pieces:
        case [JsonQuery(inner, source)]:
            text = json_sql((JsonPiece(fixed[0]), *inner, JsonPiece(fixed[1])))
            return f"select {text} from {source}"
        case _:
            return f"select {json_sql(json)}"


def _split_pieces(json: Json) -> tuple[list[str], list[NullableJson | JsonQuery | str]]:
    """Return the variable pieces, and the constant text before, between and after them."""
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


def _joined(texts: list[str]) -> str:
    parts = list(filter(None, texts))
    while len(parts) > MAX_OPERANDS:
        starts = range(0, len(parts), MAX_OPERANDS)
        parts = [f"({_CONCAT.join(parts[start : start + MAX_OPERANDS])})" for start in starts]
    return _CONCAT.join(parts)


def array_json(item: Json, order: str = "", rows: str = "") -> Json:
    """Return the JSON array of an item that the query aggregates.

    ``order`` is the aggregate's ORDER BY clause, ``rows`` its FILTER clause, each with a leading space.
    Constant text at the start and end of each item is moved into the separator.
    """
    begin, middle, end = split_json(item)
    listed = f"pg_catalog.string_agg({json_sql(middle)}, {quote_literal(f'{end},{begin}')}{order}){rows}"
    return (NullableJson(f"[{begin}", listed, f"{end}]", "[]"),)


def split_json(json: Json) -> tuple[str, Json, str]:
    """Return the leading constant text, the pieces between, and the trailing constant text."""
    fixed, pieces = _split_pieces(json)
    begin, end = fixed[0], fixed[-1] if pieces else ""
    inner: list[JsonPiece | NullableJson | JsonQuery | str] = []
    for index, piece in enumerate(pieces):
        inner += [JsonPiece(fixed[index] if index else ""), piece]
    return begin, tuple(inner), end


def value_json(value: str, type_: int | None = None, *, column: bool = False) -> Json:
    """Return a value as ``to_json`` writes it, null for NULL.

    :param type_: OID of the value's type, None if unknown.
    :param column: whether the value is a column. Columns are cheap to read several times.
    """
    if type_ == BOOL:
        if not column:
            return (f"coalesce(({value})::text, 'null')",)
        return (f"case when {value} then 'true' when {value} is null then 'null' else 'false' end",)
    if column and type_ in _NUMBERS:
        difference = f"{value} {MINUS} {value}"  # the difference is NaN for NaN and infinity
        number = f"pg_catalog.{_NUMBERS[type_]}({value})::text"
        return (f"case when {difference} {EQUAL} 0 then {number} else {json_sql(value_json(value))} end",)
    if type_ in _QUOTED:
        return quoted_json(f"pg_catalog.{_QUOTED[type_]}({value})::text")
    function = _JSON_AS_IT_IS.get(type_ or 0, "to_json")
    return (f"coalesce(pg_catalog.{function}({value})::text, 'null')",)


def nullable_sql(pieces: Json) -> str:
    return f"{null_if_sql(json_sql(pieces), 'null')}::json"


def null_if_sql(sql: str, text: str) -> str:
    """Return an equivalent of ``nullif`` that does not look up its operator in the search path."""
    return f"(pg_catalog.array_remove(array[{sql}], {quote_literal(text)}))[1]"


def quoted_json(text: str) -> Json:
    return (NullableJson('"', text, '"', "null"),)


def text_json(value: str, type_: int | None) -> Json:
    if type_ in _QUOTED_TEXT:
        return quoted_json(f"pg_catalog.{_QUOTED_TEXT[type_]}({value})::text")
    return value_json(f"({value})::text")


# ---------------------------------------------------------------- outputs


class Output(ABC):
    """A value of the response, computed from a row or at the root of the statement."""

    __slots__ = ()

    @abstractmethod
    def json(self, writer: Writer, row: Row | None, /) -> Json:
        """Return the value as JSON. ``row`` is None at the root."""

    def sql(self, writer: Writer, row: Row | None, /) -> str:
        """Return the value as a column, NULL for null, for rows that are not written as JSON."""
        return nullable_sql(self.json(writer, row))

    def reads_only_columns(self) -> bool:
        return False

    def related(self) -> Rows | None:
        return None


class InnerOutput(Output):
    """An output that is only valid inside another output, such as a page, a group or changed rows."""

    __slots__ = ()

    def json(self, _writer: Writer, _row: Row | None) -> Json:
        raise TypeError(f"{type(self).__name__} is only valid inside another output")


def in_scope(row: Row | None) -> Row:
    assert row is not None, "this output needs a row in scope"
    return row


# ---------------------------------------------------------------- values


class WireForm(Enum):
    """How a value is written to JSON."""

    JSON = "json"
    TEXT = "text"
    TEXT_ARRAY = "text[]"
    ENUM = "enum"
    ENUM_ARRAY = "enum[]"


Labels = tuple[tuple[str, str], ...]
"""Enum labels whose API name differs, as (label, API name)."""


@dataclass(frozen=True, slots=True)
class Text(Output):
    """A constant string, such as the name of a type. Never a value from a request."""

    text: str

    def json(self, _writer: Writer, _row: Row | None) -> Json:
        return (JsonPiece(json.dumps(self.text, ensure_ascii=False)),)

    def sql(self, _writer: Writer, _row: Row | None) -> str:
        return f"{quote_literal(self.text)}::text"

    def reads_only_columns(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Null(Output):
    """JSON null."""

    def json(self, _writer: Writer, _row: Row | None) -> Json:
        return (JsonPiece("null"),)


@dataclass(frozen=True, slots=True)
class Value(Output):
    """The value of an expression for the current row or group."""

    expression: Expression
    form: WireForm = WireForm.JSON
    labels: Labels = ()

    def json(self, writer: Writer, row: Row | None) -> Json:
        row = in_scope(row)
        value, type_ = expression_sql(writer, self.expression, row), type_of(self.expression, row)
        column = isinstance(self.expression, ColumnRef)
        return form_json(value, self.form, self.labels, type_, column=column)

    def sql(self, writer: Writer, row: Row | None) -> str:
        value, column = expression_sql(writer, self.expression, in_scope(row)), self.reads_only_columns()
        return form_sql(value, self.form, self.labels, column=column)

    def reads_only_columns(self) -> bool:
        return isinstance(self.expression, ColumnRef)

    def related(self) -> Rows | None:
        return self.expression.rows if isinstance(self.expression, RelatedValue | RelatedAggregate) else None


def type_of(expression: Expression, row: Row) -> int | None:
    match expression:
        case ColumnRef(name):
            return row.type(name)
        case ComputedValue(function):
            return function.returns
        case Aggregate(AggregateFunction.COUNT):
            return INT8
        case _:
            return None


def form_sql(value: str, form: WireForm, labels: Labels = (), *, column: bool = False) -> str:
    match form:
        case WireForm.JSON:
            return value
        case WireForm.TEXT:
            return f"({value})::text"
        case WireForm.TEXT_ARRAY:
            return f"({value})::text[]"
        case WireForm.ENUM:
            return _label_sql(value, labels, column=column)
        case WireForm.ENUM_ARRAY:
            renamed = _label_sql("label", labels, column=True)
            labels_in_order = f"pg_catalog.unnest({value}) with ordinality as u(label, place)"
            listed = f"select pg_catalog.array_agg({renamed} order by place) from {labels_in_order}"
            return f"case when ({value}) is not null then coalesce(({listed}), '{{}}') end"


def form_json(value: str, form: WireForm, labels: Labels, type_: int | None, *, column: bool = False) -> Json:
    if form is WireForm.JSON:
        return value_json(value, type_, column=column)
    if form is WireForm.TEXT:
        return text_json(value, type_)
    return value_json(form_sql(value, form, labels, column=column))


def _label_sql(value: str, labels: Labels, *, column: bool) -> str:
    if not labels:
        return f"({value})::text"
    if not column:  # Evaluate the value only once: it may be expensive or have side effects.
        source = f"pg_catalog.unnest(array[({value})::text]) as u(label)"
        return f"(select {_label_sql('label', labels, column=True)} from {source})"
    cases = [
        f"when ({value})::text {EQUAL} {quote_literal(label)} then {quote_literal(name)}"
        for label, name in labels
    ]
    return f"case {' '.join(cases)} else ({value})::text end"


# ---------------------------------------------------------------- objects

Key = Text | Parameter
"""Name of an output member: a constant name, or a parameter for a client's alias."""


@dataclass(frozen=True, slots=True)
class Object(Output):
    """A JSON object with members in order."""

    members: tuple[tuple[Key, Output], ...]

    def json(self, writer: Writer, row: Row | None) -> Json:
        return object_json(writer, [(key, value.json(writer, row)) for key, value in self.members])

    def reads_only_columns(self) -> bool:
        return all(value.reads_only_columns() for _, value in self.members)


def object_json(writer: Writer, members: Iterable[tuple[Key | None, Json]]) -> Json:
    pieces: list[JsonPiece | NullableJson | JsonQuery | str] = []
    for key, value in members:
        assert key is not None, "each member of an object has a key"
        pieces += [JsonPiece("," if pieces else "{"), *key_json(writer, key), JsonPiece(":"), *value]
    return (*(pieces or [JsonPiece("{")]), JsonPiece("}"))


def key_json(writer: Writer, key: Key) -> Json:
    if isinstance(key, Text):
        return key.json(writer, None)
    return (f"(select pg_catalog.to_json({writer.slot(key)})::text)",)  # The subquery runs once, not per row.


def key_sql(writer: Writer, key: Key) -> str:
    return quote_literal(key.text) if isinstance(key, Text) else writer.slot(key)
