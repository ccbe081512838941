"""Bodies of answers: the SQL of rows in the form that was negotiated."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from dataapi.catalog.model import Table
from dataapi.database.sql_text import (
    CONCATENATE,
    EQUAL,
    GREATER,
    operator_sql,
    quote_identifier,
    quote_literal,
)
from dataapi.http.errors import ApiError
from dataapi.rest.parse.body import NULL
from dataapi.sql.algebra import Parameter
from dataapi.sql.outputs import Json, Key, Output, Text, array_json, json_sql, key_sql
from dataapi.sql.page_source import RowSource
from dataapi.sql.row_output import OutputRows, Record, Spread, json_rows, output_rows
from dataapi.sql.statement import Writer, qualified


class Form(Enum):
    """How the rows are written into the body."""

    NONE = "none"
    """Not at all: they are counted."""
    ARRAY = "array"
    """A JSON array."""
    STRIPPED = "stripped"
    """A JSON array of objects without their null members."""
    CSV = "csv"
    """RFC 4180 with a header line; the last line has no end.

    NULL is empty, or the word ``NULL`` if it is alone in its line.  A text that would be read so is quoted.
    """
    VALUE = "value"
    """The one row, or the one value of a function, as JSON; null when there is none."""
    VALUES = "values"
    """A JSON array of a function's values."""


class Content(Enum):
    """What a value is that is a body by itself."""

    TEXT = "text"
    BYTES = "bytes"
    """A ``bytea``, whose text is hexadecimal with ``\\x`` before it."""
    XML = "xml"
    """Written by its type's output function, which leaves out a declared encoding: the body has another."""


@dataclass(frozen=True, slots=True)
class Raw:
    """The one value of a function as it stands."""

    content: Content


@dataclass(frozen=True, slots=True)
class GeoJson:
    """A GeoJSON feature collection.

    :ivar function: the SQL name of the function that makes a feature of a row.
    """

    function: str

    @classmethod
    def by(cls, postgis: str | None) -> GeoJson:
        """Return the form that PostGIS makes.

        :param postgis: its schema, None where it is no extension: then it is where the search path leads.
        """
        name = "st_asgeojson"
        return cls(name if postgis is None else f"{quote_identifier(postgis)}.{name}")


@dataclass(frozen=True, slots=True)
class HandlerBody:
    """A body made by an aggregate of the database over the rows (a custom media type handler).

    :ivar function: the aggregate's SQL name, quoted and qualified.
    :ivar table: the table whose row type it takes; None when it takes any, and reads the members' names,
        which then must be ``Text``.
    """

    function: str
    table: Table | None
    content: Content = Content.TEXT


Body = Form | GeoJson | HandlerBody | Raw

_QUOTED_NULL = quote_literal(f'"{NULL}"')
_JSON = frozenset({Form.ARRAY, Form.STRIPPED, Form.VALUE, Form.VALUES})


def body_parts(writer: Writer, output: Output, source: RowSource, body: Body) -> tuple[str, str]:
    """Return the SQL of a body, an aggregate, and the ``from`` item of the rows that it is made of.

    :raises ApiError: PGRST127 (400), an aggregate reads the members' names, of which some are a client's.
    """
    if body in _JSON:
        json, item = json_rows(writer, output, source)
        return _json_sql(json, body), item
    rows = output_rows(writer, output, source)
    return _body_sql(writer, rows, body), rows.item


def _json_sql(json: Json, body: Body) -> str:
    listed = json_sql(array_json(json))
    match body:
        case Form.VALUE:
            return f"coalesce((pg_catalog.array_agg({json_sql(json)}))[1], 'null')"
        case Form.STRIPPED:
            return f"pg_catalog.json_strip_nulls(({listed})::json)"
        case _:
            return listed


def _body_sql(writer: Writer, rows: OutputRows, body: Body) -> str:
    match body:
        case HandlerBody(function, table, content):
            return _content_sql(f"{function}({_handled_sql(rows, function, table)})", content)
        case Raw(content):
            return f"pg_catalog.string_agg({_content_sql(rows.column(0), content)}, '')"
        case Form.CSV:
            names = [_csv_name_sql(writer, key) for key, _ in rows.columns if key is not None]
            header = f" {CONCATENATE} ',' {CONCATENATE} ".join(names) or "''::text"
            lines = f"coalesce(pg_catalog.string_agg({csv_line_sql(rows)}, E'\\n'), '')"
            return f"{header} {CONCATENATE} E'\\n' {CONCATENATE} {lines}"
        case GeoJson(function):
            return _features_sql(writer, rows, function)
        case _:
            return "null::text"


def _content_sql(value: str, content: Content) -> str:
    return f"pg_catalog.xml_out({value})::text" if content is Content.XML else f"({value})::text"


def _handled_sql(rows: OutputRows, function: str, table: Table | None) -> str:
    if rows.scalar:
        return rows.column(0)
    if table is not None:
        columns = ", ".join(rows.column(place) for place in range(len(rows.columns)))
        return f"row({columns})::{qualified(table)}"
    if not rows.named:
        raise ApiError(
            400,
            "PGRST127",
            "Feature not implemented",
            details=f"The aggregate {function} takes rows of any kind, whose members cannot be renamed.",
        )
    return rows.alias


# ---------------------------------------------------------------- CSV


def csv_header(output: Output, name_of: Callable[[Parameter], str]) -> str:
    """Return the header line of rows as CSV, with its line end.

    :param name_of: finds the name that stands behind a parameter.
    """
    names = [key.text if isinstance(key, Text) else name_of(key) for key in _keys(output)]
    return ",".join(map(csv_field, names)) + "\n"


def csv_field(text: str) -> str:
    """Return a text as a field of RFC 4180, quoted where it must be."""
    if re.search('[",\r\n]', text) or not text:
        return '"' + text.replace('"', '""') + '"'
    return text


def _keys(output: Output) -> list[Key]:
    if not isinstance(output, Record):
        return []
    keys = ((_keys(each.record) if isinstance(each, Spread) else [each[0]]) for each in output.members)
    return [key for some in keys for key in some]


def csv_line_sql(rows: OutputRows) -> str:
    """Return the SQL of a row as a line of CSV, without its end.

    A row's text form is one but for its brackets, for backslashes, which it doubles, and for the word
    ``NULL``, which it does not quote.  Lines with that word are made field by field.
    """
    if not rows.columns:
        return "''::text"
    if len(rows.columns) == 1:
        # An empty line would be no row.
        nothing = f"when line {EQUAL} '' then {quote_literal(NULL)}"
        word = f"when line {EQUAL} {quote_literal(NULL)} then {_QUOTED_NULL}"
        return _line_sql(_fields_sql(rows.alias), f"{nothing} {word}")
    fields = []
    for place in range(len(rows.columns)):
        field = _fields_sql(f"row({rows.column(place)})")
        fields.append(f"case when {field} {EQUAL} {quote_literal(NULL)} then {_QUOTED_NULL} else {field} end")
    apart = f"pg_catalog.array_to_string(array[{', '.join(fields)}], ',')"
    has_word = f"pg_catalog.strpos(line, {quote_literal(NULL)}) {GREATER} 0"
    return _line_sql(_fields_sql(rows.alias), f"when {has_word} then {apart}")


def _line_sql(line: str, cases: str) -> str:
    """Return SQL that computes a line once, and in some cases returns another one."""
    return f"(select case {cases} else line end from (select {line} as line offset 0) as made)"


def _fields_sql(row: str) -> str:
    """Return the SQL of the fields in the text form of a row."""
    fields = f"pg_catalog.substr(pg_catalog.left(({row})::text, -1), 2)"
    return f"pg_catalog.replace({fields}, E'\\\\\\\\', E'\\\\')"


def _csv_name_sql(writer: Writer, key: Key) -> str:
    if isinstance(key, Text):
        return f"{quote_literal(csv_field(key.text))}::text"
    name = key_sql(writer, key)
    quoted = f"""'"' {CONCATENATE} pg_catalog.replace({name}, '"', '""') {CONCATENATE} '"'"""
    special = f"{name} {operator_sql('~')} E'[\",\\\\r\\\\n]' or {name} {EQUAL} ''"
    return f"case when {special} then {quoted} else {name} end"


# ---------------------------------------------------------------- GeoJSON


def _features_sql(writer: Writer, rows: OutputRows, function: str) -> str:
    feature = f"{function}({rows.alias})::json"
    if not rows.named:
        feature = _renamed_sql(writer, rows, feature)
    features = f"coalesce(pg_catalog.json_agg({feature}), '[]'::json)"
    return f"pg_catalog.json_build_object('type', 'FeatureCollection', 'features', {features})"


def _renamed_sql(writer: Writer, rows: OutputRows, feature: str) -> str:
    """Return a feature whose properties, named by their columns, have their keys as names."""
    made, each, name = writer.alias(), writer.alias(), writer.alias()
    arrow = operator_sql("->")
    names = ", ".join(
        f"({quote_literal(column)}::text, {key_sql(writer, key)}::text)"
        for key, column in rows.columns
        if key is not None
    )
    properties = (
        f"select pg_catalog.json_object_agg({name}.renamed, {each}.value) "
        f"from pg_catalog.json_each({made}.feature {arrow} 'properties') as {each} "
        f"join (values {names}) as {name}(own, renamed) on {name}.own {EQUAL} {each}.key"
    )
    members = (
        f"'type', 'Feature', 'geometry', {made}.feature {arrow} 'geometry', 'properties', ({properties})"
    )
    return f"(select pg_catalog.json_build_object({members}) from (select {feature} as feature) as {made})"
