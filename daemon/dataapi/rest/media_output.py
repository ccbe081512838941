"""SQL that builds response bodies in the negotiated media type."""

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
    """The format of the rows in the body."""

    NONE = "none"
    ARRAY = "array"
    STRIPPED = "stripped"
    """A JSON array of objects without null members."""
    CSV = "csv"
    """RFC 4180 with a header line and without a newline after the last line.

    NULL is an empty field, or ``NULL`` if it is the only field of its line. The text ``NULL`` and empty text
    are quoted.
    """
    VALUE = "value"
    """A single row or function value as JSON, ``null`` if there is none."""
    VALUES = "values"


class Content(Enum):
    """Types of a single value that is returned as the whole body."""

    TEXT = "text"
    BYTES = "bytes"
    r"""A ``bytea``, as hexadecimal text with the prefix ``\x``."""
    XML = "xml"
    """XML without its encoding declaration, because the body has another encoding."""


@dataclass(frozen=True, slots=True)
class Raw:
    """The scalar result of a function, not encoded as JSON."""

    content: Content


@dataclass(frozen=True, slots=True)
class GeoJson:
    """A GeoJSON feature collection. The SQL function converts a row to a feature."""

    function: str

    @classmethod
    def by(cls, postgis: str | None) -> GeoJson:
        """Return the body for PostGIS in the schema ``postgis`` (default: on the search path)."""
        name = "st_asgeojson"
        return cls(name if postgis is None else f"{quote_identifier(postgis)}.{name}")


@dataclass(frozen=True, slots=True)
class HandlerBody:
    """A body that an aggregate in the database builds from the rows (a custom media type handler).

    If ``table`` is None, the aggregate accepts any row type and may read its column names. The keys of the
    output must then be constants (``Text``).
    """

    function: str
    table: Table | None
    content: Content = Content.TEXT


Body = Form | GeoJson | HandlerBody | Raw

_QUOTED_NULL = quote_literal(f'"{NULL}"')
_JSON = frozenset({Form.ARRAY, Form.STRIPPED, Form.VALUE, Form.VALUES})


def body_parts(writer: Writer, output: Output, source: RowSource, body: Body) -> tuple[str, str]:
    """Return the SQL of an aggregate that builds the body, and the ``from`` item with its rows.

    :raises ApiError: PGRST127 (400) if a ``HandlerBody`` cannot use the keys of ``output`` as column names.
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
            return _content_sql(f"{function}({_handler_input_sql(rows, function, table)})", content)
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


def _handler_input_sql(rows: OutputRows, function: str, table: Table | None) -> str:
    if rows.scalar:
        return rows.column(0)
    if table is not None:
        columns = ", ".join(rows.column(index) for index in range(len(rows.columns)))
        return f"row({columns})::{qualified(table)}"
    if not rows.named:
        raise ApiError(
            400,
            "PGRST127",
            "Feature not implemented",
            details=f"The aggregate {function} accepts any row type, so member names must be distinct and "
            "valid column names.",
        )
    return rows.alias


# ---------------------------------------------------------------- CSV


def csv_header(output: Output, name_of: Callable[[Parameter], str]) -> str:
    names = [key.text if isinstance(key, Text) else name_of(key) for key in _keys(output)]
    return ",".join(map(csv_field, names)) + "\n"


def csv_field(text: str) -> str:
    if re.search('[",\r\n]', text) or not text:
        return '"' + text.replace('"', '""') + '"'
    return text


def _keys(output: Output) -> list[Key]:
    if not isinstance(output, Record):
        return []
    keys = ((_keys(each.record) if isinstance(each, Spread) else [each[0]]) for each in output.members)
    return [key for group in keys for key in group]


def csv_line_sql(rows: OutputRows) -> str:
    """Return the SQL of a row as a CSV line without a newline.

    PostgreSQL's text form of a row is a CSV line except for its parentheses, doubled backslashes and an
    unquoted ``NULL``. Lines that contain ``NULL`` are built field by field.
    """
    if not rows.columns:
        return "''::text"
    if len(rows.columns) == 1:
        # CSV parsers skip empty lines, so NULL is written as the text ``NULL``.
        nothing = f"when line {EQUAL} '' then {quote_literal(NULL)}"
        word = f"when line {EQUAL} {quote_literal(NULL)} then {_QUOTED_NULL}"
        return _line_sql(_fields_sql(rows.alias), f"{nothing} {word}")
    fields = []
    for index in range(len(rows.columns)):
        field = _fields_sql(f"row({rows.column(index)})")
        fields.append(f"case when {field} {EQUAL} {quote_literal(NULL)} then {_QUOTED_NULL} else {field} end")
    field_by_field = f"pg_catalog.array_to_string(array[{', '.join(fields)}], ',')"
    has_word = f"pg_catalog.strpos(line, {quote_literal(NULL)}) {GREATER} 0"
    return _line_sql(_fields_sql(rows.alias), f"when {has_word} then {field_by_field}")


def _line_sql(line: str, cases: str) -> str:
    # The offset makes PostgreSQL compute the line only once.
    return f"(select case {cases} else line end from (select {line} as line offset 0) as made)"


def _fields_sql(row: str) -> str:
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
    source, member, rename = writer.alias(), writer.alias(), writer.alias()
    arrow = operator_sql("->")
    renames = ", ".join(
        f"({quote_literal(column)}::text, {key_sql(writer, key)}::text)"
        for key, column in rows.columns
        if key is not None
    )
    properties = (
        f"select pg_catalog.json_object_agg({rename}.renamed, {member}.value) "
        f"from pg_catalog.json_each({source}.feature {arrow} 'properties') as {member} "
        f"join (values {renames}) as {rename}(own, renamed) on {rename}.own {EQUAL} {member}.key"
    )
    members = (
        f"'type', 'Feature', 'geometry', {source}.feature {arrow} 'geometry', 'properties', ({properties})"
    )
    return f"(select pg_catalog.json_build_object({members}) from (select {feature} as feature) as {source})"
