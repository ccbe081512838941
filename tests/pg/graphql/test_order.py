"""Ordering over HTTP (docs/reference/graphql.md, Ordering)."""

from __future__ import annotations

import pytest
from support.service import Service

SCHEMA = """
create type size as enum ('small', 'medium', 'large');
create domain sized as size;
create table item (
    id int primary key, a int, b text not null, size size, sized sized, n numeric,
    j jsonb, l int[], r int4range, at timestamptz, u uuid, f boolean
);
insert into item (id, a, b, size, sized, n) values
    (1, 2, 'x', 'large', 'large', 1), (2, null, 'x', 'small', 'small', 'NaN'),
    (3, 1, 'y', 'medium', 'medium', -1), (4, null, 'a', null, null, null), (5, 2, 'a', 'small', 'small', 0.5);
create table backward (a int, b int, primary key (b, a));
insert into backward values (1, 2), (2, 1), (1, 1);
grant select on all tables in schema public to anon;
"""


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("[]", [1, 2, 3, 4, 5]),
        ("null", [1, 2, 3, 4, 5]),
        ("[{id: DescNullsLast}]", [5, 4, 3, 2, 1]),
        ("[{a: AscNullsFirst}]", [2, 4, 3, 1, 5]),
        ("[{a: AscNullsLast}]", [3, 1, 5, 2, 4]),
        ("[{a: DescNullsFirst}]", [2, 4, 1, 5, 3]),
        ("[{a: DescNullsLast}]", [1, 5, 3, 2, 4]),
        ("[{b: AscNullsLast}, {a: DescNullsLast}]", [5, 4, 1, 2, 3]),
        ("[{a: AscNullsLast}, {id: DescNullsLast}]", [3, 5, 1, 4, 2]),
        ("{b: DescNullsFirst}", [3, 1, 2, 4, 5]),
        ("[{size: AscNullsLast}]", [2, 5, 3, 1, 4]),
        ("[{sized: DescNullsLast}]", [1, 3, 2, 5, 4]),
        ("[{n: DescNullsLast}]", [2, 1, 5, 3, 4]),
        ("[{a: null, b: AscNullsLast, id: null}]", [4, 5, 1, 2, 3]),
        ("[{}, {b: DescNullsLast}, {a: null}]", [3, 1, 2, 4, 5]),
        ("[{a: AscNullsLast}, {a: DescNullsLast}, {id: DescNullsLast}]", [3, 5, 1, 4, 2]),
    ],
)
async def test_rows_are_in_the_requested_order(service: Service, order: str, expected: list[int]) -> None:
    assert await service.ids("item", f"orderBy: {order}") == expected


async def test_variable_can_be_any_part_of_order_by(service: Service) -> None:
    whole = "query($o: [itemOrderBy!]) { itemCollection(orderBy: $o) { edges { node { id } } } }"
    element = "query($o: itemOrderBy!) { itemCollection(orderBy: [$o]) { edges { node { id } } } }"
    direction = "query($o: OrderByDirection) { itemCollection(orderBy: {a: $o}) { edges { node { id } } } }"

    async def ids(query: str, value: object) -> list[int]:
        data = await service.data(query, {"o": value})
        return [edge["node"]["id"] for edge in data["itemCollection"]["edges"]]

    for _ in range(2):
        assert await ids(whole, [{"a": "DescNullsLast"}]) == [1, 5, 3, 2, 4]
        assert await ids(whole, {"a": "AscNullsFirst"}) == [2, 4, 3, 1, 5]
        assert await ids(whole, [{"b": "AscNullsLast"}, {"a": "DescNullsLast"}]) == [5, 4, 1, 2, 3]
        assert await ids(whole, None) == [1, 2, 3, 4, 5]
        assert await ids(element, {"a": "AscNullsFirst"}) == [2, 4, 3, 1, 5]
        assert await ids(element, {}) == [1, 2, 3, 4, 5]
        assert await ids(direction, "DescNullsFirst") == [2, 4, 1, 5, 3]
        assert await ids(direction, None) == [1, 2, 3, 4, 5]


async def test_default_order_is_that_of_the_primary_key(service: Service) -> None:
    assert await service.rows("backward", "a b") == [{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 1, "b": 2}]


@pytest.mark.parametrize(
    "order", ["[{a: AscNullsLast, b: AscNullsLast}]", "{id: DescNullsLast, a: AscNullsFirst}"]
)
async def test_element_with_several_keys_is_invalid(service: Service, order: str) -> None:
    response = await service.ask(f"{{ rows: itemCollection(orderBy: {order}) {{ __typename }} }}")
    assert "must have one column, but has 2" in response.error
    assert response.errors[0]["path"] == ["rows"]
    assert response.body["data"] is None
    query = "query($o: [itemOrderBy!]) { itemCollection(orderBy: $o) { __typename } }"
    response = await service.ask(query, {"o": {"id": "AscNullsLast", "a": "AscNullsLast"}})
    assert "must have one column, but has 2: id, a" in response.error


async def test_arrays_and_json_have_no_order(service: Service) -> None:
    assert set(service.schema().object_type("itemOrderBy").fields) == {
        *("id", "a", "b", "size", "sized", "r", "n", "at", "u", "f")
    }


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("[{j: AscNullsLast}]", "unknown field 'j'"),
        ("[{a: ASC}]", "Value 'ASC' does not exist in 'OrderByDirection' enum"),
        ('[{a: "ASC"}]', "Value 'ASC' does not exist in 'OrderByDirection' enum"),
        ('"a"', "Expected value of type 'itemOrderBy'"),
        ("[null]", "Expected value of non-null type"),
    ],
)
async def test_malformed_orders_are_rejected(service: Service, order: str, message: str) -> None:
    response = await service.ask(f"{{ itemCollection(orderBy: {order}) {{ __typename }} }}")
    assert message in response.error
    assert response.messages == ()
