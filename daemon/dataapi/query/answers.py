"""Statements whose single row is a REST answer: the body, how many rows it has, and what functions set.

The columns are those of ``Answered``.  The body is made by PostgreSQL in the form that was negotiated.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dataapi.catalog.model import Table
from dataapi.query.algebra import Parameter, Rows
from dataapi.query.expressions import source_sql
from dataapi.query.outputs import page_sql
from dataapi.query.results import Output, Record
from dataapi.query.sql import Compiled, compiled
from dataapi.query.writer import Row, Writer


class Form(Enum):
    """How the rows are written into the body."""

    NONE = "none"
    """Not at all: they are counted."""
    ARRAY = "array"
    """A JSON array."""
    STRIPPED = "stripped"
    """A JSON array of objects without their null members."""
    CSV = "csv"
    """RFC 4180 with a header line."""
    GEOJSON = "geojson"
    """A GeoJSON feature collection, made by PostGIS."""
    VALUE = "value"
    """The one value of a function, as JSON; null when there is none."""
    VALUES = "values"
    """A JSON array of a function's values."""
    RAW = "raw"
    """The one value's text, or a bytea's bytes in hexadecimal with ``\\x`` before them."""


@dataclass(frozen=True, slots=True)
class Handled:
    """A body made by an aggregate of the database over the rows (a custom media type handler).

    :ivar function: the aggregate's SQL name, quoted and qualified.
    :ivar table: the table whose row type it takes; None when it takes any.
    """

    function: str
    table: Table | None


Body = Form | Handled


class Total(Enum):
    """How the rows that match whatever the page are counted."""

    NONE = "none"
    EXACT = "exact"
    BOUNDED = "bounded"
    """Up to one more than the bound of ``compile_answer``: an estimate takes over beyond it."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The row of an answer.

    :ivar count: rows in the body.
    :ivar total: matching rows, None when they were not counted.
    :ivar response_headers, response_status: the settings ``response.headers`` and ``response.status``
        that functions made, None where they did not.
    :ivar location: for an insert, a JSON object of the one inserted row's key with its values as text.
    :ivar inserted: for an upsert, how many rows were inserted and not updated.
    """

    body: bytes | None
    count: int
    total: int | None
    response_headers: str | None
    response_status: str | None
    location: str | None = None
    inserted: int | None = None


GUCS = (
    "nullif(pg_catalog.current_setting('response.headers', true), '')",
    "nullif(pg_catalog.current_setting('response.status', true), '')",
)
"""SQL of what functions set for the answer."""


def compile_answer(
    rows: Rows, output: Record | Output, body: Body, total: Total = Total.NONE, bound: Parameter | None = None
) -> Compiled:
    """Return the statement that answers with rows; its columns are the first five of ``Answered``.

    :param bound: a ``bigint`` parameter, for ``Total.BOUNDED``.
    """
    if body is not Form.ARRAY or total is Total.BOUNDED:
        raise NotImplementedError(f"{body}, {total}, {bound}")
    writer = Writer()
    array, page = page_sql(writer, rows, output, None)
    counted = "null::bigint"
    if total is Total.EXACT:
        counted = f"(select pg_catalog.count(*) from {source_sql(writer, rows, Row(writer.alias()), None)})"
    return compiled(f"select {array}, pg_catalog.count(*), {counted}, {', '.join(GUCS)} from {page}", writer)
