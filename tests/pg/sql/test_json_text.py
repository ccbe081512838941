"""JSON that statements build as text equals the output of ``to_json``."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from dataapi.rest.media_output import Form
from dataapi.rest.statements import compile_result
from dataapi.sql.algebra import ColumnRef, Rows
from dataapi.sql.dialect import compile_query
from dataapi.sql.outputs import Object, Output, Text, Value, WireForm
from dataapi.sql.row_output import Many, Record
from hypothesis import given
from hypothesis import strategies as st
from support.catalog import load_catalog, table_named
from support.slots import parameter
from support.statements import with_literals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dataapi.catalog.model import Table
    from support.postgres import Server

TYPES = """
create type mood as enum ('sad', 'so "so"', 'it''s \\ok');
create type pair as (word text, number numeric);
create domain positive as int check (value > 0);
create domain document as jsonb;
create domain yes as boolean;
create type labelled as (label text);
create function as_json(labelled) returns json language sql immutable as 'select to_json($1.label)';
create cast (labelled as json) with function as_json(labelled);
"""
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)
ODD_TEXTS = TEXTS | st.sampled_from(
    ["", " ", '"', "\\", "\\u0041", "\n\t\x01\x1f\x7f", "null", "\u2028", "😀"]
)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | ODD_TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXTS, inner, max_size=3),
    max_leaves=5,
).map(json.dumps)
SPACED = JSONS.map(lambda text: f" {text}\n")
FLOATS = (st.floats() | st.sampled_from([0.1, 1e20, 1e-7, 5e-324])).map(str)
NUMBERS = st.decimals(allow_nan=False, allow_infinity=False).map(str)
NOT_FINITE = st.sampled_from(["NaN", "0.00", "-0", "1e400", "12345678901234567890.1234567890"])
STAMPS = st.datetimes().map(str) | st.sampled_from(["infinity", "-infinity", "4713-01-01 00:00:00 BC"])
WAITS = st.timedeltas().map(lambda wait: f"{wait.days} days {wait.seconds}.{wait.microseconds:06} s")
ARRAYS = st.sampled_from(["{}", "{NULL}", "{1,2}", "{{1},{2}}", "[2:3]={7,8}"])

VALUES: Mapping[str, st.SearchStrategy[str]] = {
    "smallint": st.integers(-(2**15), 2**15 - 1).map(str),
    "int": st.integers(-(2**31), 2**31 - 1).map(str),
    "bigint": st.integers(-(2**63), 2**63 - 1).map(str),
    "oid": st.integers(0, 2**32 - 1).map(str),
    "real": st.floats(width=32).map(str),
    "double precision": FLOATS,
    "numeric": NUMBERS | NOT_FINITE,
    "numeric(20,5)": st.decimals(-(10**14), 10**14, places=3).map(str) | st.just("NaN"),
    "money": st.integers(-(10**9), 10**9).map(str),
    "boolean": st.sampled_from(["t", "f"]),
    "text": ODD_TEXTS,
    "varchar": ODD_TEXTS,
    "char(9)": ODD_TEXTS,
    '"char"': st.sampled_from(["", "a", '"', "\\"]),
    "name": ODD_TEXTS,
    "bytea": st.binary(max_size=8).map(lambda data: "\\x" + data.hex()),
    "uuid": st.uuids().map(str),
    "json": SPACED,
    "jsonb": SPACED,
    "jsonpath": st.sampled_from(["$", '$."a b"', "strict $.a[*] ? (@ > 1)"]),
    "xml": st.sampled_from(["<a/>", '<a b="c">&lt;\n</a>']),
    "date": st.dates().map(str) | st.sampled_from(["infinity", "0044-03-15 BC", "5874897-12-31"]),
    "time": st.times().map(str) | st.just("24:00:00"),
    "timetz": st.times().map(lambda time: f"{time}+05:30"),
    "timestamp": STAMPS,
    "timestamptz": STAMPS,
    "interval": WAITS | st.just("-1 year -2 mons +3 days -04:05:06"),
    "inet": st.ip_addresses().map(str) | st.just("10.0.0.1/8"),
    "cidr": st.sampled_from(["10.0.0.0/8", "::/0"]),
    "macaddr": st.just("08:00:2b:01:02:03"),
    "bit(3)": st.sampled_from(["000", "101"]),
    "varbit": st.text("01", max_size=9),
    "point": st.sampled_from(["(1,2)", "(1e300,NaN)"]),
    "box": st.just("(3,4),(1,2)"),
    "int4range": st.sampled_from(["empty", "[1,5)", "(,)"]),
    "tsrange": st.sampled_from(["[2020-01-01,2021-01-01)", "(,)"]),
    "tsvector": st.sampled_from(["'a':1 'b c':2", "'it''s'"]),
    "tsquery": st.just("'a' & !'b c'"),
    "pg_lsn": st.just("16/B374D848"),
    "regclass": st.sampled_from(["pg_class", "every"]),
    "mood": st.sampled_from(["sad", 'so "so"', "it's \\ok"]),
    "pair": st.sampled_from(['("a ""b""",1.50)', "(,)", "(null,NaN)"]),
    "positive": st.integers(1, 2**31 - 1).map(str),
    "document": SPACED,
    "yes": st.sampled_from(["t", "f"]),
    "labelled": st.sampled_from(["(abc)", "()"]),
    "int[]": ARRAYS,
    "numeric[]": ARRAYS | st.just("{NaN,1.50}"),
    "text[]": ARRAYS | st.just('{"a b","\\"",NULL,""}'),
    "boolean[]": st.sampled_from(["{t,f,NULL}", "{}"]),
    "jsonb[]": st.just('{"{\\"a\\": 1}",NULL}'),
    "timestamptz[]": st.just("{2020-01-01,infinity}"),
    "pair[]": st.just('{"(a,1)",NULL}'),
    "mood[]": st.just('{sad,"so \\"so\\""}'),
}
COLUMNS = {f"c{number}": type_ for number, type_ in enumerate(VALUES)}
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "datestyle": ("ISO, MDY", "SQL, DMY", "German", "Postgres, MDY"),
    "intervalstyle": ("postgres", "iso_8601", "sql_standard", "postgres_verbose"),
    "extra_float_digits": ("1", "0", "-15", "3"),
    "bytea_output": ("hex", "escape"),
    "timezone": ("UTC", "Asia/Kolkata"),
}
ROWS = st.fixed_dictionaries({type_: st.none() | values for type_, values in VALUES.items()})


@pytest.fixture(scope="module")
def every(server: Server) -> Iterator[tuple[Any, Table]]:
    """Return a connection and a table with a column of every type."""
    columns = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
    database = server.create_database(f"{TYPES} create table every ({columns});")
    connection = psycopg2.connect(database.admin_uri)
    yield connection, table_named(load_catalog(database.uri), "every")
    connection.close()


def exactly(text: str) -> Any:
    """Parse JSON, preserving the text of numbers and the order of members."""
    return json.loads(
        text, parse_float=lambda n: ("#", n), parse_int=lambda n: ("#", n), object_pairs_hook=list
    )


def found(connection: Any, text: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(text)
        [(value, *_)] = cursor.fetchall()
    return value if isinstance(value, str) else json.dumps(value)


@given(
    row=ROWS, made=st.fixed_dictionaries({name: st.sampled_from(values) for name, values in SETTINGS.items()})
)
def test_every_value_is_written_as_to_json_writes_it(
    server: Server,
    every: tuple[Any, Table],
    row: Mapping[str, str | None],
    made: Mapping[str, str],
) -> None:
    connection, table = every
    if not server.has("libxml"):
        row = {**row, "xml": None}
    record = Record(tuple((Text(name), Value(ColumnRef(name))) for name in COLUMNS))
    texts = Object(tuple((Text(name), Value(ColumnRef(name), WireForm.TEXT)) for name in COLUMNS))
    try:
        with connection.cursor() as cursor:
            parameters = ", ".join(f"%s::{type_}" for type_ in VALUES)
            cursor.execute(f"insert into every values ({parameters})", [row[type_] for type_ in VALUES])
            for name, value in made.items():
                cursor.execute("select set_config(%s, %s, true)", (name, value))
        [ours] = exactly(found(connection, compile_result(Rows(table), record, Form.ARRAY).statement.text))
        assert ours == exactly(found(connection, "select to_json(every)::text from every"))
        [ours] = exactly(found(connection, compile_query(Many(Rows(table), texts)).statement.text))
        cast = ", ".join(f"{name}::text" for name in COLUMNS)
        theirs = exactly(found(connection, f"select to_json(t)::text from (select {cast} from every) as t"))
        assert ours == theirs
    finally:
        connection.rollback()


@given(name=ODD_TEXTS, word=ODD_TEXTS)
def test_names_and_words_are_escaped(every: tuple[Any, Table], name: str, word: str) -> None:
    connection, _ = every
    output = Object(((Text(name), Text(word)), (parameter(word, "text"), Text(name))))
    statement = replace(compile_query(output).statement, types=("text",))
    with connection.cursor() as cursor:
        cursor.execute(with_literals(cursor, statement, (word,)))
        [(text,)] = cursor.fetchall()
    connection.rollback()
    assert json.loads(text, object_pairs_hook=list) == [(name, word), (word, name)]


def test_objects_of_any_size(every: tuple[Any, Table]) -> None:
    """PostgreSQL allows 100 function arguments and 1,600 columns."""
    connection, table = every
    members: list[tuple[Text, Output]] = [(Text(f"m{n}"), Value(ColumnRef("c0"))) for n in range(5000)]
    with connection.cursor() as cursor:
        cursor.execute("insert into every (c0) values (7)")
    [row] = json.loads(
        found(connection, compile_query(Many(Rows(table), Object(tuple(members)))).statement.text)
    )
    connection.rollback()
    assert row == {f"m{n}": 7 for n in range(5000)}


def test_changed_column_type_is_an_error_and_not_invalid_json(every: tuple[Any, Table]) -> None:
    """The error makes the daemon reload the catalog."""
    connection, table = every
    statement = compile_result(
        Rows(table), Record(((Text("c1"), Value(ColumnRef("c1"))),)), Form.ARRAY
    ).statement.text
    with connection.cursor() as cursor:
        cursor.execute("alter table every alter c1 type text using 'no number'")
        with pytest.raises(psycopg2.errors.UndefinedFunction):
            cursor.execute(statement)
    connection.rollback()
