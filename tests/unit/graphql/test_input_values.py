"""Valid and invalid values and literals are coerced as in graphql-core."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dataapi.graphql.input_values import (
    MAX_ERRORS,
    MAX_INPUT_OBJECTS,
    InputLimitExceeded,
    InputPath,
    LiteralReading,
    Reading,
    input_type,
    path_steps,
)
from dataapi.graphql.schema.type_mapping import BIG_FLOAT, BIG_INT, FLOAT, JSON, OPAQUE, UUID, abbreviated
from graphql import (
    GraphQLBoolean,
    GraphQLEnumType,
    GraphQLID,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLInt,
    GraphQLList,
    GraphQLNonNull,
    GraphQLString,
    StringValueNode,
    Undefined,
    coerce_input_literal,
    coerce_input_value,
    parse_value,
    print_ast,
)
from hypothesis import given
from hypothesis import strategies as st

MOOD = GraphQLEnumType("Mood", {"SAD": "sad", "OK": "o k"})
PLAIN: dict[str, Any] = {
    "int": GraphQLInt, "float": FLOAT, "text": GraphQLString, "flag": GraphQLBoolean, "id": GraphQLID,
    "big": BIG_INT, "exact": BIG_FLOAT, "uuid": UUID, "json": JSON, "raw": OPAQUE, "mood": MOOD,
    "ints": GraphQLList(GraphQLInt), "texts": GraphQLList(GraphQLNonNull(GraphQLString)),
}  # fmt: skip


def _nested() -> dict[str, GraphQLInputField]:
    fields = {name: GraphQLInputField(type_) for name, type_ in PLAIN.items()}
    fields["and"] = GraphQLInputField(GraphQLList(GraphQLNonNull(ROW)))
    fields["not"] = GraphQLInputField(ROW)
    return fields


ROW = GraphQLInputObjectType("Row", _nested)
STRICT = GraphQLInputObjectType(
    "Strict", {"a": GraphQLInputField(GraphQLNonNull(GraphQLInt)), "b": GraphQLInputField(GraphQLString)}
)
TYPES: tuple[Any, ...] = (
    *PLAIN.values(), ROW, STRICT, GraphQLList(ROW),
    GraphQLNonNull(GraphQLList(GraphQLNonNull(ROW))), GraphQLList(GraphQLList(GraphQLInt)),
    GraphQLNonNull(GraphQLInt), GraphQLList(STRICT),
)  # fmt: skip

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["SAD", "OK", "sad", "1", "1.5", "NaN", "{}", "5e9"])
    | st.sampled_from(["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"])
)  # fmt: skip
NAMES = st.sampled_from([*PLAIN, "and", "not", "a", "b", "row", "unknown"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


def read(type_: Any, value: Any) -> tuple[Any, Any, tuple[tuple[InputPath, str], ...]]:
    """Return the coerced value, its shapes and its errors."""
    shapes: list[Any] = []
    reading = Reading()
    coerced = input_type(type_).read(value, shapes, reading, (), "v")
    return coerced, shapes, reading.errors


def check(type_: Any, value: Any) -> None:
    expected = coerce_input_value(value, type_)
    coerced, shapes, errors = read(type_, value)
    assert bool(errors) == (expected is Undefined), "each rejection has a reason"
    if not errors:
        assert json.dumps(coerced) == json.dumps(expected), "members have the order of the type's fields"
        assert len(shapes) == 1
        hash(shapes[0])


@given(type_=st.sampled_from(TYPES), value=VALUES)
def test_values_are_coerced_as_in_graphql_core(type_: Any, value: Any) -> None:
    check(type_, value)


ROWS = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text(max_size=3) | st.none(), "int": st.integers(-5, 2**31),
        "mood": st.sampled_from(["SAD", "OK"]),
        "ints": st.lists(st.integers(0, 9) | st.none()) | st.integers(0, 9),
        "float": st.floats(allow_nan=False), "big": st.integers(), "raw": VALUES,
        "not": st.fixed_dictionaries({}, optional={"flag": st.booleans()}),
    },
)  # fmt: skip


@given(rows=st.lists(ROWS, max_size=4), shuffled=st.randoms())
def test_rows_are_coerced_as_in_graphql_core(rows: list[dict[str, Any]], shuffled: Any) -> None:
    for row in rows:
        items = list(row.items())
        shuffled.shuffle(items)
        row.clear()
        row.update(items)
    for type_ in (GraphQLList(GraphQLNonNull(ROW)), GraphQLList(ROW)):
        check(type_, rows)


@pytest.mark.parametrize(
    "value", [{}, {"b": "x"}, {"a": None}, {"a": 1, "c": 2}, {"a": 1}, {"b": "x", "a": 1}, [], "x"]
)
def test_missing_and_unknown_members_are_rejected(value: Any) -> None:
    check(STRICT, value)


def _at(value: Any, path: list[Any]) -> Any:
    for step in path:
        value = value[step]
    return value


@given(type_=st.sampled_from(TYPES), value=VALUES)
def test_error_contains_the_path_and_the_value_as_json(type_: Any, value: Any) -> None:
    for path, message in read(type_, value)[2]:
        name, *steps = path_steps(path)
        assert name == "v"
        result = _at(value, steps)
        if result is None or isinstance(result, bool):
            assert "None" not in message
            assert str(result) not in message
        assert "{'" not in message


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        ('it\'s "é"', '"it\'s \\"é\\""'),
        ([], "[]"),
        ({}, "{}"),
        ({"a": [None, False]}, '{"a": [null, false]}'),
        ({"a": {"b": {"c": 1}, "d": {}}}, '{"a": {"b": {…}, "d": {}}}'),
        ([1, 2, 3, 4, 5, 6], "[1, 2, 3, 4, 5, …]"),
        ("x" * 101, '"' + "x" * 100 + '…"'),
        (int("9" * 200), "9" * 100 + "…"),
    ],
)
def test_values_in_messages_are_abbreviated_json(value: Any, expected: str) -> None:
    assert abbreviated(value) == expected


@given(VALUES)
def test_small_values_in_messages_are_complete_json(value: Any) -> None:
    text = abbreviated(value)
    if "…" not in text:
        assert json.dumps(json.loads(text)) == json.dumps(value)


COLUMN = GraphQLEnumType("Column", {"A": "a", "B": "b"}, extensions={"shapes": True})
RECORD = GraphQLInputObjectType(
    "Record",
    {"a": GraphQLInputField(GraphQLInt), "b": GraphQLInputField(GraphQLString)},
    extensions={"rows": True},
)
SHAPED = GraphQLList(GraphQLNonNull(RECORD))


@pytest.mark.parametrize(
    ("type_", "first", "second", "same"),
    [
        (GraphQLInt, 1, 2, True),
        (GraphQLInt, 1, None, False),
        (GraphQLBoolean, True, False, False),
        (GraphQLList(GraphQLInt), [1], [None, 2], True),
        (GraphQLList(COLUMN), ["A"], ["B"], False),
        (GraphQLList(ROW), [{"int": 1}], [{"int": 2}, {"int": 3}], False),
        (ROW, {"int": 1, "text": "x"}, {"text": "y", "int": 2}, True),
        (ROW, {"int": 1}, {"int": None}, False),
        (ROW, {"int": 1}, {"big": 1}, False),
        (SHAPED, [{"a": 1, "b": "x"}] * 2, [{"b": None, "a": 2}] * 5, True),
        (SHAPED, [{"a": 1}] * 2, [{"a": 1}], False),
        (SHAPED, [{"a": 1}, {"b": "x"}], [{"a": 1}, {"a": 1}], False),
    ],
)
def test_values_with_the_same_statement_have_the_same_shape(
    type_: Any, first: Any, second: Any, same: bool
) -> None:
    assert (read(type_, first)[1] == read(type_, second)[1]) is same


@pytest.mark.parametrize(
    ("type_", "value", "objects"),
    [
        (ROW, {}, 1),
        (ROW, {"and": [{}, {"not": {}}]}, 4),
        (GraphQLList(ROW), [{"int": 1}] * 3, 3),
        (SHAPED, [{"a": 1}] * 5, 0),
        (SHAPED, [{"a": 1}, {"b": "x"}], 2),
    ],
)
def test_reading_stops_after_the_allowed_number_of_objects(type_: Any, value: Any, objects: int) -> None:
    reading = Reading()
    input_type(type_).read(value, [], reading, (), "v")
    assert reading.objects == MAX_INPUT_OBJECTS - objects
    reading.objects = objects - 1
    if objects:
        with pytest.raises(InputLimitExceeded):
            input_type(type_).read(value, [], reading, (), "v")


def test_reading_stops_after_the_allowed_number_of_errors() -> None:
    reading = Reading()
    with pytest.raises(InputLimitExceeded):
        input_type(GraphQLList(GraphQLInt)).read(["x"] * 2 * MAX_ERRORS, [], reading, (), "v")
    assert [path_steps(path) for path, _ in reading.errors] == [["v", n] for n in range(MAX_ERRORS + 1)]


def test_literals_may_contain_any_number_of_objects() -> None:
    result = LiteralReading().constant(parse_value(f"[{'{} ' * (MAX_INPUT_OBJECTS + 1)}]"), GraphQLList(ROW))
    assert result is not None
    assert len(result[0]) == MAX_INPUT_OBJECTS + 1


def literal(value: Any) -> str:
    """Return a value as a GraphQL literal."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {literal(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, str) and value not in ("SAD", "OK"):
        return print_ast(StringValueNode(value=value))
    return {"inf": "1e999", "-inf": "-1e999", "nan": "null", "None": "null"}.get(
        str(value), str(value).lower() if isinstance(value, bool) else str(value)
    )


@given(type_=st.sampled_from(TYPES), value=VALUES)
def test_literals_are_coerced_as_in_graphql_core(type_: Any, value: Any) -> None:
    node = parse_value(literal(value))
    expected, result = coerce_input_literal(node, type_), LiteralReading().constant(node, type_)
    assert (result is None) == (expected is Undefined)
    if result is not None:
        assert json.dumps(result[0]) == json.dumps(expected)
