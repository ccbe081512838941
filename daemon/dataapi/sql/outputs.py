"""What a statement answers: outputs, of which PostgreSQL builds JSON, so that Python walks no row.

The outputs of single values and objects are here, those of rows in ``row_output``; a front end adds its own.
Names, forms and aggregates are fixed by the schema; a client's own alias stands behind a ``Parameter``.
JSON is text put together from fixed pieces and values, which takes PostgreSQL half as long as its functions
that build objects.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from dataapi.database.sql_text import CONCATENATE, EQUAL, MINUS, quote_literal
from dataapi.sql.algebra import (
    AggregateFunction,
    AggregateOf,
    ColumnOf,
    ComputedOf,
    Expression,
    Parameter,
    RelatedAggregateOf,
    RelatedOf,
    Rows,
)
from dataapi.sql.expressions import expression_sql
from dataapi.sql.statement import Row, Writer


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
NEIGHBOURS = 32
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


def json_sql(json: Json) -> str:
    """Return the SQL of JSON text, of type ``text``."""
    fixed, pieces = _apart(json)
    match pieces:
        case []:
            return f"{quote_literal(fixed[0])}::text"
        case [JsonQuery()]:
            return f"({json_query(json)})"
        case _:
            return _joined(json_parts(json))


def json_parts(json: Json) -> list[str]:
    """Return the SQL of texts that JSON is made of, one beside the other."""
    fixed, pieces = _apart(json)
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
    return list(filter(None, (*parts, _literal(fixed[-1]))))


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


def _joined(texts: list[str]) -> str:
    parts = list(filter(None, texts))
    while len(parts) > NEIGHBOURS:
        places = range(0, len(parts), NEIGHBOURS)
        parts = [f"({_BESIDE.join(parts[place : place + NEIGHBOURS])})" for place in places]
    return _BESIDE.join(parts)


def array_json(item: Json, order: str = "", rows: str = "") -> Json:
    """Return the array of an aggregated item.

    What all items begin and end with stands between them, so that it is not put to each one.

    :param order: an ``order by`` clause with its leading blank, or empty.
    :param rows: a ``filter`` clause with its leading blank, or empty.
    """
    begin, middle, end = split_json(item)
    listed = f"pg_catalog.string_agg({json_sql(middle)}, {quote_literal(f'{end},{begin}')}{order}){rows}"
    return (JsonBetween(f"[{begin}", listed, f"{end}]", "[]"),)


def split_json(json: Json) -> tuple[str, Json, str]:
    """Return the fixed text that JSON begins with, what is between, and the fixed text it ends with."""
    fixed, pieces = _apart(json)
    begin, end = fixed[0], fixed[-1] if pieces else ""
    inner: list[JsonPiece | JsonBetween | JsonQuery | str] = []
    for place, piece in enumerate(pieces):
        inner += [JsonPiece(fixed[place] if place else ""), piece]
    return begin, tuple(inner), end


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


# ---------------------------------------------------------------- outputs


class Output(ABC):
    """A value of the answer, made in the scope of a row or at the root of the statement."""

    __slots__ = ()

    @abstractmethod
    def json(self, writer: Writer, row: Row | None, /) -> Json:
        """Return the value as JSON.

        :param row: the row in scope, None at the root.
        """

    def sql(self, writer: Writer, row: Row | None, /) -> str:
        """Return the value as a column of rows that do not become JSON, NULL for null."""
        return nullable_sql(self.json(writer, row))

    def reads_only_columns(self) -> bool:
        """Return whether the value is made of nothing but columns of the row in scope."""
        return False

    def related(self) -> Rows | None:
        """Return the rows that it is made of, where they are not those in scope."""
        return None


class InnerOutput(Output):
    """An output that only an enclosing one can make, such as one of a page, a group or changed rows."""

    __slots__ = ()

    def json(self, _writer: Writer, _row: Row | None) -> Json:
        """Refuse to stand alone.

        :raises TypeError: always.
        """
        raise TypeError(f"{type(self).__name__} stands only inside another output")


def in_scope(row: Row | None) -> Row:
    assert row is not None, "an output of a row stands outside any row"
    return row


# ---------------------------------------------------------------- values


class WireForm(Enum):
    """How a value is written to JSON."""

    JSON = "json"
    """As PostgreSQL's ``to_json`` writes it."""
    TEXT = "text"
    """Its text form, as a JSON string."""
    TEXT_ARRAY = "text[]"
    """A list of its elements' text forms."""
    ENUM = "enum"
    """An enum label, renamed."""
    ENUM_ARRAY = "enum[]"
    """A list of enum labels, renamed."""


Labels = tuple[tuple[str, str], ...]
"""For the enum forms, ``(label, name in the API)`` where they differ."""


@dataclass(frozen=True, slots=True)
class Text(Output):
    """A fixed text, such as a type's name; never a request's."""

    text: str

    def json(self, _writer: Writer, _row: Row | None) -> Json:
        """Return a fixed string."""
        return (JsonPiece(json.dumps(self.text, ensure_ascii=False)),)

    def sql(self, _writer: Writer, _row: Row | None) -> str:
        return f"{quote_literal(self.text)}::text"

    def reads_only_columns(self) -> bool:
        """Return True: it reads nothing."""
        return True


@dataclass(frozen=True, slots=True)
class Null(Output):
    """JSON null."""

    def json(self, _writer: Writer, _row: Row | None) -> Json:
        """Return null."""
        return (JsonPiece("null"),)


@dataclass(frozen=True, slots=True)
class Value(Output):
    """An expression of the current row, or of the group in scope."""

    expression: Expression
    form: WireForm = WireForm.JSON
    labels: Labels = ()

    def json(self, writer: Writer, row: Row | None) -> Json:
        """Return the expression in its form."""
        row = in_scope(row)
        value, type_ = expression_sql(writer, self.expression, row), type_of(self.expression, row)
        column = isinstance(self.expression, ColumnOf)
        return form_json(value, self.form, self.labels, type_, column=column)

    def sql(self, writer: Writer, row: Row | None) -> str:
        """Return the expression in its form."""
        value, column = expression_sql(writer, self.expression, in_scope(row)), self.reads_only_columns()
        return form_sql(value, self.form, self.labels, column=column)

    def reads_only_columns(self) -> bool:
        return isinstance(self.expression, ColumnOf)

    def related(self) -> Rows | None:
        """Return the rows of an expression over related ones."""
        return self.expression.rows if isinstance(self.expression, RelatedOf | RelatedAggregateOf) else None


def type_of(expression: Expression, row: Row) -> int | None:
    """Return the oid of an expression's type, None where that is not known."""
    match expression:
        case ColumnOf(name):
            return row.type(name)
        case ComputedOf(function):
            return function.returns
        case AggregateOf(AggregateFunction.COUNT):
            return INT8
        case _:
            return None


def form_sql(value: str, form: WireForm, labels: Labels = (), *, column: bool = False) -> str:
    """Return a value's SQL in the form in which it is written to JSON; see ``value_json``."""
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
    """Return a value's JSON in its form; see ``value_json``."""
    if form is WireForm.JSON:
        return value_json(value, type_, column=column)
    if form is WireForm.TEXT:
        return text_json(value, type_)
    return value_json(form_sql(value, form, labels, column=column))


def _label_sql(value: str, labels: Labels, *, column: bool) -> str:
    if not labels:
        return f"({value})::text"
    if not column:  # which may cost much, or change something
        once = f"pg_catalog.unnest(array[({value})::text]) as u(label)"
        return f"(select {_label_sql('label', labels, column=True)} from {once})"
    cases = [
        f"when ({value})::text {EQUAL} {quote_literal(label)} then {quote_literal(name)}"
        for label, name in labels
    ]
    return f"case {' '.join(cases)} else ({value})::text end"


# ---------------------------------------------------------------- objects

Key = Text | Parameter
"""An output member's name: a name of the schema, or a client's alias behind a parameter."""


@dataclass(frozen=True, slots=True)
class Object(Output):
    """A JSON object, its members in order."""

    members: tuple[tuple[Key, Output], ...]

    def json(self, writer: Writer, row: Row | None) -> Json:
        """Return the object, made member by member."""
        return object_json(writer, [(key, value.json(writer, row)) for key, value in self.members])

    def reads_only_columns(self) -> bool:
        """Return whether all members read nothing else."""
        return all(value.reads_only_columns() for _, value in self.members)


def object_json(writer: Writer, members: Iterable[tuple[Key | None, Json]]) -> Json:
    pieces: list[JsonPiece | JsonBetween | JsonQuery | str] = []
    for key, value in members:
        assert key is not None, "only plain values have no key"
        pieces += [JsonPiece("," if pieces else "{"), *key_json(writer, key), JsonPiece(":"), *value]
    return (*(pieces or [JsonPiece("{")]), JsonPiece("}"))


def key_json(writer: Writer, key: Key) -> Json:
    """Return a member's name as a JSON string."""
    if isinstance(key, Text):
        return key.json(writer, None)
    return (f"(select pg_catalog.to_json({writer.slot(key)})::text)",)  # once and not for each row


def key_sql(writer: Writer, key: Key) -> str:
    """Return the SQL of a member's name."""
    return quote_literal(key.text) if isinstance(key, Text) else writer.slot(key)
