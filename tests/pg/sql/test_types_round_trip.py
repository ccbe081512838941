"""Values of every type survive writing and reading over GraphQL (docs/reference/graphql.md, Scalars).

The values read must equal PostgreSQL's own output. Writing them again must change nothing.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

TYPES = """
create type mood as enum ('sad', 'so so', 'it''s \\ok"');
comment on type mood is '@graphql({"mappings": {"so so": "SO_SO", "it''s \\\\ok\\"": "OK"}})';
create type raw as enum ('aead-ietf', '{plain}', 'null', '');
create type span as range (subtype = float8);
create domain positive as int check (value > 0);
create domain email as citext;
create domain tags as text[];
create domain feeling as mood;
create domain amount as numeric(12, 2);
"""
LABELS = {"sad": "sad", "SO_SO": "so so", "OK": "it's \\ok\""}


@dataclass(frozen=True)
class Kind:
    """A column's type and the values to try.

    :ivar values: what a client sends.
    :ivar text: whether GraphQL returns the value's text form instead of the output of ``to_json``.
    :ivar enum: whether the values are enum names of the GraphQL schema.
    """

    type: str
    values: st.SearchStrategy[Any]
    text: bool = False
    enum: bool = False


def _float(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
max_size=12) | st.sampled_from(
    ["", "null", "NULL", "{}", "{a,b}", '"', "\\", "'; drop table thing; --", "$1", "%s", "\u2028", "😀"]
)  # fmt: skip
INT4 = st.integers(-(2**31), 2**31 - 1)
INT8 = (st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**53 + 1, -(2**63)])).map(str)
NUMERIC = st.decimals(allow_nan=False, allow_infinity=False).map(str) | st.sampled_from(
    [
        "NaN",
        "Infinity",
        "-Infinity",
        "0.00",
        "-0",
        "1e-30",
        "123456789012345678901234567890.12345678901234567890",
    ]
)
DATES = st.dates().map(str) | st.sampled_from(["infinity", "-infinity", "0044-03-15 BC", "5874897-12-31"])
TIMES = st.times().map(str) | st.just("24:00:00")
STAMPS = st.datetimes().map(str) | st.sampled_from(["infinity", "-infinity", "4713-01-01 00:00:00 BC"])
OFFSETS = st.sampled_from(["Z", "+02:00", "-11:30", "+14:00"])
ZONED = st.builds(lambda stamp, offset: f"{stamp}{offset}", st.datetimes().map(str), OFFSETS) | st.just(
    "infinity"
)
JSON_TEXTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
).map(json.dumps)
FLOAT8 = st.floats(allow_infinity=True, allow_nan=True)
COORDINATE = st.floats(-1e15, 1e15, allow_nan=False).map(repr)
INET = st.ip_addresses().map(str) | st.sampled_from(["10.0.0.1/8", "::1/64"])
RANGE = st.builds(
    lambda a, b, ends: f"{ends[0]}{min(a, b)},{max(a, b)}{ends[1]}",
    INT4, INT4.filter(lambda n: n < 2**31 - 1), st.sampled_from(["[]", "()", "[)", "(]"]),
).filter(lambda text: not text.endswith("2147483647]")) | st.sampled_from(["empty", "(,)",
"[5,)"])  # fmt: skip
MOODS = st.sampled_from(list(LABELS))

SINGLE = {
    "int2": Kind("smallint", st.integers(-32768, 32767)),
    "int4": Kind("int", INT4),
    "int8": Kind("bigint", INT8, text=True),
    "float4": Kind("real", st.floats(width=32).map(_float)),
    "float8": Kind("double precision", FLOAT8.map(_float)),
    "numeric": Kind("numeric", NUMERIC, text=True),
    "scaled": Kind("numeric(20,5)", st.decimals(-(10**14), 10**14, places=3).map(str), text=True),
    "flag": Kind("boolean", st.booleans()),
    "words": Kind("text", TEXTS),
    "short": Kind("varchar(5)", TEXTS.map(lambda text: text[:5])),
    "padded": Kind("char(5)", TEXTS.map(lambda text: text[:5])),
    "letter": Kind('"char"', st.sampled_from(["", "a", "Z", '"', "\\", "'", "{", "~"])),
    "ci": Kind("citext", TEXTS),
    "uuid": Kind("uuid", st.uuids().map(str)),
    "day": Kind("date", DATES),
    "clock": Kind("time", TIMES),
    "stamp": Kind("timestamp", STAMPS),
    "zoned": Kind("timestamptz", ZONED),
    "doc": Kind("json", JSON_TEXTS, text=True),
    "docb": Kind("jsonb", JSON_TEXTS, text=True),
    "mood": Kind("mood", MOODS, enum=True),
    "feeling": Kind("feeling", MOODS, enum=True),
    "raw": Kind("raw", st.sampled_from(["aead-ietf", "{plain}", "null", ""])),
    "bytes": Kind("bytea", st.binary(max_size=8).map(lambda data: "\\x" + data.hex())),
    "host": Kind("inet", INET),
    "net": Kind("cidr", st.sampled_from(["10.0.0.0/8", "192.168.1.0/24", "::/0"])),
    "mac": Kind("macaddr", st.just("08:00:2b:01:02:03")),
    "wait": Kind(
        "interval", st.timedeltas().map(lambda d: f"{d.days} days {d.seconds} s {d.microseconds} us")
    ),
    "zoneclock": Kind("timetz", st.builds(lambda t, o: f"{t}{o}", st.times().map(str), OFFSETS)),
    "ints_range": Kind("int4range", RANGE),
    "multi": Kind("int4multirange", st.sampled_from(["{}", "{[1,3),[5,7)}"])),
    "days_range": Kind("daterange", st.sampled_from(["[2024-01-01,2024-03-01)", "(,2020-02-02]", "empty"])),
    "span": Kind("span", st.sampled_from(["[1.5,2.5]", "(-Infinity,0)", "empty"])),
    "cash": Kind("money", st.integers(-(10**12), 10**12).map(lambda cents: f"{cents / 100:.2f}")),
    "bits": Kind("bit(3)", st.text("01", min_size=3, max_size=3)),
    "varbits": Kind("varbit", st.text("01", max_size=9)),
    "point": Kind("point", st.builds(lambda x, y: f"({x},{y})", COORDINATE, COORDINATE)),
    "box": Kind("box", st.just("(3,4),(1,2)")),
    "path": Kind("path", st.just("((0,0),(1,1),(2,0))")),
    "vector": Kind("tsvector", st.just("'a':1 'b c':2")),
    "lsn": Kind("pg_lsn", st.just("16/B374D848")),
    "name": Kind("name", TEXTS.map(lambda text: text[:8])),
    "oid": Kind("oid", st.integers(0, 2**32 - 1).map(str)),
    "positive": Kind("positive", st.integers(1, 2**31 - 1)),
    "email": Kind("email", TEXTS),
    "amount": Kind("amount", st.decimals(-(10**9), 10**9, places=2).map(str), text=True),
}
LISTED = (
    "int2", "int4", "int8", "float4", "float8", "numeric", "flag", "words", "short", "ci", "uuid", "day",
    "clock",
    "stamp", "zoned", "doc", "docb", "mood", "raw", "bytes", "host", "ints_range", "point", "positive",
)  # fmt: skip
COLUMNS = {**SINGLE, **{f"{name}_list": SINGLE[name] for name in LISTED}, "tags": Kind("text", TEXTS)}


def _values(name: str) -> st.SearchStrategy[Any]:
    kind = COLUMNS[name]
    values = st.one_of(kind.values, kind.values, st.none())
    if name == "tags" or name.endswith("_list"):
        return st.lists(values, max_size=3) | st.none()
    return values


def _definition(name: str) -> str:
    if name == "tags":
        return "tags tags"
    return f'"{name}" {COLUMNS[name].type}' + ("[]" if name.endswith("_list") else "")


TABLE = f"""
create table thing (id int primary key, {", ".join(_definition(name) for name in COLUMNS)});
grant all on thing to anon;
"""


def substitutes(server: Server) -> str:
    """Return SQL that creates substitutes for types that the server lacks."""
    citext = "create extension citext" if server.has("citext") else "create domain citext as text"
    multirange = "" if server.version >= 14 else "create domain int4multirange as text"
    return f"{citext}; {multirange}"


ROWS = st.fixed_dictionaries({name: _values(name) for name in COLUMNS})
FIELDS = " ".join(COLUMNS)


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    database = server.create_database(substitutes(server), TYPES, TABLE)
    with serving(reactor, database, graphql_max_tokens=100_000) as service:
        yield service


@pytest.fixture(scope="module")
def judge(api: Service) -> Iterator[Any]:
    connection = psycopg2.connect(api.database.admin_uri)
    connection.autocommit = True
    with connection.cursor() as cursor:
        yield cursor
    connection.close()


def expected(judge: Any, row: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a row in PostgreSQL's output format."""
    parts: list[str] = []
    texts: list[str] = []

    def written(kind: Kind, value: Any) -> Any:
        if value is None or kind.enum:
            return value
        text = value if isinstance(value, str) else json.dumps(value)
        texts.append(text)
        parts.append(f"to_json((%s::{kind.type}){'::text' if kind.text else ''})::text")
        return len(parts) - 1, None

    positions = {
        name: [written(COLUMNS[name], item) for item in value]
        if isinstance(value, list)
        else written(COLUMNS[name], value)
        for name, value in row.items()
    }
    judge.execute(f"select {', '.join(parts) or 'null'}", texts)
    texts_out = judge.fetchone()

    def found(position: Any) -> Any:
        if isinstance(position, list):
            return [found(item) for item in position]
        return json.loads(texts_out[position[0]]) if isinstance(position, tuple) else position

    return {name: found(position) for name, position in positions.items()}


def can_be_stored(row: dict[str, Any], server: Server) -> bool:
    """Return whether the server supports the values. PostgreSQL 13 has no infinite numeric values."""
    numerics = [row["numeric"], *(row["numeric_list"] or ())]
    return server.version >= 14 or not {"Infinity", "-Infinity"} & set(numerics)


def literal(name: str, value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(literal(name, item) for item in value)}]"
    if value is not None and COLUMNS[name].enum:
        return str(value)
    return json.dumps(value)


async def insert(api: Service, row: dict[str, Any], *, as_literals: bool) -> dict[str, Any]:
    """Replace the row through GraphQL and return its columns."""
    if as_literals:
        members = ", ".join(f"{name}: {literal(name, value)}" for name, value in row.items())
        text = (
            "mutation { deleteFromthingCollection(atMost: 9) { affectedCount } r: "
            f"insertIntothingCollection(objects: {{id: 1, {members}}}) {{ records {{ {FIELDS} }} }} }}"
        )
        data = await api.data(text)
    else:
        text = (
            "mutation($o: thingInsertInput!) { deleteFromthingCollection(atMost: 9) { affectedCount "
            f"}} r: insertIntothingCollection(objects: [$o]) {{ records {{ {FIELDS} }} }} }}"
        )
        data = await api.data(text, {"o": {"id": 1, **row}})
    [record] = data["r"]["records"]
    return dict(record)


@given(row=ROWS, as_literals=st.booleans())
async def test_every_value_comes_back_as_postgresql_writes_it(
    api: Service, server: Server, judge: Any, row: dict[str, Any], as_literals: bool
) -> None:
    assume(can_be_stored(row, server))
    record = await insert(api, row, as_literals=as_literals)
    assert record == expected(judge, row)
    query = (
        f"mutation($s: thingUpdateInput!) {{ r: updatethingCollection(set: $s) {{ records {{ {FIELDS} "
        "} } }"
    )
    again = (await api.data(query, {"s": record}))["r"]["records"]
    assert again == [record]


@given(rows=st.lists(ROWS, min_size=2, max_size=3))
async def test_rows_sent_as_one_value_are_unchanged(
    api: Service, server: Server, judge: Any, rows: list[dict[str, Any]]
) -> None:
    assume(all(can_be_stored(row, server) for row in rows))
    query = f"""mutation($o: [thingInsertInput!]!) {{ deleteFromthingCollection(atMost: 9) {{ affectedCount }}
        r: insertIntothingCollection(objects: $o) {{ records {{ id {FIELDS} }} }} }}"""
    objects = [{"id": number, **row} for number, row in enumerate(rows)]
    response = await api.ask(query, {"o": objects})
    assert [len(bound.values) for bound in response.messages[0].statements][1] == 1
    expectation = [{"id": number, **expected(judge, row)} for number, row in enumerate(rows)]
    assert response.data["r"]["records"] == expectation
    again = await api.data(query, {"o": expectation})
    assert again["r"]["records"] == expectation


@given(value=INT8)
async def test_big_integers_are_strings_without_loss(api: Service, value: str) -> None:
    query = (
        "mutation($v: BigInt) { deleteFromthingCollection(atMost: 9) { affectedCount } r: "
        "insertIntothingCollection(objects: {id: 1, int8: $v}) { records { int8 } } }"
    )
    for sent in (value, int(value)):
        assert (await api.data(query, {"v": sent}))["r"]["records"] == [{"int8": value}]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int2", 32768), ("int4", 2**31), ("int8", str(2**63)), ("int8", "1.5"), ("int8", 1.5), ("numeric",
        1.5),
        ("numeric", "one"), ("float8", "1.5"), ("float8", "infinite"), ("flag", "true"), ("flag", 1),
        ("words", 1),
        ("uuid", "x"), ("day", "2024-02-30"), ("day", 1), ("clock", "25:00"), ("stamp", "now then"), ("doc",
        "{"),
        ("docb", {"a": 1}), ("mood", "so so"), ("mood", 1), ("raw", "nope"), ("host", "300.0.0.1"), ("bits",
        "1010"),
        ("int4_list", [1, "2"]), ("day_list", ["2024-02-30"]), ("positive", 0), ("scaled", "1e30"),
        ("docb", "\"\\u0000\""), ("int4_list", [[1]]),
    ],
)  # fmt: skip
async def test_values_that_do_not_fit_the_type_are_rejected(api: Service, name: str, value: Any) -> None:
    query = "mutation($o: thingInsertInput!) { insertIntothingCollection(objects: [$o]) { affectedCount } }"
    api.database.execute("delete from thing")
    response = await api.ask(query, {"o": {"id": 1, name: value}})
    [error] = response.errors
    if response.messages:
        assert error["extensions"]["code"][:2] in ("22", "23")
    else:
        assert name in error["message"] or "Invalid input" in error["message"]
    assert api.database.execute("select count(*) from thing") == [(0,)]


async def test_single_value_is_coerced_to_a_list(api: Service) -> None:
    text = """mutation($w: [String]) { deleteFromthingCollection(atMost: 9) { affectedCount }
        r: insertIntothingCollection(objects: {id: 1, int4_list: 5, words_list: $w, mood_list: SO_SO})
        { records { int4_list words_list mood_list } } }"""
    data = await api.data(text, {"w": "one"})
    assert data["r"]["records"] == [{"int4_list": [5], "words_list": ["one"], "mood_list": ["SO_SO"]}]
