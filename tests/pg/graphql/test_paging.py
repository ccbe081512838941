"""Pagination over HTTP: forward, backward and by offset (docs/reference/graphql.md, Pagination)."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.service import Service, nodes

SCHEMA = """
create table item (id int primary key, a int, b text, c float8 not null, d date);
insert into item
    select n, nullif(n % 4, 0), case when n % 3 > 0 then chr(97 + n % 5) end, n % 2, null
    from generate_series(1, 23) n;
update item set d = date '2024-01-01' + id % 6 where id % 5 <> 0;
create table pair (x int, y text, z int, primary key (y, x));
insert into pair select n % 5, chr(97 + n / 5), nullif(n % 2, 0) from generate_series(0, 19) n;
create table parent (id int primary key);
create table child (id int primary key, parent_id int references parent);
insert into parent select generate_series(1, 3);
insert into child select n, 1 + n % 2 from generate_series(1, 7) n;
create table small (id int primary key);
insert into small select generate_series(1, 10);
comment on table small is '@graphql({"max_rows": 4, "totalCount": {"enabled": true}})';
create table many (id int primary key);
insert into many select generate_series(1, 40);
create table nothing (id int primary key);
create table moving (id int primary key, place int not null);
grant select on all tables in schema public to anon;
"""
PAGE = "pageInfo { startCursor endCursor hasNextPage hasPreviousPage }"


async def page(
    service: Service, base: str, arguments: str, fields: str = "id"
) -> tuple[list[Any], dict[str, Any]]:
    """Return the values of one field of a page's nodes and the page's ``pageInfo``."""
    arguments = f"({arguments})" if arguments else ""
    query = f"{{ {base}Collection{arguments} {{ edges {{ cursor node {{ {fields} }} }} {PAGE} }} }}"
    found = (await service.data(query))[f"{base}Collection"]
    edges = found["edges"]
    info = found["pageInfo"]
    assert info["startCursor"] == (edges[0]["cursor"] if edges else None)
    assert info["endCursor"] == (edges[-1]["cursor"] if edges else None)
    return [node[fields] for node in nodes(found)], info


def quoted(text: str | None) -> str:
    return json.dumps(text)


async def test_first_page_accepts_null_or_absent_after(service: Service) -> None:
    first, info = await page(service, "small", "first: 3")
    again, _ = await page(service, "small", "first: 3, after: null, last: null, before: null, offset: null")
    assert first == again == [1, 2, 3]
    assert (info["hasNextPage"], info["hasPreviousPage"]) == (True, False)


async def test_end_cursor_leads_through_the_collection(service: Service) -> None:
    seen: list[int] = []
    flags: list[bool] = []
    cursor = None
    while not flags or (flags[-1] and len(flags) < 9):
        ids, info = await page(service, "small", f"first: 3, after: {quoted(cursor)}")
        seen += ids
        flags.append(info["hasNextPage"])
        cursor = info["endCursor"]
    assert seen == list(range(1, 11))
    assert flags == [True, True, True, False]


async def test_start_cursor_leads_backward(service: Service) -> None:
    pages: list[list[int]] = []
    cursor, more = None, True
    while more and len(pages) < 9:
        ids, info = await page(service, "small", f"last: 4, before: {quoted(cursor)}")
        pages.append(ids)
        more, cursor = info["hasPreviousPage"], info["startCursor"]
        assert info["hasNextPage"] is (len(pages) > 1)
    assert pages == [[7, 8, 9, 10], [3, 4, 5, 6], [1, 2]]


async def test_offset_skips(service: Service) -> None:
    assert (await page(service, "small", "first: 2, offset: 3"))[0] == [4, 5]
    assert (await page(service, "small", "offset: 8"))[0] == [9, 10]
    ids, info = await page(service, "small", "first: 2, offset: 8")
    assert ids == [9, 10]
    assert (info["hasNextPage"], info["hasPreviousPage"]) == (False, True)
    ids, info = await page(service, "small", "first: 2, offset: 99")
    assert ids == []
    assert (info["hasNextPage"], info["hasPreviousPage"]) == (False, True)
    _, info = await page(service, "small", "first: 2")
    ids, info = await page(service, "small", f"first: 2, offset: 3, after: {quoted(info['endCursor'])}")
    assert ids == [6, 7]
    assert (info["hasNextPage"], info["hasPreviousPage"]) == (True, True)
    assert (await page(service, "small", "offset: 0"))[1]["hasPreviousPage"] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("first: 1, last: 1", 'only one of "first" and "last" may be provided'),
        ('before: "WzFd", after: "WzFd"', 'only one of "before" and "after" may be provided'),
        ('first: 1, before: "WzFd"', '"first" may only be used with "after"'),
        ('last: 1, after: "WzFd"', '"last" may only be used with "before"'),
        ("last: 1, offset: 1", '"offset" may only be used with "first" and "after"'),
        ('before: "WzFd", offset: 1', '"offset" may only be used with "first" and "after"'),
        ("first: -1", "`first` must be an unsigned integer"),
        ("last: -1", "`last` must be an unsigned integer"),
        ("offset: -1", "`offset` must be an unsigned integer"),
        ('after: "?"', "Failed to decode cursor, error 1"),
        ('after: "eA=="', "Failed to decode cursor, error 2"),
        ('after: "e30="', "Failed to decode cursor, error 3"),
        ('after: "WzEsMl0="', "orderBy clause incompatible with pagination cursor"),
        ('before: "W10="', "orderBy clause incompatible with pagination cursor"),
    ],
)
async def test_invalid_page_arguments_are_rejected(service: Service, arguments: str, message: str) -> None:
    response = await service.ask(f"{{ rows: smallCollection({arguments}) {{ edges {{ cursor }} }} }}")
    assert response.error == message
    assert response.errors[0]["path"] == ["rows"]
    assert response.errors[0]["locations"]
    assert response.body["data"] is None
    assert response.messages == ()


@pytest.mark.parametrize(
    ("name", "kind", "value", "message"),
    [
        ("first", "Int", -5, "`first` must be an unsigned integer"),
        ("offset", "Int", -5, "`offset` must be an unsigned integer"),
        ("after", "Cursor", "!", "Failed to decode cursor, error 1"),
        ("after", "Cursor", "W10=", "orderBy clause incompatible with pagination cursor"),
    ],
)
async def test_variables_are_validated_like_literals(
    service: Service, name: str, kind: str, value: object, message: str
) -> None:
    query = f"query($v: {kind}) {{ rows: smallCollection({name}: $v) {{ edges {{ cursor }} }} }}"
    good = {"first": 1, "offset": 1, "after": "WzFd"}[name]
    await service.data(query, {"v": good})
    response = await service.ask(query, {"v": value})
    assert response.error == message
    assert response.errors[0]["path"] == ["rows"]
    assert (await service.data(query, {"v": good}))["rows"]["edges"]


async def test_page_is_limited_to_max_rows(service: Service) -> None:
    for arguments in ("", "first: 100", "first: 2147483647", "after: null"):
        ids, info = await page(service, "small", arguments)
        assert ids == [1, 2, 3, 4]
        assert info["hasNextPage"] is True
    ids, info = await page(service, "small", "last: 100")
    assert ids == [7, 8, 9, 10]
    assert info["hasPreviousPage"] is True
    assert len((await page(service, "many", "first: 1000"))[0]) == 30


async def test_page_without_rows_is_empty(service: Service) -> None:
    ids, info = await page(service, "small", "first: 0")
    assert ids == []
    assert info == {"startCursor": None, "endCursor": None, "hasNextPage": True, "hasPreviousPage": False}
    ids, info = await page(service, "small", "last: 0")
    assert info == {"startCursor": None, "endCursor": None, "hasNextPage": False, "hasPreviousPage": True}
    for arguments in ("", "first: 5", "last: 5"):
        ids, info = await page(service, "nothing", arguments)
        assert ids == []
        assert info["hasNextPage"] is info["hasPreviousPage"] is False


async def test_page_info_does_not_need_the_rows(service: Service) -> None:
    _, whole = await page(service, "item", 'first: 5, after: "WzNd"')
    for name, value in whole.items():
        data = await service.data(
            f'{{ itemCollection(first: 5, after: "WzNd") {{ pageInfo {{ {name} }} }} }}'
        )
        assert data["itemCollection"]["pageInfo"] == {name: value}


async def test_cursor_is_the_ordering_values_with_the_key(service: Service) -> None:
    query = """{ pairCollection(first: 1, orderBy: [{z: DescNullsLast}]) { edges { cursor } } }"""
    [edge] = (await service.data(query))["pairCollection"]["edges"]
    assert json.loads(base64.b64decode(edge["cursor"])) == [1, "a", 1]


async def test_cursor_of_deleted_row_still_works(service: Service) -> None:
    service.database.execute("insert into moving select n, n * 10 from generate_series(1, 6) n")
    order = "orderBy: [{place: DescNullsLast}]"
    first, info = await page(service, "moving", f"first: 3, {order}")
    assert first == [6, 5, 4]
    service.database.execute(
        "delete from moving where id = 4; insert into moving values (10, 55), (11, 35), (12, 5)"
    )
    after = f"after: {quoted(info['endCursor'])}"
    second, info = await page(service, "moving", f"first: 3, {order}, {after}")
    assert second == [11, 3, 2]
    third, _ = await page(service, "moving", f"first: 3, {order}, after: {quoted(info['endCursor'])}")
    assert third == [1, 12]
    back, info = await page(service, "moving", f"last: 2, {order}, before: {quoted(info['startCursor'])}")
    assert back == [10, 5]
    assert info["hasPreviousPage"] is True


@pytest.mark.parametrize(
    ("order", "arguments", "facts"),
    [
        # No value is below 0, so only rows with NULL are on the other side of the cursor.
        ("AscNullsFirst", "after", (True, True)),
        ("AscNullsLast", "after", (True, False)),
        ("DescNullsLast", "before", (True, True)),
        ("DescNullsFirst", "before", (False, True)),
    ],
)
async def test_null_rows_are_on_one_side_of_a_cursor(
    service: Service, order: str, arguments: str, facts: tuple[bool, bool]
) -> None:
    cursor = base64.b64encode(b"[0, 0]").decode()
    count = "first" if arguments == "after" else "last"
    _, info = await page(service, "item", f'{count}: 2, {arguments}: "{cursor}", orderBy: {{a: {order}}}')
    assert (info["hasNextPage"], info["hasPreviousPage"]) == facts


async def test_nested_pages_have_their_own_arguments_and_page_info(service: Service) -> None:
    fields = "edges { node { id } } pageInfo { hasNextPage hasPreviousPage endCursor }"
    query = f"""{{ parentCollection {{ edges {{ node {{ id
        head: childCollection(first: 2, orderBy: [{{id: DescNullsLast}}]) {{ {fields} }}
        tail: childCollection(last: 1) {{ {fields} }} }} }} }} }}"""
    head, tail, empty = [], [], []
    for node in nodes((await service.data(query))["parentCollection"]):
        head.append([child["id"] for child in nodes(node["head"])])
        tail.append([child["id"] for child in nodes(node["tail"])])
        empty.append((node["head"]["pageInfo"]["hasNextPage"], node["tail"]["pageInfo"]["hasPreviousPage"]))
    assert head == [[6, 4], [7, 5], []]
    assert tail == [[6], [7], []]
    assert empty == [(True, True), (True, True), (False, False)]


SQL = {
    "AscNullsFirst": "asc nulls first",
    "AscNullsLast": "asc nulls last",
    "DescNullsFirst": "desc nulls first",
    "DescNullsLast": "desc nulls last",
}

terms = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(list(SQL))), max_size=3, unique_by=lambda term: term[0]
)


async def walk(service: Service, base: str, order: str, size: int, *, backward: bool) -> list[Any]:
    """Read a collection page by page, checking each ``pageInfo``."""
    found: list[Any] = []
    cursor, more = None, True
    count, end = ("last", "before") if backward else ("first", "after")
    while more:
        arguments = f"{count}: {size}, {end}: {quoted(cursor)}, orderBy: {order}"
        ids, info = await page(service, base, arguments, "nodeId")
        behind = bool(found)
        assert len(found) < 50, "the pages never end"
        found = ids + found if backward else found + ids
        ahead, back = ("hasPreviousPage", "hasNextPage") if backward else ("hasNextPage", "hasPreviousPage")
        assert info[back] is behind
        more = info[ahead]
        assert not more or len(ids) == size
        cursor = info["startCursor"] if backward else info["endCursor"]
    return found


@given(order=terms, size=st.integers(1, 9), backward=st.booleans())
async def test_concatenated_pages_are_the_ordered_list(
    service: Service, order: list[tuple[str, str]], size: int, backward: bool
) -> None:
    written = "[" + ", ".join(f"{{{name}: {direction}}}" for name, direction in order) + "]"
    found = await walk(service, "item", written, size, backward=backward)
    terms = ", ".join([*(f"{name} {SQL[direction]}" for name, direction in order), "id"])
    rows = service.database.execute(f"select id from item order by {terms}")
    expected = [base64.b64encode(f'["public", "item", {row[0]}]'.encode()).decode() for row in rows]
    assert found == expected


@given(
    order=st.lists(
        st.tuples(st.sampled_from("xyz"), st.sampled_from(list(SQL))), max_size=3, unique_by=lambda t: t[0]
    ),
    size=st.integers(1, 7),
    backward=st.booleans(),
)
async def test_pages_of_a_composite_key(
    service: Service, order: list[tuple[str, str]], size: int, backward: bool
) -> None:
    written = "[" + ", ".join(f"{{{name}: {direction}}}" for name, direction in order) + "]"
    found = await walk(service, "pair", written, size, backward=backward)
    terms = ", ".join([*(f"{name} {SQL[direction]}" for name, direction in order), "y, x"])
    rows = service.database.execute(f"select y, x from pair order by {terms}")
    assert [json.loads(base64.b64decode(node)) for node in found] == [
        ["public", "pair", y, x] for y, x in rows
    ]
