"""Caches do not change results: earlier requests never affect later ones."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from dataapi.auth.caller import Caller
from dataapi.catalog.directives import FEATURES
from dataapi.database.sql_text import substitute_literals
from dataapi.graphql import role as role_module
from dataapi.graphql.document import Document, Limits, OperationPlanInput
from dataapi.graphql.engine import Engine
from dataapi.graphql.literal_parameters import (
    NO_PARAMETERS,
    Parameters,
    coerce_literals,
    extract_parameters,
)
from dataapi.graphql.plan import OperationPlan, compile_plan
from dataapi.graphql.transport import GraphQLRequest, RequestRejected
from dataapi.http.messages import Request
from graphql import GraphQLError
from hypothesis import example, given
from hypothesis import strategies as st
from support.service import Service

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.database.message import Message

SCHEMA = """
create type mood as enum ('sad', 'ok');
create table item (
    id int, part bigint, name varchar(5), price numeric, size float8, done boolean, mood mood, moods mood[],
    tags text[], numbers int[], data jsonb, code uuid, made timestamptz, place inet, primary key (id, part));
comment on table item is '@graphql({"totalCount": {"enabled": true}})';
create table note (id int primary key, item_id int, item_part bigint, text text,
    foreign key (item_id, item_part) references item);
create function scale(by int, "to" numeric default 1, moods mood[] default null) returns int
    stable language sql as 'select 1';
grant all on all tables in schema public to anon;
"""
PROJECT = {"graphql_features": frozenset(FEATURES)}
HTTP = Request("id", "POST", "/graphql/v1", "", {}, b"")


class Recorder:
    """Replaces the pool and records the statements with their values inlined."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def run(self, message: Message) -> list[tuple[Any, ...]]:
        self.texts.append(f"read only: {message.read_only}")
        for bound in message.statements:
            literals = list(map(repr, bound.values))
            self.texts.append(substitute_literals(bound.statement.text, bound.statement.types, literals))
        return [("null",)]


def new_engine(service: Service) -> tuple[Engine, Recorder]:
    recorder: Any = Recorder()
    return Engine(service.project, recorder, lambda: service.catalog), recorder


async def outcome(pair: tuple[Engine, Recorder], text: str, variables: Any) -> Any:
    """Execute a request and return the stage that it reached, its errors and its statements."""
    engine, recorder = pair
    recorder.texts.clear()
    response = await engine.execute(GraphQLRequest(text, None, variables), Caller("anon", "{}"), HTTP)
    return response.stage, response.errors, list(recorder.texts)


def encoded(values: Any) -> str:
    return base64.b64encode(json.dumps(values).encode()).decode()


ANY = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 2**31, 2**53 + 1, 1.0, 1.5, 1e300]),
    st.sampled_from(["", "a", "1", "null", "true", "sad", "NaN", "{}", "[1]", "%s", "$1", "'", '"']),
)
CURSORS = st.lists(st.sampled_from([None, 1, "1", 2.5, True, "a", [1]]), max_size=5).map(encoded)
NODE_IDS = st.one_of(
    st.tuples(st.just("public"), st.just("item"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("public"), st.just("note"), st.integers(0, 3)),
    st.sampled_from([("public", "item", None, 1), ("Public", "item", 1, 1), ("public", "note", 1, 2)]),
).map(encoded)
DIRECTIONS = st.sampled_from(["AscNullsFirst", "AscNullsLast", "DescNullsFirst", "DescNullsLast"])


def sometimes(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy that occasionally draws null, a list of one value or an unrelated value instead."""
    odd = st.one_of(st.none(), strategy.map(lambda value: [value]), ANY)
    return st.integers(0, 19).flatmap(lambda number: strategy if number else odd)


def some_of(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=members)


INTS = st.integers(-1, 3)
NUMBERS = sometimes(INTS)
BIG = sometimes(INTS.map(str))
TEXTS = sometimes(st.sampled_from(["a", "b%", "abcdef", ""]))
MOODS = sometimes(st.sampled_from(["sad", "ok"]))
IS = sometimes(st.sampled_from(["NULL", "NOT_NULL"]))
PATHS = some_of(
    path=st.lists(TEXTS, max_size=2), text=some_of(eq=TEXTS), number=some_of(gt=BIG, **{"is": IS})
)
FILTERS = st.recursive(
    some_of(
        id=some_of(eq=NUMBERS, neq=NUMBERS, **{"in": sometimes(st.lists(NUMBERS, max_size=3)), "is": IS}),
        part=some_of(eq=BIG, gt=BIG),
        name=some_of(eq=TEXTS, like=TEXTS, search=some_of(query=TEXTS, language=TEXTS), **{"is": IS}),
        done=some_of(eq=sometimes(st.booleans())),
        mood=some_of(eq=MOODS, **{"in": sometimes(st.lists(MOODS, max_size=3))}),
        moods=some_of(contains=sometimes(st.lists(MOODS, max_size=2))),
        tags=some_of(contains=sometimes(st.lists(TEXTS, max_size=3)), eq=TEXTS),
        data=some_of(hasKey=TEXTS, at=sometimes(st.lists(PATHS, max_size=2))),
        nodeId=some_of(eq=sometimes(NODE_IDS)),
        price=some_of(lt=BIG),
        noteCollection=some_of(some=some_of(id=some_of(eq=NUMBERS)), every=some_of(id=some_of(eq=NUMBERS))),
    ),
    lambda inner: some_of(
        **{word: sometimes(st.lists(inner, max_size=3)) for word in ("and", "or")}, **{"not": inner}
    ),
    max_leaves=4,
)  # fmt: skip
ORDERS = some_of(
    id=sometimes(DIRECTIONS),
    name=sometimes(DIRECTIONS),
    noteCollection=some_of(count=sometimes(DIRECTIONS), max=some_of(id=sometimes(DIRECTIONS))),
)
ROWS = some_of(
    id=NUMBERS, part=BIG, name=TEXTS, price=BIG, size=NUMBERS, done=sometimes(st.booleans()),
    mood=MOODS, tags=sometimes(st.lists(TEXTS, max_size=2)), data=sometimes(st.just("{}")),
)  # fmt: skip
COLUMNS = sometimes(st.lists(st.sampled_from(["id", "part", "name"]), max_size=2))
MEMBERS = {
    "filter": FILTERS,
    "order": st.lists(ORDERS, max_size=2),
    "first": INTS,
    "last": INTS,
    "offset": INTS,
    "after": CURSORS,
    "before": CURSORS,
    "node": NODE_IDS,
    "on": st.booleans(),
    "off": st.booleans(),
    "id": INTS,
    "part": INTS.map(str),
    "rows": st.lists(ROWS, max_size=3),
    "row": ROWS,
    "change": ROWS,
    "conflict": st.fixed_dictionaries(
        {}, optional={"columns": COLUMNS, "update": COLUMNS, "constraint": st.just("item_pkey")}
    ),
    "by": st.lists(st.sampled_from(["id", "name", "mood"]), min_size=1, max_size=2),
    "having": some_of(count=some_of(gt=BIG), sum=some_of(id=some_of(gt=BIG))),
    "mood": st.sampled_from(["sad", "ok"]),
    "moods": st.lists(MOODS, max_size=2),
    "price": INTS.map(str),
    "direction": DIRECTIONS,
    "most": INTS,
}
REQUIRED = ("node", "id", "mood", "by", "rows", "row", "change")
VARIABLES = st.fixed_dictionaries(
    {name: sometimes(MEMBERS[name]) for name in REQUIRED},
    optional={name: sometimes(member) for name, member in MEMBERS.items() if name not in REQUIRED},
)

OPERATIONS = [
    """($filter: itemFilter, $order: [itemOrderBy!], $first: Int, $after: Cursor, $on: Boolean! = true) {
        itemCollection(filter: $filter, orderBy: $order, first: $first, after: $after) {
            totalCount @include(if: $on) pageInfo { endCursor hasNextPage }
            edges { node { id @skip(if: $on) part } } } }""",
    """($filter: itemFilter, $last: Int, $before: Cursor, $off: Boolean = false) {
        itemCollection(filter: $filter, last: $last, before: $before) {
            pageInfo { startCursor hasPreviousPage } edges { node { id @skip(if: $off) part } } } }""",
    """($after: Cursor, $order: [itemOrderBy!] = [{name: DescNullsLast}], $first: Int = 2,
            $offset: Int) {
        itemCollection(first: $first, after: $after, orderBy: $order, offset: $offset) {
            edges { cursor } } }""",
    "($node: ID!) { node(nodeId: $node) { nodeId ... on item { name } ... on note { text } } }",
    "($id: Int!, $part: BigInt! = 1) { itemByPk(id: $id, part: $part) { name } }",
    """($id: Int!, $node: ID, $mood: mood!, $filter: itemFilter! = {},
            $direction: OrderByDirection) {
        itemCollection(orderBy: [{name: $direction}], filter: {
            id: {eq: $id, in: [1, $id]}, nodeId: {eq: $node}, mood: {in: [$mood]},
            or: [$filter, {not: $filter}]}) {
            edges { node { id } } } }""",
    """($by: [itemGroupColumn!]!, $having: itemHaving, $first: Int) {
        itemCollection { groupBy(by: $by, having: $having, first: $first) {
            keys { id name } aggregate { count } } } }""",
    """($id: Int!, $price: BigFloat = "2", $moods: [mood], $mood: mood!) {
        a: scale(by: $id) b: scale(by: $id, to: $price) c: scale(by: 1, moods: $moods)
        d: scale(by: 2, moods: [$mood]) }""",
    """($rows: [itemInsertInput!]!, $conflict: itemOnConflictInput) {
        insertIntoitemCollection(objects: $rows, onConflict: $conflict) { affectedCount records { id } } }""",
    """($row: itemInsertInput!, $id: Int) {
        insertIntoitemCollection(objects: [$row, {id: $id, name: "x"}]) {
            records { id noteCollection { edges { cursor } } } } }""",
    """($change: itemUpdateInput!, $filter: itemFilter, $most: Int! = 3) {
        updateitemCollection(set: $change, filter: $filter, atMost: $most) { affectedCount }
        deleteFromitemCollection(filter: $filter, atMost: 1) { records { id } } }""",
]


@pytest.fixture(scope="module")
def warm(service: Service) -> tuple[Engine, Recorder]:
    return new_engine(service)


@given(st.sampled_from(OPERATIONS), VARIABLES)
async def test_warm_engine_runs_the_same_statements_as_a_new_one(
    service: Service, warm: tuple[Engine, Recorder], operation: str, variables: dict[str, Any]
) -> None:
    text = ("mutation" if "affectedCount" in operation or "records" in operation else "query") + operation
    outcomes = [await outcome(warm, text, variables) for _ in range(2)]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0] == await outcome(new_engine(service), text, variables)


ODD = st.sampled_from(
    [
        "0",
        "-1",
        "2147483648",
        "1.0",
        "1e3",
        '"a"',
        '""',
        '"""a"""',
        '"a\\n"',
        "null",
        "true",
        "sad",
        "[]",
        "[[1]]",
    ]
)


def mostly(*literals: str | st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return a strategy for literals of one type that occasionally draws another type or a variable."""
    usual = st.one_of(*(st.just(one) if isinstance(one, str) else one for one in literals))
    odd = st.one_of(ODD, st.sampled_from(["$v", "$w"]), usual.map(lambda text: f"[{text}]"))
    return st.integers(0, 9).flatmap(lambda number: usual if number else odd)


INT = mostly("0", "1", "2", "3")
TEXT = mostly('"a"', '"b"', '"""b"""', '"\\u0061"', '"it\\\\s"')
CURSOR = mostly(CURSORS.map(json.dumps))
NODE = mostly(NODE_IDS.map(json.dumps))
MOOD = mostly("sad", "ok")
ALIAS = st.sampled_from(["a", "b", "other", "id", "name"])
FIELDS: list[tuple[str, tuple[st.SearchStrategy[str], ...]]] = [
    ("itemCollection(first: {0}, after: {1}, offset: {2}) {{ edges {{ cursor }} }}", (INT, CURSOR, INT)),
    (
        "itemCollection(last: {0}, before: {1}, orderBy: [{{name: {2}}}]) {{ pageInfo {{ startCursor }} }}",
        (INT, CURSOR, mostly("AscNullsLast", "DescNullsFirst")),
    ),
    (
        "itemCollection(filter: {{id: {{eq: {0}, in: [{1}, 1]}}, nodeId: {{eq: {2}}}}}) "
        "{{ edges {{ cursor }} }}",
        (INT, INT, NODE),
    ),
    (
        "itemCollection(filter: {{or: [{{name: {{eq: {0}}}}}, {{price: {{gt: {1}}}}}, "
        "{{tags: {{contains: [{2} {0}]}}}}]}}) {{ edges {{ cursor }} }}",
        (TEXT, mostly('"1.5"', '"2"'), TEXT),
    ),
    (
        "itemCollection(filter: {{mood: {{in: {0}, is: {1}}}, "
        "data: {{at: {{path: {2}, text: {{eq: {2}}}}}}}}}) "
        "{{ edges {{ cursor }} }}",
        (MOOD, mostly("NULL", "NOT_NULL"), TEXT),
    ),
    ("node(nodeId: {0}) {{ nodeId }}", (NODE,)),
    ("itemByPk(id: {0}, part: {1}) {{ id }}", (INT, mostly("1", '"1"', '"2"'))),
    (
        "itemCollection(first: {2}) {{ edges {{ {0}: node {{ {0}: id {1}: part name }} }} }}",
        (ALIAS, ALIAS, INT),
    ),
    ("scale(by: {0}, to: {1}, moods: {2})", (INT, mostly('"1.5"', '"2"'), MOOD)),
]
FIELD = st.sampled_from(FIELDS).flatmap(
    lambda field: st.tuples(st.just(field[0]), st.tuples(*field[1]), st.sampled_from(["", "a: ", "b: "]))
)
TYPES = st.sampled_from(["Int", "Int = 1", "String", "Cursor", "ID!", "BigInt", "mood", "OrderByDirection"])


@given(st.lists(FIELD, min_size=1, max_size=2), TYPES, TYPES, some_of(v=ANY, w=ANY))
async def test_literals_are_not_mixed_up_between_documents(
    service: Service, warm: tuple[Engine, Recorder], fields: Any, first: str, second: str, variables: Any
) -> None:
    selection = " ".join(alias + field.format(*values) for field, values, alias in fields)
    used = [f"${name}: {type_}" for name, type_ in (("v", first), ("w", second)) if f"${name}" in selection]
    text = f"query{'(' + ', '.join(used) + ')' if used else ''} {{ {selection} }}"
    response = await outcome(warm, text, variables)
    with patch.object(role_module, "extract_parameters", lambda _text: None):
        assert response == await outcome(new_engine(service), text, variables)


def bound(plan: OperationPlan, values: Any) -> Any:
    """Return the bound statements, or the error if binding fails."""
    try:
        statements = [each.bind(values) for each in plan.statements]
        return [(each.statement.text, each.statement.types, each.values) for each in statements]
    except GraphQLError as error:
        return error.message


@pytest.fixture(scope="module")
def compiled(service: Service) -> Callable[[str, Any], None]:
    """Return a function that compiles a document and compares its plan with earlier plans for equal input."""
    schema, known = service.schema(), dict[OperationPlanInput, Any]()

    def compare(text: str, variables: Any) -> None:
        extracted = extract_parameters(text)
        try:
            document = Document(text, schema, Limits(), extracted)
            parameters: Parameters | None = NO_PARAMETERS
            if extracted is not None and not document.is_exact:
                parameters = coerce_literals(extracted, document.literal_types)
            if parameters is None:
                return  # a literal is invalid in its position
            operation = document.operation(None)
            plan_input, values = operation.coerce(variables, parameters)
        except RequestRejected:
            return  # no plan is compiled
        try:
            plan: Any = compile_plan(operation, schema, plan_input)
        except GraphQLError as error:
            plan = OperationPlan(errors=(error,))
        other = known.setdefault(plan_input, plan)
        assert bound(other, values) == bound(plan, values)
        if plan.errors and not document.is_exact:
            # The engine compiles the exact text instead: these errors may have another text's locations.
            assert [each.message for each in other.errors] == [each.message for each in plan.errors]
            return
        assert str(replace(other, statements=())) == str(replace(plan, statements=()))

    return compare


@given(st.sampled_from(OPERATIONS), st.lists(VARIABLES, min_size=4, max_size=4))
def test_equal_plan_inputs_give_equal_plans(
    compiled: Callable[[str, Any], None], operation: str, variables: list[dict[str, Any]]
) -> None:
    text = ("mutation" if "affectedCount" in operation or "records" in operation else "query") + operation
    for each in variables:
        compiled(text, each)


@example([(FIELDS[2][0], ("0", "$v", "0"), "a: ")])
@example([(FIELDS[2][0], ("-1", "$v", "0"), "a: ")])
@given(st.lists(FIELD, min_size=1, max_size=2))
def test_documents_with_equal_plan_inputs_have_equal_plans(
    compiled: Callable[[str, Any], None], fields: Any
) -> None:
    compiled(f"{{ {' '.join(alias + field.format(*values) for field, values, alias in fields)} }}", {})
