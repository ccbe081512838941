"""GraphQL over HTTP: valid requests and the form of responses (docs/reference/graphql.md, HTTP)."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from dataapi.graphql import transport
from dataapi.graphql.transport import GraphQLRequest, GraphQLResponse, Stage
from dataapi.http.errors import ApiError
from dataapi.http.messages import Request
from hypothesis import given
from hypothesis import strategies as st

GRAPHQL = "application/graphql-response+json"
JSON = "application/json"


def post(body: bytes, **headers: str) -> Request:
    sent = {"content-type": JSON} | {name.replace("_", "-"): value for name, value in headers.items()}
    return Request("id", "POST", "/graphql/v1", "", sent, body)


def get(query: str, **headers: str) -> Request:
    return Request("id", "GET", "/graphql/v1", query, headers, b"")


def rejection(request: Request) -> ApiError:
    with pytest.raises(ApiError) as rejected:
        transport.read(request)
    return rejected.value


def test_all_members_of_a_body_are_read() -> None:
    document = {"query": "{a}", "operationName": "A", "variables": {"x": [1]}, "extensions": {"y": 2}}
    assert transport.read(post(json.dumps(document).encode())) == GraphQLRequest(
        "{a}", "A", {"x": [1]}, {"y": 2}
    )


@pytest.mark.parametrize("name", ["operationName", "variables", "extensions"])
def test_null_is_the_same_as_absent(name: str) -> None:
    assert transport.read(post(json.dumps({"query": "{a}", name: None}).encode())) == GraphQLRequest("{a}")


def test_empty_operation_name_in_a_get_request_is_absent() -> None:
    """See section GET of the GraphQL-over-HTTP draft."""
    request = transport.read(get(urlencode({"query": "{a}", "operationName": "", "variables": ""})))
    assert request == GraphQLRequest("{a}", read_only=True)


def test_document_may_be_identified_by_id() -> None:
    expected = GraphQLRequest(None, variables={"x": 1}, document_id="A")
    assert transport.read(post(b'{"documentId": "A", "variables": {"x": 1}}')) == expected
    assert transport.read(post(b'{"query": null, "documentId": "A", "variables": {"x": 1}}')) == expected
    by_get = transport.read(get("documentId=sha256%3Aab&variables="))
    assert by_get == GraphQLRequest(None, read_only=True, document_id="sha256:ab")


def test_document_may_be_identified_by_apollos_hash() -> None:
    extensions = {"persistedQuery": {"version": 1, "sha256Hash": "ab"}}
    expected = GraphQLRequest(None, extensions=extensions, persisted_hash="ab")
    assert transport.read(post(json.dumps({"extensions": extensions}).encode())) == expected
    # The hash is ignored if the document's text is present, because we do not store documents.
    with_text = transport.read(post(json.dumps({"query": "{a}", "extensions": extensions}).encode()))
    assert with_text == GraphQLRequest("{a}", extensions=extensions)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"documentId": 5}', "documentId must be a string, not a number"),
        (
            b'{"query": "{a}", "documentId": "A"}',
            "query and documentId are both present; expected one of them",
        ),
        (b'{"extensions": {"persistedQuery": {"sha256Hash": 5}}}', "query is missing; expected the text"),
        (b'{"extensions": {"persistedQuery": "ab"}}', "query is missing; expected the text"),
    ],
)
def test_ambiguous_or_invalid_document_id_is_rejected(body: bytes, message: str) -> None:
    rejected = rejection(post(body))
    assert (rejected.status, rejected.code) == (400, "BAD_REQUEST")
    assert rejected.message.startswith(message)


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("", True),
        ("variables={}", True),
        ("query={a}", False),
        ("documentId=A", False),
        ("extensions={}", False),
    ],
)
def test_browser_gets_the_page_if_it_requests_no_document(query: str, page: bool) -> None:
    assert transport.wants_page(get(query, accept="text/html,*/*;q=0.8")) is page


def test_unknown_members_are_ignored() -> None:
    assert transport.read(post(b'{"query": "{a}", "documentKey": 5}')) == GraphQLRequest("{a}")


def test_get_request_is_read_only_and_uses_the_query_string() -> None:
    members = {
        "query": "{a b}",
        "operationName": "A",
        "variables": '{"x": "ü"}',
        "extensions": "{}",
        "o": "1",
    }
    assert transport.read(get(urlencode(members))) == GraphQLRequest(
        "{a b}", "A", {"x": "ü"}, {}, read_only=True
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The request body is empty; expected a JSON object with the member query"),
        (b'{ "not', "The request body is not valid JSON: Unterminated string starting at at line 1 column 3"),
        (b'{"query":\n "{a}" 1}', "at line 2 column 8"),
        (b'{"query": "{a}"} x', "The request body is not valid JSON: Extra data at line 1 column 18"),
        (b'{"query": "\xff"}', "The request body is not UTF-8: byte 12 cannot be decoded"),
        (
            b'\xef\xbb\xbf{"query": "{a}"}',
            "The request body is not valid JSON: Expecting value at line 1 column 1",
        ),
        (b'{"query": "{a}", "variables": {"x": NaN}}', "NaN is not a JSON value"),
        (b'{"query": "{a}", "variables": {"x": -Infinity}}', "-Infinity is not a JSON value"),
        (b'{"query": "a\x00"}', "The request body is not valid JSON: Invalid control character at"),
        (b"[" * 100_000, "The request body is nested too deeply"),
        (b'{"query":"{a}","variables":' + b'{"a":' * 99_999, "The request body is nested too deeply"),
        (b'{"query": ' + b"1" * 5000 + b"}", "The request body contains a number with too many digits"),
        (b'[{"query": "{a}"}]', "batches are not supported"),
        (b'"{a}"', "The request body must be a JSON object, not a string"),
        (b"null", "The request body must be a JSON object, not null"),
        (b"{}", "query is missing"),
        (b'{"query": null}', "query is missing"),
        (b'{"query": {}}', "query must be a string, not an object"),
        (b'{"query": true}', "query must be a string, not a boolean"),
        (b'{"query": 1}', "query must be a string, not a number"),
        (b'{"query": "{a}", "operationName": []}', "operationName must be a string, not a list"),
        (b'{"query": "{a}", "variables": "x"}', "variables must be an object"),
        (b'{"query": "{a}", "variables": []}', "variables must be an object"),
        (b'{"query": "{a}", "extensions": 0}', "extensions must be an object"),
        (b'{"query": "a\\u0000"}', "query contains the character U+0000, which PostgreSQL cannot store"),
        (
            b'{"query": "{a}", "variables": {"f": [{}, {"g": "a\\u0000"}]}}',
            "variables.f[1].g contains the character U+0000",
        ),
        (
            b'{"query": "{a}", "variables": {"f": "ab\\ud800"}}',
            "variables.f contains half of a surrogate pair at character 3",
        ),
        (b'{"query": "{a}", "variables": {"\\udc00": 1}}', "variables contains half of a surrogate pair"),
    ],
)
def test_invalid_body_is_rejected_with_the_position(body: bytes, message: str) -> None:
    error = rejection(post(body))
    assert error.status == 400
    assert message in error.message


def test_surrogate_pairs_in_json_escapes_are_decoded() -> None:
    body = b'{"query": "{a}", "variables": {"x": "\\ud83c\\udfca \\u00e9"}}'
    assert transport.read(post(body)).variables == {"x": "🏊 é"}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "query is missing"),
        ("variables={}", "query is missing"),
        ("query={a}&variables=[1]", "variables must be an object"),
        ("query={a}&variables={", "The parameter variables is not valid JSON"),
        ("query={a}&variables=%22%5Cu0000%22", "variables contains the character U+0000"),
        ("query={a}&extensions=5", "extensions must be an object"),
        ("query=%ff", "The decoded parameter query is not valid UTF-8"),
        ("query=a%00b", "The parameter query contains the character U+0000"),
    ],
)
def test_invalid_query_string_is_rejected_with_the_parameter(query: str, message: str) -> None:
    error = rejection(get(query))
    assert error.status == 400
    assert message in error.message


def test_empty_variables_in_a_query_string_are_absent() -> None:
    assert transport.read(get("query={a}&variables=&operationName=A")).variables is None


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"'],
)
def test_json_in_utf8_is_accepted(content_type: str) -> None:
    assert transport.read(post(b'{"query": "{a}"}', content_type=content_type)).query == "{a}"


@pytest.mark.parametrize(
    ("content_type", "message"),
    [
        ("", "The Content-Type header is missing; expected application/json"),
        ("text/plain;charset=UTF-8", "text/plain is not supported; expected application/json"),
        ("multipart/form-data; boundary=x", "multipart/form-data is not supported"),
        ("application/graphql", "application/graphql is not supported"),
        ("application/json; charset=iso-8859-1", "The charset iso-8859-1 is not supported; expected utf-8"),
    ],
)
def test_other_content_types_are_415(content_type: str, message: str) -> None:
    error = rejection(post(b'{"query": "{a}"}', content_type=content_type))
    assert error.status == 415
    assert message in error.message


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (None, JSON),
        ("", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        (JSON, JSON),
        (GRAPHQL, GRAPHQL),
        ("application/graphql-response+json,application/json;q=0.9", GRAPHQL),
        ("application/json, application/graphql-response+json", JSON),
        ("application/graphql-response+json, application/json", GRAPHQL),
        ("application/json;q=0.5, application/graphql-response+json;q=0.6", GRAPHQL),
        ("application/graphql-response+json;q=0.1, */*;q=0.5", JSON),
        ("application/json;q=0, */*", GRAPHQL),
        ("APPLICATION/JSON; charset=utf-8", JSON),
        (
            "application/graphql-response+json, application/graphql+json, application/json, "
            "text/event-stream, multipart/mixed",
            GRAPHQL,
        ),
    ],
)
def test_accept_header_selects_the_media_type(accept: str | None, media_type: str) -> None:
    request = get("query={a}") if accept is None else get("query={a}", accept=accept)
    transport.read(request)
    reply = transport.respond(GraphQLResponse(Stage.EXECUTION, "{}"), request)
    assert dict(reply.headers)["Content-Type"] == f"{media_type}; charset=utf-8"


@pytest.mark.parametrize("accept", ["text/html", "image/*", "application/json;q=0", "*/*;q=0", "a/b;q=x"])
def test_unsupported_accept_header_is_406(accept: str) -> None:
    assert rejection(get("query={a}", accept=accept)).status == 406


@pytest.mark.parametrize(
    ("stage", "data", "of_graphql", "of_json"),
    [
        (Stage.PARSE, None, 400, 200),
        (Stage.VALIDATION, None, 400, 200),
        (Stage.VARIABLES, None, 400, 200),
        (Stage.METHOD, None, 405, 405),
        (Stage.EXECUTION, "null", 200, 200),
        (Stage.EXECUTION, '{"a":1}', 200, 200),
    ],
)
def test_status_depends_on_the_stage(stage: Stage, data: str | None, of_graphql: int, of_json: int) -> None:
    response = GraphQLResponse(stage, data, ({"message": "m"},))
    assert transport.respond(response, get("", accept=GRAPHQL)).status == of_graphql
    assert transport.respond(response, get("", accept=JSON)).status == of_json


def test_rejected_mutation_with_get_has_allow_post() -> None:
    headers = dict(
        transport.respond(GraphQLResponse(Stage.METHOD, None, ({"message": "m"},)), get("")).headers
    )
    assert headers["Allow"] == "POST"


def test_data_is_sent_exactly_as_the_database_returned_it() -> None:
    data = '{"b":1.50,  "a":"Zoë"}'
    assert (
        transport.respond(GraphQLResponse(Stage.EXECUTION, data), get("")).body
        == f'{{"data":{data}}}'.encode()
    )


def body_of(response: GraphQLResponse) -> Any:
    return json.loads(transport.respond(response, get("")).body)


def test_absent_members_are_omitted() -> None:
    errors: Any = ({"message": "é", "path": ["a", 0]},)
    assert body_of(GraphQLResponse(Stage.PARSE, None, errors)) == {
        "errors": [{"message": "é", "path": ["a", 0]}]
    }
    assert body_of(GraphQLResponse(Stage.EXECUTION, "null", errors)) == {"errors": list(errors), "data": None}
    assert body_of(GraphQLResponse(Stage.EXECUTION, "{}", (), {"x": 1})) == {
        "data": {},
        "extensions": {"x": 1},
    }


@pytest.mark.parametrize(
    ("method", "query", "accept", "page"),
    [
        ("GET", "", "text/html,application/xhtml+xml,*/*;q=0.8", True),
        ("GET", "other=1", "text/html", True),
        ("GET", "query={a}", "text/html,*/*", False),
        ("GET", "query={a}&bad=%ff", "text/html,*/*", False),
        ("GET", "", "application/json", False),
        ("GET", "", "*/*", False),
        ("POST", "", "text/html", False),
    ],
)
def test_browser_without_a_query_gets_the_page(method: str, query: str, accept: str, page: bool) -> None:
    request = Request("id", method, "/graphql/v1", query, {"accept": accept}, b"")
    assert transport.wants_page(request) is page


@given(st.binary(max_size=200))
def test_any_body_is_read_or_rejected_with_400(body: bytes) -> None:
    try:
        transport.read(post(body))
    except ApiError as error:
        assert error.status == 400  # noqa: PT017 - either outcome is valid


@given(st.text(max_size=100))
def test_any_accept_header_is_accepted_or_406(accept: str) -> None:
    try:
        transport.read(get("query={a}", accept=accept))
    except ApiError as error:
        assert error.status == 406  # noqa: PT017 - either outcome is valid


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
        lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
        max_leaves=10,
    )
)
def test_variables_are_read_unchanged(value: Any) -> None:
    body = json.dumps({"query": "{a}", "variables": {"v": value}}).encode()
    assert transport.read(post(body)).variables == {"v": value}
