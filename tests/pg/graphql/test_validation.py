"""Documents of pg_graphql's clients, and strict validation (docs/reference/graphql.md, Variables)."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.catalog.directives import FEATURES
from support.service import Service, nodes, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create type mood as enum ('sad', 'ok', 'happy');
create table item (
    id bigint primary key, code uuid unique, name text, rank int, price numeric, ratio float8, mood mood,
    moods mood[], tags text[], at timestamptz, raw inet, doc jsonb, flag boolean,
    parent bigint references item
);
insert into item values
    (1, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'one', 3, 1.5, 0.5, 'sad', '{sad,ok}', '{a,b}',
        '2024-01-01T00:00:00Z', '10.0.0.1', '{"a": 1}', true, null),
    (2, 'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'two', 2, 2.5, 1.5, 'happy', '{}', '{b}',
        '2025-01-01T00:00:00Z', '10.0.0.2', '{"a": 2}', false, 1),
    (9007199254740993, null, 'three', null, null, null, null, null, null, null, null, null, null, 1);
create function felt(m mood) returns text stable language sql as 'select ''felt '' || m';
create function twice(n bigint, m int) returns bigint stable language sql as 'select n * 2 + m';
grant all on item to anon;
"""
UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
BIG = "9007199254740993"
STRICT = {"graphql_validation": "strict", "graphql_features": frozenset(FEATURES)}


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    features: dict[str, Any] = {"graphql_features": frozenset(FEATURES)}
    with serving(reactor, server.create_database(SCHEMA), **features) as service:
        yield service


@pytest.fixture(scope="module")
def strict(api: Service, reactor: Any) -> Iterator[Service]:
    with serving(reactor, api.database, **STRICT) as service:
        yield service


async def lenient_data(api: Service, query: str, variables: dict[str, Any] | None = None) -> Any:
    """Return the data of a document that is invalid by the GraphQL specification."""
    return (await api.ask(query, variables, check=False)).data


def rows(data: Any) -> list[Any]:
    return [node["name"] for node in nodes(data["itemCollection"])]


COLLECTION = "query(%s) { itemCollection(%s) { edges { node { name } } } }"
CURSOR = base64.b64encode(b"[1]").decode()
NODE_ID = base64.b64encode(json.dumps(["public", "item", 1]).encode()).decode()


@pytest.mark.parametrize(
    ("declared", "used", "value", "expected"),
    [
        ("$v: ID!", "filter: {id: {eq: $v}}", BIG, ["three"]),
        ("$v: String!", "filter: {id: {eq: $v}}", BIG, ["three"]),
        ("$v: Int!", "filter: {id: {eq: $v}}", 2, ["two"]),
        ("$v: Int!", "filter: {id: {eq: $v}}", BIG, ["three"]),
        ("$v: Int", "filter: {id: {eq: $v}}", int(BIG), ["three"]),
        ("$v: ID!", "filter: {code: {eq: $v}}", UUID, ["one"]),
        ("$v: String!", "filter: {code: {eq: $v}}", UUID, ["one"]),
        ("$v: uuid!", "filter: {code: {eq: $v}}", UUID, ["one"]),
        ("$v: Int!", "filter: {code: {eq: $v}}", UUID, ["one"]),
        ("$v: String", "filter: {at: {lt: $v}}", "2024-06-01", ["one"]),
        ("$v: timestamptz", "filter: {at: {lt: $v}}", "2024-06-01", ["one"]),
        ("$v: String", "filter: {mood: {eq: $v}}", "happy", ["two"]),
        ("$v: Mood!", "filter: {mood: {eq: $v}}", "happy", ["two"]),
        ("$v: String", "filter: {rank: {is: $v}}", "NULL", ["three"]),
        ("$v: String", "orderBy: [{id: $v}]", "DescNullsLast", ["three", "two", "one"]),
        ("$v: [String]", "orderBy: [{name: $v}]", "AscNullsLast", ["one", "three", "two"]),
        ("$v: String", "after: $v", CURSOR, ["two", "three"]),
        ("$v: ID", "first: 1, after: $v", CURSOR, ["two"]),
        ("$v: Float", "first: $v", 1, ["one"]),
        ("$v: String", "filter: {nodeId: {eq: $v}}", NODE_ID, ["one"]),
        ("$v: String", "filter: {price: {gt: $v}}", "2", ["two"]),
        ("$v: Int", "filter: {ratio: {gt: $v}}", 1, ["two"]),
        ("$v: Int!", "filter: {flag: {eq: $v}}", True, ["one"]),
        ("$v: [String]", "filter: {name: {in: $v}}", ["two", "one"], ["one", "two"]),
        ("$v: [BigInt]", "filter: {id: {in: $v}}", ["1", 2], ["one", "two"]),
        ("$v: String", "filter: {name: {in: $v}}", "two", ["two"]),
        ("$v: String!", "filter: {name: {in: $v}}", ["two"], ["two"]),
        ("$v: [mood]", "filter: {mood: {in: $v}}", ["sad"], ["one"]),
        ("$v: String", "filter: {moods: {contains: $v}}", "ok", ["one"]),
        ("$v: [String!]!", "filter: {moods: {overlaps: $v}}", ["sad", "ok"], ["one"]),
        ("$v: String", "filter: {tags: {contains: $v}}", ["a"], ["one"]),
        ("$v: ItemFilter", "filter: $v", {"name": {"eq": "two"}}, ["two"]),
        ("$v: itemFilter!", "filter: {or: $v}", [{"id": {"eq": 1}}, {"id": {"eq": 2}}], ["one", "two"]),
        ("$v: [itemFilter]", "filter: {or: [$v, {id: {eq: 2}}]}", {"id": {"eq": 1}}, ["one", "two"]),
        ("$v: itemOrderBy", "orderBy: $v", {"name": "DescNullsLast"}, ["two", "three", "one"]),
        ("$v: [String!]!", "orderBy: $v", [{"name": "DescNullsLast"}], ["two", "three", "one"]),
        ("$v: String", "filter: {raw: {eq: $v}}", "10.0.0.2", ["two"]),
        ("$v: bigint = 2", "filter: {id: {eq: $v}}", None, ["two"]),
        ('$v: String = "sad"', "filter: {mood: {eq: $v}}", None, ["one"]),
        ('$v: [String] = ["sad", "happy"]', "filter: {mood: {in: $v}}", None, ["one", "two"]),
        ('$v: x = {or: [{mood: {eq: "sad"}}]}', "filter: $v", None, ["one"]),
        ("$unused: Int, $nobody: Unknown", "first: 1", None, ["one"]),
        ("$v: Int, $unused: [x!]", "first: $v", 2, ["one", "two"]),
    ],
)
async def test_variables_are_validated_by_position(
    api: Service, declared: str, used: str, value: Any, expected: list[str]
) -> None:
    variables = None if value is None else {"v": value}
    assert rows(await lenient_data(api, COLLECTION % (declared, used), variables)) == expected


@pytest.mark.parametrize(
    ("declared", "used", "value", "message"),
    [
        ("$v: String!", "filter: {id: {eq: $v}}", "x", " at nothing: Invalid input for BigInt type"),
        ("$v: Int!", "filter: {code: {eq: $v}}", 1, ": Invalid input for UUID type"),
        ("$v: String", "filter: {rank: {eq: $v}}", "1", ': Int cannot represent non-integer value: "1"'),
        ("$v: Int", "filter: {name: {eq: $v}}", 1, ": String cannot represent a non string value: 1"),
        ("$v: String", "filter: {mood: {eq: $v}}", "glad", ": Value \"glad\" does not exist in 'mood' enum."),
        ("$v: Int", "filter: {name: {in: $v}}", ["a", None], "[1]: Expected"),
        ("$v: [Int]", "first: $v", [1], ": Int cannot represent non-integer value: [1]"),
        (
            "$v: Int",
            "filter: $v",
            {"rank": {"eq": "x"}},
            '.rank.eq: Int cannot represent non-integer value: "x"',
        ),
        ("$v: Int", "after: $v", 1, ": Invalid input for Cursor type. A string is expected."),
        ("$v: Int!", "first: $v", None, ": Expected a value of non-null type 'Int!' not to be null."),
    ],
)
async def test_invalid_value_for_a_position_is_rejected(
    api: Service, declared: str, used: str, value: Any, message: str
) -> None:
    query = COLLECTION % (declared, used)
    response = await api.ask(query, {"v": value})
    message = message.removeprefix(" at nothing")
    assert response.error.startswith("Variable '$v' has invalid value")
    assert message in response.error
    assert response.errors[0]["locations"] == [{"line": 1, "column": query.index("$v") + 1}]
    assert "data" not in response.body
    assert response.messages == ()


@pytest.mark.parametrize(
    ("query", "variables", "message"),
    [
        ("query($v: ID) { node(nodeId: $v) { nodeId } }", {}, "absent where a value of type 'ID!'"),
        ("query($v: ID) { node(nodeId: $v) { nodeId } }", {"v": None}, "null where a value of type 'ID!'"),
        ("{ itemByPk(id: $v) { id } }", {}, "absent where a value of type 'BigInt!'"),
        ("{ __typename @include(if: $v) }", {}, "absent where a value of type 'Boolean!'"),
        (
            "query($v: Boolean) { __typename @skip(if: $v) }",
            {"v": None},
            "null where a value of type 'Boolean!'",
        ),
        (
            "query($v: itemFilter) { itemCollection(filter: {or: [$v]}) { __typename } }",
            {},
            "absent where a value of type 'itemFilter!'",
        ),
        (
            "query($v: String) { itemCollection(filter: {name: {in: [$v]}}) { __typename } }",
            {},
            "absent where a value of type 'String!'",
        ),
        (
            "query($v: String) { itemCollection(filter: {name: {search: {query: $v}}}) { __typename } }",
            {},
            "absent where a value of type 'String!'",
        ),
        (
            "query($v: String) { itemCollection(filter: {doc: {at: {path: $v, text: {}}}}) { __typename } }",
            {},
            "absent where a value of type '[String!]!'",
        ),
        (
            "mutation($v: [itemInsertInput]) { insertIntoitemCollection(objects: $v) { affectedCount } }",
            {"v": None},
            "null where a value of type '[itemInsertInput!]!'",
        ),
        (
            'mutation($v: Int) { updateitemCollection(set: {name: "x"}, atMost: $v) { affectedCount } }',
            {"v": None},
            "null where a value of type 'Int!'",
        ),
    ],
)
async def test_null_where_null_is_not_allowed_is_an_error(
    api: Service, query: str, variables: dict[str, Any], message: str
) -> None:
    response = await api.ask(query, variables)
    assert response.error.startswith("Variable '$v' must not be ")
    assert message in response.error
    assert response.errors[0]["locations"]
    assert response.messages == ()


@pytest.mark.parametrize("variables", [{}, {"v": None}])
async def test_variable_of_non_null_type_requires_a_value(api: Service, variables: dict[str, Any]) -> None:
    for query in (
        "query($v: ID!) { __typename }",
        "query($v: nonsense!) { itemCollection(filter: {id: {eq: $v}}) { __typename } }",
    ):
        response = await api.ask(query, variables)
        ending = "not to be null" if variables else "to be provided"
        assert "Variable '$v' has invalid value: Expected a value of non-null type '" in response.error
        assert response.error.endswith(f"!' {ending}.")
        assert "data" not in response.body


async def test_undeclared_variables_are_accepted(api: Service) -> None:
    query = "{ itemCollection(filter: {id: {eq: $id}}, first: $first) { edges { node { name } } } }"
    assert rows(await lenient_data(api, query)) == ["one", "two", "three"]
    assert rows(await lenient_data(api, query, {"first": 1})) == ["one"]
    assert rows(await lenient_data(api, query, {"id": BIG, "first": 1})) == ["three"]
    assert (await api.ask(query, {"id": "x"})).error.startswith("Variable '$id' has invalid value: Invalid")


async def test_variable_is_validated_at_every_position(api: Service) -> None:
    query = """query($v: Int!, $yes: String) {
            a: itemByPk(id: $v) { name ...more @include(if: $yes) }
            b: itemCollection(filter: {rank: {eq: $v}}) { edges { node { id } } }
            c: itemCollection(filter: {id: {in: [$v, "1"]}, ratio: {gt: $v}}) { edges { node { id } } }
            d: itemCollection(filter: {flag: {eq: $yes}}, first: $v) { edges { node { id } } } }
        fragment more on item {
            itemCollection(filter: {parent: {eq: 1}}, first: $v) { edges { node { name } } } }"""
    for _ in range(2):
        data = await lenient_data(api, query, {"v": 2, "yes": False})
        assert data["a"] == {"name": "two"}
        assert [row["id"] for row in nodes(data["b"])] == ["2"]
        assert [row["id"] for row in nodes(data["c"])] == []
        assert [row["id"] for row in nodes(data["d"])] == ["2"]
        data = await lenient_data(api, query, {"v": 1, "yes": True})
        assert [row["name"] for row in nodes(data["a"]["itemCollection"])] == ["two"]
        assert nodes(data["b"]) == []
        assert [row["id"] for row in nodes(data["d"])] == ["1"]
    response = await api.ask(query, {"v": BIG, "yes": False}, check=False)
    messages = [error["message"] for error in response.errors]
    assert f"Variable '$v' has invalid value: Int cannot represent non-integer value: \"{BIG}\"" in messages
    assert all(message.startswith("Variable '$v' has") for message in messages)


async def test_operations_may_declare_a_variable_with_different_types(api: Service) -> None:
    query = """query one($v: ID!) { itemByPk(id: $v) { ...f } }
        query two($v: Int = 2, $unused: x) { itemByPk(id: $v) { ...f } }
        query three { itemByPk(id: 1) { ...f } }
        fragment f on item {
            name itemCollection(filter: {id: {neq: $v}}, first: 1) { edges { node { id } } } }"""
    for operation, variables, name in (("one", {"v": "1"}, "one"), ("two", {}, "two"), ("three", {}, "one")):
        data = (await api.ask(query, variables, operation=operation, check=False)).data
        assert data["itemByPk"]["name"] == name


async def test_variables_work_inside_lists_and_objects(api: Service) -> None:
    query = """query($a: String, $b: Int, $c: x) {
        itemCollection(filter: {or: [{id: {in: [$a, $b]}}, {mood: {in: [$c]}}], not: {name: {eq: $a}}}) {
            edges { node { name } } } }"""
    assert rows(await lenient_data(api, query, {"a": "1", "b": int(BIG), "c": "happy"})) == [
        "one",
        "two",
        "three",
    ]
    assert rows(await lenient_data(api, query, {"a": "1", "b": 1, "c": "ok"})) == ["one"]


async def test_literal_of_a_plain_scalar_cannot_contain_a_variable(api: Service) -> None:
    query = "query($v: Int) { itemCollection(filter: {raw: {eq: {a: [$v]}}}) { __typename } }"
    response = await api.ask(query, {"v": 1}, check=False)
    assert response.error == (
        "A literal of type Opaque cannot contain variables: send the whole value as one variable."
    )
    assert response.errors[0]["locations"] == [{"line": 1, "column": query.index("{a:") + 1}]


async def test_errors_name_a_variable_of_several_types_as_the_client_does(api: Service) -> None:
    query = "query($v: x) { itemCollection(first: $v, filter: {id: {eq: $v}, no: $v}) { __typename } }"
    response = await api.ask(query, {"v": 1}, check=False)
    assert response.error == (
        "Expected value of type 'itemFilter' not to include unknown field 'no', "
        "found: { id: { eq: $v }, no: $v }."
    )


@pytest.mark.parametrize(
    "query",
    [
        "{ ...f } fragment f on Query { __typename } fragment g on Query { __typename }",
        "{ ...f } fragment f on Query { __typename } fragment g on Nothing { unknown ...h }",
        "{ ...f } fragment f on Query { __typename } fragment f on Query { heartbeat }",
        "{ __typename } fragment f on item { ...g } fragment g on item { ...h }",
    ],
)
async def test_unused_and_duplicate_fragments_are_ignored(api: Service, query: str) -> None:
    assert await lenient_data(api, query) == {"__typename": "Query"}


@pytest.mark.parametrize(
    "query",
    [
        "{ __typename } fragment f on item { ...g } fragment g on item { ...f }",
        "{ __typename } fragment f on item { ...f }",
        "{ ...e } fragment e on Query { __typename } fragment h on item { ...f } fragment f on item { ...f }",
    ],
)
async def test_unused_fragment_cycle_is_rejected(api: Service, query: str) -> None:
    response = await api.ask(query, check=False)
    assert any("Cannot spread fragment 'f' within itself" in error["message"] for error in response.errors)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("query($a: Int, $a: Int) { itemCollection(first: $a) { __typename } }", "one variable named '$a'"),
        ("query($a: Int) { itemCollection(nothing: $a) { __typename } }", "Unknown argument 'nothing'"),
        ("query($a: Int) { itemCollection(filter: {x: $a}) { __typename } }", "unknown field 'x'"),
        ("query($a: Int) { nothing(x: $a) }", "Cannot query field 'nothing'"),
        ("query($a: Int) { __typename @nothing(x: $a) }", "Unknown directive '@nothing'"),
        ('query($a: Int = "x") { itemCollection(first: $a) { __typename } }', "Int cannot represent"),
        ("{ ...f } fragment f on Query { ...f }", "Cannot spread fragment 'f' within itself."),
    ],
)
async def test_invalid_documents_are_rejected(api: Service, query: str, message: str) -> None:
    response = await api.ask(query, {}, check=False)
    assert [message in error["message"] for error in response.errors] == [True], response.errors
    assert response.errors[0]["locations"]


# ---------------------------------------------------------------- enum values as strings


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('filter: {mood: {eq: "sad"}}', ["one"]),
        ('filter: {mood: {in: ["sad", happy]}}', ["one", "two"]),
        ('filter: {mood: {in: "sad"}}', ["one"]),
        ('filter: {mood: {eq: """sad"""}}', ["one"]),
        ('filter: {moods: {contains: "ok"}}', ["one"]),
        ('filter: {moods: {eq: ["sad", "ok"]}}', ["one"]),
        ('filter: {rank: {is: "NULL"}}', ["three"]),
        ('filter: {not: {or: [{rank: {is: "NULL"}}, {mood: {neq: "sad"}}]}}', ["one"]),
        ('orderBy: {id: "DescNullsLast"}', ["three", "two", "one"]),
        ('orderBy: [{mood: "DescNullsLast"}, {id: "AscNullsFirst"}]', ["two", "one", "three"]),
        ('orderBy: [{item: {name: "AscNullsFirst"}}, {id: DescNullsLast}]', ["one", "three", "two"]),
    ],
)
async def test_strings_are_accepted_as_enum_values(api: Service, arguments: str, expected: list[str]) -> None:
    for _ in range(2):
        query = f"{{ itemCollection({arguments}) {{ edges {{ node {{ name }} }} }} }}"
        assert rows(await lenient_data(api, query)) == expected


async def test_documents_that_differ_in_enum_strings_share_a_statement(api: Service) -> None:
    query = '{ itemCollection(filter: {mood: {eq: "%s"}}) { edges { node { name } } } }'
    statements = []
    for mood, expected in (("sad", ["one"]), ("happy", ["two"]), ("ok", [])):
        response = await api.ask(query % mood, check=False)
        assert rows(response.data) == expected
        statements += [bound.statement for message in response.messages for bound in message.statements]
    assert len(set(map(id, statements))) == 1
    query = '{ itemCollection(orderBy: {id: "%s"}, first: 1) { edges { node { name } } } }'
    assert rows(await lenient_data(api, query % "DescNullsLast")) == ["three"]
    assert rows(await lenient_data(api, query % "AscNullsLast")) == ["one"]
    assert rows(await lenient_data(api, query % "DescNullsFirst")) == ["three"]


@pytest.mark.parametrize("known", ["sad", "happy"])
async def test_unknown_enum_string_is_rejected_with_its_location(api: Service, known: str) -> None:
    query = '{ itemCollection(filter: {mood: {eq: "%s"}}) { edges { node { name } } } }'
    assert await lenient_data(api, query % known)
    response = await api.ask(query % "glad")
    assert response.error == "Value 'glad' does not exist in 'mood' enum."
    assert response.errors[0]["locations"] == [{"line": 1, "column": query.index('"%s"') + 1}]


async def test_enum_strings_in_mutations_functions_and_groups(api: Service) -> None:
    mutation = """mutation($o: [x], $m: String) {
        insertIntoitemCollection(objects: [{id: 50, mood: "ok", moods: ["sad", "ok"]}, {id: 51, mood: $m}]
            onConflict: {constraint: "item_pkey", update: ["mood"]}) { records { id mood moods } }
        more: insertIntoitemCollection(objects: $o) { affectedCount }
        updateitemCollection(set: {mood: "happy", moods: "ok"}, filter: {mood: {eq: "ok"}}) {
            records { id mood moods } }
        deleteFromitemCollection(filter: {id: {gte: 50, lt: 60}}, atMost: 9) { affectedCount } }"""
    many = [{"id": number, "mood": "sad", "code": None} for number in (52, 53, 54)]
    data = await lenient_data(api, mutation, {"o": many, "m": "sad"})
    assert data["insertIntoitemCollection"]["records"] == [
        {"id": "50", "mood": "ok", "moods": ["sad", "ok"]},
        {"id": "51", "mood": "sad", "moods": None},
    ]
    assert data["updateitemCollection"]["records"] == [{"id": "50", "mood": "happy", "moods": ["ok"]}]
    assert data["deleteFromitemCollection"]["affectedCount"] == 5
    groups = '{ itemCollection { groupBy(by: ["mood"], having: {count: {gt: "0"}}) { keys { mood } } } }'
    found = (await lenient_data(api, groups))["itemCollection"]["groupBy"]
    assert [group["keys"]["mood"] for group in found] == ["sad", "happy", None]
    calls = 'query($m: String, $n: ID) { a: felt(m: "sad") b: felt(m: $m) c: twice(n: $n, m: 1) }'
    assert await lenient_data(api, calls, {"m": "ok", "n": "4"}) == {
        "a": "felt sad",
        "b": "felt ok",
        "c": "9",
    }


# ---------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("used", "value", "message"),
    [
        ("filter: {rank: {eq: $v}}", True, "Int cannot represent non-integer value: true"),
        (
            "filter: {rank: {eq: $v}}",
            {"a": [None, "x"]},
            'Int cannot represent non-integer value: {"a": [null, "x"]}',
        ),
        (
            "filter: {rank: {eq: $v}}",
            2**31,
            "Int cannot represent non 32-bit signed integer value: 2147483648",
        ),
        ("filter: {name: {eq: $v}}", False, "String cannot represent a non string value: false"),
        ("filter: {flag: {eq: $v}}", "it's", 'Boolean cannot represent a non boolean value: "it\'s"'),
        ("filter: {ratio: {eq: $v}}", "x", 'Float cannot represent non numeric value: "x"'),
        ("filter: {ratio: {eq: $v}}", True, "Float cannot represent non numeric value: true"),
        ("filter: {nodeId: {eq: $v}}", True, "ID cannot represent value: true"),
        (
            "filter: {mood: {eq: $v}}",
            {"a": True},
            "Enum 'mood' cannot represent non-string value: {\"a\": true}.",
        ),
        ("filter: $v", [True], "Expected value of type 'itemFilter' to be an object, found: [true]."),
        (
            "filter: $v",
            {"x": None},
            "Expected value of type 'itemFilter' not to include unknown field \"x\".",
        ),
        ("filter: {name: {search: $v}}", {}, "to include required field 'query'."),
        ("orderBy: $v", [None], "[0]: Expected a value of non-null type 'itemOrderBy!' not to be null."),
        ("filter: {rank: {eq: $v}}", "x" * 5000, 'value: "' + "x" * 100 + '…"'),
    ],
)
async def test_errors_of_variables_contain_json_values(
    api: Service, used: str, value: Any, message: str
) -> None:
    response = await api.ask(f"query($v: Any) {{ itemCollection({used}) {{ __typename }} }}", {"v": value})
    assert response.error.endswith(message)
    for word in ("None", "True", "False", "{'"):
        assert word not in response.text


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("{", "Expecting property name enclosed in double quotes at line 1 column 2"),
        ("[NaN]", "NaN is not a JSON value"),
        ("[" * 100_000, "it is nested more than 5000 values deep"),
    ],
)
async def test_string_that_is_not_json_is_rejected(api: Service, value: str, reason: str) -> None:
    query = "query($v: JSON) { itemCollection(filter: {doc: {contains: $v}}) { __typename } }"
    response = await api.ask(query, {"v": value})
    assert response.error.endswith(f": Invalid input for JSON type. The string is not JSON: {reason}")


async def test_json_may_contain_longer_numbers_than_python_parses(api: Service) -> None:
    query = "query($v: JSON) { itemCollection(filter: {doc: {contains: $v}}) { edges { node { name } } } }"
    assert rows(await api.data(query, {"v": f'{{"a": {"9" * 5000}}}'})) == []


async def test_limited_number_of_errors_is_reported(api: Service) -> None:
    query = "query($v: [Int]) { itemCollection(filter: {name: {in: $v}}) { __typename } }"
    errors = (await api.ask(query, {"v": list(range(1000))})).errors
    assert len(errors) == 21
    assert errors[-1]["message"] == "There are more errors in the variables."


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("{id: {eq: true}}", "true"),
        ('{id: {eq: "x"}}', '"x"'),
        ('{code: {eq: "x"}}', '"x"'),
        ("{price: {in: [1]}}", "1"),
        ("{at: {gt: 1}}", "1"),
        ("{ratio: {eq: true}}", "true"),
        ("{rank: {eq: null, in: [null]}}", "null]"),
        ("{rank: {eq: " + "9" * 5000 + "}}", "9"),
        ("{id: {eq: " + "9" * 5000 + "}}", "9"),
        ('{doc: {contains: "{"}}', '"{"'),
    ],
)
async def test_errors_of_literals_have_a_location_and_graphql_values(
    api: Service, written: str, found: str
) -> None:
    query = f"{{ itemCollection(filter: {written}) {{ __typename }} }}"
    response = await api.ask(query)
    assert response.errors[0]["locations"] == [{"line": 1, "column": query.index(found) + 1}]
    for word in ("None", "True", "set_int_max_str_digits", "error '"):
        assert word not in response.text
    assert "data" not in response.body


# ---------------------------------------------------------------- introspection


@pytest.fixture(scope="module")
def shown(server: Server, reactor: Any) -> Iterator[Service]:
    allowed = "comment on schema public is '@graphql({\"introspection\": true})'"
    with serving(reactor, server.create_database(SCHEMA, allowed)) as service:
        yield service


async def test_introspection_variables_are_validated_by_position(shown: Service) -> None:
    query = """query($n: Int!, $id: ID, $old: x) { itemByPk(id: $id) { name }
        __type(name: $n) { name fields(includeDeprecated: $old) { name } } }"""
    data = await lenient_data(shown, query, {"n": "PageInfo", "id": 1, "old": True, "unused": 1})
    assert data["__type"]["name"] == "PageInfo"
    assert data["itemByPk"] == {"name": "one"}
    query = "{ __type(name: $n) { name } }"
    assert await lenient_data(shown, query, {"n": "item"}) == {"__type": {"name": "item"}}


@pytest.mark.parametrize(
    ("query", "variables"),
    [
        ("{ __type(name: $n) { name } }", {}),
        ("query($n: String) { __type(name: $n) { name } }", {"n": None}),
        ('{ __type(name: "item") { fields(includeDeprecated: $n) { name } } }', {"n": None}),
    ],
)
async def test_introspection_without_a_needed_value_is_rejected(
    shown: Service, query: str, variables: dict[str, Any]
) -> None:
    response = await shown.ask(query, variables, check=False)
    assert "'$n'" in response.error
    assert "None" not in response.error
    assert response.errors[0]["locations"] == [{"line": 1, "column": query.rindex("$n") + 1}]


# ---------------------------------------------------------------- strict


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("fragment f on item { id } { __typename }", "Fragment 'f' is never used."),
        (
            "{ ...f } fragment f on Query { __typename } fragment f on Query { __typename }",
            "There can be only one fragment named 'f'.",
        ),
        ("query($a: Int) { __typename }", "Variable '$a' is never used."),
        ("{ itemCollection(first: $a) { __typename } }", "Variable '$a' is not defined."),
        (
            "query($a: String) { itemCollection(first: $a) { __typename } }",
            "Variable '$a' of type 'String' used in position expecting type 'Int'.",
        ),
        ("query($a: item) { itemCollection(first: $a) { __typename } }", "cannot be non-input type 'item'"),
        ("query($a: nothing) { itemCollection(first: $a) { __typename } }", "Unknown type 'nothing'."),
        (
            "query($a: [String]) { itemCollection(filter: {name: {in: $a}}) { __typename } }",
            "Variable '$a' of type '[String]' used in position expecting type '[String!]'.",
        ),
        ('{ itemCollection(filter: {mood: {eq: "sad"}}) { __typename } }', 'non-enum value: "sad"'),
        (
            '{ itemCollection(orderBy: {id: "AscNullsLast"}) { __typename } }',
            'non-enum value: "AscNullsLast"',
        ),
    ],
)
async def test_strict_validation_follows_graphqls_own_rules(
    api: Service, strict: Service, query: str, message: str
) -> None:
    response = await strict.ask(query, {"a": 1} if "first" in query else {})
    assert any(message in error["message"] for error in response.errors), response.errors
    assert "data" not in response.body
    assert response.messages == ()
    assert (await api.ask(query, {}, check=False)).data


async def test_strict_validation_accepts_valid_documents(strict: Service) -> None:
    query = "query($id: BigInt!, $m: mood = sad) { itemByPk(id: $id) { name } felt(m: $m) }"
    assert await strict.data(query, {"id": "2"}) == {"itemByPk": {"name": "two"}, "felt": "felt sad"}
    assert "'$id'" in (await strict.ask(query)).error
    assert "'$id'" in (await strict.ask(query, {"id": None})).error
    assert (await strict.ask(query, {"id": True})).error.endswith(
        "Invalid input for BigInt type. An integer in a string is expected."
    )
