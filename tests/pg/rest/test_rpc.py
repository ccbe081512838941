"""Calls of functions over HTTP: how they are found, what they take, what they give."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import documents
from support.service import Service

if TYPE_CHECKING:
    from support.postgres import Server

JSON = "application/json; charset=utf-8"


SCHEMA = documents.read("tests/pg/data/functions.sql")
PROJECT = {"db_schemas": ("public", "other")}


async def get(service: Service, target: str, **headers: str) -> Any:
    """Return the body of a call by GET."""
    answer = await service.rest("GET", f"rpc/{target}", headers=headers)
    assert answer.status == 200, answer.text
    return answer.body


async def post(service: Service, target: str, body: Any = None, **headers: str) -> Any:
    """Return the body of a call by POST."""
    answer = await service.rest("POST", f"rpc/{target}", {} if body is None else body, headers=headers)
    assert answer.status == 200, answer.text
    return answer.body


# ---------------------------------------------------------------- results


@pytest.mark.parametrize(
    ("target", "result"),
    [
        ("add_them?a=3&b=4", 7),
        ("say_hello?name=world", "Hello, world"),
        ("say_hello?name=￥", "Hello, ￥"),
        ("nothing_given", "nothing"),
        ("give_null", None),
        ("give_array", [1, 2, 3]),
        ("give_json", {"a": [1, None]}),
        ("give_mood?val=happy", "happy"),
        ("give_positive?val=8", 8),
        ("give_range?low=10&up=20", "[10,20)"),
        ("numbers", [1, 2, 3]),
        ("numbers?up=0", []),
        ("give_point", {"x": 10, "y": 5}),
        ("give_point_domain", {"x": 10, "y": 5}),
        ("null_point", {"x": None, "y": None}),
        ("one_project?id=2", {"id": 2, "name": "IOS", "client_id": 2}),
        ("split?num=7", {"half": 3, "rest": 1}),
        ("plus_one?num=5", {"num_plus_one": 6}),
        ("twice?num=4", {"num": 8}),
        ("pairs", [{"a": "x", "b": 1}, {"a": "y", "b": None}, {"a": "z", "b": 3}]),
        ("single_column", [{"a": "A"}, {"a": "B"}]),
        ("any_record", {"id": 1, "name": "Ada"}),
        ("any_records", [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}]),
        ("projects_below?id=1", []),
    ],
)
async def test_every_kind_of_result_has_its_json(service: Service, target: str, result: Any) -> None:
    assert await get(service, target) == result


async def test_a_function_of_no_result_has_no_content(service: Service) -> None:
    """``void`` is 204 without a body and a content type."""
    for method in ("GET", "POST"):
        answer = await service.rest(method, "rpc/give_void")
        assert (answer.status, answer.text) == (204, "")
        assert "content-type" not in answer.headers


# ---------------------------------------------------------------- what is shown of rows


@pytest.mark.parametrize(
    ("target", "result"),
    [
        ("all_projects?select=id&id=gt.1&id=lt.4", [{"id": 2}, {"id": 3}]),
        ("all_projects?select=n:name&order=name.desc&limit=2", [{"n": "Windows"}, {"n": "Orphan"}]),
        ("all_projects?select=id&limit=2&offset=1", [{"id": 2}, {"id": 3}]),
        ("all_projects?select=id&or=(id.eq.1,id.eq.5)", [{"id": 1}, {"id": 5}]),
        (
            "one_project?id=1&select=name,client(name),task(name)",
            {"name": "Windows", "client": {"name": "Ada"}, "task": [{"name": "Design"}, {"name": "Code"}]},
        ),
        ("all_projects?select=id,client!inner(id)&client.name=eq.Bob", [
            {"id": 2, "client": {"id": 2}}, {"id": 3, "client": {"id": 2}},
        ]),
        ("all_projects?select=id,...client(client:name)&id=in.(1,4)", [
            {"id": 1, "client": "Ada"}, {"id": 4, "client": None},
        ]),
        ("all_projects?select=title&title=like.I*", [{"title": "IOS"}]),
        ("projects_as_domain?select=id,client(name)&id=lt.3", [
            {"id": 1, "client": {"name": "Ada"}}, {"id": 2, "client": {"name": "Bob"}},
        ]),
        ("pairs?select=b&a=neq.x&order=b.desc.nullslast", [{"b": 3}, {"b": None}]),
        ("pairs?b=is.null", [{"a": "y", "b": None}]),
        ("point3?select=y z", [{"y z": 2}]),
        ("split?num=7&select=half", {"half": 3}),
        ("one_project?id=2&name=eq.Windows", None),
        ("numbers?up=9&limit=2&offset=3", [4, 5]),
        ("numbers?up=9&pgrst_scalar=gt.7", [8, 9]),
        ("numbers?order=pgrst_scalar.desc", [3, 2, 1]),
        ("projects_below?id=5&id=gt.2&select=id", [{"id": 3}, {"id": 4}]),
        ("projects_below?id=5&id=not.in.(1,3)&select=id", [{"id": 2}, {"id": 4}]),
    ],
)  # fmt: skip
async def test_rows_of_functions_are_selected_filtered_and_embedded_like_a_tables(
    service: Service, target: str, result: Any
) -> None:
    assert await get(service, target) == result
    if target.startswith(("all_projects", "pairs")):
        assert await post(service, target) == result


async def test_the_page_of_a_functions_rows_is_reported(service: Service) -> None:
    """``Content-Range`` has the page, the total when it is asked for, and 206 when there are more."""
    answer = await service.rest("GET", "rpc/all_projects?limit=2&offset=1")
    assert (answer.status, answer.headers["content-range"]) == (200, "1-2/*")
    exact = {"prefer": "count=exact"}
    answer = await service.rest("GET", "rpc/all_projects?limit=2&offset=1", headers=exact)
    assert (answer.status, answer.headers["content-range"]) == (206, "1-2/5")
    assert answer.headers["preference-applied"] == "count=exact"
    answer = await service.rest("POST", "rpc/all_projects?limit=2", {}, headers=exact)
    assert (answer.status, answer.headers["content-range"]) == (206, "0-1/5")
    answer = await service.rest("GET", "rpc/all_projects", headers={**exact, "range": "3-9"})
    assert (answer.status, answer.headers["content-range"]) == (206, "3-4/5")
    answer = await service.rest("HEAD", "rpc/all_projects", headers={**exact, "range": "3-9"})
    assert (answer.status, answer.headers["content-range"], answer.text) == (200, "0-4/5", "")
    answer = await service.rest("GET", "rpc/all_projects?offset=7", headers=exact)
    assert (answer.status, answer.body["code"]) == (416, "PGRST103")


async def test_a_single_result_counts_as_one_row(service: Service) -> None:
    """Also a value, and NULL."""
    for target in ("add_them?a=3&b=4", "give_point", "give_null"):
        answer = await service.rest("GET", f"rpc/{target}", headers={"prefer": "count=exact"})
        assert (answer.status, answer.headers["content-range"]) == (200, "0-0/1")
    answer = await service.rest("GET", "rpc/give_point")
    assert answer.headers["content-range"] == "0-0/*"


# ---------------------------------------------------------------- arguments

KINDS = {
    "number8": 3.1, "words": "hello", "flag": True, "day": "2019-01-01", "enum": "happy", "arr": ["a", "b c"],
    "number": 43,
}  # fmt: skip


async def test_arguments_of_many_types_come_by_json(service: Service) -> None:
    """Each member is read as its argument's type: JSON stays JSON, arrays and objects become their likes."""
    sent = {**KINDS, "day": "20190101", "data": {"k": [1]}, "datab": [1, "2"], "pt": {"x": 1, "y": 2}}
    expected = {**KINDS, "data": {"k": [1]}, "datab": [1, "2"], "pt": {"x": 1, "y": 2}}
    assert await post(service, "all_kinds", sent) == expected
    assert await post(service, "json_kind", {"arg": {"key": 3}}) == "object"
    assert await post(service, "json_kind", {"arg": '{"key": 3}'}) == "string"
    assert await post(service, "json_kind", {"arg": None}) is None


async def test_arguments_of_many_types_come_by_query_string_and_by_form(service: Service) -> None:
    """Arrays as PostgreSQL writes them; what is left out takes its default."""
    query = "number8=3.1&words=hello&flag=true&day=20190101&enum=happy&arr=%7Ba,%22b c%22%7D&number=43"
    expected = {**KINDS, "data": {}, "datab": {}, "pt": None}
    assert await get(service, f"all_kinds?{query}") == expected
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert await post(service, "all_kinds", query.replace(" ", "+"), **form) == expected
    assert await post(service, "nothing_given", "", **form) == "nothing"


async def test_csv_brings_arguments_too(service: Service) -> None:
    assert await post(service, "add_them", "a,b\n1,2\n4,6", **{"content-type": "text/csv"}) == 3


async def test_what_has_a_default_can_be_left_out(service: Service) -> None:
    assert await get(service, "defaults") == 123
    assert await get(service, "defaults?b=7") == 173
    assert await post(service, "defaults", {"c": 9, "a": 4}) == 429
    assert await post(service, "defaults", b"") == 123


async def test_variadic_arguments_repeat_or_are_an_array(service: Service) -> None:
    """Repeated in a query string and a form, an array in JSON."""
    assert await get(service, "variadic_texts") == []
    assert await get(service, "variadic_texts?v=hi") == ["hi"]
    assert await get(service, 'variadic_texts?v=a"b\\,{}&v=&v=NULL') == ['a"b\\,{}', "", "NULL"]
    assert await get(service, "variadic_texts?v=") == [""]
    assert await get(service, "variadic_ints?name=ignored&name=n&v=4&v=5") == "n9"
    assert await post(service, "variadic_ints", {"name": "n", "v": [4, 5]}) == "n9"
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert await post(service, "variadic_texts", "v=hi&v=there", **form) == ["hi", "there"]


async def test_an_argument_may_look_like_a_filter(service: Service) -> None:
    """Where no function could be called otherwise."""
    assert await get(service, "search?q=eq.5") == "eq.5"
    assert await get(service, "search?q=not.is.null") == "not.is.null"
    assert await get(service, "search?q=not.example") == "not.example"
    assert await get(service, "projects_below?id=lt.3&id=5&select=id") == [{"id": 1}, {"id": 2}]


async def test_the_last_of_repeated_values_counts(service: Service) -> None:
    assert await get(service, "say_hello?name=ignored&name=world") == "Hello, world"


async def test_types_of_a_fixed_length_take_longer_values_as_arguments(service: Service) -> None:
    assert await get(service, "short_texts?char_=abcdefg&bits=101010") == "abcdefg/101010"
    assert await post(service, "short_texts", {"char_": "abcdefg", "bits": "101010"}) == "abcdefg/101010"


async def test_names_of_any_kind_can_be_called(service: Service) -> None:
    expected = {"user": "m", "fullName": "M S"}
    assert await get(service, "Quoted%20Function?user=m&fullName=M S") == expected
    assert await post(service, "Quoted%20Function", {"user": "m", "fullName": "M S"}) == expected


async def test_columns_choose_the_members_that_are_arguments(service: Service) -> None:
    sent = {"name": "John", "other": 1}
    assert await post(service, "say_hello?columns=name", sent) == "Hello, John"
    assert await post(service, 'say_hello?columns="name"', [sent, {"name": "Jane"}]) == "Hello, John"
    assert await post(service, "add_them", [{"a": 1, "b": 2}, {"a": 4, "b": 6}]) == 3


async def test_values_are_values_whatever_they_look_like(service: Service) -> None:
    for text in ("'); drop table client; --", "$1 %s %(a)s", 'a"b\\c', "{x}", "100%"):
        assert await post(service, "say_hello", {"name": text}) == f"Hello, {text}"
        assert await post(service, "search", {"q": text}) == text
    assert await get(service, "search?q=%27%29%3B--%20%241%20%25s") == "');-- $1 %s"


# ---------------------------------------------------------------- a single nameless argument


async def test_a_single_nameless_argument_takes_the_whole_body(service: Service) -> None:
    """JSON, text or bytes, by the type of the content."""
    whole = {"A": 1, "B": [2, None]}
    assert await post(service, "take_json", whole) == whole
    assert await post(service, "take_jsonb", [3, "x"]) == [3, "x"]
    assert await post(service, "take_json", b"5", **{"content-type": "application/json"}) == 5
    plain = {"content-type": "text/plain", "accept": "text/plain"}
    answer = await service.rest("POST", "rpc/take_text", "unnamed ü", headers=plain)
    assert (answer.status, answer.text) == (200, "unnamed ü")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    octets = {"content-type": "application/octet-stream", "accept": "application/octet-stream"}
    answer = await service.rest("POST", "rpc/take_bytes", bytes(range(256)), headers=octets)
    assert (answer.status, answer.content) == (200, bytes(range(256)))
    assert answer.headers["content-type"] == "application/octet-stream"


async def test_a_single_nameless_argument_takes_xml(service: Service, server: Server) -> None:
    server.require("libxml")
    xml = {"content-type": "text/xml", "accept": "text/xml"}
    answer = await service.rest("POST", "rpc/take_xml", "<a><b/></a>", headers=xml)
    assert (answer.text, answer.headers["content-type"]) == ("<a><b/></a>", "text/xml; charset=utf-8")


async def test_a_member_without_a_name_stands_for_the_nameless_argument(service: Service) -> None:
    for function in ("take_json", "take_jsonb"):
        assert await post(service, function, {"": "x"}) == {"": "x"}
    assert await post(service, "take_text", b'{"": "x"}') == '{"": "x"}'


async def test_names_go_before_the_whole_body(service: Service) -> None:
    """A function that takes what is named is meant, else the one that takes anything."""
    assert await post(service, "take", {"x": 1, "y": 2}) == 3
    assert await post(service, "take", {}) == 1
    assert await post(service, "take", {"A": 1}) == {"A": 1}
    assert await post(service, "take", "text", **{"content-type": "text/plain"}) == "text"
    assert await get(service, "take", **{"content-type": "text/plain"}) == 1


async def test_a_body_that_is_not_utf_8_is_refused_as_text(service: Service) -> None:
    """With PostgreSQL's own code."""
    for body in (b"\xff", b"a\0b"):
        answer = await service.rest("POST", "rpc/take_text", body, headers={"content-type": "text/plain"})
        assert (answer.status, answer.body["code"]) == (400, "22021")


# ---------------------------------------------------------------- which function


async def refusal(service: Service, method: str, target: str, body: Any = None, **headers: str) -> Any:
    """Return status and body of a refused call."""
    answer = await service.rest(method, f"rpc/{target}", body, headers=headers)
    assert answer.headers["content-type"] == JSON
    return answer.status, answer.body


def unknown(name: str, searched: str, hint: str | None) -> Any:
    """Return what a call of no function meets."""
    function = name.partition("(")[0].partition(" ")[0]
    return 404, {
        "code": "PGRST202",
        "message": f"Could not find the function public.{name} in the schema cache",
        "details": f"Searched for the function public.{function}{searched}, but no matches were found in the "
        "schema cache.",
        "hint": hint and f"Perhaps you meant to call the function public.{hint}",
    }


async def test_a_call_of_no_function_says_what_was_searched_for(service: Service) -> None:
    none = " without parameters"
    assert await refusal(service, "GET", "say_hell") == unknown(f"say_hell{none}", none, "say_hello")
    assert await refusal(service, "GET", "zzz_yyy_xxx") == unknown(f"zzz_yyy_xxx{none}", none, None)
    assert await refusal(service, "GET", "say_hello?nam=Peter") == unknown(
        "say_hello(nam)", " with parameter nam", "say_hello(name)"
    )
    assert await refusal(service, "GET", "add_them?a=1&b=2&smthelse=x") == unknown(
        "add_them(a, b, smthelse)", " with parameters a, b, smthelse", "add_them(a, b)"
    )
    assert await refusal(service, "GET", "over?wrong_arg=x") == unknown(
        "over(wrong_arg)", " with parameter wrong_arg", None
    )
    assert await refusal(service, "GET", "over?a=1&b=2&wrong_arg=x") == unknown(
        "over(a, b, wrong_arg)", " with parameters a, b, wrong_arg", "over(a, b, c)"
    )
    assert await refusal(service, "POST", "take_int", {"x": 1, "y": 2}) == unknown(
        "take_int(x, y)", " with parameters x, y or with a single unnamed json/jsonb parameter", None
    )
    for media_type, type_ in (
        ("text/plain", "text"),
        ("text/xml", "xml"),
        ("application/octet-stream", "bytea"),
    ):
        assert await refusal(service, "POST", "take_int", "x", **{"content-type": media_type}) == unknown(
            "take_int", f" with a single unnamed {type_} parameter", None
        )
    assert await refusal(service, "POST", "take", "a,b\n1,2", **{"content-type": "text/csv"}) == unknown(
        "take(a, b)", " with parameters a, b", "take(x, y)"
    )


async def test_overloads_are_chosen_by_the_names_of_the_arguments(service: Service) -> None:
    """Those that only types tell apart are 300, with all that could be meant."""
    assert await get(service, "over") == [1, 2, 3]
    assert await get(service, "over?a=1&b=2") == 3
    assert await get(service, "over?a=1&b=2&c=3") == "123"
    hint = (
        "Try renaming the parameters or the function itself in the database so function overloading can be"
        " resolved"
    )
    expected = {"code": "PGRST203", "details": None, "hint": hint}
    begin = "Could not choose the best candidate function between: "
    message = f"{begin}public.same(arg => integer), public.same(arg => text, num => integer)"
    assert await refusal(service, "GET", "same?arg=1") == (300, {**expected, "message": message})
    message = f"{begin}public.take_either( => json), public.take_either( => jsonb)"
    assert await refusal(service, "POST", "take_either", {"A": 1}) == (300, {**expected, "message": message})


async def test_functions_of_other_schemas_are_called_by_profile(service: Service) -> None:
    """``Accept-Profile`` for GET, ``Content-Profile`` for POST; hidden schemas have none."""
    answer = await service.rest("GET", "rpc/elsewhere", headers={"accept-profile": "other"})
    assert (answer.body, answer.headers["content-profile"]) == ("elsewhere", "other")
    assert await post(service, "elsewhere", {}, **{"content-profile": "other"}) == "elsewhere"
    assert (await refusal(service, "GET", "elsewhere"))[0] == 404
    status, body = await refusal(service, "GET", "unseen", **{"accept-profile": "hidden"})
    assert (status, body["code"]) == (406, "PGRST106")


async def test_a_function_that_may_not_be_called_is_refused(service: Service) -> None:
    """In PostgreSQL's words, and no hint tells of it."""
    assert await refusal(service, "GET", "not_for_anon") == (
        401,
        {
            "code": "42501",
            "message": "permission denied for function not_for_anon",
            "details": None,
            "hint": None,
        },
    )
    assert (await refusal(service, "GET", "not_for_ano"))[1]["hint"] is None
    answer = await service.rest("GET", "rpc/not_for_anon", role="authenticated")
    assert answer.body == 1


# ---------------------------------------------------------------- methods


async def test_other_methods_are_refused(service: Service) -> None:
    """405 with PGRST101."""
    for method in ("PUT", "PATCH", "DELETE"):
        status, body = await refusal(service, method, "say_hello", {})
        message = f"Cannot use the {method} method on RPC"
        assert (status, body) == (
            405,
            {"code": "PGRST101", "message": message, "details": None, "hint": None},
        )


async def test_options_lists_the_methods(service: Service) -> None:
    """A volatile function can only be called by POST."""
    answer = await service.rest("OPTIONS", "rpc/say_hello")
    assert (answer.status, answer.headers["allow"], answer.text) == (200, "OPTIONS,GET,HEAD,POST", "")
    answer = await service.rest("OPTIONS", "rpc/count_calls")
    assert answer.headers["allow"] == "OPTIONS,POST"
    assert (await refusal(service, "OPTIONS", "no_such_thing"))[0] == 404


async def test_head_runs_the_function_and_gives_no_body(service: Service) -> None:
    """Status and headers are those of GET."""
    answer = await service.rest("HEAD", "rpc/all_projects")
    assert (answer.status, answer.text) == (200, "")
    assert (answer.headers["content-type"], answer.headers["content-range"]) == (JSON, "0-4/*")
    assert (await service.rest("HEAD", "rpc/say_hello?name=x")).status == 200
    assert (await service.rest("HEAD", "rpc/no_such_thing")).status == 404


async def test_get_refuses_to_write(service: Service) -> None:
    """405 with PostgreSQL's 25006, and nothing happened."""
    for target in ("visit_place?place=x", "visit_places?places=x", "count_calls"):
        status, body = await refusal(service, "GET", target)
        assert (status, body["code"]) == (405, "25006")
    assert service.database.execute("select count(*) from visit where place = 'x'") == [(0,)]


@pytest.mark.parametrize(
    ("target", "body", "message"),
    [
        ("say_hello", b"sdfsdf", "Empty or invalid json"),
        ("say_hello", b'{"name": ', "Empty or invalid json"),
        ("say_hello", b"[1, 2]", "All object keys must match"),
        ("add_them", b'[{"a": 1, "b": 2}, {"a": 1}]', "All object keys must match"),
    ],
)
async def test_a_body_that_has_no_arguments_is_refused(
    service: Service, target: str, body: bytes, message: str
) -> None:
    """400 with PGRST102."""
    status, answer = await refusal(service, "POST", target, body, **{"content-type": "application/json"})
    assert (status, answer["code"], answer["message"]) == (400, "PGRST102", message)


async def test_a_body_of_another_type_is_refused(service: Service) -> None:
    """As PostgREST says it."""
    status, body = await refusal(service, "POST", "say_hello", "x", **{"content-type": "audio/mpeg3"})
    assert (status, body["message"]) == (400, "Content-Type not acceptable: audio/mpeg3")


async def test_a_post_takes_no_arguments_from_the_query_string(service: Service) -> None:
    """They would be filters, and are none."""
    status, body = await refusal(service, "POST", "say_hello?name=John", {"name": "John"})
    assert (status, body["code"]) == (400, "PGRST100")
    assert body["message"] == '"failed to parse filter (John)" (line 1, column 1)'


async def test_unknown_columns_and_relationships_of_results_are_refused(service: Service) -> None:
    status, body = await refusal(service, "GET", "pairs?select=nope")
    assert (status, body["code"]) == (400, "42703")
    status, body = await refusal(service, "GET", "all_projects?select=id,visit(id)")
    assert (status, body["code"]) == (400, "PGRST200")
    status, body = await refusal(service, "GET", "all_projects?select=id&client.order=id")
    assert (status, body["code"]) == (400, "PGRST108")
    status, body = await refusal(service, "GET", "all_projects?select=count()")
    assert (status, body["code"]) == (400, "PGRST123")


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@given(TEXTS)
async def test_any_text_reaches_a_function_as_it_is(service: Service, text: str) -> None:
    """By the query string, by JSON, by a form, as a variadic one and as the whole body."""
    sent = quote(text, safe="")
    assert await get(service, f"search?q={sent}") == text
    assert await get(service, f"variadic_texts?v={sent}&v=x") == [text, "x"]
    assert await post(service, "search", {"q": text}) == text
    assert (
        await post(service, "search", f"q={sent}", **{"content-type": "application/x-www-form-urlencoded"})
        == text
    )
    assert await post(service, "take_text", text.encode(), **{"content-type": "text/plain"}) == text


@given(VALUES)
async def test_any_json_reaches_a_function_as_it_is(service: Service, value: Any) -> None:
    headers = {"content-type": "application/json"}
    assert await post(service, "take_json", json.dumps(value).encode(), **headers) == value
    assert await post(service, "same_json", {"arg": value}) == value
