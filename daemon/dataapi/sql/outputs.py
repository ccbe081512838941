"""What a statement answers: outputs, of which PostgreSQL builds JSON, so that no row is ever walked here.

The outputs of single values and objects are here, those of rows in ``row_output``; a front end adds its own.
Names, forms and aggregates are fixed by the schema; a client's own alias stands behind a ``Parameter``.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from dataapi.database.sql_text import EQUAL, quote_literal
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
from dataapi.sql.json_text import (
    INT8,
    Json,
    JsonBetween,
    JsonPiece,
    JsonQuery,
    json_query,
    nullable_sql,
    text_json,
    value_json,
)
from dataapi.sql.statement import Compiled, Row, Writer, compiled

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


def compile_query(output: Output) -> Compiled:
    """Return the statement whose single row and column is the output's JSON text."""
    writer = Writer()
    return compiled(json_query(output.json(writer, None)), writer)


def key_sql(writer: Writer, key: Key) -> str:
    """Return the SQL of a member's name."""
    return quote_literal(key.text) if isinstance(key, Text) else writer.slot(key)
