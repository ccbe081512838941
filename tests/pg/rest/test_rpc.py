"""Function calls over HTTP: lookup, arguments and results."""

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
    response = await service.rest("GET", f"rpc/{target}", headers=headers)
    assert response.status == 200, response.text
    return response.body


async def post(service: Service, target: str, body: Any = None, **headers: str) -> Any:
    response = await service.rest("POST", f"rpc/{target}", {} if body is None else body, headers=headers)
    assert response.status == 200, response.text
    return response.body


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
async def test_results_of_every_kind_are_returned_as_json(service: Service, target: str, result: Any) -> None:
    assert await get(service, target) == result


async def test_void_function_returns_no_content(service: Service) -> None:
    for method in ("GET", "POST"):
        response = await service.rest(method, "rpc/give_void")
        assert (response.status, response.text) == (204, "")
        assert "content-type" not in response.headers


# ---------------------------------------------------------------- selected rows


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
async def test_function_rows_support_select_filters_and_embeds(
    service: Service, target: str, result: Any
) -> None:
    assert await get(service, target) == result
    if target.startswith(("all_projects", "pairs")):
        assert await post(service, target) == result


async def test_page_of_function_rows_is_reported(service: Service) -> None:
    response = await service.rest("GET", "rpc/all_projects?limit=2&offset=1")
    assert (response.status, response.headers["content-range"]) == (200, "1-2/*")
    exact = {"prefer": "count=exact"}
    response = await service.rest("GET", "rpc/all_projects?limit=2&offset=1", headers=exact)
    assert (response.status, response.headers["content-range"]) == (206, "1-2/5")
    assert response.headers["preference-applied"] == "count=exact"
    response = await service.rest("POST", "rpc/all_projects?limit=2", {}, headers=exact)
    assert (response.status, response.headers["content-range"]) == (206, "0-1/5")
    response = await service.rest("GET", "rpc/all_projects", headers={**exact, "range": "3-9"})
    assert (response.status, response.headers["content-range"]) == (206, "3-4/5")
    response = await service.rest("HEAD", "rpc/all_projects", headers={**exact, "range": "3-9"})
    assert (response.status, response.headers["content-range"], response.text) == (200, "0-4/5", "")
    response = await service.rest("GET", "rpc/all_projects?offset=7", headers=exact)
    assert (response.status, response.body["code"]) == (416, "PGRST103")


async def test_single_result_counts_as_one_row(service: Service) -> None:
    """A scalar value or NULL counts as one row."""
    for target in ("add_them?a=3&b=4", "give_point", "give_null"):
        response = await service.rest("GET", f"rpc/{target}", headers={"prefer": "count=exact"})
        assert (response.status, response.headers["content-range"]) == (200, "0-0/1")
    response = await service.rest("GET", "rpc/give_point")
    assert response.headers["content-range"] == "0-0/*"


# ---------------------------------------------------------------- arguments

KINDS = {
    "number8": 3.1, "words": "hello", "flag": True, "day": "2019-01-01", "enum": "happy", "arr": ["a", "b c"],
    "number": 43,
}  # fmt: skip


async def test_arguments_of_many_types_are_read_from_json(service: Service) -> None:
    """Members become JSON values, arrays or composite values according to the arguments' types."""
    sent = {**KINDS, "day": "20190101", "data": {"k": [1]}, "datab": [1, "2"], "pt": {"x": 1, "y": 2}}
    expected = {**KINDS, "data": {"k": [1]}, "datab": [1, "2"], "pt": {"x": 1, "y": 2}}
    assert await post(service, "all_kinds", sent) == expected
    assert await post(service, "json_kind", {"arg": {"key": 3}}) == "object"
    assert await post(service, "json_kind", {"arg": '{"key": 3}'}) == "string"
    assert await post(service, "json_kind", {"arg": None}) is None


async def test_arguments_of_many_types_are_read_from_query_and_form(service: Service) -> None:
    """Arrays use PostgreSQL's syntax. Missing arguments get their defaults."""
    query = "number8=3.1&words=hello&flag=true&day=20190101&enum=happy&arr=%7Ba,%22b c%22%7D&number=43"
    expected = {**KINDS, "data": {}, "datab": {}, "pt": None}
    assert await get(service, f"all_kinds?{query}") == expected
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert await post(service, "all_kinds", query.replace(" ", "+"), **form) == expected
    assert await post(service, "nothing_given", "", **form) == "nothing"


async def test_arguments_are_read_from_csv(service: Service) -> None:
    assert await post(service, "add_them", "a,b\n1,2\n4,6", **{"content-type": "text/csv"}) == 3


async def test_arguments_with_defaults_can_be_omitted(service: Service) -> None:
    assert await get(service, "defaults") == 123
    assert await get(service, "defaults?b=7") == 173
    assert await post(service, "defaults", {"c": 9, "a": 4}) == 429
    assert await post(service, "defaults", b"") == 123


async def test_variadic_arguments_are_repeated_or_sent_as_an_array(service: Service) -> None:
    assert await get(service, "variadic_texts") == []
    assert await get(service, "variadic_texts?v=hi") == ["hi"]
    assert await get(service, 'variadic_texts?v=a"b\\,{}&v=&v=NULL') == ['a"b\\,{}', "", "NULL"]
    assert await get(service, "variadic_texts?v=") == [""]
    assert await get(service, "variadic_ints?name=ignored&name=n&v=4&v=5") == "n9"
    assert await post(service, "variadic_ints", {"name": "n", "v": [4, 5]}) == "n9"
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert await post(service, "variadic_texts", "v=hi&v=there", **form) == ["hi", "there"]


async def test_argument_can_look_like_a_filter(service: Service) -> None:
    """A parameter that looks like a filter is an argument if no function could be called otherwise."""
    assert await get(service, "search?q=eq.5") == "eq.5"
    assert await get(service, "search?q=not.is.null") == "not.is.null"
    assert await get(service, "search?q=not.example") == "not.example"
    assert await get(service, "projects_below?id=lt.3&id=5&select=id") == [{"id": 1}, {"id": 2}]


async def test_last_of_repeated_values_is_used(service: Service) -> None:
    assert await get(service, "say_hello?name=ignored&name=world") == "Hello, world"


async def test_fixed_length_argument_types_accept_longer_values(service: Service) -> None:
    assert await get(service, "short_texts?char_=abcdefg&bits=101010") == "abcdefg/101010"
    assert await post(service, "short_texts", {"char_": "abcdefg", "bits": "101010"}) == "abcdefg/101010"


async def test_functions_with_special_names_can_be_called(service: Service) -> None:
    expected = {"user": "m", "fullName": "M S"}
    assert await get(service, "Quoted%20Function?user=m&fullName=M S") == expected
    assert await post(service, "Quoted%20Function", {"user": "m", "fullName": "M S"}) == expected


async def test_columns_parameter_selects_arguments(service: Service) -> None:
    sent = {"name": "John", "other": 1}
    assert await post(service, "say_hello?columns=name", sent) == "Hello, John"
    assert await post(service, 'say_hello?columns="name"', [sent, {"name": "Jane"}]) == "Hello, John"
    assert await post(service, "add_them", [{"a": 1, "b": 2}, {"a": 4, "b": 6}]) == 3


async def test_hostile_values_are_treated_as_data(service: Service) -> None:
    for text in ("'); drop table client; --", "$1 %s %(a)s", 'a"b\\c', "{x}", "100%"):
        assert await post(service, "say_hello", {"name": text}) == f"Hello, {text}"
        assert await post(service, "search", {"q": text}) == text
    assert await get(service, "search?q=%27%29%3B--%20%241%20%25s") == "');-- $1 %s"


# ---------------------------------------------------------------- a single unnamed argument


async def test_single_unnamed_argument_receives_the_whole_body(service: Service) -> None:
    """The content type selects JSON, text or bytes."""
    whole = {"A": 1, "B": [2, None]}
    assert await post(service, "take_json", whole) == whole
    assert await post(service, "take_jsonb", [3, "x"]) == [3, "x"]
    assert await post(service, "take_json", b"5", **{"content-type": "application/json"}) == 5
    plain = {"content-type": "text/plain", "accept": "text/plain"}
    response = await service.rest("POST", "rpc/take_text", "unnamed ü", headers=plain)
    assert (response.status, response.text) == (200, "unnamed ü")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    octets = {"content-type": "application/octet-stream", "accept": "application/octet-stream"}
    response = await service.rest("POST", "rpc/take_bytes", bytes(range(256)), headers=octets)
    assert (response.status, response.content) == (200, bytes(range(256)))
    assert response.headers["content-type"] == "application/octet-stream"


async def test_single_unnamed_argument_receives_xml(service: Service, server: Server) -> None:
    server.require("libxml")
    xml = {"content-type": "text/xml", "accept": "text/xml"}
    response = await service.rest("POST", "rpc/take_xml", "<a><b/></a>", headers=xml)
    assert (response.text, response.headers["content-type"]) == ("<a><b/></a>", "text/xml; charset=utf-8")


async def test_body_with_an_empty_member_name_is_passed_whole(service: Service) -> None:
    for function in ("take_json", "take_jsonb"):
        assert await post(service, function, {"": "x"}) == {"": "x"}
    assert await post(service, "take_text", b'{"": "x"}') == '{"": "x"}'


async def test_named_arguments_take_precedence_over_the_whole_body(service: Service) -> None:
    assert await post(service, "take", {"x": 1, "y": 2}) == 3
    assert await post(service, "take", {}) == 1
    assert await post(service, "take", {"A": 1}) == {"A": 1}
    assert await post(service, "take", "text", **{"content-type": "text/plain"}) == "text"
    assert await get(service, "take", **{"content-type": "text/plain"}) == 1


async def test_text_body_must_be_valid_utf_8(service: Service) -> None:
    for body in (b"\xff", b"a\0b"):
        response = await service.rest("POST", "rpc/take_text", body, headers={"content-type": "text/plain"})
        assert (response.status, response.body["code"]) == (400, "22021")


# ---------------------------------------------------------------- function lookup


async def rejected_call(service: Service, method: str, target: str, body: Any = None, **headers: str) -> Any:
    """Return the status and body of a rejected call."""
    response = await service.rest(method, f"rpc/{target}", body, headers=headers)
    assert response.headers["content-type"] == JSON
    return response.status, response.body


def unknown(name: str, searched: str, hint: str | None) -> Any:
    """Return the expected response to a call of an unknown function."""
    function = name.partition("(")[0].partition(" ")[0]
    return 404, {
        "code": "PGRST202",
        "message": f"Could not find the function public.{name} in the schema cache",
        "details": f"Searched for the function public.{function}{searched}, but no matches were found in the "
        "schema cache.",
        "hint": hint and f"Perhaps you meant to call the function public.{hint}",
    }


async def test_unknown_function_error_describes_the_search(service: Service) -> None:
    none = " without parameters"
    assert await rejected_call(service, "GET", "say_hell") == unknown(f"say_hell{none}", none, "say_hello")
    assert await rejected_call(service, "GET", "zzz_yyy_xxx") == unknown(f"zzz_yyy_xxx{none}", none, None)
    assert await rejected_call(service, "GET", "say_hello?nam=Peter") == unknown(
        "say_hello(nam)", " with parameter nam", "say_hello(name)"
    )
    assert await rejected_call(service, "GET", "add_them?a=1&b=2&smthelse=x") == unknown(
        "add_them(a, b, smthelse)", " with parameters a, b, smthelse", "add_them(a, b)"
    )
    assert await rejected_call(service, "GET", "over?wrong_arg=x") == unknown(
        "over(wrong_arg)", " with parameter wrong_arg", None
    )
    assert await rejected_call(service, "GET", "over?a=1&b=2&wrong_arg=x") == unknown(
        "over(a, b, wrong_arg)", " with parameters a, b, wrong_arg", "over(a, b, c)"
    )
    assert await rejected_call(service, "POST", "take_int", {"x": 1, "y": 2}) == unknown(
        "take_int(x, y)", " with parameters x, y or with a single unnamed json/jsonb parameter", None
    )
    for media_type, type_ in (
        ("text/plain", "text"),
        ("text/xml", "xml"),
        ("application/octet-stream", "bytea"),
    ):
        assert await rejected_call(
            service, "POST", "take_int", "x", **{"content-type": media_type}
        ) == unknown("take_int", f" with a single unnamed {type_} parameter", None)
    assert await rejected_call(
        service, "POST", "take", "a,b\n1,2", **{"content-type": "text/csv"}
    ) == unknown("take(a, b)", " with parameters a, b", "take(x, y)")


async def test_overloads_are_selected_by_argument_names(service: Service) -> None:
    """Overloads that differ only in argument types cause a 300 error that lists the candidates."""
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
    assert await rejected_call(service, "GET", "same?arg=1") == (300, {**expected, "message": message})
    message = f"{begin}public.take_either( => json), public.take_either( => jsonb)"
    assert await rejected_call(service, "POST", "take_either", {"A": 1}) == (
        300,
        {**expected, "message": message},
    )


async def test_profile_headers_select_the_schema_of_a_function(service: Service) -> None:
    """GET uses ``Accept-Profile`` and POST uses ``Content-Profile``."""
    response = await service.rest("GET", "rpc/elsewhere", headers={"accept-profile": "other"})
    assert (response.body, response.headers["content-profile"]) == ("elsewhere", "other")
    assert await post(service, "elsewhere", {}, **{"content-profile": "other"}) == "elsewhere"
    assert (await rejected_call(service, "GET", "elsewhere"))[0] == 404
    status, body = await rejected_call(service, "GET", "unseen", **{"accept-profile": "hidden"})
    assert (status, body["code"]) == (406, "PGRST106")


async def test_function_without_execute_privilege_is_rejected(service: Service) -> None:
    """Hints do not mention the function."""
    assert await rejected_call(service, "GET", "not_for_anon") == (
        401,
        {
            "code": "42501",
            "message": "permission denied for function not_for_anon",
            "details": None,
            "hint": None,
        },
    )
    assert (await rejected_call(service, "GET", "not_for_ano"))[1]["hint"] is None
    response = await service.rest("GET", "rpc/not_for_anon", role="authenticated")
    assert response.body == 1


# ---------------------------------------------------------------- methods


async def test_other_methods_are_rejected(service: Service) -> None:
    for method in ("PUT", "PATCH", "DELETE"):
        status, body = await rejected_call(service, method, "say_hello", {})
        message = f"Cannot use the {method} method on RPC"
        assert (status, body) == (
            405,
            {"code": "PGRST101", "message": message, "details": None, "hint": None},
        )


async def test_options_lists_the_methods(service: Service) -> None:
    """Volatile functions can only be called with POST."""
    response = await service.rest("OPTIONS", "rpc/say_hello")
    assert (response.status, response.headers["allow"], response.text) == (200, "OPTIONS,GET,HEAD,POST", "")
    response = await service.rest("OPTIONS", "rpc/count_calls")
    assert response.headers["allow"] == "OPTIONS,POST"
    assert (await rejected_call(service, "OPTIONS", "no_such_thing"))[0] == 404


async def test_head_calls_the_function_and_returns_no_body(service: Service) -> None:
    response = await service.rest("HEAD", "rpc/all_projects")
    assert (response.status, response.text) == (200, "")
    assert (response.headers["content-type"], response.headers["content-range"]) == (JSON, "0-4/*")
    assert (await service.rest("HEAD", "rpc/say_hello?name=x")).status == 200
    assert (await service.rest("HEAD", "rpc/no_such_thing")).status == 404


async def test_get_cannot_write(service: Service) -> None:
    for target in ("visit_place?place=x", "visit_places?places=x", "count_calls"):
        status, body = await rejected_call(service, "GET", target)
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
async def test_body_without_valid_arguments_is_rejected(
    service: Service, target: str, body: bytes, message: str
) -> None:
    status, response = await rejected_call(
        service, "POST", target, body, **{"content-type": "application/json"}
    )
    assert (status, response["code"], response["message"]) == (400, "PGRST102", message)


async def test_unknown_content_type_is_rejected(service: Service) -> None:
    status, body = await rejected_call(service, "POST", "say_hello", "x", **{"content-type": "audio/mpeg3"})
    assert (status, body["message"]) == (400, "Content-Type not acceptable: audio/mpeg3")


async def test_post_rejects_arguments_in_the_query_string(service: Service) -> None:
    """Query parameters of a POST are filters."""
    status, body = await rejected_call(service, "POST", "say_hello?name=John", {"name": "John"})
    assert (status, body["code"]) == (400, "PGRST100")
    assert body["message"] == '"failed to parse filter (John)" (line 1, column 1)'


async def test_unknown_columns_and_relationships_of_results_are_rejected(service: Service) -> None:
    status, body = await rejected_call(service, "GET", "pairs?select=nope")
    assert (status, body["code"]) == (400, "42703")
    status, body = await rejected_call(service, "GET", "all_projects?select=id,visit(id)")
    assert (status, body["code"]) == (400, "PGRST200")
    status, body = await rejected_call(service, "GET", "all_projects?select=id&client.order=id")
    assert (status, body["code"]) == (400, "PGRST108")
    status, body = await rejected_call(service, "GET", "all_projects?select=count()")
    assert (status, body["code"]) == (400, "PGRST123")


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@given(TEXTS)
async def test_any_text_reaches_a_function_unchanged(service: Service, text: str) -> None:
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
async def test_any_json_reaches_a_function_unchanged(service: Service, value: Any) -> None:
    headers = {"content-type": "application/json"}
    assert await post(service, "take_json", json.dumps(value).encode(), **headers) == value
    assert await post(service, "same_json", {"arg": value}) == value
