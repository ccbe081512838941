"""REST inserts: bodies, responses, locations and errors."""

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


async def test_one_object_is_inserted_without_a_response_body(api: Service) -> None:
    response = await api.rest("POST", "author", {"id": 7, "name": "Zoë"})
    assert (response.status, response.text) == (201, "")
    assert response.headers["content-range"] == "*/*"
    assert "location" not in response.headers
    assert "content-type" not in response.headers
    assert "preference-applied" not in response.headers
    assert api.database.execute("select name from author where id = 7") == [("Zoë",)]


async def test_inserted_rows_are_returned_on_request(api: Service) -> None:
    """The response is an array, even for a single row, and contains default values."""
    response = await api.rest("POST", "book", {"id": 7, "title": "new"}, headers=SHOWN)
    assert (response.status, response.headers["content-type"]) == (201, "application/json; charset=utf-8")
    assert response.headers["preference-applied"] == "return=representation"
    assert response.body == [
        {
            "id": 7, "title": "new", "author": None, "price": 9.99, "tags": None, "facts": None, "raw": None,
            "made": "2020-01-01T00:00:00+00:00",
        }
    ]  # fmt: skip
    rows = [{"id": 8, "title": "a"}, {"id": 9, "title": "b"}]
    response = await api.rest("POST", "book?select=no:id,title", rows, headers=SHOWN)
    assert response.body == [{"no": 8, "title": "a"}, {"no": 9, "title": "b"}]


async def test_location_of_a_single_inserted_row_is_returned(api: Service) -> None:
    """The Location header requires ``return=headers-only``, one row and a primary key."""
    headers = {"prefer": "return=headers-only"}

    async def location(target: str, body: Any) -> str | None:
        response = await api.rest("POST", target, body, headers=headers)
        assert (response.status, response.text) == (201, "")
        assert response.headers["preference-applied"] == "return=headers-only"
        return response.headers.get("location")

    assert await location("counter", {"name": "c"}) == "/counter?id=eq.3"
    assert await location("pair", {"one": 2, "two": "a b&c/ä"}) == "/pair?one=eq.2&two=eq.a%20b%26c%2F%C3%A4"
    assert await location("Odd Table", {"Key Part": "?"}) == "/Odd%20Table?Key%20Part=eq.%3F"
    assert await location("cheap", {"id": 7, "title": "seven"}) == "/cheap?id=eq.7"
    assert await location("event", {"id": 5, "day": "2030-01-01"}) == "/event?id=eq.5&day=eq.2030-01-01"
    assert await location("keyless", {"word": "w"}) is None
    assert await location("counter", [{"name": "d"}, {"name": "e"}]) is None
    assert await location("counter", []) is None
    assert await location("counter", [{"name": "f"}]) == "/counter?id=eq.6"


async def test_inserted_rows_are_counted_on_request(api: Service) -> None:
    rows = [{"id": 7, "name": "x"}, {"id": 8, "name": "y"}]
    response = await api.rest("POST", "author", rows, headers={"prefer": "count=exact"})
    assert (response.status, response.headers["content-range"]) == (201, "*/2")
    assert response.headers["preference-applied"] == "count=exact"
    response = await api.rest("POST", "author", [], headers={"prefer": "count=exact"})
    assert (response.status, response.headers["content-range"]) == (201, "*/0")


async def test_empty_bodies_insert_defaults_or_nothing(api: Service) -> None:
    response = await api.rest("POST", "counter?select=id,name,extra", {}, headers=SHOWN)
    assert response.body == [{"id": 3, "name": None, "extra": "standard"}]
    response = await api.rest("POST", "counter?select=id", [{}, {}], headers=SHOWN)
    assert (response.status, response.body) == (201, [{"id": 4}, {"id": 5}])
    for body in ("[]", "7", '"text"', "null", "true"):
        response = await api.rest("POST", "counter", body, headers=SHOWN)
        assert (response.status, response.body) == (201, []), body
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
async def test_invalid_body_is_rejected(api: Service, body: str, message: str) -> None:
    response = await api.rest("POST", "author", body)
    assert response.status == 400
    assert response.body == {"code": "PGRST102", "message": message, "details": None, "hint": None}


async def test_unknown_content_type_is_rejected(api: Service) -> None:
    response = await api.rest("POST", "author", "x", headers={"content-type": "Text/Html; charset=utf-8"})
    assert (response.status, response.body["code"]) == (400, "PGRST102")
    assert response.body["message"] == "Content-Type not acceptable: text/html"


async def test_numbers_of_any_length_are_accepted(api: Service) -> None:
    """PostgreSQL parses numbers with thousands of digits and numbers that do not fit a float."""
    body = '[{"id": 1, "b": 9007199254740993, "i": %s}]' % ("7" * 5000)
    response = await api.rest("POST", "types?select=b,i", body, headers=SHOWN)
    assert response.text == '[{"b":9007199254740993,"i":%s}]' % ("7" * 5000)


async def test_unknown_column_is_rejected(api: Service) -> None:
    expected = {
        "code": "PGRST204",
        "message": "Could not find the 'nope' column of 'author' in the schema cache",
        "details": None,
        "hint": None,
    }
    response = await api.rest("POST", "author", {"id": 9, "nope": 1})
    assert (response.status, response.body) == (400, expected)
    response = await api.rest("POST", "author?columns=id,nope", {"id": 9})
    assert (response.status, response.body) == (400, expected)


async def test_columns_parameter_selects_inserted_members(api: Service) -> None:
    rows = [{"id": 7, "name": "a", "extra": 1, "x": 2}, {"name": "b", "id": 8}, {"id": 9}]
    response = await api.rest("POST", 'counter?columns="id",name&select=id,name,extra', rows, headers=SHOWN)
    assert response.status == 201
    assert response.body == [
        {"id": 7, "name": "a", "extra": "standard"},
        {"id": 8, "name": "b", "extra": "standard"},
        {"id": 9, "name": None, "extra": "standard"},
    ]


async def test_invalid_body_with_columns_is_rejected_by_postgresql(api: Service) -> None:
    """The daemon does not parse the body if the query string contains ``columns``."""
    response = await api.rest("POST", "author?columns=id", '{"id": ')
    assert (response.status, response.body["code"]) == (400, "22P02")
    response = await api.rest("POST", "author?columns=id", "7")
    assert (response.status, response.body["code"]) == (400, "22023")
    response = await api.rest("POST", "author?columns=id", b"\xff")
    assert (response.status, response.body["code"]) == (400, "PGRST102")


async def test_invalid_columns_parameter_is_rejected(api: Service) -> None:
    response = await api.rest("POST", "author?columns=id,", {"id": 9})
    assert (response.status, response.body["code"]) == (400, "PGRST100")
    assert response.body["message"] == '"failed to parse columns parameter (id,)" (line 1, column 4)'
    response = await api.rest("POST", "author?columns=", {"id": 9})
    assert response.status == 400
    assert response.body == {
        "code": "PGRST100",
        "message": '"failed to parse columns parameter ()" (line 1, column 1)',
        "details": "unexpected end of input expecting field name (* or [a..z0..9_$])",
        "hint": None,
    }


async def test_missing_members_get_defaults_on_request(api: Service) -> None:
    headers = {"prefer": "missing=default, return=representation"}
    rows = [{"id": 7, "extra": None}, {"name": "b", "extra": "own"}, {"name": "c"}]
    response = await api.rest("POST", "counter?columns=id,name,extra", rows, headers=headers)
    assert response.headers["preference-applied"] == "missing=default, return=representation"
    assert response.body == [
        {"id": 7, "name": None, "extra": None},
        {"id": 3, "name": "b", "extra": "own"},
        {"id": 4, "name": "c", "extra": "standard"},
    ]
    response = await api.rest("POST", "numbered?columns=id,name", [{"name": "x"}, {"id": 9}], headers=headers)
    assert response.body == [{"id": 3, "name": "x"}, {"id": 9, "name": None}]
    response = await api.rest("POST", "paint?columns=id,note", {"id": 7}, headers=headers)
    assert response.body == [{"id": 7, "tone": None, "note": "full"}]
    body = '[{"id": 7, "title": "t", "raw": {"b":  1, "b": 2}}]'
    response = await api.rest("POST", "book?columns=id,title,raw,made&select=raw,made", body, headers=headers)
    assert response.text == '[{"raw":{"b":  1, "b": 2},"made":"2020-01-01T00:00:00+00:00"}]'


async def test_defaults_of_views_are_used(api: Service, server: Server) -> None:
    headers = {"prefer": "missing=default, return=representation"}
    response = await api.rest(
        "POST", "defaulted?columns=id,name", [{"id": 7, "name": "n"}, {"id": 8}], headers=headers
    )
    assert response.body == [
        {"id": 7, "name": "n", "extra": "standard"},
        {"id": 8, "name": "from the view", "extra": "standard"},
    ]
    response = await api.rest("POST", "fixed?columns=twice", [{}], headers=headers)
    assert (response.status, response.body["code"]) == (400, server.generated_refusal)


async def test_form_is_inserted_as_one_row(api: Service) -> None:
    """PostgreSQL parses the fields by the types of their columns."""
    headers = {**SHOWN, "content-type": "application/x-www-form-urlencoded"}
    response = await api.rest("POST", "book?select=id,title", "id=7&title=a+b%26%C3%A4", headers=headers)
    assert (response.status, response.body) == (201, [{"id": 7, "title": "a b&ä"}])
    response = await api.rest(
        "POST", "counter?columns=name&select=name,extra", "name=n&extra=x", headers=headers
    )
    assert response.body == [{"name": "n", "extra": "standard"}]


async def test_inserted_rows_can_embed_resources(api: Service) -> None:
    rows = [{"id": 7, "title": "x", "author": 1}, {"id": 8, "title": "y", "author": None}]
    target = "book?select=title,author(name,book(title))&author.book.order=title.desc"
    response = await api.rest("POST", target, rows, headers=SHOWN)
    books = [{"title": "x"}, {"title": "two"}, {"title": "one"}]
    assert response.body == [
        {"title": "x", "author": {"name": "Ada", "book": books}},
        {"title": "y", "author": None},
    ]
    rows = [{"id": 17, "title": "x", "author": 1}, {"id": 18, "title": "y", "author": 2}]
    target = "book?select=id,author!inner(name)&author.name=eq.Bob"
    response = await api.rest("POST", target, rows, headers={"prefer": "return=representation, count=exact"})
    assert response.body == [{"id": 18, "author": {"name": "Bob"}}]
    assert response.headers["content-range"] == "*/1"
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
async def test_select_is_validated_even_if_nothing_is_returned(api: Service, target: str, code: str) -> None:
    before = api.database.execute("select title from book order by id")
    for method, body in (("POST", {"title": "new"}), ("PATCH", {"title": "new"}), ("DELETE", None)):
        response = await api.rest(method, target, body)
        assert (response.status, response.body["code"]) == (400, code), method
    assert api.database.execute("select title from book order by id") == before


async def test_inserted_rows_can_have_fields_of_every_kind(api: Service) -> None:
    rows = [
        {"id": 7, "title": "x", "author": 1, "facts": {"a": [5]}},
        {"id": 8, "title": "y", "author": 2, "facts": None},
    ]
    select = "label,siblings(id),no:id::text,facts->a->0,...author(name)"
    target = f"book?select={select}&order=label.desc&siblings.order=id.desc&siblings.limit=1"
    response = await api.rest("POST", target, rows, headers=SHOWN)
    assert response.status == 201, response.text
    assert response.body == [
        {"label": "8: y", "siblings": [], "no": "8", "a": None, "name": "Bob"},
        {"label": "7: x", "siblings": [{"id": 2}], "no": "7", "a": 5, "name": "Ada"},
    ]
    response = await api.rest("POST", "book?select=nope", {"id": 9, "title": "z"}, headers=SHOWN)
    assert (response.status, response.body["code"]) == (400, "42703")
    response = await api.rest(
        "POST", "book?select=id&author.order=id", {"id": 9, "title": "z"}, headers=SHOWN
    )
    assert (response.status, response.body["code"]) == (400, "PGRST108")
    assert api.database.execute("select count(*) from book where id = 9") == [(0,)]


async def test_inserted_rows_keep_their_order_unless_order_is_given(api: Service) -> None:
    """Filters and limits on the inserted rows are ignored."""
    rows = [{"id": 7, "name": "b"}, {"id": 9, "name": "c"}, {"id": 8, "name": "a"}]
    response = await api.rest("POST", "author?id=eq.1&limit=1", rows, headers=SHOWN)
    assert response.body == rows
    await api.rest("DELETE", "author?id=gt.6")
    response = await api.rest("POST", "author?select=name&order=id.desc", rows, headers=SHOWN)
    assert response.body == [{"name": "c"}, {"name": "a"}, {"name": "b"}]


async def test_single_object_response_requires_exactly_one_row(api: Service) -> None:
    headers = {**SHOWN, "accept": "application/vnd.pgrst.object+json"}
    response = await api.rest("POST", "author", {"id": 7, "name": "x"}, headers=headers)
    assert (response.status, response.body) == (201, {"id": 7, "name": "x"})
    assert response.headers["content-type"] == "application/vnd.pgrst.object+json; charset=utf-8"
    rows = [{"id": 8, "name": "x"}, {"id": 9, "name": "y"}]
    for prefer in ("return=representation", "return=minimal", "return=headers-only"):
        response = await api.rest("POST", "author", rows, headers={**headers, "prefer": prefer})
        assert response.status == 406
        assert response.body == {
            "code": "PGRST116",
            "message": "Cannot coerce the result to a single JSON object",
            "details": "The result contains 2 rows",
            "hint": None,
        }
    response = await api.rest("POST", "author", [], headers=headers)
    assert (response.status, response.body["details"]) == (406, "The result contains 0 rows")
    assert api.database.execute("select count(*) from author where id > 7") == [(0,)]


async def test_inserted_rows_are_returned_in_other_formats(api: Service) -> None:
    response = await api.rest(
        "POST", "author", {"id": 7, "name": "a,b"}, headers={**SHOWN, "accept": "text/csv"}
    )
    assert (response.status, response.text) == (201, 'id,name\n7,"a,b"')
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    accept = "application/vnd.pgrst.array+json;nulls=stripped"
    response = await api.rest("POST", "pair", {"one": 7, "two": "t"}, headers={**SHOWN, "accept": accept})
    assert response.body == [{"one": 7, "two": "t"}]
    response = await api.rest("POST", "pair", {"one": 8, "two": "t"}, headers={"accept": "image/png"})
    assert (response.status, response.body["code"]) == (406, "PGRST107")


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
async def test_database_errors_have_postgrests_statuses(
    api: Service, server: Server, target: str, body: Any, status: int, code: str
) -> None:
    code = server.generated_refusal if code == GENERATED else code
    headers = {"prefer": "return=headers-only"}
    response = await api.rest("POST", target, body, headers=headers)
    assert (response.status, response.body["code"]) == (status, code)
    assert set(response.body) == {"code", "message", "details", "hint"}
    assert "location" not in response.headers


async def test_values_of_every_type_are_parsed_by_postgresql(api: Service) -> None:
    """Values are not truncated to the length of their type. Arrays and JSON values are sent as JSON."""
    row = {
        "id": 1, "a": "é\n\"", "b": 9007199254740993, "c": {"x": [1, None]}, "d": True,
        "e": ["a", None, "b,c"], "f": "abc", "g": "1010", "h": "101", "i": 1.5,
    }  # fmt: skip
    response = await api.rest("POST", "types", row, headers=SHOWN)
    assert response.body == [row]
    text = {"id": 2, "b": "9007199254740993", "d": "true", "e": "{a,NULL}", "i": "1.50", "c": "[1]"}
    response = await api.rest("POST", "types?select=b,d,e,i,c", text, headers=SHOWN)
    assert response.body == [{"b": 9007199254740993, "d": True, "e": ["a", None], "i": 1.5, "c": "[1]"}]


async def test_domain_values_are_parsed_with_the_domains_json_cast(api: Service) -> None:
    response = await api.rest("POST", "paint?select=id,tone", {"id": 7, "tone": "#0a"}, headers=SHOWN)
    assert response.body == [{"id": 7, "tone": "#0a"}]
    assert api.database.execute("select tone::int from paint where id = 7") == [(10,)]


async def test_views_accept_inserts_directly_or_through_a_trigger(api: Service) -> None:
    response = await api.rest(
        "POST", "cheap?select=id,price", {"id": 7, "title": "t", "price": 3}, headers=SHOWN
    )
    assert (response.status, response.body) == (201, [{"id": 7, "price": 3.00}])
    response = await api.rest("POST", "shout?select=id", {"id": 8, "title": "LOUD"}, headers=SHOWN)
    assert (response.status, response.body) == (201, [{"id": 8}])
    assert api.database.execute("select title from book where id = 8") == [("loud",)]


async def test_rows_are_inserted_into_their_partitions(api: Service) -> None:
    rows = [{"id": 7, "day": "2010-01-01"}, {"id": 7, "day": "2030-01-01"}]
    response = await api.rest("POST", "event?select=id,day", rows, headers=SHOWN)
    assert response.body == rows
    assert api.database.execute("select count(*) from event_new where id = 7") == [(1,)]


async def test_only_returned_columns_need_the_select_privilege(api: Service) -> None:
    response = await api.rest("POST", "write_only", {"id": 1, "word": "w"})
    assert response.status == 201
    response = await api.rest("POST", "write_only", {"id": 2}, headers={"prefer": "return=headers-only"})
    assert (response.status, response.body["code"]) == (401, "42501")
    response = await api.rest(
        "POST", "secret", {"id": 7, "shown": "s"}, headers={"prefer": "return=headers-only"}
    )
    assert (response.status, response.headers["location"]) == (201, "/secret?id=eq.7")
    response = await api.rest("POST", "secret?select=id", {"id": 8, "shown": "s"}, headers=SHOWN)
    assert (response.status, response.body) == (201, [{"id": 8}])
    response = await api.rest("POST", "secret", {"id": 9, "shown": "s"}, headers=SHOWN, role="authenticated")
    assert (response.status, response.body["code"]) == (403, "42501")
    response = await api.rest("POST", "secret", {"id": 9, "hidden": "s"})
    assert (response.status, response.body["code"]) == (401, "42501")
    assert api.database.execute("select count(*) from secret") == [(2,)]


async def test_insert_policies_apply(api: Service) -> None:
    row = {"id": 7, "owner": "a user of authenticated"}
    assert (await api.rest("POST", "owned", row, role="authenticated")).status == 201
    response = await api.rest("POST", "owned", {"id": 8, "owner": "other"}, role="authenticated")
    assert (response.status, response.body["code"]) == (403, "42501")


async def test_triggers_can_set_status_and_headers(api: Service) -> None:
    response = await api.rest("POST", "told", {"id": 1}, headers=SHOWN)
    assert (response.status, response.headers["x-told"]) == (202, "yes")


async def test_content_profile_selects_the_schema(api: Service) -> None:
    headers = {**SHOWN, "content-profile": "side"}
    response = await api.rest("POST", "book", {"id": 1, "title": "aside"}, headers=headers)
    assert (response.status, response.body) == (201, [{"id": 1, "title": "aside"}])
    assert response.headers["content-profile"] == "side"
    response = await api.rest("POST", "book", {"id": 2}, headers={"content-profile": "nowhere"})
    assert (response.status, response.body["code"]) == (406, "PGRST106")
    api.database.execute("truncate side.book")


async def test_inserts_of_one_shape_share_a_statement(api: Service) -> None:
    first = await api.rest("POST", "author", [{"id": 7, "name": "a"}])
    second = await api.rest("POST", "author", [{"name": "b", "id": 8}, {"name": "c", "id": 9}])
    [one], [other] = (response.messages[0].statements for response in (first, second))
    assert one.statement is other.statement
    assert "'a'" not in one.statement.text


# ---------------------------------------------------------------- generated rows

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
async def test_inserted_rows_are_returned_unchanged(
    service: Service, rows: list[dict[str, Any]], with_columns: bool
) -> None:
    numbered = [{"id": number, **row} for number, row in enumerate(rows)]
    target = "types?select=id,a,b,c,d,e,i" + ("&columns=e,d,c,b,a,id,i" if with_columns else "")
    response = await service.rest("POST", target, numbered, headers=SHOWN)
    assert (response.status, response.body) == (201, numbered)
    response = await service.rest("DELETE", "types?select=id,a,b,c,d,e,i&order=id", headers=SHOWN)
    assert (response.status, response.body) == (200, numbered)


@pytest.mark.parametrize("depth", [990, 1000, 4900])
async def test_deeply_nested_json_is_stored(depths: Service, depth: int) -> None:
    """GraphQL and REST accept any depth that PostgreSQL accepts."""
    deep = "[" * depth + "]" * depth
    assert (await depths.rest("POST", "tree", f'{{"id": {depth}, "data": {deep}}}')).status == 201
    stored = await depths.rest("GET", f"tree?id=eq.{depth}&select=data")
    assert stored.text == f'[{{"data":{deep}}}]'
    query = (
        "mutation($d: JSON) { insertIntotreeCollection(objects: [{id: -%s, data: $d}]) { affectedCount } }"
    )
    assert (await depths.ask(query % depth, {"d": deep})).data
    for wrong in (deep[:-2] + "}]", deep.replace("[]", "[x]")):
        refused = await depths.rest("POST", "tree", f'{{"id": 1, "data": {wrong}}}')
        assert refused.status == 400


async def test_too_deeply_nested_json_is_rejected_with_a_reason(depths: Service) -> None:
    deep = "[" * 6000 + "]" * 6000
    response = await depths.rest("POST", "tree", f'{{"id": 1, "data": {deep}}}')
    assert (response.status, response.body["code"]) == (400, "PGRST102")
    assert response.body["message"] == "The body cannot be read: it is nested more than 5000 values deep"


@pytest.fixture
def depths(server: Server, reactor: Any) -> Iterator[Service]:
    sql = "create table tree (id int primary key, data jsonb); grant all on tree to anon"
    with serving(reactor, server.create_database(sql)) as service:
        yield service
