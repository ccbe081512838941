"""REST updates: one body for all matching rows, or one object per row."""

from __future__ import annotations

from typing import Any

import pytest
from support import writing
from support.postgres import GENERATED, Server
from support.service import Service

SCHEMA, RESET = writing.SCHEMA, writing.RESET

SHOWN = {"prefer": "return=representation"}
MATCHED = {"prefer": "resolution=match, return=representation"}


async def test_matching_rows_are_updated_without_a_response_body(api: Service) -> None:
    response = await api.rest("PATCH", "book?author=eq.1", {"price": 5, "facts": {"a": 1}})
    assert (response.status, response.text) == (204, "")
    assert response.headers["content-range"] == "0-1/*"
    assert "content-type" not in response.headers
    assert api.database.execute("select id, price::int, facts from book order by id") == [
        (1, 5, {"a": 1}), (2, 5, {"a": 1}), (3, 10, None),
    ]  # fmt: skip
    response = await api.rest(
        "PATCH", "book?id=eq.99", {"price": 5}, headers={"prefer": "return=headers-only"}
    )
    assert (response.status, response.headers["content-range"]) == (204, "*/*")
    assert response.headers["preference-applied"] == "return=headers-only"


async def test_updated_rows_are_returned_on_request(api: Service) -> None:
    target = "book?author=eq.1&select=title,author(name)&order=id.desc"
    headers = {"prefer": "return=representation, count=exact"}
    response = await api.rest("PATCH", target, {"title": "same"}, headers=headers)
    assert response.status == 200
    assert response.body == [{"title": "same", "author": {"name": "Ada"}}] * 2
    assert response.headers["content-range"] == "0-1/2"
    assert response.headers["preference-applied"] == "return=representation, count=exact"
    response = await api.rest("PATCH", "book?id=eq.99", {"title": "same"}, headers=headers)
    assert (response.status, response.body, response.headers["content-range"]) == (200, [], "*/0")
    response = await api.rest(
        "PATCH", "book?id=in.(1,2,3)&select=id&order=id.desc", {"price": 1}, headers=SHOWN
    )
    assert response.body == [{"id": 3}, {"id": 2}, {"id": 1}]


async def test_updated_row_is_returned_even_if_it_no_longer_matches(api: Service) -> None:
    response = await api.rest("PATCH", "author?name=eq.Ada", {"name": "Eve"}, headers=SHOWN)
    assert response.body == [{"id": 1, "name": "Eve"}]


async def test_every_kind_of_filter_selects_rows(api: Service) -> None:
    for number, (filters, ids) in enumerate([
        ("or=(id.eq.1,title.like.t*)&id=lt.3", [1, 2]),
        ("id=not.in.(1,2)", [3]),
        ("author=is.null", [3]),
        ("tags=cs.{a}", []),
        ("", [1, 2, 3]),
    ]):  # fmt: skip
        response = await api.rest(
            "PATCH", f"book?select=id&order=id&{filters}", {"price": number}, headers=SHOWN
        )
        assert [row["id"] for row in response.body] == ids, filters
    await api.rest("PATCH", "book?id=eq.2", {"facts": {"a": {"b": "c"}}})
    response = await api.rest("PATCH", "book?facts->a->>b=eq.c&select=id", {"price": 9}, headers=SHOWN)
    assert response.body == [{"id": 2}]


async def test_empty_body_changes_nothing(api: Service) -> None:
    nothing: tuple[Any, ...] = ({}, [], [{}], 7)
    for body in nothing:
        response = await api.rest("PATCH", "book?id=eq.1", body)
        assert (response.status, response.headers["content-range"]) == (204, "*/*"), body
        response = await api.rest("PATCH", "book?id=eq.1&select=id,author(name)", body, headers=SHOWN)
        assert (response.status, response.body) == (200, []), body
    response = await api.rest("PATCH", "book?id=eq.1", "")
    assert (response.status, response.body["code"]) == (400, "PGRST102")
    assert (await api.rest("PATCH", "write_only", {})).status == 204


async def test_first_object_of_an_array_is_applied_to_all_rows(api: Service) -> None:
    """PostgREST does the same."""
    rows = [{"name": "first"}, {"name": "second"}]
    response = await api.rest("PATCH", "author?select=name", rows, headers=SHOWN)
    assert response.body == [{"name": "first"}] * 2


async def test_columns_parameter_selects_updated_columns(api: Service) -> None:
    target = "counter?id=eq.1&columns=name,extra&select=name,extra"
    response = await api.rest("PATCH", target, {"name": "n", "id": 9}, headers=SHOWN)
    assert response.body == [{"name": "n", "extra": None}]
    headers = {"prefer": "return=representation, missing=default"}
    response = await api.rest("PATCH", target, {"name": "m"}, headers=headers)
    assert response.body == [{"name": "m", "extra": "standard"}]
    assert response.headers["preference-applied"] == "missing=default, return=representation"
    response = await api.rest("PATCH", "counter?columns=nope", {"nope": 1})
    assert (response.status, response.body["code"]) == (400, "PGRST204")


async def test_limits_do_not_filter_updates(api: Service) -> None:
    """PostgREST 13 and later also ignore limits. The order applies to the returned rows."""
    response = await api.rest("PATCH", "author?limit=1&offset=1&order=id.desc", {"name": "x"}, headers=SHOWN)
    assert [row["id"] for row in response.body] == [2, 1]


async def test_single_object_response_requires_exactly_one_row(api: Service) -> None:
    headers = {**SHOWN, "accept": "application/vnd.pgrst.object+json"}
    response = await api.rest("PATCH", "author?id=eq.1", {"name": "x"}, headers=headers)
    assert (response.status, response.body) == (200, {"id": 1, "name": "x"})
    for target, rows in (("author", 2), ("author?id=eq.99", 0)):
        response = await api.rest("PATCH", target, {"name": "y"}, headers=headers)
        assert (response.status, response.body["code"]) == (406, "PGRST116")
        assert response.body["details"] == f"The result contains {rows} rows"
    assert api.database.execute("select count(*) from author where name = 'y'") == [(0,)]


async def test_max_affected_limits_updated_rows(api: Service) -> None:
    """``max-affected`` requires ``handling=strict``."""
    headers = {"prefer": "handling=strict, max-affected=1"}
    response = await api.rest("PATCH", "author?id=eq.1", {"name": "x"}, headers=headers)
    assert (response.status, response.headers["preference-applied"]) == (
        204,
        "handling=strict, max-affected=1",
    )
    response = await api.rest("PATCH", "author", {"name": "y"}, headers=headers)
    assert response.status == 400
    assert response.body == {
        "code": "PGRST124",
        "message": "Query result exceeds max-affected preference constraint",
        "details": "The query affects 2 rows",
        "hint": None,
    }
    assert api.database.execute("select count(*) from author where name = 'y'") == [(0,)]
    response = await api.rest("PATCH", "author", {"name": "y"}, headers={"prefer": "max-affected=1"})
    assert response.status == 204
    assert "preference-applied" not in response.headers


@pytest.mark.parametrize(
    ("target", "body", "status", "code"),
    [
        ("author?id=eq.2", {"id": 1}, 409, "23505"),
        ("book?id=eq.1", {"author": 99}, 409, "23503"),
        ("book?id=eq.1", {"title": None}, 400, "23502"),
        ("fixed", {"twice": 1}, 400, GENERATED),
        ("cheap?id=eq.1", {"price": 50}, 400, "44000"),
        ("total", {"books": 1}, 500, "55000"),
        ("owned?id=eq.2", {"word": 7, "owner": "me"}, 204, None),
        ("secret", {"hidden": "x"}, 401, "42501"),
        ("nowhere", {"a": 1}, 404, "PGRST205"),
        ("author?nope=eq.1", {"name": "x"}, 400, "42703"),
    ],
)
async def test_updates_have_the_documented_status(
    api: Service, server: Server, target: str, body: Any, status: int, code: str | None
) -> None:
    code = server.generated_refusal if code == GENERATED else code
    response = await api.rest("PATCH", target, body)
    assert response.status == status
    assert code is None or response.body["code"] == code


async def test_policies_and_column_privileges_apply_to_updates(api: Service) -> None:
    response = await api.rest("PATCH", "owned?select=id", {"word": "w"}, headers=SHOWN, role="authenticated")
    assert response.body == [{"id": 1}]
    api.database.execute("insert into secret values (1, 'a')")
    response = await api.rest("PATCH", "secret?id=eq.1", {"shown": "b"})
    assert response.status == 204
    response = await api.rest("PATCH", "secret?id=eq.1&select=id", {"shown": "b"}, headers=SHOWN)
    assert response.body == [{"id": 1}]


async def test_views_and_partitions_can_be_updated(api: Service) -> None:
    response = await api.rest("PATCH", "cheap?id=eq.1&select=price", {"price": 2}, headers=SHOWN)
    assert response.body == [{"price": 2.00}]
    response = await api.rest("PATCH", "shout?id=eq.1&select=id", {"title": "LOUD"}, headers=SHOWN)
    assert response.body == [{"id": 1}]
    response = await api.rest("PATCH", "event?id=eq.1&select=id", {"day": "2030-01-01"}, headers=SHOWN)
    assert response.body == [{"id": 1}]
    assert api.database.execute("select title from book where id = 1") == [("loud",)]
    assert api.database.execute("select count(*) from event_new") == [(2,)]


# ---------------------------------------------------------------- one object per row


async def test_each_row_is_updated_from_its_own_object(api: Service) -> None:
    rows = [
        {"id": 2, "title": "TWO", "price": 2},
        {"id": 1, "title": "ONE", "price": 1},
        {"id": 99, "title": "x", "price": 0},
    ]
    response = await api.rest("PATCH", "book?select=id,title,price&order=id", rows, headers=MATCHED)
    assert (response.status, response.headers["content-range"]) == (200, "0-1/*")
    assert response.headers["preference-applied"] == "resolution=match, return=representation"
    assert response.body == [
        {"id": 1, "title": "ONE", "price": 1.00},
        {"id": 2, "title": "TWO", "price": 2.00},
    ]
    assert len(response.messages) == 1
    assert len(response.messages[0].statements) == 1


async def test_members_missing_from_an_object_are_unchanged(api: Service) -> None:
    rows = [{"id": 1, "name": "x"}, {"id": 2, "extra": None}]
    response = await api.rest("PATCH", "counter?order=id", rows, headers=MATCHED)
    assert response.body == [
        {"id": 1, "name": "x", "extra": "standard"},
        {"id": 2, "name": "b", "extra": None},
    ]
    headers = {"prefer": "resolution=match, return=representation, missing=default"}
    rows = [{"id": 1, "name": "y"}, {"id": 2, "extra": "e"}]
    response = await api.rest("PATCH", "counter?order=id", rows, headers=headers)
    assert response.body == [
        {"id": 1, "name": "y", "extra": "standard"},
        {"id": 2, "name": None, "extra": "e"},
    ]
    assert (
        response.headers["preference-applied"] == "resolution=match, missing=default, return=representation"
    )


async def test_rows_can_be_matched_by_any_columns(api: Service) -> None:
    """``on_conflict`` names the columns. Filters restrict the rows that may change."""
    rows: list[Any] = [{"email": "a@x", "nick": "A"}, {"email": "b@x", "nick": "B"}]
    response = await api.rest("PATCH", "named?on_conflict=email&order=id&select=nick", rows, headers=MATCHED)
    assert response.body == [{"nick": "A"}, {"nick": "B"}]
    rows = [{"one": 1, "two": "y", "word": "changed"}]
    assert (await api.rest("PATCH", "pair", rows, headers=MATCHED)).body == rows
    rows = [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]
    response = await api.rest("PATCH", "author?name=like.A*", rows, headers=MATCHED)
    assert response.body == [{"id": 1, "name": "x"}]
    response = await api.rest("PATCH", "author?columns=name", {"id": 2, "name": "z", "x": 1}, headers=MATCHED)
    assert response.body == [{"id": 2, "name": "z"}]


async def test_each_row_is_updated_from_its_own_csv_line(api: Service) -> None:
    headers = {**MATCHED, "content-type": "text/csv"}
    response = await api.rest("PATCH", "author?order=id", "id,name\n1,x\n2,y", headers=headers)
    assert response.body == [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]


@pytest.mark.parametrize(
    ("target", "body", "code", "message"),
    [
        ("author", [{"name": "x"}], "PGRST102", "All objects must have the key columns: id"),
        ("author", [{"id": None, "name": "x"}], "PGRST102", "All objects must have the key columns: id"),
        ("pair", [{"one": 1, "word": "x"}], "PGRST102", "All objects must have the key columns: one, two"),
        (
            "author",
            [{"id": 1, "name": "x"}, {"id": "1", "name": "y"}],
            "PGRST102",
            "All objects must differ in the key columns: id",
        ),
        ("author", [1], "PGRST102", "All object keys must match"),
        ("keyless", [{"word": "x"}], "PGRST102", "'keyless' has no primary key to match rows by"),
        ("author?on_conflict=nope", [{"nope": 1}], "42703", 'column "nope" does not exist'),
    ],
)
async def test_objects_without_a_distinct_key_are_rejected(
    api: Service, target: str, body: Any, code: str, message: str
) -> None:
    response = await api.rest("PATCH", target, body, headers=MATCHED)
    assert (response.status, response.body["code"], response.body["message"]) == (400, code, message)


async def test_matched_rows_have_the_same_limits(api: Service) -> None:
    rows = [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]
    headers = {"prefer": "resolution=match, handling=strict, max-affected=1"}
    response = await api.rest("PATCH", "author", rows, headers=headers)
    assert (response.status, response.body["code"]) == (400, "PGRST124")
    rows = [{"id": 1, "word": "x"}, {"id": 2, "word": "y"}]
    response = await api.rest("PATCH", "owned?select=id", rows, headers=MATCHED, role="authenticated")
    assert response.body == [{"id": 1}]
    for body in ([], [{"id": 1}]):
        response = await api.rest("PATCH", "author", body, headers=MATCHED)
        assert (response.status, response.body) == (200, [])
