"""Rows are written as JSON with any member names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.sql.algebra import ColumnRef, Join, Rows
from dataapi.sql.dialect import compile_query
from dataapi.sql.outputs import Object, Output, Text, Value
from dataapi.sql.row_output import Many, One
from dataapi.sql.statement import Compiled
from support.catalog import load_catalog, table_named
from support.slots import parameter

if TYPE_CHECKING:
    from dataapi.catalog.model import Catalog
    from support.postgres import Database, Server

SCHEMA = """
create table parent (id int primary key, name text);
create table child (id int primary key, parent int references parent, word text, extra json);
insert into parent values (1, 'one'), (2, null);
insert into child values (1, 1, 'a', '{"x":  1}'), (2, 1, null, 'null'), (3, null, 'c', null);
"""


@pytest.fixture(scope="module")
def family(server: Server) -> Database:
    """Return a database with parents and children."""
    return server.create_database(SCHEMA)


@pytest.fixture(scope="module")
def catalog(family: Database) -> Catalog:
    return load_catalog(family.uri)


def written(database: Database, compiled: Compiled) -> Any:
    text = compiled.statement.text.replace("%", "%%")
    for number in range(len(compiled.sources), 0, -1):
        text = text.replace(f"${number}", "%s::text")
    [(rows,)] = database.execute(text, compiled.sources)
    return json.loads(rows)


def named(*members: tuple[str, Output]) -> Object:
    return Object(tuple((Text(name), output) for name, output in members))


@pytest.mark.parametrize(
    "name", ["word", 'a "quoted" name', "it's", "$1 %s", "n" * 63, "n" * 64, "é" * 31, "é" * 40]
)
def test_member_names_are_unchanged(family: Database, catalog: Catalog, name: str) -> None:
    output = named((name, Value(ColumnRef("word"))), ("x", Value(ColumnRef("id"))))
    rows = written(family, compile_query(Many(Rows(table_named(catalog, "child"), limit=1), output)))
    assert rows == [{name: "a", "x": 1}]


def test_aliases_and_schema_names_can_be_mixed(family: Database, catalog: Catalog) -> None:
    rows = Rows(table_named(catalog, "parent"), limit=1)
    members = (
        (Text("id"), Value(ColumnRef("id"))),
        (parameter("my'alias", "text"), Value(ColumnRef("name"))),
    )
    assert written(family, compile_query(Many(rows, Object(members)))) == [{"id": 1, "my'alias": "one"}]


def test_repeated_name_is_written_twice(family: Database, catalog: Catalog) -> None:
    output = named(("id", Value(ColumnRef("id"))), ("id", Value(ColumnRef("id"))))
    text = compile_query(Many(Rows(table_named(catalog, "parent"), limit=1), output)).statement.text
    [(body,)] = family.execute(text)
    assert json.loads(body, object_pairs_hook=list) == [[("id", 1), ("id", 1)]]


def test_nested_and_missing_rows_are_written(family: Database, catalog: Catalog) -> None:
    parent, child = table_named(catalog, "parent"), table_named(catalog, "child")
    one = One(
        Rows(parent, join=Join((("id", "parent"),)), unique=True), named(("name", Value(ColumnRef("name"))))
    )
    children = written(
        family,
        compile_query(Many(Rows(child), named(("parent", one), ("extra", Value(ColumnRef("extra")))))),
    )
    assert children == [
        {"parent": {"name": "one"}, "extra": {"x": 1}},
        {"parent": {"name": "one"}, "extra": None},
        {"parent": None, "extra": None},
    ]
    many = Many(Rows(child, join=Join((("parent", "id"),))), named(("word", Value(ColumnRef("word")))))
    parents = written(
        family, compile_query(Many(Rows(parent), named(("children", many), ("none", Object(())))))
    )
    assert parents == [
        {"children": [{"word": "a"}, {"word": None}], "none": {}},
        {"children": [], "none": {}},
    ]
