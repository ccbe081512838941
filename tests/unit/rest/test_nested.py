"""Inserts of related rows: groups of rows, the values of each group, and parameters for nested members."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from dataapi.http.errors import ApiError, DatabaseError
from dataapi.http.messages import Request
from dataapi.rest.nested_errors import nested_error, placed
from dataapi.rest.parse.body import RowGroup, WrittenRows
from dataapi.rest.parse.nested import read_nested
from dataapi.rest.parse.request import ApiRequest, parse_request
from dataapi.rest.plan.nested import GroupText, with_groups
from dataapi.rest.plan.role import PlanCacheFigures, RestRole
from dataapi.rest.plan.tables import CatalogTables
from dataapi.settings import Project
from hypothesis import assume, given
from hypothesis import strategies as st
from support.catalog import MadeUp

PROJECT = Project(
    ref="a" * 20, organization="o", db_uri="postgresql://x@y/z", rest_features=frozenset({"nested-inserts"})
)


def _role() -> RestRole:
    builder = MadeUp(superuser=True)
    builder.table("boss", "id", "name")
    builder.table("shop", "id", "name", "boss_id")
    builder.table("item", "id", "name", "shop_id")
    builder.foreign_key("shop_boss", "shop", ["boss_id"], "boss")
    builder.foreign_key("item_shop", "item", ["shop_id"], "shop")
    return RestRole(PROJECT, CatalogTables(builder.catalog()), "anon", PlanCacheFigures())


ROLE = _role()


def grouped(body: Any, query: str = "", prefer: str = "", target: str = "shop") -> ApiRequest:
    headers = {"prefer": prefer} if prefer else {}
    text = body if isinstance(body, str) else json.dumps(body)
    http = Request("id", "POST", f"/rest/v1/{target}", query, headers, text.encode())
    return with_groups(ROLE, parse_request(http, PROJECT, frozenset()))


def flat(groups: tuple[RowGroup, ...]) -> list[RowGroup]:
    """Return all groups, including nested groups."""
    return [each for group in groups for each in (group, *_below(group))]


def _below(group: RowGroup) -> list[RowGroup]:
    return [each for related in group.related for each in flat(related.groups)]


def test_modules_of_the_feature_are_not_imported_unless_it_is_used() -> None:
    names = ("parse.nested", "plan.nested", "nested_errors")
    modules = {f"dataapi.rest.{name}" for name in names}
    program = f"import dataapi.rest.handler, sys; print(sorted({modules!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


# ---------------------------------------------------------------- groups

COLUMNS = st.fixed_dictionaries({}, optional={"id": st.integers(1, 9), "name": st.text(max_size=3)})
BOSS = COLUMNS
ITEM = COLUMNS
SHOP = st.builds(
    lambda own, related: {**own, **related},
    COLUMNS,
    st.fixed_dictionaries({}, optional={"boss": BOSS | st.none(), "item": st.lists(ITEM, max_size=4)}),
)


def at(body: Any, place: str) -> Any:
    for name, index in re.findall(r"([a-z]+)|\[([0-9]+)\]", place):
        body = body[name or int(index)]
    return body


@given(st.lists(SHOP, min_size=1, max_size=5) | SHOP)
def test_each_object_is_in_one_group_with_its_position(body: Any) -> None:
    shops = body if isinstance(body, list) else [body]
    assume(any({"boss", "item"} & shop.keys() for shop in shops))
    request = grouped(body)
    written = request.values.groups
    objects = list(shops)
    for shop in shops:
        objects += [boss for boss in [shop.get("boss")] if boss is not None]
        objects += shop.get("item", [])
    listed = [row for group in written for row in group.rows]
    assert sorted(map(json.dumps, listed)) == sorted(map(json.dumps, objects))
    for group in written:
        for index, row in enumerate(group.rows):
            assert at(body, group.place_of(index)) == row
    for shape in flat(request.input.rows.groups):
        group = written[shape.number]
        own = [{name: row[name] for name in row if name not in ("boss", "item")} for row in group.rows]
        assert all(tuple(sorted(row)) == shape.columns for row in own)
        assert len(own) == 1 or (shape.many and not shape.related)
        text = GroupText(shape.number, shape.columns, shape.many).bind(request.values)
        assert json.loads(text) == (own if shape.many else own[0])


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3), st.lists(st.integers(1, 5), min_size=1, max_size=3)
)
def test_plan_input_does_not_depend_on_lengths_and_values(one: list[int], other: list[int]) -> None:
    inputs = {
        grouped({"name": f"{values}", "item": [{"id": each} for each in values]}).input
        for values in (one, other)
    }
    assert len(inputs) == 1


def test_shapes_and_options_are_parts_of_the_plan_input() -> None:
    inputs = {
        grouped({"item": [{"id": 1}]}).input,
        grouped({"item": [{"name": "x"}]}).input,
        grouped({"item": [{"id": 1}, {"name": "x"}]}).input,
        grouped([{"item": [{"id": 1}]}]).input,
        grouped({"boss": {"id": 1}}).input,
        grouped({"boss": {"id": 1}}, "boss.columns=id").input,
        grouped({"boss": {"id": 1}}, "boss.on_conflict=id", "resolution=merge-duplicates").input,
        grouped({"boss": {"id": 1}}, "boss.on_conflict=name", "resolution=merge-duplicates").input,
    }
    assert len(inputs) == 8


def test_numbers_keep_their_digits() -> None:
    request = grouped('{"item": [{"name": 1.10, "id": 123456789012345678901e2}]}')
    [shape, _] = flat(request.input.rows.groups)[::-1]
    text = GroupText(shape.number, shape.columns, shape.many).bind(request.values)
    assert text == '[{"id":123456789012345678901e2,"name":1.10}]'


def test_equal_parents_are_one_group_if_they_may_exist() -> None:
    boss = {"id": 1, "name": "B"}
    body = [{"boss": boss}, {"boss": {"id": 2, "name": "B"}}, {"boss": boss}]
    assert len(grouped(body, "boss.on_conflict=id", "resolution=ignore-duplicates").values.groups) == 5
    assert len(grouped(body, "boss.on_conflict=id").values.groups) == 6
    without = [{"boss": {"id": None}}, {"boss": {}}, {"boss": {"id": None}}]
    assert len(grouped(without, "boss.on_conflict=id", "resolution=ignore-duplicates").values.groups) == 6
    assert len(grouped(body).values.groups) == 6


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("query", "rest", "columns", "conflicts"),
    [
        ("", "", {}, {}),
        ("select=a&columns=b", "select=a&columns=b", {}, {}),
        ("boss.on_conflict=a,b&x=eq.1", "x=eq.1", {}, {("boss",): ("a", "b")}),
        ("item.shop.columns=%22a%20b%22", "", {("item", "shop"): ("a b",)}, {}),
        ("boss%21fk.columns=a&boss%21fk.columns=b", "", {("boss!fk",): ("a",)}, {}),
        ("boss.columns", "boss.columns", {}, {}),
        ("a.columns.b=eq.1", "a.columns.b=eq.1", {}, {}),
    ],
)
def test_parameters_of_members_are_separated_from_other_parameters(
    query: str, rest: str, columns: Any, conflicts: Any
) -> None:
    remaining, body = read_nested(Request("id", "POST", "/rest/v1/shop", query, {}, b"{}"))
    assert remaining == rest
    assert body is not None
    assert (body.columns, body.conflicts) == (columns, conflicts)


@pytest.mark.parametrize(
    "text", ["", "1", "[]", "[1]", "[{}, 1]", "{", "\ufeff{}", '{"a": NaN}', "[" * 100_000]
)
def test_other_bodies_are_not_nested(text: str) -> None:
    assert read_nested(Request("id", "POST", "/rest/v1/shop", "", {}, text.encode()))[1] is None


# ---------------------------------------------------------------- errors


def test_positions_are_added_to_details() -> None:
    assert placed(ApiError(400, "c", "m"), "a[0].b").details == "The error is at a[0].b"
    assert placed(ApiError(400, "c", "m", details="Why."), "a").details == "Why. The error is at a"
    assert placed(ApiError(400, "c", "m", details=[1]), "a").details == [1]
    assert placed(ApiError(400, "c", "m"), "").details is None


GROUPS = (
    WrittenRows([{"name": "S"}], "", "shop"),
    WrittenRows([{"id": 1, "name": "x"}, {"id": 2, "name": "y"}], "item[3]", "item"),
)


@pytest.mark.parametrize(
    ("code", "message", "details", "table", "column", "place"),
    [
        ("22P02", 'invalid input syntax for type integer: "y"', None, None, None, "item[4].name"),
        ("22P02", 'invalid input syntax for type integer: "S"', None, None, None, "name"),
        ("22P02", 'invalid input syntax for type integer: "z"', None, None, None, None),
        ("23505", "duplicate key", "Key (id)=(2) already exists.", "item", None, "item[4].id"),
        ("23505", "duplicate key", "Key (id, name)=(2, y) already exists.", "item", None, "item"),
        ("23502", "null value", None, "shop", "boss_id", "boss_id"),
        ("23514", "check", None, "item", None, "item"),
        ("23514", "check", None, "boss", None, None),
    ],
)
def test_errors_of_postgresql_are_located(
    code: str, message: str, details: str | None, table: str | None, column: str | None, place: str | None
) -> None:
    error = DatabaseError(400, code, message, details=details).replaced(table=table, column=column)
    expected = " ".join(filter(None, [details, place and f"The error is at {place}"])) or None
    assert nested_error(error, GROUPS).details == expected
