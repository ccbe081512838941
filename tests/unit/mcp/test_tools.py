"""Tool definitions and the REST requests that tool calls are translated to."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from dataapi.http.errors import ApiError
from dataapi.http.headers import Headers
from dataapi.http.messages import Request
from dataapi.http.query_string import pairs
from dataapi.mcp import tools
from dataapi.rest.parse.query import RESERVED
from dataapi.rest.parse.request import target_of
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

READING = ["list_tables", "describe_table", "read_rows", "call_function"]
WRITING = ["insert_rows", "update_rows", "delete_rows"]
HTTP = Request("1", "POST", "/mcp", "", Headers({"host": "x", "apikey": "k"}), b"{}")
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def rest(name: str, **arguments: Any) -> Request:
    tools.check(name, arguments)
    return tools.rest_request(HTTP, name, arguments)


def test_writing_tools_exist_only_with_writes() -> None:
    assert list(tools.definitions(writes=False)) == READING
    assert list(tools.definitions(writes=True)) == READING + WRITING


@pytest.mark.parametrize("name", READING + WRITING)
def test_definition_is_valid_and_complete(name: str) -> None:
    tool = tools.definitions(writes=True)[name]
    assert tool["name"] == name
    assert tool["description"]
    for schema in (tool["inputSchema"], tool["outputSchema"]):
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
    properties = tool["inputSchema"]["properties"]
    assert set(tool["inputSchema"]["required"]) <= set(properties)
    assert all(each["description"] for each in properties.values())


def test_annotations_say_which_tools_change_rows() -> None:
    def changing(*, writes: bool) -> list[str]:
        listed = tools.definitions(writes=writes).values()
        return [tool["name"] for tool in listed if not tool["annotations"]["readOnlyHint"]]

    assert changing(writes=False) == []
    assert changing(writes=True) == ["call_function", *WRITING]


def test_read_becomes_a_get_request() -> None:
    request = rest(
        "read_rows", table="a", schema="s", select="id", filters={"b": ["gt.1", "lt.9"]}, order="id", offset=5
    )
    assert (request.method, request.path) == ("GET", "/rest/v1/a")
    assert request.query == "b=gt.1&b=lt.9&select=id&order=id&limit=100&offset=5"
    assert (request.headers["accept-profile"], request.headers["accept"]) == ("s", "application/json")


def test_writes_are_limited_by_preferences() -> None:
    request = rest("update_rows", table="a", set={"b": 1}, filters={"id": "eq.1"}, max_affected=3)
    assert (request.method, request.body) == ("PATCH", b'{"b":1}')
    assert request.headers["prefer"] == "return=minimal, count=exact, handling=strict, max-affected=3"
    assert rest("delete_rows", table="a", filters={}).headers["prefer"].endswith("max-affected=1")


def test_headers_of_the_message_do_not_change_the_rest_request() -> None:
    sent = {
        "prefer": "tx=rollback", "range": "0-0", "content-profile": "x",
        "accept": "text/csv", "content-length": "9", "authorization": "Bearer t", "if-match": "*",
    }  # fmt: skip
    request = tools.rest_request(HTTP._replace(headers=Headers(sent)), "read_rows", {"table": "a"})
    assert dict(request.headers) == {
        "authorization": "Bearer t", "accept": "application/json", "content-type": "application/json",
        "prefer": "",
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(RESERVED - {"and", "or"}))
def test_filter_cannot_replace_another_parameter(name: str) -> None:
    with pytest.raises(ApiError, match="is not a filter"):
        rest("read_rows", table="a", filters={name: "1000000"})


@given(TEXT, TEXT)
def test_any_name_reaches_rest_unchanged(table: str, function: str) -> None:
    assert target_of(rest("read_rows", table=table).path) == (table, False)
    assert target_of(rest("call_function", function=function).path) == (function, True)


@given(
    st.dictionaries(TEXT.filter(lambda name: name not in RESERVED), st.lists(TEXT, min_size=1, max_size=3))
)
def test_any_filter_reaches_rest_unchanged(filters: dict[str, list[str]]) -> None:
    query = rest("read_rows", table="a", filters=filters).query
    sent = [(name, value) for name, values in filters.items() for value in values]
    assert pairs(query) == [*sent, ("limit", "100"), ("offset", "0")]


@given(st.recursive(st.none() | st.integers() | TEXT, st.lists, max_leaves=4))
def test_any_arguments_are_accepted_or_rejected(value: Any) -> None:
    for name, tool in tools.definitions(writes=True).items():
        for argument in tool["inputSchema"]["properties"]:
            with suppress(ApiError):
                tools.check(name, {argument: value})


def test_long_values_are_not_repeated_in_errors() -> None:
    with pytest.raises(ApiError) as raised:
        tools.check("read_rows", {"table": "a", "limit": "x" * 1_000_000})
    assert len(json.dumps(raised.value.members("verbose"))) < 1000


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("insert_rows", {"table": "t", "rows": [1] * 200_000}),
        ("read_rows", {"table": "t", "filters": {"a": [1] * 200_000}}),
        ("read_rows", {"table": "t", "filters": dict.fromkeys(map(str, range(80_000)), 1)}),
        ("read_rows", dict.fromkeys(map(str, range(80_000)), 1)),
    ],
    ids=["rows", "conditions", "filters", "arguments"],
)
def test_check_of_many_values_stops_at_the_first_problem(
    name: str, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    descend = Draft202012Validator.descend

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        return descend(*given, **named)

    monkeypatch.setattr(Draft202012Validator, "descend", counted)
    with pytest.raises(ApiError):
        tools.check(name, arguments)
    assert calls < 20
