"""Updating by REST: one body for all rows that match, or an object for each row."""

from __future__ import annotations

from typing import Any

import pytest
from support import writing
from support.postgres import GENERATED, Server
from support.service import Service

SCHEMA, RESET = writing.SCHEMA, writing.RESET

SHOWN = {"prefer": "return=representation"}
MATCHED = {"prefer": "resolution=match, return=representation"}
BATCH = "application/vnd.dataapi.batch+json"


async def test_matching_rows_are_changed_and_the_answer_is_empty(api: Service) -> None:
    answer = await api.rest("PATCH", "book?author=eq.1", {"price": 5, "facts": {"a": 1}})
    assert (answer.status, answer.text) == (204, "")
    assert answer.headers["content-range"] == "0-1/*"
    assert "content-type" not in answer.headers
    assert api.database.execute("select id, price::int, facts from book order by id") == [
        (1, 5, {"a": 1}), (2, 5, {"a": 1}), (3, 10, None),
    ]  # fmt: skip
    answer = await api.rest("PATCH", "book?id=eq.99", {"price": 5}, headers={"prefer": "return=headers-only"})
    assert (answer.status, answer.headers["content-range"]) == (204, "*/*")
    assert answer.headers["preference-applied"] == "return=headers-only"


async def test_what_was_changed_is_shown_when_asked_for(api: Service) -> None:
    target = "book?author=eq.1&select=title,author(name)&order=id.desc"
    headers = {"prefer": "return=representation, count=exact"}
    answer = await api.rest("PATCH", target, {"title": "same"}, headers=headers)
    assert answer.status == 200
    assert answer.body == [{"title": "same", "author": {"name": "Ada"}}] * 2
    assert answer.headers["content-range"] == "0-1/2"
    assert answer.headers["preference-applied"] == "return=representation, count=exact"
    answer = await api.rest("PATCH", "book?id=eq.99", {"title": "same"}, headers=headers)
    assert (answer.status, answer.body, answer.headers["content-range"]) == (200, [], "*/0")
    answer = await api.rest(
        "PATCH", "book?id=in.(1,2,3)&select=id&order=id.desc", {"price": 1}, headers=SHOWN
    )
    assert answer.body == [{"id": 3}, {"id": 2}, {"id": 1}]


async def test_a_row_is_shown_though_it_matches_no_more(api: Service) -> None:
    answer = await api.rest("PATCH", "author?name=eq.Ada", {"name": "Eve"}, headers=SHOWN)
    assert answer.body == [{"id": 1, "name": "Eve"}]


async def test_every_kind_of_filter_chooses_rows(api: Service) -> None:
    """Logic, lists, negation, JSON paths and embedded resources."""
    for number, (filters, ids) in enumerate([
        ("or=(id.eq.1,title.like.t*)&id=lt.3", [1, 2]),
        ("id=not.in.(1,2)", [3]),
        ("author=is.null", [3]),
        ("tags=cs.{a}", []),
        ("", [1, 2, 3]),
    ]):  # fmt: skip
        answer = await api.rest(
            "PATCH", f"book?select=id&order=id&{filters}", {"price": number}, headers=SHOWN
        )
        assert [row["id"] for row in answer.body] == ids, filters
    await api.rest("PATCH", "book?id=eq.2", {"facts": {"a": {"b": "c"}}})
    answer = await api.rest("PATCH", "book?facts->a->>b=eq.c&select=id", {"price": 9}, headers=SHOWN)
    assert answer.body == [{"id": 2}]


async def test_an_empty_body_changes_nothing(api: Service) -> None:
    nothing: tuple[Any, ...] = ({}, [], [{}], 7)
    for body in nothing:
        answer = await api.rest("PATCH", "book?id=eq.1", body)
        assert (answer.status, answer.headers["content-range"]) == (204, "*/*"), body
        answer = await api.rest("PATCH", "book?id=eq.1&select=id,author(name)", body, headers=SHOWN)
        assert (answer.status, answer.body) == (200, []), body
    answer = await api.rest("PATCH", "book?id=eq.1", "")
    assert (answer.status, answer.body["code"]) == (400, "PGRST102")
    assert (await api.rest("PATCH", "write_only", {})).status == 204


async def test_the_first_object_of_an_array_is_for_all_rows(api: Service) -> None:
    """As PostgREST takes it."""
    rows = [{"name": "first"}, {"name": "second"}]
    answer = await api.rest("PATCH", "author?select=name", rows, headers=SHOWN)
    assert answer.body == [{"name": "first"}] * 2


async def test_chosen_columns_alone_are_set(api: Service) -> None:
    target = "counter?id=eq.1&columns=name,extra&select=name,extra"
    answer = await api.rest("PATCH", target, {"name": "n", "id": 9}, headers=SHOWN)
    assert answer.body == [{"name": "n", "extra": None}]
    headers = {"prefer": "return=representation, missing=default"}
    answer = await api.rest("PATCH", target, {"name": "m"}, headers=headers)
    assert answer.body == [{"name": "m", "extra": "standard"}]
    assert answer.headers["preference-applied"] == "missing=default, return=representation"
    answer = await api.rest("PATCH", "counter?columns=nope", {"nope": 1})
    assert (answer.status, answer.body["code"]) == (400, "PGRST204")


async def test_limits_are_no_filters_of_changes(api: Service) -> None:
    """As since PostgREST 13; the order says how the changed rows are shown."""
    answer = await api.rest("PATCH", "author?limit=1&offset=1&order=id.desc", {"name": "x"}, headers=SHOWN)
    assert [row["id"] for row in answer.body] == [2, 1]


async def test_a_single_object_is_given_or_nothing_is_changed(api: Service) -> None:
    """Any other number of rows is 406."""
    headers = {**SHOWN, "accept": "application/vnd.pgrst.object+json"}
    answer = await api.rest("PATCH", "author?id=eq.1", {"name": "x"}, headers=headers)
    assert (answer.status, answer.body) == (200, {"id": 1, "name": "x"})
    for target, rows in (("author", 2), ("author?id=eq.99", 0)):
        answer = await api.rest("PATCH", target, {"name": "y"}, headers=headers)
        assert (answer.status, answer.body["code"]) == (406, "PGRST116")
        assert answer.body["details"] == f"The result contains {rows} rows"
    assert api.database.execute("select count(*) from author where name = 'y'") == [(0,)]


async def test_no_more_rows_are_changed_than_a_strict_client_allows(api: Service) -> None:
    """With one more it is 400 and nothing happened; without strict handling there is no maximum."""
    headers = {"prefer": "handling=strict, max-affected=1"}
    answer = await api.rest("PATCH", "author?id=eq.1", {"name": "x"}, headers=headers)
    assert (answer.status, answer.headers["preference-applied"]) == (204, "handling=strict, max-affected=1")
    answer = await api.rest("PATCH", "author", {"name": "y"}, headers=headers)
    assert answer.status == 400
    assert answer.body == {
        "code": "PGRST124",
        "message": "Query result exceeds max-affected preference constraint",
        "details": "The query affects 2 rows",
        "hint": None,
    }
    assert api.database.execute("select count(*) from author where name = 'y'") == [(0,)]
    answer = await api.rest("PATCH", "author", {"name": "y"}, headers={"prefer": "max-affected=1"})
    assert answer.status == 204
    assert "preference-applied" not in answer.headers


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
async def test_what_is_refused(
    api: Service, server: Server, target: str, body: Any, status: int, code: str | None
) -> None:
    code = server.generated_refusal if code == GENERATED else code
    answer = await api.rest("PATCH", target, body)
    assert answer.status == status
    assert code is None or answer.body["code"] == code


async def test_policies_and_column_privileges_hold(api: Service) -> None:
    answer = await api.rest("PATCH", "owned?select=id", {"word": "w"}, headers=SHOWN, role="authenticated")
    assert answer.body == [{"id": 1}]
    api.database.execute("insert into secret values (1, 'a')")
    answer = await api.rest("PATCH", "secret?id=eq.1", {"shown": "b"})
    assert answer.status == 204
    answer = await api.rest("PATCH", "secret?id=eq.1&select=id", {"shown": "b"}, headers=SHOWN)
    assert answer.body == [{"id": 1}]


async def test_views_and_partitions_are_changed(api: Service) -> None:
    answer = await api.rest("PATCH", "cheap?id=eq.1&select=price", {"price": 2}, headers=SHOWN)
    assert answer.body == [{"price": 2.00}]
    answer = await api.rest("PATCH", "shout?id=eq.1&select=id", {"title": "LOUD"}, headers=SHOWN)
    assert answer.body == [{"id": 1}]
    answer = await api.rest("PATCH", "event?id=eq.1&select=id", {"day": "2030-01-01"}, headers=SHOWN)
    assert answer.body == [{"id": 1}]
    assert api.database.execute("select title from book where id = 1") == [("loud",)]
    assert api.database.execute("select count(*) from event_new") == [(2,)]


# ---------------------------------------------------------------- each row by an object of its own


async def test_each_row_is_changed_by_its_own_object(api: Service) -> None:
    rows = [
        {"id": 2, "title": "TWO", "price": 2},
        {"id": 1, "title": "ONE", "price": 1},
        {"id": 99, "title": "x", "price": 0},
    ]
    answer = await api.rest("PATCH", "book?select=id,title,price&order=id", rows, headers=MATCHED)
    assert (answer.status, answer.headers["content-range"]) == (200, "0-1/*")
    assert answer.headers["preference-applied"] == "resolution=match, return=representation"
    assert answer.body == [{"id": 1, "title": "ONE", "price": 1.00}, {"id": 2, "title": "TWO", "price": 2.00}]
    assert len(answer.messages) == 1
    assert len(answer.messages[0].statements) == 1


async def test_an_object_leaves_alone_what_it_does_not_name(api: Service) -> None:
    rows = [{"id": 1, "name": "x"}, {"id": 2, "extra": None}]
    answer = await api.rest("PATCH", "counter?order=id", rows, headers=MATCHED)
    assert answer.body == [
        {"id": 1, "name": "x", "extra": "standard"},
        {"id": 2, "name": "b", "extra": None},
    ]
    headers = {"prefer": "resolution=match, return=representation, missing=default"}
    rows = [{"id": 1, "name": "y"}, {"id": 2, "extra": "e"}]
    answer = await api.rest("PATCH", "counter?order=id", rows, headers=headers)
    assert answer.body == [
        {"id": 1, "name": "y", "extra": "standard"},
        {"id": 2, "name": None, "extra": "e"},
    ]
    assert answer.headers["preference-applied"] == "resolution=match, missing=default, return=representation"


async def test_rows_are_matched_by_any_columns(api: Service) -> None:
    """``on_conflict`` names them; composite keys are whole; filters narrow what may be changed."""
    rows: list[Any] = [{"email": "a@x", "nick": "A"}, {"email": "b@x", "nick": "B"}]
    answer = await api.rest("PATCH", "named?on_conflict=email&order=id&select=nick", rows, headers=MATCHED)
    assert answer.body == [{"nick": "A"}, {"nick": "B"}]
    rows = [{"one": 1, "two": "y", "word": "changed"}]
    assert (await api.rest("PATCH", "pair", rows, headers=MATCHED)).body == rows
    rows = [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]
    answer = await api.rest("PATCH", "author?name=like.A*", rows, headers=MATCHED)
    assert answer.body == [{"id": 1, "name": "x"}]
    answer = await api.rest("PATCH", "author?columns=name", {"id": 2, "name": "z", "x": 1}, headers=MATCHED)
    assert answer.body == [{"id": 2, "name": "z"}]


async def test_csv_changes_rows_by_their_own_lines(api: Service) -> None:
    headers = {**MATCHED, "content-type": "text/csv"}
    answer = await api.rest("PATCH", "author?order=id", "id,name\n1,x\n2,y", headers=headers)
    assert answer.body == [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]


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
async def test_objects_that_name_no_row_of_their_own_are_refused(
    api: Service, target: str, body: Any, code: str, message: str
) -> None:
    """It is 400, and nothing is changed."""
    answer = await api.rest("PATCH", target, body, headers=MATCHED)
    assert (answer.status, answer.body["code"], answer.body["message"]) == (400, code, message)


async def test_matched_rows_obey_the_same_bounds(api: Service) -> None:
    rows = [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]
    headers = {"prefer": "resolution=match, handling=strict, max-affected=1"}
    answer = await api.rest("PATCH", "author", rows, headers=headers)
    assert (answer.status, answer.body["code"]) == (400, "PGRST124")
    rows = [{"id": 1, "word": "x"}, {"id": 2, "word": "y"}]
    answer = await api.rest("PATCH", "owned?select=id", rows, headers=MATCHED, role="authenticated")
    assert answer.body == [{"id": 1}]
    for body in ([], [{"id": 1}]):
        answer = await api.rest("PATCH", "author", body, headers=MATCHED)
        assert (answer.status, answer.body) == (200, [])


@pytest.mark.parametrize("header", ["if-match", "if-none-match", "if-unmodified-since"])
@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", "author", {"id": 9, "name": "n"}),
        ("PATCH", "author?id=eq.1", {"name": "n"}),
        ("PUT", "author?id=eq.1", {"id": 1, "name": "n"}),
        ("DELETE", "author?id=eq.2", None),
        ("POST", "rpc/rename", {}),
        ("POST", "", {"requests": [{"method": "DELETE", "path": "/author?id=eq.2"}]}),
    ],
)
async def test_conditional_writes_are_refused(
    api: Service, method: str, target: str, body: Any, header: str
) -> None:
    """Rows have no entity tags, so that the condition cannot be followed."""
    headers = {header: "*"} if target else {header: "*", "content-type": BATCH}
    answer = await api.rest(method, target, body, headers=headers)
    assert (answer.status, answer.body["code"]) == (412, "PGRST127")
    assert header in answer.body["details"].lower()
    assert answer.messages == ()
    assert api.database.execute("select id, name from author order by id") == [(1, "Ada"), (2, "Bob")]


async def test_requests_of_a_batch_may_not_be_conditional(api: Service) -> None:
    part = {"method": "DELETE", "path": "/author?id=eq.2", "headers": {"If-Match": '"1"'}}
    first = {"method": "PATCH", "path": "/author?id=eq.1", "body": {"name": "n"}}
    answer = await api.rest("POST", "", {"requests": [first, part]}, headers={"content-type": BATCH})
    assert (answer.status, answer.body["code"], answer.body["index"]) == (412, "PGRST127", 1)
    assert answer.messages == ()


async def test_reads_may_be_conditional(api: Service) -> None:
    for method in ("GET", "HEAD", "OPTIONS"):
        headers = {"if-none-match": '"1"', "if-modified-since": "Sat, 01 Jan 2000 00:00:00 GMT"}
        assert (await api.rest(method, "author", headers=headers)).status == 200
