"""Upserts with POST, and PUT of one row."""

from __future__ import annotations

from typing import Any

import pytest
from support import writing
from support.service import Service

SCHEMA, RESET = writing.SCHEMA, writing.RESET

SHOWN = {"prefer": "return=representation"}


MERGE = {"prefer": "resolution=merge-duplicates, return=representation"}
IGNORE = {"prefer": "resolution=ignore-duplicates, return=representation"}


async def test_merge_updates_existing_rows_and_inserts_the_rest(api: Service) -> None:
    """The status is 201 if a row was inserted, otherwise 200."""
    rows = [{"id": 1, "name": "A"}, {"id": 9, "name": "N"}]
    response = await api.rest("POST", "counter?order=id", rows, headers=MERGE)
    assert response.status == 201
    assert response.headers["preference-applied"] == "resolution=merge-duplicates, return=representation"
    assert response.body == [
        {"id": 1, "name": "A", "extra": "standard"},
        {"id": 9, "name": "N", "extra": "standard"},
    ]
    response = await api.rest("POST", "counter?order=id", rows, headers=MERGE)
    assert (response.status, len(response.body)) == (200, 2)
    # The status is the same without returned rows.
    headers = {"prefer": "resolution=merge-duplicates"}
    assert (await api.rest("POST", "counter", rows, headers=headers)).status == 200
    assert (await api.rest("POST", "counter", [{"id": 10, "name": "x"}], headers=headers)).status == 201
    assert (await api.rest("POST", "counter", [{"id": 10, "name": "y"}], headers=headers)).status == 200
    assert (await api.rest("POST", "counter", [], headers=headers)).status == 200


async def test_ignore_keeps_existing_rows(api: Service) -> None:
    """Only inserted rows are returned. The status is 201 even if there are none."""
    rows = [{"id": 1, "name": "A"}, {"id": 9, "name": "N"}]
    response = await api.rest("POST", "author", rows, headers=IGNORE)
    assert (response.status, response.body) == (201, [{"id": 9, "name": "N"}])
    assert response.headers["preference-applied"] == "resolution=ignore-duplicates, return=representation"
    response = await api.rest("POST", "author", rows, headers=IGNORE)
    assert (response.status, response.body) == (201, [])
    assert api.database.execute("select name from author where id = 1") == [("Ada",)]


async def test_on_conflict_names_another_key(api: Service) -> None:
    row = {"id": 9, "email": "a@x", "nick": "new"}
    response = await api.rest("POST", "named?on_conflict=email", row, headers=MERGE)
    assert (response.status, response.body) == (200, [row])
    rows = [{"id": 2, "nick": "b", "email": "c@x"}]
    response = await api.rest("POST", 'named?on_conflict="nick",id', rows, headers=MERGE)
    assert (response.status, response.body) == (200, rows)
    response = await api.rest("POST", "named?on_conflict=email", {"id": 3, "email": "c@x"}, headers=IGNORE)
    assert (response.status, response.body) == (201, [])
    response = await api.rest("POST", "named?on_conflict=nick", row, headers=MERGE)
    assert (response.status, response.body["code"]) == (400, "42P10")
    response = await api.rest("POST", "named?on_conflict=nope", row, headers=MERGE)
    assert (response.status, response.body["code"]) == (400, "42703")
    response = await api.rest("POST", "named?on_conflict=email", {"id": 11, "email": "a@x"})
    assert (response.status, response.body["code"]) == (409, "23505")


async def test_merge_works_with_composite_keys_partitions_and_key_only_tables(api: Service) -> None:
    rows = [{"one": 1, "two": "y", "word": "w"}, {"one": 1, "two": "z", "word": "v"}]
    response = await api.rest("POST", "pair", rows, headers=MERGE)
    assert (response.status, response.body) == (201, rows)
    row = {"id": 1, "day": "2010-05-05", "word": "w"}
    response = await api.rest("POST", "event", row, headers=MERGE)
    assert (response.status, response.body) == (200, [row])
    response = await api.rest("POST", "key_only", [{"id": 1}, {"id": 2}], headers=MERGE)
    assert (response.status, response.body) == (201, [{"id": 1}, {"id": 2}])
    response = await api.rest("POST", "Odd Table", {"Key Part": "k", "päge & more": "n"}, headers=MERGE)
    assert (response.status, response.body) == (200, [{"Key Part": "k", "päge & more": "n"}])


@pytest.mark.parametrize("role", ["anon", "authenticated"])
@pytest.mark.parametrize(
    ("method", "target", "row"),
    [
        ("POST", "keyed", {"id": 1, "word": "new"}),
        ("POST", "keyed?columns=id,word", [{"id": 1, "word": "new", "code": "ignored"}]),
        ("POST", "keyed?on_conflict=code", [{"code": "a", "word": "new"}]),
        ("PUT", "keyed?id=eq.1", {"id": 1, "word": "new"}),
    ],
)
async def test_upsert_does_not_set_the_key(
    api: Service, method: str, target: str, row: Any, role: str
) -> None:
    response = await api.rest(method, target, row, role=role, headers=MERGE)
    assert (response.status, response.body) == (200, [{"id": 1, "code": "a", "word": "new"}])


async def test_upsert_into_a_table_without_a_key_inserts(api: Service) -> None:
    response = await api.rest("POST", "keyless", {"word": "w", "number": 1}, headers=MERGE)
    assert (response.status, response.body) == (201, [{"word": "w", "number": 1}])
    assert response.headers["preference-applied"] == "return=representation"


async def test_missing_keys_get_their_defaults(api: Service) -> None:
    headers = {"prefer": "resolution=merge-duplicates, return=representation, missing=default"}
    rows = [{"id": 1, "name": "changed"}, {"name": "new"}]
    for table in ("counter", "numbered"):
        response = await api.rest("POST", f"{table}?columns=id,name&select=id,name", rows, headers=headers)
        assert response.status == 201
        assert response.body == [{"id": 1, "name": "changed"}, {"id": 3, "name": "new"}]
    applied = "resolution=merge-duplicates, missing=default, return=representation"
    assert response.headers["preference-applied"] == applied


async def test_upserted_rows_can_embed_resources_and_be_ordered(api: Service) -> None:
    rows = [{"id": 1, "name": "Ada"}, {"id": 2, "name": "B"}]
    response = await api.rest("POST", "author?select=name,book(title)&order=id.desc", rows, headers=MERGE)
    assert response.status == 200
    assert response.body == [
        {"name": "B", "book": []},
        {"name": "Ada", "book": [{"title": "one"}, {"title": "two"}]},
    ]


async def test_view_can_be_merged_by_its_underlying_key(api: Service) -> None:
    response = await api.rest(
        "POST", "cheap?select=id,price", {"id": 1, "title": "t", "price": 3}, headers=MERGE
    )
    assert (response.status, response.body) == (200, [{"id": 1, "price": 3.00}])


async def test_same_row_twice_is_rejected(api: Service) -> None:
    """PostgreSQL rejects two updates of one row, because their order is undefined."""
    response = await api.rest(
        "POST", "author", [{"id": 5, "name": "a"}, {"id": 5, "name": "b"}], headers=MERGE
    )
    assert (response.status, response.body["code"]) == (500, "21000")


# ---------------------------------------------------------------- PUT


async def test_put_inserts_or_replaces_a_row(api: Service) -> None:
    """The status is 201 for a new row and 200 for an existing one, or 204 if no rows are returned."""
    response = await api.rest("PUT", "author?id=eq.9", {"id": 9, "name": "n"}, headers=SHOWN)
    assert (response.status, response.body) == (201, [{"id": 9, "name": "n"}])
    assert response.headers["preference-applied"] == "return=representation"
    assert "content-range" not in response.headers
    response = await api.rest("PUT", "author?id=eq.9", [{"id": 9, "name": "m"}], headers=SHOWN)
    assert (response.status, response.body) == (200, [{"id": 9, "name": "m"}])
    for prefer in ({}, {"prefer": "return=minimal"}, {"prefer": "return=headers-only"}):
        response = await api.rest("PUT", "author?id=eq.9", {"id": 9, "name": "l"}, headers=prefer)
        assert (response.status, response.text) == (204, "")
        assert response.headers.get("preference-applied") == prefer.get("prefer")
        assert "content-type" not in response.headers
    assert api.database.execute("select name from author where id = 9") == [("l",)]


async def test_put_works_with_composite_keys(api: Service) -> None:
    row = {"one": 1, "two": "x", "word": "put"}
    response = await api.rest("PUT", "pair?two=eq.x&one=eq.1", row, headers=SHOWN)
    assert (response.status, response.body) == (200, [row])
    response = await api.rest("PUT", "key_only?id=eq.1", {"id": 1}, headers=SHOWN)
    assert (response.status, response.body) == (200, [{"id": 1}])
    response = await api.rest("PUT", "key_only?id=eq.2", {"id": 2}, headers=SHOWN)
    assert (response.status, response.body) == (201, [{"id": 2}])
    response = await api.rest("PUT", "Odd Table?Key%20Part=eq.z&select=*", {"Key Part": "z"}, headers=SHOWN)
    assert (response.status, response.body) == (201, [{"Key Part": "z", "päge & more": None}])


async def test_put_writes_only_the_row_named_in_the_url(api: Service) -> None:
    headers = {**SHOWN, "accept": "application/vnd.pgrst.object+json", "range": "1-1"}
    rows = [{"id": 8, "name": "x"}, {"id": 1, "name": "y"}, {"id": 1, "name": "z"}]
    response = await api.rest("PUT", "author?id=eq.1", rows, headers=headers)
    assert (response.status, response.body) == (200, {"id": 1, "name": "y"})
    assert api.database.execute("select count(*) from author where id = 8") == [(0,)]


@pytest.mark.parametrize(
    "target",
    [
        "author", "author?name=eq.Ada", "author?id=gt.1", "author?id=not.eq.1", "author?id=in.(1)",
        "author?and=(id.eq.1)", "author?id=eq.1&name=eq.Ada", "author?id=eq.1&id=eq.1",
        "author?id=eq(any).{1}", "pair?one=eq.1", "keyless?word=eq.w&number=eq.1", "keyless",
    ],
)  # fmt: skip
async def test_put_requires_filters_on_exactly_the_whole_key(api: Service, target: str) -> None:
    response = await api.rest("PUT", target, {"id": 1, "name": "x"})
    assert response.status == 405
    assert response.body == {
        "code": "PGRST105",
        "message": "Filters must include all and only primary key columns with 'eq' operators",
        "details": None,
        "hint": None,
    }


async def test_put_rejects_limit_and_offset(api: Service) -> None:
    for word in ("limit", "offset"):
        response = await api.rest("PUT", f"author?id=eq.1&{word}=1", {"id": 1, "name": "x"})
        assert (response.status, response.body["code"]) == (400, "PGRST114")
        assert response.body["message"] == "limit/offset querystring parameters are not allowed for PUT"


@pytest.mark.parametrize("body", [{"id": 2, "name": "x"}, [], [{"id": 3, "name": "y"}], {"name": "x"}, {}])
async def test_put_body_for_another_row_is_rejected(api: Service, body: Any) -> None:
    response = await api.rest("PUT", "author?id=eq.1", body, headers=SHOWN)
    assert response.status == 400
    assert response.body == {
        "code": "PGRST115",
        "message": "Payload values do not match URL in primary key column(s)",
        "details": None,
        "hint": None,
    }
    assert api.database.execute("select id, name from author order by id") == [(1, "Ada"), (2, "Bob")]
