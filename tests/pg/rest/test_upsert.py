"""Rows that may be there already: upserts by POST, and PUT of one row."""

from __future__ import annotations

from typing import Any

import pytest
from support import writing
from support.service import Service

SCHEMA, RESET = writing.SCHEMA, writing.RESET

SHOWN = {"prefer": "return=representation"}


MERGE = {"prefer": "resolution=merge-duplicates, return=representation"}
IGNORE = {"prefer": "resolution=ignore-duplicates, return=representation"}


async def test_merging_updates_what_is_there_and_inserts_the_rest(api: Service) -> None:
    """It is 201 when a row was inserted, 200 when none was; other columns stay."""
    rows = [{"id": 1, "name": "A"}, {"id": 9, "name": "N"}]
    answer = await api.rest("POST", "counter?order=id", rows, headers=MERGE)
    assert answer.status == 201
    assert answer.headers["preference-applied"] == "resolution=merge-duplicates, return=representation"
    assert answer.body == [
        {"id": 1, "name": "A", "extra": "standard"},
        {"id": 9, "name": "N", "extra": "standard"},
    ]
    answer = await api.rest("POST", "counter?order=id", rows, headers=MERGE)
    assert (answer.status, len(answer.body)) == (200, 2)
    # Without an answer of what came of it the status is the same, also the second time.
    headers = {"prefer": "resolution=merge-duplicates"}
    assert (await api.rest("POST", "counter", rows, headers=headers)).status == 200
    assert (await api.rest("POST", "counter", [{"id": 10, "name": "x"}], headers=headers)).status == 201
    assert (await api.rest("POST", "counter", [{"id": 10, "name": "y"}], headers=headers)).status == 200
    assert (await api.rest("POST", "counter", [], headers=headers)).status == 200


async def test_ignoring_leaves_what_is_there(api: Service) -> None:
    """Only what was inserted is shown; it is 201 even when that is nothing."""
    rows = [{"id": 1, "name": "A"}, {"id": 9, "name": "N"}]
    answer = await api.rest("POST", "author", rows, headers=IGNORE)
    assert (answer.status, answer.body) == (201, [{"id": 9, "name": "N"}])
    assert answer.headers["preference-applied"] == "resolution=ignore-duplicates, return=representation"
    answer = await api.rest("POST", "author", rows, headers=IGNORE)
    assert (answer.status, answer.body) == (201, [])
    assert api.database.execute("select name from author where id = 1") == [("Ada",)]


async def test_other_keys_are_named_by_on_conflict(api: Service) -> None:
    row = {"id": 9, "email": "a@x", "nick": "new"}
    answer = await api.rest("POST", "named?on_conflict=email", row, headers=MERGE)
    assert (answer.status, answer.body) == (200, [row])
    rows = [{"id": 2, "nick": "b", "email": "c@x"}]
    answer = await api.rest("POST", 'named?on_conflict="nick",id', rows, headers=MERGE)
    assert (answer.status, answer.body) == (200, rows)
    answer = await api.rest("POST", "named?on_conflict=email", {"id": 3, "email": "c@x"}, headers=IGNORE)
    assert (answer.status, answer.body) == (201, [])
    answer = await api.rest("POST", "named?on_conflict=nick", row, headers=MERGE)
    assert (answer.status, answer.body["code"]) == (400, "42P10")
    answer = await api.rest("POST", "named?on_conflict=nope", row, headers=MERGE)
    assert (answer.status, answer.body["code"]) == (400, "42703")
    answer = await api.rest("POST", "named?on_conflict=email", {"id": 11, "email": "a@x"})
    assert (answer.status, answer.body["code"]) == (409, "23505")


async def test_composite_keys_partitions_and_tables_of_keys_alone(api: Service) -> None:
    rows = [{"one": 1, "two": "y", "word": "w"}, {"one": 1, "two": "z", "word": "v"}]
    answer = await api.rest("POST", "pair", rows, headers=MERGE)
    assert (answer.status, answer.body) == (201, rows)
    row = {"id": 1, "day": "2010-05-05", "word": "w"}
    answer = await api.rest("POST", "event", row, headers=MERGE)
    assert (answer.status, answer.body) == (200, [row])
    answer = await api.rest("POST", "key_only", [{"id": 1}, {"id": 2}], headers=MERGE)
    assert (answer.status, answer.body) == (201, [{"id": 1}, {"id": 2}])
    answer = await api.rest("POST", "Odd Table", {"Key Part": "k", "päge & more": "n"}, headers=MERGE)
    assert (answer.status, answer.body) == (200, [{"Key Part": "k", "päge & more": "n"}])


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
async def test_an_upsert_does_not_set_the_key(
    api: Service, method: str, target: str, row: Any, role: str
) -> None:
    answer = await api.rest(method, target, row, role=role, headers=MERGE)
    assert (answer.status, answer.body) == (200, [{"id": 1, "code": "a", "word": "new"}])


async def test_without_a_key_rows_are_inserted(api: Service) -> None:
    answer = await api.rest("POST", "keyless", {"word": "w", "number": 1}, headers=MERGE)
    assert (answer.status, answer.body) == (201, [{"word": "w", "number": 1}])
    assert answer.headers["preference-applied"] == "return=representation"


async def test_missing_keys_take_their_defaults(api: Service) -> None:
    headers = {"prefer": "resolution=merge-duplicates, return=representation, missing=default"}
    rows = [{"id": 1, "name": "changed"}, {"name": "new"}]
    for table in ("counter", "numbered"):
        answer = await api.rest("POST", f"{table}?columns=id,name&select=id,name", rows, headers=headers)
        assert answer.status == 201
        assert answer.body == [{"id": 1, "name": "changed"}, {"id": 3, "name": "new"}]
    applied = "resolution=merge-duplicates, missing=default, return=representation"
    assert answer.headers["preference-applied"] == applied


async def test_rows_shown_of_an_upsert_embed_and_order(api: Service) -> None:
    rows = [{"id": 1, "name": "Ada"}, {"id": 2, "name": "B"}]
    answer = await api.rest("POST", "author?select=name,book(title)&order=id.desc", rows, headers=MERGE)
    assert answer.status == 200
    assert answer.body == [
        {"name": "B", "book": []},
        {"name": "Ada", "book": [{"title": "one"}, {"title": "two"}]},
    ]


async def test_a_view_is_merged_into_by_the_key_that_it_shows(api: Service) -> None:
    """Where PostgreSQL lets it."""
    answer = await api.rest(
        "POST", "cheap?select=id,price", {"id": 1, "title": "t", "price": 3}, headers=MERGE
    )
    assert (answer.status, answer.body) == (200, [{"id": 1, "price": 3.00}])


async def test_the_same_row_twice_is_refused(api: Service) -> None:
    """PostgreSQL would not know which one is to stay."""
    answer = await api.rest("POST", "author", [{"id": 5, "name": "a"}, {"id": 5, "name": "b"}], headers=MERGE)
    assert (answer.status, answer.body["code"]) == (500, "21000")


# ---------------------------------------------------------------- PUT


async def test_a_row_is_put_in_its_place(api: Service) -> None:
    """It is 201 when it is new and 200 when it was there; nothing is said of it unless asked for."""
    answer = await api.rest("PUT", "author?id=eq.9", {"id": 9, "name": "n"}, headers=SHOWN)
    assert (answer.status, answer.body) == (201, [{"id": 9, "name": "n"}])
    assert answer.headers["preference-applied"] == "return=representation"
    assert "content-range" not in answer.headers
    answer = await api.rest("PUT", "author?id=eq.9", [{"id": 9, "name": "m"}], headers=SHOWN)
    assert (answer.status, answer.body) == (200, [{"id": 9, "name": "m"}])
    for prefer in ({}, {"prefer": "return=minimal"}, {"prefer": "return=headers-only"}):
        answer = await api.rest("PUT", "author?id=eq.9", {"id": 9, "name": "l"}, headers=prefer)
        assert (answer.status, answer.text) == (204, "")
        assert answer.headers.get("preference-applied") == prefer.get("prefer")
        assert "content-type" not in answer.headers
    assert api.database.execute("select name from author where id = 9") == [("l",)]


async def test_a_composite_key_is_put_as_a_whole(api: Service) -> None:
    row = {"one": 1, "two": "x", "word": "put"}
    answer = await api.rest("PUT", "pair?two=eq.x&one=eq.1", row, headers=SHOWN)
    assert (answer.status, answer.body) == (200, [row])
    answer = await api.rest("PUT", "key_only?id=eq.1", {"id": 1}, headers=SHOWN)
    assert (answer.status, answer.body) == (200, [{"id": 1}])
    answer = await api.rest("PUT", "key_only?id=eq.2", {"id": 2}, headers=SHOWN)
    assert (answer.status, answer.body) == (201, [{"id": 2}])
    answer = await api.rest("PUT", "Odd Table?Key%20Part=eq.z&select=*", {"Key Part": "z"}, headers=SHOWN)
    assert (answer.status, answer.body) == (201, [{"Key Part": "z", "päge & more": None}])


async def test_only_the_row_that_the_url_names_is_put(api: Service) -> None:
    headers = {**SHOWN, "accept": "application/vnd.pgrst.object+json", "range": "1-1"}
    rows = [{"id": 8, "name": "x"}, {"id": 1, "name": "y"}, {"id": 1, "name": "z"}]
    answer = await api.rest("PUT", "author?id=eq.1", rows, headers=headers)
    assert (answer.status, answer.body) == (200, {"id": 1, "name": "y"})
    assert api.database.execute("select count(*) from author where id = 8") == [(0,)]


@pytest.mark.parametrize(
    "target",
    [
        "author", "author?name=eq.Ada", "author?id=gt.1", "author?id=not.eq.1", "author?id=in.(1)",
        "author?and=(id.eq.1)", "author?id=eq.1&name=eq.Ada", "author?id=eq.1&id=eq.1",
        "author?id=eq(any).{1}", "pair?one=eq.1", "keyless?word=eq.w&number=eq.1", "keyless",
    ],
)  # fmt: skip
async def test_a_put_names_its_row_by_the_whole_key_alone(api: Service, target: str) -> None:
    """Anything else is 405 with PGRST105."""
    answer = await api.rest("PUT", target, {"id": 1, "name": "x"})
    assert answer.status == 405
    assert answer.body == {
        "code": "PGRST105",
        "message": "Filters must include all and only primary key columns with 'eq' operators",
        "details": None,
        "hint": None,
    }


async def test_a_put_takes_no_limit_or_offset(api: Service) -> None:
    for word in ("limit", "offset"):
        answer = await api.rest("PUT", f"author?id=eq.1&{word}=1", {"id": 1, "name": "x"})
        assert (answer.status, answer.body["code"]) == (400, "PGRST114")
        assert answer.body["message"] == "limit/offset querystring parameters are not allowed for PUT"


@pytest.mark.parametrize("body", [{"id": 2, "name": "x"}, [], [{"id": 3, "name": "y"}], {"name": "x"}, {}])
async def test_a_body_for_another_row_is_refused(api: Service, body: Any) -> None:
    """It is 400 with PGRST115, and nothing is changed."""
    answer = await api.rest("PUT", "author?id=eq.1", body, headers=SHOWN)
    assert answer.status == 400
    assert answer.body == {
        "code": "PGRST115",
        "message": "Payload values do not match URL in primary key column(s)",
        "details": None,
        "hint": None,
    }
    assert api.database.execute("select id, name from author order by id") == [(1, "Ada"), (2, "Bob")]
