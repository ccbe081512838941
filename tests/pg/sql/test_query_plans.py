"""PostgreSQL uses indexes for REST queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg2
import pytest
from dataapi.rest.media_output import Form
from dataapi.rest.statements import compile_result
from dataapi.sql.algebra import (
    ColumnRef,
    Compare,
    Condition,
    Join,
    JsonPath,
    Operator,
    OrderTerm,
    Parameter,
    Quantifier,
    Rows,
    TextSearch,
    Through,
)
from dataapi.sql.outputs import Text, Value
from dataapi.sql.row_output import Many, One, Record
from support.catalog import load_catalog, table_named
from support.slots import parameter
from support.statements import with_literals

if TYPE_CHECKING:
    from dataapi.catalog.model import Catalog
    from dataapi.sql.statement import Compiled
    from support.postgres import Database, Server

INDEXES = """
alter table track add extra jsonb;
update track set extra = jsonb_build_object('code', track_id::text);
create index track_code on track ((extra ->> 'code'));
create index track_words on track using gin (to_tsvector('english', name));
create index track_name on track (name text_pattern_ops);
analyze track;
"""
NAME = Record(((Text("name"), Value(ColumnRef("name"))),))


@pytest.fixture(scope="module")
def chinook(server: Server) -> Database:
    """Return the sample database with additional indexes."""
    database = server.create_chinook()
    database.execute(INDEXES)
    return database


@pytest.fixture(scope="module")
def catalog(chinook: Database) -> Catalog:
    return load_catalog(chinook.uri)


def plan(database: Database, compiled: Compiled) -> str:
    connection = psycopg2.connect(database.admin_uri)
    try:
        with connection.cursor() as cursor:
            text = with_literals(cursor, compiled.statement, compiled.sources)
            cursor.execute(f"explain (costs off) {text}")
            return "\n".join(line for (line,) in cursor.fetchall())
    finally:
        connection.close()


CODE = JsonPath(ColumnRef("extra"), True, (parameter("code", "text"),), True)


@pytest.mark.parametrize(
    ("condition", "index"),
    [
        (Compare(ColumnRef("track_id"), Operator.EQ, parameter("7")), "track_pkey"),
        (Compare(ColumnRef("track_id"), Operator.IN, parameter("{7,8}")), "track_pkey"),
        (
            Compare(ColumnRef("track_id"), Operator.EQ, parameter("{7,8}"), quantifier=Quantifier.ANY),
            "track_pkey",
        ),
        (Compare(ColumnRef("name"), Operator.LIKE, parameter("Bal%", "text")), "track_name"),
        (Compare(CODE, Operator.EQ, parameter("7", "text")), "track_code"),
        (
            TextSearch(ColumnRef("name"), parameter("walk", "text"), parameter("english", "regconfig")),
            "track_words",
        ),
    ],
)
def test_filters_use_indexes(chinook: Database, catalog: Catalog, condition: Condition, index: str) -> None:
    rows = Rows(table_named(catalog, "track"), where=condition)
    assert index in plan(chinook, compile_result(rows, NAME, Form.ARRAY))


def test_page_is_read_with_the_index_of_its_order(chinook: Database, catalog: Catalog) -> None:
    track, album = table_named(catalog, "track"), table_named(catalog, "album")
    order = (OrderTerm(ColumnRef("track_id"), nullable=False),)
    title = Record(((Text("title"), Value(ColumnRef("title"))),))
    one = One(Rows(album, join=Join((("album_id", "album_id"),)), unique=True), title)
    record = Record((*NAME.members, (Text("album"), one)))
    shown = plan(chinook, compile_result(Rows(track, order=order, limit=10), record, Form.ARRAY))
    assert "track_pkey" in shown.split("->  Limit")[1]
    assert "Join" in shown.split("->  Limit")[0]
    assert "on album" in shown.split("SubPlan")[0]


def test_related_rows_of_large_tables_use_their_index(chinook: Database, catalog: Catalog) -> None:
    """Otherwise, PostgreSQL would read all tracks to join them to a short page."""
    lines, track = table_named(catalog, "invoice_line"), table_named(catalog, "track")
    one = One(Rows(track, join=Join((("track_id", "track_id"),)), unique=True), NAME)
    rows = Rows(lines, order=(OrderTerm(ColumnRef("invoice_line_id"), nullable=False),), limit=500)
    shown = plan(chinook, compile_result(rows, Record(((Text("track"), one),)), Form.ARRAY))
    assert "Index Scan using track_pkey" in shown
    assert "Seq Scan on track" not in shown


def test_row_selected_by_key_is_not_joined(chinook: Database, catalog: Catalog) -> None:
    track, album = table_named(catalog, "track"), table_named(catalog, "album")
    title = Record(((Text("title"), Value(ColumnRef("title"))),))
    one = One(Rows(album, join=Join((("album_id", "album_id"),)), unique=True), title)
    rows = Rows(track, where=Compare(ColumnRef("track_id"), Operator.EQ, parameter("7")))
    assert "Join" not in plan(chinook, compile_result(rows, Record(((Text("album"), one),)), Form.ARRAY))


def test_related_rows_use_indexes(chinook: Database, catalog: Catalog) -> None:
    track = table_named(catalog, "track")
    of_album = Many(Rows(track, join=Join((("album_id", "album_id"),))), NAME)
    albums = Rows(table_named(catalog, "album"), limit=10)
    assert "track_album_id_idx" in plan(
        chinook, compile_result(albums, Record(((Text("tracks"), of_album),)), Form.ARRAY)
    )
    through = Through(
        table_named(catalog, "playlist_track"),
        Join((("playlist_id", "playlist_id"),)),
        Join((("track_id", "track_id"),)),
    )
    of_list = Many(Rows(track, through=through, limit=10), NAME)
    lists = Rows(table_named(catalog, "playlist"), limit=10)
    assert "playlist_track_pkey" in plan(
        chinook, compile_result(lists, Record(((Text("tracks"), of_list),)), Form.ARRAY)
    )


def test_page_with_related_rows_is_planned_once(chinook: Database, catalog: Catalog) -> None:
    """PostgreSQL would plan every execution if the page size were a parameter."""
    track, album = table_named(catalog, "track"), table_named(catalog, "album")
    title = Record(((Text("title"), Value(ColumnRef("title"))),))
    one = One(Rows(album, join=Join((("album_id", "album_id"),)), unique=True), title)
    order = (OrderTerm(ColumnRef("track_id"), nullable=False),)
    limit = Parameter(_Ten(), "bigint")
    record = Record(((Text("album"), one),))
    bound = compile_result(Rows(track, order=order, limit=limit), record, Form.ARRAY).bind(None)
    connection = psycopg2.connect(chinook.admin_uri)
    try:
        if connection.server_version < 140000:
            pytest.skip("PostgreSQL 13 does not count plans")
        with connection.cursor() as cursor:
            types = ",".join(bound.statement.types)
            cursor.execute(f"prepare page({types}) as {bound.statement.text}")
            for _ in range(10):
                cursor.execute("execute page(10)")
            cursor.execute("select custom_plans, generic_plans from pg_prepared_statements")
            assert cursor.fetchall() == [(5, 5)]
    finally:
        connection.close()


class _Ten:
    def bind(self, _: object, /) -> str:
        return "10"
