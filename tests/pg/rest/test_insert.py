"""Inserting by REST: bodies, answers, locations, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import writing
from support.postgres import GENERATED, Server
from support.service import Service, serving

SCHEMA, RESET = writing.SCHEMA, writing.RESET
PROJECT = {"db_schemas": ("public", "side")}

SHOWN = {"prefer": "return=representation"}


async def test_one_object_is_inserted_and_the_answer_is_empty(api: Service) -> None:
    """It is 201 without a body, and without a location when none was asked for."""
    answer = await api.rest("POST", "author", {"id": 7, "name": "Zoë"})
    assert (answer.status, answer.text) == (201, "")
    assert answer.headers["content-range"] == "*/*"
    assert "location" not in answer.headers
    assert "content-type" not in answer.headers
    assert "preference-applied" not in answer.headers
    assert api.database.execute("select name from author where id = 7") == [("Zoë",)]


async def test_what_was_inserted_is_shown_when_asked_for(api: Service) -> None:
    """With defaults, in the columns' JSON form, as an array whatever the number of rows."""
    answer = await api.rest("POST", "book", {"id": 7, "title": "new"}, headers=SHOWN)
    assert (answer.status, answer.headers["content-type"]) == (201, "application/json; charset=utf-8")
    assert answer.headers["preference-applied"] == "return=representation"
    assert answer.body == [
        {
            "id": 7, "title": "new", "author": None, "price": 9.99, "tags": None, "facts": None, "raw": None,
            "made": "2020-01-01T00:00:00+00:00",
        }
    ]  # fmt: skip
    rows = [{"id": 8, "title": "a"}, {"id": 9, "title": "b"}]
    answer = await api.rest("POST", "book?select=no:id,title", rows, headers=SHOWN)
    assert answer.body == [{"no": 8, "title": "a"}, {"no": 9, "title": "b"}]


async def test_the_location_of_the_one_inserted_row(api: Service) -> None:
    """``return=headers-only`` tells it, of one row of a table with a key, escaped as URLs are."""
    headers = {"prefer": "return=headers-only"}

    async def location(target: str, body: Any) -> str | None:
        answer = await api.rest("POST", target, body, headers=headers)
        assert (answer.status, answer.text) == (201, "")
        assert answer.headers["preference-applied"] == "return=headers-only"
        return answer.headers.get("location")

    assert await location("counter", {"name": "c"}) == "/counter?id=eq.3"
    assert await location("pair", {"one": 2, "two": "a b&c/ä"}) == "/pair?one=eq.2&two=eq.a%20b%26c%2F%C3%A4"
    assert await location("Odd Table", {"Key Part": "?"}) == "/Odd%20Table?Key%20Part=eq.%3F"
    assert await location("cheap", {"id": 7, "title": "seven"}) == "/cheap?id=eq.7"
    assert await location("event", {"id": 5, "day": "2030-01-01"}) == "/event?id=eq.5&day=eq.2030-01-01"
    assert await location("keyless", {"word": "w"}) is None
    assert await location("counter", [{"name": "d"}, {"name": "e"}]) is None
    assert await location("counter", []) is None
    assert await location("counter", [{"name": "f"}]) == "/counter?id=eq.6"


async def test_rows_are_counted_when_asked_for(api: Service) -> None:
    """``Content-Range`` has no range, only the number of rows."""
    rows = [{"id": 7, "name": "x"}, {"id": 8, "name": "y"}]
    answer = await api.rest("POST", "author", rows, headers={"prefer": "count=exact"})
    assert (answer.status, answer.headers["content-range"]) == (201, "*/2")
    assert answer.headers["preference-applied"] == "count=exact"
    answer = await api.rest("POST", "author", [], headers={"prefer": "count=exact"})
    assert (answer.status, answer.headers["content-range"]) == (201, "*/0")


async def test_empty_bodies_insert_defaults_or_nothing(api: Service) -> None:
    answer = await api.rest("POST", "counter?select=id,name,extra", {}, headers=SHOWN)
    assert answer.body == [{"id": 3, "name": None, "extra": "standard"}]
    answer = await api.rest("POST", "counter?select=id", [{}, {}], headers=SHOWN)
    assert (answer.status, answer.body) == (201, [{"id": 4}, {"id": 5}])
    for body in ("[]", "7", '"text"', "null", "true"):
        answer = await api.rest("POST", "counter", body, headers=SHOWN)
        assert (answer.status, answer.body) == (201, []), body
    assert (await api.rest("POST", "fixed", {}, headers=SHOWN)).body == [{"id": 1, "twice": 2}]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "Empty or invalid json"),
        ("{", "Empty or invalid json"),
        ('{"id": NaN}', "Empty or invalid json"),
        (b'{"id": "\xff"}', "Empty or invalid json"),
        ("[" * 5000 + "]" * 5000, "All object keys must match"),
        ('[{"id": 8}, {"name": "b"}]', "All object keys must match"),
        ('[{"id": 8}, {"id": 9, "name": "b"}]', "All object keys must match"),
        ('[{"id": 8}, 9]', "All object keys must match"),
        ("[1, 2]", "All object keys must match"),
        ("[[1]]", "All object keys must match"),
    ],
)
async def test_a_body_that_cannot_be_understood_is_refused(api: Service, body: str, message: str) -> None:
    """It is 400 with PGRST102, and nothing is inserted."""
    answer = await api.rest("POST", "author", body)
    assert answer.status == 400
    assert answer.body == {"code": "PGRST102", "message": message, "details": None, "hint": None}


async def test_a_body_of_an_unknown_type_is_refused(api: Service) -> None:
    answer = await api.rest("POST", "author", "x", headers={"content-type": "Text/Html; charset=utf-8"})
    assert (answer.status, answer.body["code"]) == (400, "PGRST102")
    assert answer.body["message"] == "Content-Type not acceptable: text/html"


async def test_numbers_of_any_length_arrive(api: Service) -> None:
    """Thousands of digits, and those that no float holds, are PostgreSQL's to read."""
    body = '[{"id": 1, "b": 9007199254740993, "i": %s}]' % ("7" * 5000)
    answer = await api.rest("POST", "types?select=b,i", body, headers=SHOWN)
    assert answer.text == '[{"b":9007199254740993,"i":%s}]' % ("7" * 5000)


async def test_an_unknown_column_is_refused(api: Service) -> None:
    """In the body as well as in ``columns``; the table has it not, so the message says which."""
    requested = {
        "code": "PGRST204",
        "message": "Could not find the 'nope' column of 'author' in the schema cache",
        "details": None,
        "hint": None,
    }
    answer = await api.rest("POST", "author", {"id": 9, "nope": 1})
    assert (answer.status, answer.body) == (400, requested)
    answer = await api.rest("POST", "author?columns=id,nope", {"id": 9})
    assert (answer.status, answer.body) == (400, requested)


async def test_chosen_columns_alone_are_taken(api: Service) -> None:
    rows = [{"id": 7, "name": "a", "extra": 1, "x": 2}, {"name": "b", "id": 8}, {"id": 9}]
    answer = await api.rest("POST", 'counter?columns="id",name&select=id,name,extra', rows, headers=SHOWN)
    assert answer.status == 201
    assert answer.body == [
        {"id": 7, "name": "a", "extra": "standard"},
        {"id": 8, "name": "b", "extra": "standard"},
        {"id": 9, "name": None, "extra": "standard"},
    ]


async def test_a_broken_body_meets_postgresql_when_columns_are_chosen(api: Service) -> None:
    """It was not parsed before, so the error is PostgreSQL's own."""
    answer = await api.rest("POST", "author?columns=id", '{"id": ')
    assert (answer.status, answer.body["code"]) == (400, "22P02")
    answer = await api.rest("POST", "author?columns=id", "7")
    assert (answer.status, answer.body["code"]) == (400, "22023")
    answer = await api.rest("POST", "author?columns=id", b"\xff")
    assert (answer.status, answer.body["code"]) == (400, "PGRST102")


async def test_columns_that_cannot_be_understood_are_refused(api: Service) -> None:
    answer = await api.rest("POST", "author?columns=id,", {"id": 9})
    assert (answer.status, answer.body["code"]) == (400, "PGRST100")
    assert answer.body["message"] == '"failed to parse columns parameter (id,)" (line 1, column 4)'
    answer = await api.rest("POST", "author?columns=", {"id": 9})
    assert answer.status == 400
    assert answer.body == {
        "code": "PGRST100",
        "message": '"failed to parse columns parameter ()" (line 1, column 1)',
        "details": "unexpected end of input expecting field name (* or [a..z0..9_$])",
        "hint": None,
    }


async def test_missing_members_take_defaults_when_asked_for(api: Service) -> None:
    headers = {"prefer": "missing=default, return=representation"}
    rows = [{"id": 7, "extra": None}, {"name": "b", "extra": "own"}, {"name": "c"}]
    answer = await api.rest("POST", "counter?columns=id,name,extra", rows, headers=headers)
    assert answer.headers["preference-applied"] == "missing=default, return=representation"
    assert answer.body == [
        {"id": 7, "name": None, "extra": None},
        {"id": 3, "name": "b", "extra": "own"},
        {"id": 4, "name": "c", "extra": "standard"},
    ]
    answer = await api.rest("POST", "numbered?columns=id,name", [{"name": "x"}, {"id": 9}], headers=headers)
    assert answer.body == [{"id": 3, "name": "x"}, {"id": 9, "name": None}]
    answer = await api.rest("POST", "paint?columns=id,note", {"id": 7}, headers=headers)
    assert answer.body == [{"id": 7, "tone": None, "note": "full"}]
    body = '[{"id": 7, "title": "t", "raw": {"b":  1, "b": 2}}]'
    answer = await api.rest("POST", "book?columns=id,title,raw,made&select=raw,made", body, headers=headers)
    assert answer.text == '[{"raw":{"b":  1, "b": 2},"made":"2020-01-01T00:00:00+00:00"}]'


async def test_defaults_of_views_are_their_own(api: Service, server: Server) -> None:
    headers = {"prefer": "missing=default, return=representation"}
    answer = await api.rest(
        "POST", "defaulted?columns=id,name", [{"id": 7, "name": "n"}, {"id": 8}], headers=headers
    )
    assert answer.body == [
        {"id": 7, "name": "n", "extra": "standard"},
        {"id": 8, "name": "from the view", "extra": "standard"},
    ]
    answer = await api.rest("POST", "fixed?columns=twice", [{}], headers=headers)
    assert (answer.status, answer.body["code"]) == (400, server.generated_refusal)


async def test_form_fields_are_one_row(api: Service) -> None:
    """Fields are texts, which PostgreSQL reads by the columns' types."""
    headers = {**SHOWN, "content-type": "application/x-www-form-urlencoded"}
    answer = await api.rest("POST", "book?select=id,title", "id=7&title=a+b%26%C3%A4", headers=headers)
    assert (answer.status, answer.body) == (201, [{"id": 7, "title": "a b&ä"}])
    answer = await api.rest(
        "POST", "counter?columns=name&select=name,extra", "name=n&extra=x", headers=headers
    )
    assert answer.body == [{"name": "n", "extra": "standard"}]


async def test_embedded_resources_of_what_was_inserted(api: Service) -> None:
    rows = [{"id": 7, "title": "x", "author": 1}, {"id": 8, "title": "y", "author": None}]
    target = "book?select=title,author(name,book(title))&author.book.order=title.desc"
    answer = await api.rest("POST", target, rows, headers=SHOWN)
    books = [{"title": "x"}, {"title": "two"}, {"title": "one"}]
    assert answer.body == [
        {"title": "x", "author": {"name": "Ada", "book": books}},
        {"title": "y", "author": None},
    ]
    rows = [{"id": 17, "title": "x", "author": 1}, {"id": 18, "title": "y", "author": 2}]
    target = "book?select=id,author!inner(name)&author.name=eq.Bob"
    answer = await api.rest("POST", target, rows, headers={"prefer": "return=representation, count=exact"})
    assert answer.body == [{"id": 18, "author": {"name": "Bob"}}]
    assert answer.headers["content-range"] == "*/1"
    assert api.database.execute("select count(*) from book where id > 16") == [(2,)]


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("book?select=title,nowhere(id)", "PGRST200"),
        ("book?select=title,author(name", "PGRST100"),
        ("book?select=title&nowhere.id=eq.1", "PGRST108"),
        ("book?select=price.sum()", "PGRST123"),
    ],
)
async def test_a_selection_is_looked_at_though_nothing_is_shown(api: Service, target: str, code: str) -> None:
    before = api.database.execute("select title from book order by id")
    for method, body in (("POST", {"title": "new"}), ("PATCH", {"title": "new"}), ("DELETE", None)):
        answer = await api.rest(method, target, body)
        assert (answer.status, answer.body["code"]) == (400, code), method
    assert api.database.execute("select title from book order by id") == before


async def test_fields_of_every_kind_are_shown_of_what_was_inserted(api: Service) -> None:
    """Computed fields and relationships, casts, JSON paths and spread relationships, also in the order."""
    rows = [
        {"id": 7, "title": "x", "author": 1, "facts": {"a": [5]}},
        {"id": 8, "title": "y", "author": 2, "facts": None},
    ]
    select = "label,siblings(id),no:id::text,facts->a->0,...author(name)"
    target = f"book?select={select}&order=label.desc&siblings.order=id.desc&siblings.limit=1"
    answer = await api.rest("POST", target, rows, headers=SHOWN)
    assert answer.status == 201, answer.text
    assert answer.body == [
        {"label": "8: y", "siblings": [], "no": "8", "a": None, "name": "Bob"},
        {"label": "7: x", "siblings": [{"id": 2}], "no": "7", "a": 5, "name": "Ada"},
    ]
    answer = await api.rest("POST", "book?select=nope", {"id": 9, "title": "z"}, headers=SHOWN)
    assert (answer.status, answer.body["code"]) == (400, "42703")
    answer = await api.rest("POST", "book?select=id&author.order=id", {"id": 9, "title": "z"}, headers=SHOWN)
    assert (answer.status, answer.body["code"]) == (400, "PGRST108")
    assert api.database.execute("select count(*) from book where id = 9") == [(0,)]


async def test_the_order_of_what_was_inserted(api: Service) -> None:
    """Rows come as they were given, or as ``order`` says; filters of the rows themselves say nothing."""
    rows = [{"id": 7, "name": "b"}, {"id": 9, "name": "c"}, {"id": 8, "name": "a"}]
    answer = await api.rest("POST", "author?id=eq.1&limit=1", rows, headers=SHOWN)
    assert answer.body == rows
    await api.rest("DELETE", "author?id=gt.6")
    answer = await api.rest("POST", "author?select=name&order=id.desc", rows, headers=SHOWN)
    assert answer.body == [{"name": "c"}, {"name": "a"}, {"name": "b"}]


async def test_a_single_object_is_given_or_nothing_is_changed(api: Service) -> None:
    """Any other number of rows is 406, whatever is to be shown of them."""
    headers = {**SHOWN, "accept": "application/vnd.pgrst.object+json"}
    answer = await api.rest("POST", "author", {"id": 7, "name": "x"}, headers=headers)
    assert (answer.status, answer.body) == (201, {"id": 7, "name": "x"})
    assert answer.headers["content-type"] == "application/vnd.pgrst.object+json; charset=utf-8"
    rows = [{"id": 8, "name": "x"}, {"id": 9, "name": "y"}]
    for prefer in ("return=representation", "return=minimal", "return=headers-only"):
        answer = await api.rest("POST", "author", rows, headers={**headers, "prefer": prefer})
        assert answer.status == 406
        assert answer.body == {
            "code": "PGRST116",
            "message": "Cannot coerce the result to a single JSON object",
            "details": "The result contains 2 rows",
            "hint": None,
        }
    answer = await api.rest("POST", "author", [], headers=headers)
    assert (answer.status, answer.body["details"]) == (406, "The result contains 0 rows")
    assert api.database.execute("select count(*) from author where id > 7") == [(0,)]


async def test_other_forms_of_what_was_inserted(api: Service) -> None:
    """CSV, and objects without their null members."""
    answer = await api.rest(
        "POST", "author", {"id": 7, "name": "a,b"}, headers={**SHOWN, "accept": "text/csv"}
    )
    assert (answer.status, answer.text) == (201, 'id,name\n7,"a,b"')
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    accept = "application/vnd.pgrst.array+json;nulls=stripped"
    answer = await api.rest("POST", "pair", {"one": 7, "two": "t"}, headers={**SHOWN, "accept": accept})
    assert answer.body == [{"one": 7, "two": "t"}]
    answer = await api.rest("POST", "pair", {"one": 8, "two": "t"}, headers={"accept": "image/png"})
    assert (answer.status, answer.body["code"]) == (406, "PGRST107")


@pytest.mark.parametrize(
    ("target", "body", "status", "code"),
    [
        ("author", {"id": 1, "name": "again"}, 409, "23505"),
        ("book", {"id": 7, "title": "t", "author": 99}, 409, "23503"),
        ("author", {"id": 7}, 400, "23502"),
        ("author", {"id": "x", "name": "n"}, 400, "22P02"),
        ("book", {"id": 7, "title": "t" * 21}, 400, "22001"),
        ("fixed", {"twice": 4}, 400, GENERATED),
        ("fixed", {"id": 4}, 400, "428C9"),
        ("paint", {"id": 7, "tone": "#fff"}, 400, "23514"),
        ("cheap", {"id": 7, "title": "t", "price": 11}, 400, "44000"),
        ("total", {"books": 1}, 500, "55000"),
        ("event", {"id": 7, "day": "1999-01-01"}, 400, "23514"),
    ],
)
async def test_what_postgresql_refuses(
    api: Service, server: Server, target: str, body: Any, status: int, code: str
) -> None:
    """Its own error is told with the status that PostgREST gives it; no location, nothing shown."""
    code = server.generated_refusal if code == GENERATED else code
    headers = {"prefer": "return=headers-only"}
    answer = await api.rest("POST", target, body, headers=headers)
    assert (answer.status, answer.body["code"]) == (status, code)
    assert set(answer.body) == {"code", "message", "details", "hint"}
    assert "location" not in answer.headers


async def test_values_of_every_type_are_read_by_postgresql(api: Service) -> None:
    """Types that have a length keep what they are given; arrays and JSON come as JSON."""
    row = {
        "id": 1, "a": "é\n\"", "b": 9007199254740993, "c": {"x": [1, None]}, "d": True,
        "e": ["a", None, "b,c"], "f": "abc", "g": "1010", "h": "101", "i": 1.5,
    }  # fmt: skip
    answer = await api.rest("POST", "types", row, headers=SHOWN)
    assert answer.body == [row]
    text = {"id": 2, "b": "9007199254740993", "d": "true", "e": "{a,NULL}", "i": "1.50", "c": "[1]"}
    answer = await api.rest("POST", "types?select=b,d,e,i,c", text, headers=SHOWN)
    assert answer.body == [{"b": 9007199254740993, "d": True, "e": ["a", None], "i": 1.5, "c": "[1]"}]


async def test_a_domain_reads_json_by_its_own_cast(api: Service) -> None:
    answer = await api.rest("POST", "paint?select=id,tone", {"id": 7, "tone": "#0a"}, headers=SHOWN)
    assert answer.body == [{"id": 7, "tone": "#0a"}]
    assert api.database.execute("select tone::int from paint where id = 7") == [(10,)]


async def test_views_take_rows_by_themselves_or_by_a_trigger(api: Service) -> None:
    answer = await api.rest(
        "POST", "cheap?select=id,price", {"id": 7, "title": "t", "price": 3}, headers=SHOWN
    )
    assert (answer.status, answer.body) == (201, [{"id": 7, "price": 3.00}])
    answer = await api.rest("POST", "shout?select=id", {"id": 8, "title": "LOUD"}, headers=SHOWN)
    assert (answer.status, answer.body) == (201, [{"id": 8}])
    assert api.database.execute("select title from book where id = 8") == [("loud",)]


async def test_partitions_take_what_is_theirs(api: Service) -> None:
    rows = [{"id": 7, "day": "2010-01-01"}, {"id": 7, "day": "2030-01-01"}]
    answer = await api.rest("POST", "event?select=id,day", rows, headers=SHOWN)
    assert answer.body == rows
    assert api.database.execute("select count(*) from event_new where id = 7") == [(1,)]


async def test_only_what_is_shown_must_be_readable(api: Service) -> None:
    answer = await api.rest("POST", "write_only", {"id": 1, "word": "w"})
    assert answer.status == 201
    answer = await api.rest("POST", "write_only", {"id": 2}, headers={"prefer": "return=headers-only"})
    assert (answer.status, answer.body["code"]) == (401, "42501")
    answer = await api.rest(
        "POST", "secret", {"id": 7, "shown": "s"}, headers={"prefer": "return=headers-only"}
    )
    assert (answer.status, answer.headers["location"]) == (201, "/secret?id=eq.7")
    answer = await api.rest("POST", "secret?select=id", {"id": 8, "shown": "s"}, headers=SHOWN)
    assert (answer.status, answer.body) == (201, [{"id": 8}])
    answer = await api.rest("POST", "secret", {"id": 9, "shown": "s"}, headers=SHOWN, role="authenticated")
    assert (answer.status, answer.body["code"]) == (403, "42501")
    answer = await api.rest("POST", "secret", {"id": 9, "hidden": "s"})
    assert (answer.status, answer.body["code"]) == (401, "42501")
    assert api.database.execute("select count(*) from secret") == [(2,)]


async def test_policies_hold(api: Service) -> None:
    row = {"id": 7, "owner": "a user of authenticated"}
    assert (await api.rest("POST", "owned", row, role="authenticated")).status == 201
    answer = await api.rest("POST", "owned", {"id": 8, "owner": "other"}, role="authenticated")
    assert (answer.status, answer.body["code"]) == (403, "42501")


async def test_triggers_choose_status_and_headers(api: Service) -> None:
    answer = await api.rest("POST", "told", {"id": 1}, headers=SHOWN)
    assert (answer.status, answer.headers["x-told"]) == (202, "yes")


async def test_the_schema_is_chosen_by_the_contents_profile(api: Service) -> None:
    headers = {**SHOWN, "content-profile": "side"}
    answer = await api.rest("POST", "book", {"id": 1, "title": "aside"}, headers=headers)
    assert (answer.status, answer.body) == (201, [{"id": 1, "title": "aside"}])
    assert answer.headers["content-profile"] == "side"
    answer = await api.rest("POST", "book", {"id": 2}, headers={"content-profile": "nowhere"})
    assert (answer.status, answer.body["code"]) == (406, "PGRST106")
    api.database.execute("truncate side.book")


async def test_one_shape_is_compiled_once(api: Service) -> None:
    first = await api.rest("POST", "author", [{"id": 7, "name": "a"}])
    second = await api.rest("POST", "author", [{"name": "b", "id": 8}, {"name": "c", "id": 9}])
    [one], [other] = (answer.messages[0].statements for answer in (first, second))
    assert one.statement is other.statement
    assert "'a'" not in one.statement.text


# ---------------------------------------------------------------- any rows

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_ROW = st.fixed_dictionaries(
    {
        "a": st.none() | _TEXT,
        "b": st.none() | st.integers(-(2**63), 2**63 - 1),
        "c": _JSON,
        "d": st.none() | st.booleans(),
        "e": st.none() | st.lists(st.none() | _TEXT, max_size=3),
        "i": st.none() | st.integers(),
    }
)


@given(st.lists(_ROW, min_size=1, max_size=5), st.booleans())
async def test_any_rows_that_are_written_come_back_the_same(
    service: Service, rows: list[dict[str, Any]], chosen: bool
) -> None:
    """Texts, numbers of 64 bits and more, JSON, booleans and arrays; also where columns are chosen."""
    numbered = [{"id": number, **row} for number, row in enumerate(rows)]
    target = "types?select=id,a,b,c,d,e,i" + ("&columns=e,d,c,b,a,id,i" if chosen else "")
    answer = await service.rest("POST", target, numbered, headers=SHOWN)
    assert (answer.status, answer.body) == (201, numbered)
    answer = await service.rest("DELETE", "types?select=id,a,b,c,d,e,i&order=id", headers=SHOWN)
    assert (answer.status, answer.body) == (200, numbered)


@pytest.mark.parametrize("depth", [990, 1000, 4900])
async def test_json_of_any_depth_that_postgresql_takes_is_stored(depths: Service, depth: int) -> None:
    """By both APIs; deeper than that, both say so."""
    deep = "[" * depth + "]" * depth
    assert (await depths.rest("POST", "tree", f'{{"id": {depth}, "data": {deep}}}')).status == 201
    found = await depths.rest("GET", f"tree?id=eq.{depth}&select=data")
    assert found.text == f'[{{"data":{deep}}}]'
    query = (
        "mutation($d: JSON) { insertIntotreeCollection(objects: [{id: -%s, data: $d}]) { affectedCount } }"
    )
    assert (await depths.ask(query % depth, {"d": deep})).data
    for wrong in (deep[:-2] + "}]", deep.replace("[]", "[x]")):
        refused = await depths.rest("POST", "tree", f'{{"id": 1, "data": {wrong}}}')
        assert refused.status == 400


async def test_json_that_is_too_deep_is_refused_with_the_reason(depths: Service) -> None:
    deep = "[" * 6000 + "]" * 6000
    answer = await depths.rest("POST", "tree", f'{{"id": 1, "data": {deep}}}')
    assert (answer.status, answer.body["code"]) == (400, "PGRST102")
    assert answer.body["message"] == "The body cannot be read: it is nested more than 5000 values deep"


@pytest.fixture
def depths(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve a table of JSON."""
    sql = "create table tree (id int primary key, data jsonb); grant all on tree to anon"
    with serving(reactor, server.create_database(sql)) as service:
        yield service
