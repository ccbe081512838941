"""Coercing variables gives what graphql-core gives, for values of the type and for others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dataapi.graphql.schema.type_mapping import BIG_FLOAT, BIG_INT, FLOAT, JSON, OPAQUE, UUID, abbreviated
from dataapi.graphql.variables import coercer, faults
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
    Undefined,
    coerce_input_value,
)
from graphql.type import GraphQLDefaultInput
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
DEFAULTED = GraphQLInputObjectType(
    "Defaulted",
    {"a": GraphQLInputField(GraphQLInt, default=GraphQLDefaultInput(value=3)), "row": GraphQLInputField(ROW)},
)  # fmt: skip
TYPES: tuple[Any, ...] = (
    *PLAIN.values(), ROW, STRICT, DEFAULTED, GraphQLList(ROW),
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


def check(type_: Any, value: Any) -> None:
    theirs = coerce_input_value(value, type_)
    try:
        ours = coercer(type_)(value)
    except RecursionError:
        raise
    except Exception:
        ours = Undefined
    assert (ours is Undefined) == (theirs is Undefined)
    assert (ours is Undefined) == bool(list(faults(value, type_))), "each refusal has a reason"
    if ours is not Undefined:
        assert json.dumps(ours) == json.dumps(theirs), "the order of members is the type's too"


@given(type_=st.sampled_from(TYPES), value=VALUES)
def test_any_value_is_coerced_as_graphql_core_does(type_: Any, value: Any) -> None:
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
def test_rows_are_coerced_as_graphql_core_does(rows: list[dict[str, Any]], shuffled: Any) -> None:
    """In the order of the type's members, whatever the order of the value's."""
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
def test_members_that_are_needed_or_unknown_are_noticed(value: Any) -> None:
    check(STRICT, value)
    check(DEFAULTED, value)


def _at(value: Any, place: tuple[str | int, ...]) -> Any:
    for step in place:
        value = value[step]
    return value


@given(type_=st.sampled_from(TYPES), value=VALUES)
def test_a_fault_has_its_place_and_the_value_as_json(type_: Any, value: Any) -> None:
    for place, message in faults(value, type_):
        found = _at(value, place)
        if found is None or isinstance(found, bool):
            assert "None" not in message
            assert str(found) not in message
        assert "{'" not in message


@pytest.mark.parametrize(
    ("value", "written"),
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
def test_a_value_in_a_message_is_json_and_short(value: Any, written: str) -> None:
    assert abbreviated(value) == written


@given(VALUES)
def test_a_small_value_in_a_message_can_be_read_back(value: Any) -> None:
    text = abbreviated(value)
    if "…" not in text:
        assert json.dumps(json.loads(text)) == json.dumps(value)
