"""What a statement answers: outputs, of which PostgreSQL builds JSON, so that no row is ever walked here.

The outputs of single values and objects are here, those of rows in ``row_output``; a front end adds
its own.  Names, forms and aggregates are fixed by the schema; a client's own alias stands behind a
``Parameter``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum

from dataapi.database.sql_text import quote_literal
from dataapi.sql.algebra import ColumnOf, Expression, Parameter
from dataapi.sql.expressions import expression_sql
from dataapi.sql.writer import Row, Writer

MEMBERS_PER_CALL = 50
"""A function takes 100 arguments, so ``json_build_object`` makes at most 50 members."""


class Output(ABC):
    """A value of the answer, made in the scope of a row or at the root of the statement."""

    __slots__ = ()

    @abstractmethod
    def sql(self, writer: Writer, row: Row | None, /) -> str:
        """Return the SQL of the value.

        :param row: the row in scope, None at the root.
        """

    def reads_only_columns(self) -> bool:
        """Return whether the value is made of nothing but columns of the row in scope."""
        return False


class InnerOutput(Output):
    """An output that only an enclosing one can make, such as one of a page, a group or changed rows."""

    __slots__ = ()

    def sql(self, _writer: Writer, _row: Row | None) -> str:
        """Refuse to stand alone.

        :raises TypeError: always.
        """
        raise TypeError(f"{type(self).__name__} stands only inside another output")


def in_scope(row: Row | None) -> Row:
    """Return the row that an output is made of."""
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

    def sql(self, _writer: Writer, _row: Row | None) -> str:
        """Return a text literal."""
        return f"{quote_literal(self.text)}::text"

    def reads_only_columns(self) -> bool:
        """Return True: it reads nothing."""
        return True


@dataclass(frozen=True, slots=True)
class Null(Output):
    """JSON null."""

    def sql(self, _writer: Writer, _row: Row | None) -> str:
        """Return NULL."""
        return "null::json"


@dataclass(frozen=True, slots=True)
class Value(Output):
    """An expression of the current row, or of the group in scope."""

    expression: Expression
    form: WireForm = WireForm.JSON
    labels: Labels = ()

    def sql(self, writer: Writer, row: Row | None) -> str:
        """Return the expression in its form."""
        return form_sql(expression_sql(writer, self.expression, in_scope(row)), self.form, self.labels)

    def reads_only_columns(self) -> bool:
        """Return whether it is a column."""
        return isinstance(self.expression, ColumnOf)


def form_sql(value: str, form: WireForm, labels: Labels = ()) -> str:
    """Return a value's SQL in the form in which it is written to JSON."""
    match form:
        case WireForm.JSON:
            return value
        case WireForm.TEXT:
            return f"({value})::text"
        case WireForm.TEXT_ARRAY:
            return f"({value})::text[]"
        case WireForm.ENUM:
            return _label_sql(value, labels)
        case WireForm.ENUM_ARRAY:
            renamed = _label_sql("label", labels)
            labels_in_order = f"pg_catalog.unnest({value}) with ordinality as u(label, place)"
            listed = f"select pg_catalog.array_agg({renamed} order by place) from {labels_in_order}"
            return f"case when ({value}) is not null then coalesce(({listed}), '{{}}') end"


def _label_sql(value: str, labels: Labels) -> str:
    if not labels:
        return f"({value})::text"
    cases = " ".join(f"when {quote_literal(label)} then {quote_literal(name)}" for label, name in labels)
    return f"case ({value})::text {cases} else ({value})::text end"


# ---------------------------------------------------------------- objects

Key = Text | Parameter
"""An output member's name: a name of the schema, or a client's alias behind a parameter."""


@dataclass(frozen=True, slots=True)
class Object(Output):
    """A JSON object, its members in order."""

    members: tuple[tuple[Key, Output], ...]

    def sql(self, writer: Writer, row: Row | None) -> str:
        """Return the object, built member by member."""
        return build_object([(key_sql(writer, key), value.sql(writer, row)) for key, value in self.members])

    def reads_only_columns(self) -> bool:
        """Return whether all members read nothing else."""
        return all(value.reads_only_columns() for _, value in self.members)


def key_sql(writer: Writer, key: Key) -> str:
    """Return the SQL of a member's name."""
    return quote_literal(key.text) if isinstance(key, Text) else writer.slot(key)


def build_object(members: list[tuple[str, str]]) -> str:
    """Return ``json_build_object`` over SQL names and values, split where they are too many."""
    chunks = [
        _object_call(members[at : at + MEMBERS_PER_CALL]) for at in range(0, len(members), MEMBERS_PER_CALL)
    ]
    if len(chunks) <= 1:
        return chunks[0] if chunks else "pg_catalog.json_build_object()"
    # Each chunk stands once in the text, else nested objects would double it at every level.
    texts = [f"pg_catalog.substr(pg_catalog.left({chunk}::text, -1), 2)" for chunk in chunks]
    return "('{' || " + " || ', ' || ".join(texts) + " || '}')::json"


def _object_call(members: list[tuple[str, str]]) -> str:
    return "pg_catalog.json_build_object(" + ", ".join(f"{key}, {value}" for key, value in members) + ")"
