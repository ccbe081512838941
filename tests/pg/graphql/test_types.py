"""Values and filters of every type over GraphQL.

They are documented in docs/reference/graphql.md, Scalars, and docs/reference/graphql.md, Filters.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from graphql import print_type
from hypothesis import given
from hypothesis import strategies as st
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create type mood as enum ('sad', 'so so', 'happy');
comment on type mood is '@graphql({"mappings": {"so so": "SO_SO"}})';
create type raw as enum ('aead-ietf', 'plain');
create type span as range (subtype = float8);
create type pair as (x int, y text);
create domain positive as int check (value > 0);
create domain tags as text[];
create domain feeling as mood;

create table thing (
    id int primary key,
    int2 smallint, int8 bigint, real real, double double precision, "numeric" numeric, flag boolean,
    text text, "varchar" varchar(5), "char" char(5), one "char",
    uuid uuid, date date, time time, timestamp timestamp, timestamptz timestamptz,
    json json, jsonb jsonb,
    mood mood, raw raw, feeling feeling,
    bytea bytea, inet inet, interval interval, timetz timetz, int4range int4range, span span,
    money money, bit bit(3), point point, name name,
    positive positive, tags tags, pair pair,
    ints int[], bigs bigint[], numerics numeric[], floats float8[], texts text[], bools boolean[],
    uuids uuid[], dates date[], times time[], stamps timestamptz[], jsons jsonb[], moods mood[],
    inets inet[], varchars varchar(5)[], pairs pair[]
);
insert into thing (id) values (0);
insert into thing values (
    1, 32767, 9223372036854775807, 1.5, 0.1, 12345678901234567890.123456789, true,
    E'tab\\t"quote" \\\\ é 😀', 'abcde', 'ab', 'x',
    'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '2024-02-29', '23:59:59.123456',
    '2024-02-29 23:59:59.5', '2024-02-29 23:59:59.5+02',
    '{"b": 1,  "a": [1, null]}', '{"b": 1, "a": [1, null]}',
    'so so', 'aead-ietf', 'so so',
    '\\x00ff', '10.0.0.0/8', '1 day 02:03:04', '10:00:00+02', '[1,5)', '[1.5,2.5]',
    '12.50', '101', '(1,2)', 'n',
    7, '{x,y}', '(1,a)',
    '{1,null,3}', '{9223372036854775807}', '{1.10,NaN}', '{1.5}', E'{"a,b","c\\\\"d",null,""}', '{t,f}',
    '{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}', '{2024-02-29}', '{12:00}', '{"2024-02-29 22:00+00"}',
    array['{"a": 1}', 'null']::jsonb[], '{sad,so so,null}',
    '{10.0.0.1}', '{abc}', array[row(1, 'a')]::pair[]
);
insert into thing (id, real, double, "numeric", date, timestamp, timestamptz, ints, texts, moods) values
    (2, 'NaN', 'Infinity', 'NaN', 'infinity', '-infinity', 'infinity', '{}', '{}', '{}'),
    (3, '-Infinity', 1e300, '-0.00', '0044-03-15 BC', '0001-01-01', '12024-01-01 00:00+00', '{{1,2},{3,4}}',
     null, '{happy}');
grant select on thing to anon;
"""

EXTRAS = {
    "citext": (
        {"citext": "'MiXed'", "email": "'Ann@Example.org'", "citexts": "'{MiXed}'"},
        """create extension citext; create domain email as citext;
        alter table thing add citext citext, add email email, add citexts citext[];""",
    ),
    "hstore": ({"hstore": "'a=>1'"}, "create extension hstore; alter table thing add hstore hstore;"),
    "ltree": ({"ltree": "'a.b'"}, "create extension ltree; alter table thing add ltree ltree;"),
    "libxml": ({"xml": "'<a/>'"}, "alter table thing add xml xml;"),
}
"""Types that some servers lack: the values of their columns in row 1, and SQL that adds the columns."""


OUT: dict[str, tuple[str, Any]] = {
    "id": ("Int!", 1),
    "int2": ("Int", 32767),
    "int8": ("BigInt", "9223372036854775807"),
    "real": ("Float", 1.5),
    "double": ("Float", 0.1),
    "numeric": ("BigFloat", "12345678901234567890.123456789"),
    "flag": ("Boolean", True),
    "text": ("String", 'tab\t"quote" \\ é 😀'),
    "varchar": ("String", "abcde"),
    "char": ("String", "ab   "),
    "one": ("String", "x"),
    "citext": ("String", "MiXed"),
    "uuid": ("UUID", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "date": ("Date", "2024-02-29"),
    "time": ("Time", "23:59:59.123456"),
    "timestamp": ("Datetime", "2024-02-29T23:59:59.5"),
    "timestamptz": ("Datetime", "2024-02-29T21:59:59.5+00:00"),
    "json": ("JSON", '{"b": 1,  "a": [1, null]}'),
    "jsonb": ("JSON", '{"a": [1, null], "b": 1}'),
    "mood": ("mood", "SO_SO"),
    "raw": ("Opaque", "aead-ietf"),
    "feeling": ("mood", "SO_SO"),
    "bytea": ("Opaque", "\\x00ff"),
    "inet": ("Opaque", "10.0.0.0/8"),
    "interval": ("Opaque", "1 day 02:03:04"),
    "timetz": ("Opaque", "10:00:00+02"),
    "int4range": ("Opaque", "[1,5)"),
    "span": ("Opaque", "[1.5,2.5]"),
    "money": ("Opaque", "$12.50"),
    "bit": ("Opaque", "101"),
    "hstore": ("Opaque", {"a": "1"}),
    "ltree": ("Opaque", "a.b"),
    "xml": ("Opaque", "<a/>"),
    "point": ("Opaque", "(1,2)"),
    "name": ("Opaque", "n"),
    "positive": ("Int", 7),
    "email": ("String", "Ann@Example.org"),
    "tags": ("[String]", ["x", "y"]),
    "ints": ("[Int]", [1, None, 3]),
    "bigs": ("[BigInt]", ["9223372036854775807"]),
    "numerics": ("[BigFloat]", ["1.10", "NaN"]),
    "floats": ("[Float]", [1.5]),
    "texts": ("[String]", ["a,b", 'c"d', None, ""]),
    "bools": ("[Boolean]", [True, False]),
    "uuids": ("[UUID]", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    "dates": ("[Date]", ["2024-02-29"]),
    "times": ("[Time]", ["12:00:00"]),
    "stamps": ("[Datetime]", ["2024-02-29T22:00:00+00:00"]),
    "jsons": ("[JSON]", ['{"a": 1}', "null"]),
    "moods": ("[mood]", ["sad", "SO_SO", None]),
    "inets": ("[Opaque]", ["10.0.0.1"]),
    "citexts": ("[String]", ["MiXed"]),
    "varchars": ("[String]", ["abc"]),
}
"""The GraphQL type of each column, and its JSON value in row 1."""


@pytest.fixture(scope="module")
def service(server: Server, reactor: Any) -> Iterator[Service]:
    database = server.create_database(SCHEMA)
    for feature, (columns, text) in EXTRAS.items():
        if server.has(feature):
            values = ", ".join(f"{name} = {value}" for name, value in columns.items())
            database.execute(f"{text} update thing set {values} where id = 1")
    with serving(reactor, database) as running:
        yield running


@pytest.fixture
def lacking(server: Server) -> set[str]:
    """Return the columns that the server does not support."""
    return {name for feature, (columns, _) in EXTRAS.items() if not server.has(feature) for name in columns}


@pytest.fixture(autouse=True)
def _skip_unsupported_types(request: pytest.FixtureRequest, server: Server) -> None:
    """Skip cases whose column the server does not support."""
    case = getattr(request.node, "callspec", None)
    named = set(re.findall(r"\w+", str(case.params))) if case else set()
    server.require(*(feature for feature, (columns, _) in EXTRAS.items() if named & set(columns)))


async def test_every_type_has_its_scalar_and_wire_form(service: Service, lacking: set[str]) -> None:
    out = {name: form for name, form in OUT.items() if name not in lacking}
    fields = service.schema().object_type("thing").fields
    assert {name: str(field.type) for name, field in fields.items() if name != "nodeId"} == {
        name: kind for name, (kind, _) in out.items()
    }
    [row] = await service.rows("thing", " ".join(out), "filter: {id: {eq: 1}}")
    assert row == {name: value for name, (_, value) in out.items()}


async def test_null_is_null_in_every_type(service: Service, lacking: set[str]) -> None:
    names = [name for name in OUT if name not in lacking]
    [row] = await service.rows("thing", " ".join(names), "filter: {id: {eq: 0}}")
    assert row == {**dict.fromkeys(names), "id": 0}


async def test_infinities_and_nan_are_written_as_by_postgresql(service: Service) -> None:
    fields = "real double numeric date timestamp timestamptz ints texts moods"
    two, three = await service.rows("thing", fields, "filter: {id: {gte: 2}}", check=False)
    assert two == {
        "real": "NaN",
        "double": "Infinity",
        "numeric": "NaN",
        "date": "infinity",
        "timestamp": "-infinity",
        "timestamptz": "infinity",
        "ints": [],
        "texts": [],
        "moods": [],
    }
    assert three["real"] == "-Infinity"
    assert (three["double"], three["numeric"], three["date"]) == (1e300, "0.00", "0044-03-15 BC")
    assert (three["timestamp"], three["timestamptz"]) == (
        "0001-01-01T00:00:00",
        "12024-01-01T00:00:00+00:00",
    )
    assert three["ints"] == [[1, 2], [3, 4]]
    assert three["moods"] == ["happy"]


IDS = "{ edges { node { id } } }"
FILTERS = {
    "int2": "Int", "int8": "BigInt", "real": "Float", "numeric": "BigFloat", "flag": "Boolean",
    "text": "String", "varchar": "String", "char": "String", "one": "String", "citext": "String",
    "uuid": "UUID", "date": "Date", "time": "Time", "timestamp": "Datetime", "timestamptz": "Datetime",
    "mood": "mood", "feeling": "mood", "raw": "Opaque", "bytea": "Opaque", "inet": "Opaque",
    "interval": "Opaque", "timetz": "Opaque", "int4range": "Opaque", "span": "Opaque", "money": "Opaque",
    "bit": "Opaque", "hstore": "Opaque", "ltree": "Opaque", "name": "Opaque",
    "positive": "Int", "email": "String", "tags": "StringList",
    "ints": "IntList", "bigs": "BigIntList", "numerics": "BigFloatList", "floats": "FloatList",
    "texts": "StringList", "bools": "BooleanList", "uuids": "UUIDList", "dates": "DateList",
    "times": "TimeList", "stamps": "DatetimeList", "moods": "moodList", "inets": "OpaqueList",
    "citexts": "StringList", "varchars": "StringList",
}  # fmt: skip
OPERATORS = {
    **{
        kind: {"eq", "gt", "gte", "in", "is", "lt", "lte", "neq"}
        for kind in ("Int", "BigInt", "Float", "BigFloat", "Date", "Time", "Datetime")
    },
    "String": {
        *("eq", "gt", "gte", "in", "is", "lt", "lte", "neq"),
        *("startsWith", "like", "ilike", "regex", "iregex"),
    },
    "UUID": {"eq", "neq", "in", "is"},
    "mood": {"eq", "neq", "in", "is"},
    "Boolean": {"eq", "is"},
    "Opaque": {"eq", "is"},
    "ID": {"eq"},
}


def test_every_filter_type_has_its_operators(service: Service, lacking: set[str]) -> None:
    schema = service.schema()
    fields = schema.object_type("thingFilter").fields
    filters = {name: kind for name, kind in FILTERS.items() if name not in lacking}
    # Types without an equality operator can only be compared with NULL.
    null_only = {"jsons", "xml", "point"} - lacking
    assert set(fields) == {"nodeId", "id", *filters, *null_only, "double", "and", "or", "not"}
    assert {str(fields[name].type) for name in null_only} == {"IsFilter"}
    assert set(schema.object_type("IsFilter").fields) == {"is"}
    for name, kind in filters.items():
        assert str(fields[name].type) == f"{kind}Filter", name
        expected = OPERATORS.get(kind, {"contains", "containedBy", "eq", "overlaps", "is"})
        assert set(schema.object_type(f"{kind}Filter").fields) == expected
    assert set(schema.object_type("IDFilter").fields) == {"eq"}
    assert {
        name: str(field.type) for name, field in schema.object_type("StringListFilter").fields.items()
    } == {
        **dict.fromkeys(("containedBy", "contains", "eq", "overlaps"), "[String!]"),
        "is": "FilterIs",
    }
    assert "in: [Int!]" in print_type(schema.object_type("IntFilter"))


@pytest.mark.parametrize("name", [name for name, kind in FILTERS.items() if not kind.endswith("List")])
async def test_value_from_a_response_selects_its_row(service: Service, name: str) -> None:
    kind = FILTERS[name]
    value = OUT[name][1]
    if kind == "mood":
        literal = value
    elif name == "hstore":
        value = "a=>1"
        literal = json.dumps(value)
    else:
        literal = json.dumps(value, ensure_ascii=False)
    assert await service.ids("thing", f"filter: {{{name}: {{eq: {literal}}}}}") == [1]
    query = f"query($v: {kind}) {{ thingCollection(filter: {{{name}: {{eq: $v}}}}) {IDS} }}"
    assert (await service.data(query, {"v": value}))["thingCollection"]["edges"] == [{"node": {"id": 1}}]
    query = query.replace(f"$v: {kind}", f"$v: {kind}Filter").replace("{eq: $v}", "$v")
    assert (await service.data(query, {"v": {"eq": value}}))["thingCollection"]["edges"] == [
        {"node": {"id": 1}}
    ]
    if "in" in OPERATORS[kind]:
        assert await service.ids("thing", f"filter: {{{name}: {{in: [{literal}]}}}}") == [1]
        assert await service.ids("thing", f"filter: {{{name}: {{in: {literal}}}}}") == [1], (
            "a single value is coerced to a list"
        )
        assert await service.ids("thing", f"filter: {{{name}: {{in: []}}}}") == []
    if "neq" in OPERATORS[kind]:
        assert 1 not in await service.ids("thing", f"filter: {{{name}: {{neq: {literal}}}}}")
    assert 0 in await service.ids("thing", f"filter: {{{name}: {{is: NULL}}}}")
    assert 0 not in await service.ids("thing", f"filter: {{{name}: {{is: NOT_NULL}}}}")
    assert await service.ids("thing", f"filter: {{{name}: {{eq: null}}}}") == [], (
        "nothing equals NULL, as in SQL"
    )
    assert await service.ids("thing", f"filter: {{not: {{{name}: {{eq: null}}}}}}") == [], "or unequal to it"


@pytest.mark.parametrize("name", [name for name, kind in FILTERS.items() if "gt" in OPERATORS.get(kind, ())])
async def test_comparisons_are_strict_or_not(service: Service, name: str) -> None:
    literal = json.dumps(OUT[name][1], ensure_ascii=False)
    for operator, found in (("gt", False), ("gte", True), ("lt", False), ("lte", True)):
        text = f"filter: {{id: {{eq: 1}}, {name}: {{{operator}: {literal}}}}}"
        assert (await service.ids("thing", text) == [1]) is found, operator


LIST_FILTERS = [name for name, kind in FILTERS.items() if kind.endswith("List")]


@pytest.mark.parametrize("name", LIST_FILTERS)
async def test_lists_are_compared_by_their_elements(service: Service, name: str) -> None:
    values = [value for value in OUT[name][1] if value is not None]
    kind = FILTERS[name].removesuffix("List")
    written = [value if kind == "mood" else json.dumps(value) for value in values]
    everything, first = f"[{', '.join(written)}]", written[0]

    async def found(operator: str, value: str) -> list[int]:
        return await service.ids("thing", f"filter: {{id: {{lte: 1}}, {name}: {{{operator}: {value}}}}}")

    assert await found("contains", everything) == [1]
    assert await found("contains", first) == [1]
    assert await found("contains", "[]") == [1]
    assert await found("overlaps", first) == [1]
    assert await found("overlaps", "[]") == []
    assert await found("is", "NULL") == [0]
    # An array with NULL elements is contained in no array.
    whole = values == OUT[name][1]
    assert await found("containedBy", everything) == ([1] if whole else [])
    assert await found("eq", everything) == ([1] if whole else [])
    assert await found("containedBy", first) == ([1] if whole and len(values) == 1 else [])
    query = f"query($v: [{kind}!]) {{ thingCollection(filter: {{{name}: {{contains: $v}}}}) {IDS} }}"
    assert {"node": {"id": 1}} in (await service.data(query, {"v": values}))["thingCollection"]["edges"]
    assert {"node": {"id": 1}} in (await service.data(query, {"v": values[0]}))["thingCollection"]["edges"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ('text: {startsWith: "tab"}', [1]),
        ('text: {startsWith: "%"}', []),
        ('text: {like: "%quote%"}', [1]),
        ('text: {like: "%QUOTE%"}', []),
        ('text: {ilike: "%QUOTE%"}', [1]),
        ('text: {ilike: "TAB_\\"quote\\"%"}', [1]),
        ('text: {regex: "^tab.+😀$"}', [1]),
        ('text: {regex: "^TAB"}', []),
        ('text: {iregex: "^TAB"}', [1]),
        ('varchar: {startsWith: "abc", like: "%e", ilike: "A%", regex: "^a", iregex: "^A"}', [1]),
        ('char: {startsWith: "ab", like: "ab%", ilike: "A%", regex: "^a", iregex: "^A"}', [1]),
        ('one: {startsWith: "x", like: "x", ilike: "X", regex: "x", iregex: "X", lt: "y"}', [1]),
        ('char: {eq: "ab"}', [1]),
        ('varchar: {eq: "longer than the column"}', []),
        ('citext: {eq: "mixed", neq: "x", like: "mix%", ilike: "mix%", iregex: "^mix", in: ["MIXED"]}', [1]),
        ('citext: {regex: "^mix", gte: "MIXED", startsWith: "Mi"}', [1]),
        ('email: {eq: "ann@example.ORG"}', [1]),
        ('tags: {contains: "x", overlaps: ["y", "z"]}', [1]),
        ('interval: {eq: "26:03:04"}', [1]),
        ('int4range: {eq: "(0,4]"}', [1]),
        ('hstore: {eq: "a=>1"}', [1]),
        ('ltree: {eq: "a.b"}', [1]),
        ("inets: {contains: [\"10.0.0.1\"]}", [1]),
        ('double: {eq: 0.1}, real: {eq: 1.5}', [1]),
        ('double: {gt: 1e299, lt: 1e301}', [3]),
        ('numeric: {eq: "NaN"}', [2]),
        ('numeric: {eq: "0"}', [3]),
        ('numeric: {gt: "12345678901234567890.123456788", lt: "12345678901234567890.12345679"}', [1]),
        ('date: {eq: "infinity"}', [2]),
        ('date: {lt: "0001-01-01"}', [3]),
        ('timestamptz: {eq: "2024-02-29T23:59:59.5+02:00"}', [1]),
        ('timestamptz: {in: ["2024-02-29T21:59:59.5Z"]}', [1]),
        ("mood: {in: [SO_SO, sad]}", [1]),
        ("moods: {contains: sad, overlaps: [happy, sad]}", [1]),
        ("moods: {eq: []}", [2]),
        ('texts: {contains: ["a,b", "c\\"d", ""]}', [1]),
        ('texts: {contains: ["a,b", "c\\\\\\"d"]}', []),
        ('flag: {eq: true, is: NOT_NULL}', [1]),
        ('uuid: {eq: "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}"}', [1]),
    ],
)  # fmt: skip
async def test_operators_match_the_documentation(
    service: Service, condition: str, expected: list[int]
) -> None:
    assert await service.ids("thing", f"filter: {{{condition}}}") == expected


async def test_types_without_equality_can_be_compared_with_null(service: Service, lacking: set[str]) -> None:
    for name in {"jsons", "xml", "point"} - lacking:
        assert await service.ids("thing", f"filter: {{{name}: {{is: NOT_NULL}}}}") == [1]
        assert await service.ids("thing", f"filter: {{not: {{{name}: {{is: NULL}}}}}}") == [1]


@pytest.mark.parametrize("name", ["json", "jsonb", "pair"])
async def test_filters_of_json_and_composite_columns_are_rejected(service: Service, name: str) -> None:
    response = await service.ask(f"{{ thingCollection(filter: {{{name}: {{is: NULL}}}}) {{ __typename }} }}")
    assert f"unknown field '{name}'" in response.error


async def test_two_types_of_extensions_share_a_variable(service: Service, server: Server) -> None:
    """PostgreSQL would infer one type for a shared parameter."""
    server.require("ltree")
    query = """query($v: Opaque) {
        thingCollection(filter: {or: [{raw: {eq: $v}}, {not: {ltree: {eq: $v}}}]}) {
            edges { node { id } } } }"""
    assert (await service.data(query, {"v": "plain"}))["thingCollection"]["edges"] == [{"node": {"id": 1}}]


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@given(st.lists(st.one_of(texts, st.text("{}\"\\, 'NULnul%$é\n", max_size=6)), max_size=5))
async def test_any_list_of_texts_is_passed_unchanged(service: Service, values: list[str]) -> None:
    query = """query($v: [String!], $one: String!) {
        whole: thingCollection(filter: {texts: {eq: $v}}) { edges { node { id } } }
        part: thingCollection(filter: {text: {in: $v}}) { edges { node { id } } }
        item: thingCollection(filter: {texts: {contains: [$one]}}) { edges { node { id } } } }"""
    service.database.execute("update thing set texts = %s where id = 3", (values,))
    for value in (values[:1] or [""])[0], "never":
        data = await service.data(query, {"v": values, "one": value})
        assert {"node": {"id": 3}} in data["whole"]["edges"]
        assert ({"node": {"id": 3}} in data["item"]["edges"]) is (value in values)
    [row] = await service.rows("thing", "texts", "filter: {id: {eq: 3}}")
    assert row == {"texts": values}
