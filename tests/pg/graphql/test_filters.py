"""Combined filters over HTTP (docs/reference/graphql.md, Filters)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.service import Service

SCHEMA = """
create table row (id int primary key, a int, b text, c boolean, l text[]);
insert into row select n, nullif(n % 4, 0), case n % 3 when 0 then null when 1 then 'x' else 'Yy' end,
    case when n % 5 > 0 then n % 2 = 0 end, case when n % 7 > 0 then array_fill('e'::text, array[n % 3]) end
    from generate_series(1, 24) n;
create table words ("and" int primary key, "or" int, "not" int, "nodeId" int);
insert into words values (1, 2, 3, 4), (2, 3, 4, 5);
create table two (x int, y text, primary key (x, y));
insert into two values (1, 'a'), (1, 'b'), (2, 'a');
grant select on all tables in schema public to anon;
"""


def ids_where(service: Service, condition: str) -> list[int]:
    return [row[0] for row in service.database.execute(f"select id from row where {condition} order by id")]


EVERYTHING = "true"
CASES = [
    # Rule 1: members of a filter are combined with AND.
    ('{a: {eq: 1}, b: {eq: "x"}}', "a = 1 and b = 'x'"),
    ("{id: {gt: 3, lt: 9}, a: {is: NOT_NULL}}", "id > 3 and id < 9 and a is not null"),
    # Rule 2: and, or and not can be nested to any depth.
    ('{or: [{a: {eq: 1}}, {and: [{b: {eq: "Yy"}}, {not: {c: {eq: true}}}]}]}', "a = 1 or b = 'Yy' and not c"),
    ("{and: [{id: {gt: 5}}, {or: [{a: {eq: 1}}, {a: {eq: 2}}]}]}", "id > 5 and a in (1, 2)"),
    ("{not: {or: [{a: {eq: 1}}, {not: {id: {lt: 20}}}]}}", "not (a = 1 or not id < 20)"),
    ("{id: {lt: 9}, or: [{a: {eq: 1}}, {a: {eq: 2}}], not: {id: {eq: 2}}}", "id in (1, 5, 6)"),
    ("{not: {not: {not: {a: {eq: 1}}}}}", "a <> 1"),
    # Rule 3: a single value is coerced to a list, so the members of an object in ``or`` are combined with
    # AND.
    ('{or: {a: {eq: 1}, b: {eq: "x"}}}', "a = 1 and b = 'x'"),
    ('{and: {a: {eq: 1}, b: {eq: "x"}}}', "a = 1 and b = 'x'"),
    ('{not: {a: {eq: 1}, b: {eq: "x"}}}', "not (a = 1 and b = 'x')"),
    # Rule 4: empty filters are ignored.
    ("{}", EVERYTHING),
    ("null", EVERYTHING),
    ("{and: []}", EVERYTHING),
    ("{or: []}", EVERYTHING),
    ("{not: {}}", EVERYTHING),
    ("{and: null, or: null, not: null, a: null}", EVERYTHING),
    ("{and: {}, or: {}, not: {and: {}, or: [], not: {}}}", EVERYTHING),
    ("{a: {}, b: {eq: \"x\"}}", "b = 'x'"),
    ("{a: {eq: 1}, or: [], and: [], not: {}}", "a = 1"),
    ("{and: [{}, {a: {eq: 1}}]}", "a = 1"),
    ("{or: [{}, {a: {eq: 1}}, {b: {}}]}", "a = 1"),
    ("{or: [{}, {and: [{}]}, {not: {or: [{}]}}]}", EVERYTHING),
    ("{not: {or: [{}, {a: {eq: 1}}]}}", "a <> 1"),
    # A column that is NULL is neither equal nor unequal to a value.
    ("{a: {neq: 1}}", "a <> 1"),
    ("{not: {a: {eq: 1}}}", "a <> 1"),
    ("{a: {is: NULL}}", "a is null"),
    ("{not: {a: {is: NULL}}}", "a is not null"),
    ("{l: {contains: \"e\"}}", "l @> '{e}'"),
    ("{a: {in: [1, 2]}, not: {a: {in: [2, 3]}}}", "a = 1"),
    ("{a: {eq: null}}", "false"),
    ("{or: [{a: {eq: null}}, {a: {eq: 1}}]}", "a = 1"),
    ("{not: {a: {eq: null}}}", "false"),
    ("{not: {a: {eq: null}, b: {eq: \"x\"}}}", "b <> 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "condition"), CASES)
async def test_conditions_combine_as_documented(service: Service, written: str, condition: str) -> None:
    assert await service.ids("row", f"filter: {written}") == ids_where(service, condition)


LEAVES: dict[str, Any] = {
    "id": st.fixed_dictionaries({}, optional={op: st.integers(0, 25) for op in ("eq", "gt", "lte", "neq")}),
    "a": st.one_of(
        st.fixed_dictionaries({}, optional={"eq": st.integers(0, 3), "lt": st.integers(0, 4)}),
        st.fixed_dictionaries({"is": st.sampled_from(["NULL", "NOT_NULL"])}),
        st.fixed_dictionaries({"in": st.lists(st.integers(0, 3), max_size=3)}),
        st.just({"eq": None}),
    ),
    "b": st.fixed_dictionaries(
        {}, optional={"eq": st.sampled_from(["x", "Yy", "y"]), "ilike": st.sampled_from(["%y", "X", "_"])}
    ),
    "c": st.fixed_dictionaries({"eq": st.booleans()}),
    "l": st.fixed_dictionaries({"overlaps": st.lists(st.sampled_from("ef"), max_size=2)}),
}
SQL = {"eq": "=", "neq": "<>", "gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "ilike": "ilike"}
filters = st.recursive(
    st.fixed_dictionaries({}, optional=LEAVES),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            **LEAVES,
            "and": st.one_of(inner, st.lists(inner, max_size=3)),
            "or": st.one_of(inner, st.lists(inner, max_size=3)),
            "not": inner,
        },
    ),
    max_leaves=6,
)


def truth(value: dict[str, Any], row: dict[str, Any]) -> bool | None:
    """Evaluate a filter by the documented rules and SQL's three-valued logic. None means unknown."""
    return all_of([member(name, inner, row) for name, inner in value.items() if not is_ignored(name, inner)])


def is_ignored(name: str, value: Any) -> bool:
    """Whether a member is empty and therefore ignored (rule 4)."""
    if name == "not":
        return empty(value)
    if name in ("and", "or"):
        items = value if isinstance(value, list) else [value]
        return all(map(empty, items))
    return not value


def empty(value: dict[str, Any]) -> bool:
    return all(is_ignored(name, inner) for name, inner in value.items())


def all_of(values: list[bool | None]) -> bool | None:
    if False in values:
        return False
    return None if None in values else True


def member(name: str, value: Any, row: dict[str, Any]) -> bool | None:
    if name == "not":
        inner = truth(value, row)
        return None if inner is None else not inner
    if name in ("and", "or"):
        items = [
            truth(item, row) for item in (value if isinstance(value, list) else [value]) if not empty(item)
        ]
        if name == "and":
            return all_of(items)
        negated = all_of([None if item is None else not item for item in items])
        return None if negated is None else not negated
    return all_of([compare(operator, row[name], operand) for operator, operand in value.items()])


def compare(operator: str, left: Any, right: Any) -> bool | None:
    if operator == "is":
        return (left is None) is (right == "NULL")
    if left is None or right is None:
        return False if operator == "in" and right == [] else None
    match operator:
        case "eq":
            return bool(left == right)
        case "neq":
            return bool(left != right)
        case "gt":
            return bool(left > right)
        case "lt":
            return bool(left < right)
        case "lte":
            return bool(left <= right)
        case "in":
            return left in right
        case "overlaps":
            return bool(set(left) & set(right))
        case _:
            pattern = right.lower()
            text = left.lower()
            if pattern == "_":
                return len(text) == 1
            return bool(text.endswith(pattern[1:]) if pattern[0] == "%" else text == pattern)


def literal(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {literal(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    return value if value in ("NULL", "NOT_NULL") else json.dumps(value)


@given(filters)
async def test_filters_match_the_documented_logic(service: Service, value: dict[str, Any]) -> None:
    names = ("id", "a", "b", "c", "l")
    table = [
        dict(zip(names, row, strict=True))
        for row in service.database.execute("select * from row order by id")
    ]
    expected = [row["id"] for row in table if truth(value, row)]
    assert await service.ids("row", f"filter: {literal(value)}") == expected
    query = "query($f: rowFilter) { rowCollection(filter: $f) { edges { node { id } } } }"
    data = await service.data(query, {"f": value})
    assert [edge["node"]["id"] for edge in data["rowCollection"]["edges"]] == expected
    query = query.replace("rowFilter", "rowFilter!").replace(
        "filter: $f", "filter: {and: [{not: {not: $f}}, $f]}"
    )
    data = await service.data(query, {"f": value})
    assert [edge["node"]["id"] for edge in data["rowCollection"]["edges"]] == expected


def with_variables(value: Any, at: int, variables: dict[str, Any]) -> str:
    """Write a filter as GraphQL with variables at the given depth. Equal values share a variable."""
    if at == 0:
        same = (name for name, known in variables.items() if json.dumps(known) == json.dumps(value))
        name = next(same, f"v{len(variables)}")
        variables[name] = value
        return f"${name}"
    if isinstance(value, dict):
        members = [f"{name}: {with_variables(inner, at - 1, variables)}" for name, inner in value.items()]
        return "{" + ", ".join(members) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(with_variables(item, at - 1, variables) for item in value) + "]"
    return literal(value)


@given(filters, st.integers(0, 4))
async def test_undeclared_variables_work_like_literals(
    service: Service, value: dict[str, Any], at: int
) -> None:
    variables: dict[str, Any] = {}
    written = with_variables(value, at, variables)
    query = "{ rowCollection(filter: %s) { edges { node { id } } } }"
    expected = (await service.ask(query % literal(value))).data
    assert (await service.ask(query % written, variables, check=False)).data == expected


async def test_columns_named_like_operators_replace_them(service: Service) -> None:
    fields = service.schema().object_type("wordsFilter").fields
    assert {name: str(field.type) for name, field in fields.items()} == {
        **dict.fromkeys(("and", "or", "not"), "IntFilter"),
        "nodeId": "IDFilter",
        "nodeId_2": "IntFilter",
    }
    rows = await service.rows("words", "and or not", "filter: {and: {eq: 1}, or: {gt: 1}, not: {lt: 9}}")
    assert rows == [{"and": 1, "or": 2, "not": 3}]


async def test_node_id_is_a_filter(service: Service) -> None:
    rows = await service.rows("two", "nodeId x y")
    for row in rows:
        found = await service.rows("two", "nodeId x y", f'filter: {{nodeId: {{eq: "{row["nodeId"]}"}}}}')
        assert found == [row]
    query = "query($id: ID) { twoCollection(filter: {nodeId: {eq: $id}}) { edges { node { x y } } } }"
    for row in rows:
        data = await service.data(query, {"id": row["nodeId"]})
        assert data["twoCollection"]["edges"] == [{"node": {"x": row["x"], "y": row["y"]}}]
    assert (await service.data(query, {"id": None}))["twoCollection"]["edges"] == []
    [other] = await service.rows("row", "nodeId", "first: 1")
    response = await service.ask(query, {"id": other["nodeId"]})
    assert response.error == "nodeId belongs to a different collection"
    assert (await service.ask(query, {"id": "?"})).error == "Invalid value passed to nodeId argument. Error 1"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ('{a: {eq: "1"}}', 'Int cannot represent non-integer value: "1"'),
        ("{a: {eq: 99999999999}}", "Int cannot represent non 32-bit signed integer value"),
        ("{b: {eq: 1}}", "String cannot represent a non string value"),
        ("{c: {eq: 1}}", "Boolean cannot represent a non boolean value"),
        ("{a: 1}", "Expected value of type 'IntFilter'"),
        ("{a: {startsWith: 1}}", "unknown field 'startsWith'"),
        ("{c: {neq: true}}", "unknown field 'neq'"),
        ("{unknown: {eq: 1}}", "unknown field 'unknown'"),
        ("{a: {in: [1, null]}}", "Expected value of non-null type"),
        ("{a: {is: MAYBE}}", "Value 'MAYBE' does not exist in 'FilterIs' enum"),
        ("{a: {is: null}}", 'The operator "is" accepts NULL or NOT_NULL, not null.'),
        ('"a"', "Expected value of type 'rowFilter'"),
        ("{and: 3}", "Expected value of type 'rowFilter'"),
    ],
)
async def test_malformed_filters_are_rejected(service: Service, written: str, message: str) -> None:
    response = await service.ask(f"{{ rowCollection(filter: {written}) {{ __typename }} }}")
    assert message in response.error
    assert response.errors[0]["locations"]
    assert response.messages == ()
