"""Reading batch requests and writing their responses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Request
from dataapi.rest import batch
from dataapi.rest.batch import elements, members
from hypothesis import given
from hypothesis import strategies as st

JSON = {
    "content-type": batch.MEDIA_TYPE,
    "apikey": "k",
    "x-trace": "t",
    "prefer": "tx=commit",
    "content-length": "9",
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def batch_request(body: Any, headers: dict[str, str] | None = None, path: str = "/rest/v1/") -> Request:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request("id", "POST", path, "", JSON if headers is None else headers, content)


def read(*requests: Any) -> tuple[Request, ...]:
    return batch.read(batch_request({"requests": list(requests)}))


@pytest.mark.parametrize(
    ("path", "content_type", "expected"),
    [
        ("/rest/v1/", batch.MEDIA_TYPE, True),
        ("/rest/v1", f"{batch.MEDIA_TYPE.upper()}; charset=utf-8", True),
        ("/rest/v1/batch", batch.MEDIA_TYPE, False),
        ("/rest/v1/", "application/json", False),
    ],
)
def test_batch_is_recognised_by_its_content_type_at_the_root(
    path: str, content_type: str, expected: bool
) -> None:
    assert batch.is_batch(batch_request({}, {"content-type": content_type}, path)) is expected


def test_request_has_its_own_headers_and_those_of_the_batch() -> None:
    [parsed] = read(
        {
            "method": "PATCH",
            "path": "/a%20table?id=eq.1&select=*",
            "headers": {"Prefer": "return=minimal", "Content-Profile": "other"},
            "body": {"a": 1},
        }
    )
    assert (parsed.method, parsed.path, parsed.query) == ("PATCH", "/rest/v1/a table", "id=eq.1&select=*")
    assert parsed.headers == {
        "apikey": "k",
        "x-trace": "t",
        "prefer": "return=minimal",
        "content-profile": "other",
        "content-type": "application/json",
    }


def test_paths_may_start_with_the_apis_prefix() -> None:
    assert [each.path for each in read({"method": "GET", "path": "/rest/v1/rpc/f"})] == ["/rest/v1/rpc/f"]


def test_body_of_a_request_is_passed_unchanged() -> None:
    text = (
        b'{"requests":[{"method":"POST","path":"/t","body": [ {"n": 1.10000000000000000001, "n":2e400} ] }]}'
    )
    [parsed] = batch.read(batch_request(text))
    assert parsed.body == b'[ {"n": 1.10000000000000000001, "n":2e400} ]'


def test_numbers_may_have_more_digits_than_python_allows() -> None:
    body = b'{"n":' + b"1" * 5000 + b"}"
    [parsed] = batch.read(batch_request(b'{"requests":[{"method":"POST","path":"/t","body":' + body + b"}]}"))
    assert parsed.body == body


@pytest.mark.parametrize("member", ["method", "path", "headers"])
def test_long_numbers_instead_of_strings_are_rejected(member: str) -> None:
    request = {"method": '"GET"', "path": '"/t"', "headers": "{}", member: "1" * 5000}
    text = ",".join(f'"{name}":{value}' for name, value in request.items())
    with pytest.raises(ApiError) as caught:
        batch.read(batch_request(f'{{"requests":[{{{text}}}]}}'.encode()))
    assert (caught.value.status, caught.value.code, caught.value.index) == (400, "PGRST102", 0)


def test_nested_headers_of_any_depth_are_rejected() -> None:
    for depth in range(1, 1200):
        headers = b"[" * depth + b"]" * depth
        with pytest.raises(ApiError) as caught:
            batch.read(
                batch_request(b'{"requests":[{"method":"GET","path":"/t","headers":' + headers + b"}]}")
            )
        assert (caught.value.status, caught.value.code) == (400, "PGRST102")


@pytest.mark.parametrize("constant", [b"NaN", b"Infinity", b"-Infinity"])
def test_constants_that_only_python_accepts_are_rejected(constant: bytes) -> None:
    with pytest.raises(ApiError):
        batch.read(batch_request(b'{"requests":[{"method":"POST","path":"/t","body":' + constant + b"}]}"))


def test_body_that_is_not_json_is_a_string() -> None:
    [parsed] = read(
        {"method": "POST", "path": "/t", "headers": {"content-type": "text/csv"}, "body": "a\n1\n"}
    )
    assert parsed.body == b"a\n1\n"
    [parsed] = read({"method": "POST", "path": "/t", "body": "a"})
    assert parsed.body == b'"a"'


VALID = {"method": "GET", "path": "/t"}


@pytest.mark.parametrize(
    ("requests", "index", "message"),
    [
        ([VALID, {"method": "GET"}], 1, 'must have the members "method" and "path"'),
        ([{**VALID, "extra": 1}], 0, "must have the members"),
        ([VALID, VALID, 5], 2, "must have the members"),
        ([{**VALID, "method": "TRACE"}], 0, "method of a request must be one of"),
        ([{**VALID, "method": ["GET"]}], 0, "method of a request must be one of"),
        ([{**VALID, "path": "t"}], 0, 'must start with "/"'),
        ([{**VALID, "path": 5}], 0, 'must start with "/"'),
        ([{**VALID, "path": "/\ud800"}], 0, 'must start with "/"'),
        ([{**VALID, "path": "/%zz"}], 0, "percent-encoding"),
        ([{**VALID, "path": "/rest/v1/?a"}], 0, "must name a table or a function"),
        ([{**VALID, "headers": {"a": 1}}], 0, "object of strings"),
        ([{**VALID, "headers": []}], 0, "object of strings"),
        (
            [{**VALID, "headers": {"Authorization": "Bearer x"}}],
            0,
            "The header authorization is only allowed on the batch itself",
        ),
        ([{**VALID, "headers": {"apikey": "x"}}], 0, "The header apikey is only allowed on the batch itself"),
        ([{**VALID, "headers": {"Cookie": "x"}}], 0, "The header cookie is only allowed on the batch itself"),
        ([{**VALID, "headers": {"Host": "x"}}], 0, "The header host is only allowed on the batch itself"),
        (
            [{**VALID, "headers": {"X-Request-Id": "x"}}],
            0,
            "The header x-request-id is only allowed on the batch itself",
        ),
        ([{**VALID, "headers": {"Prefer": "a, tx=rollback"}}], 0, "only allowed on the batch itself"),
        ([{**VALID, "headers": {"Content-Type": "text/csv"}, "body": [1]}], 0, "must be a string"),
    ],
)
def test_invalid_request_is_rejected_with_its_index(requests: list[Any], index: int, message: str) -> None:
    with pytest.raises(ApiError, match=message) as caught:
        read(*requests)
    assert (caught.value.status, caught.value.index) == (400, index)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"5", b"{}", b'{"requests": {}}', b'{"requests": []}', b'{"requests": [], "more": 1}',
        b"\xff",
        b'{"requests": [', b'{"requests": [{]}', b"{" * 100_000, b'{"requests":' + b"[" * 100_000,
        json.dumps({"requests": [VALID] * (batch.MAX_REQUESTS + 1)}).encode(),
    ],
)  # fmt: skip
def test_invalid_batch_is_rejected(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        batch.read(batch_request(body))
    assert (caught.value.status, caught.value.code, caught.value.index) == (400, "PGRST102", None)


def test_largest_batch_is_read() -> None:
    assert len(read(*[VALID] * batch.MAX_REQUESTS)) == batch.MAX_REQUESTS


def test_responses_are_in_order_and_json_is_unchanged() -> None:
    parsed = batch.combined_reply(
        [
            Reply(200, (("Content-Type", "application/json; charset=utf-8"),), b'[{"n":1.10}]'),
            Reply(204, (("Set-Cookie", "a"), ("Set-Cookie", "b")), b""),
            Reply(200, (("Content-Type", "text/csv"),), "é\n".encode()),
            Reply(200, (("Content-Type", "application/octet-stream"),), b"\xff"),
        ]
    )
    assert parsed.status == 200
    assert b'"body":[{"n":1.10}]' in parsed.body
    assert [each["body"] for each in json.loads(parsed.body)] == [
        [{"n": 1.1}],
        None,
        "é\n",
        {"base64": "/w=="},
    ]
    assert json.loads(parsed.body)[1] == {"status": 204, "headers": {"Set-Cookie": "a, b"}, "body": None}


@given(st.dictionaries(st.text(), VALUES), st.sampled_from([None, 1, "\t"]))
def test_object_is_split_into_its_members(value: dict[str, Any], indent: Any) -> None:
    parsed = members(json.dumps(value, indent=indent))
    assert parsed is not None
    assert {name: json.loads(text) for name, text in parsed.items()} == value


@given(st.lists(VALUES), st.sampled_from([None, 1, "\t"]))
def test_array_is_split_into_its_elements(value: list[Any], indent: Any) -> None:
    parsed = elements(json.dumps(value, indent=indent))
    assert parsed is not None
    assert [json.loads(text) for text in parsed] == value


@given(st.text('{}[],:" \n01.e-atrufls\\', max_size=30))
def test_only_valid_json_is_split(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        for split in (members, elements):
            with pytest.raises(ValueError):  # noqa: PT011 - any ValueError
                split(text)
    else:
        assert (members(text) is not None) == isinstance(expected, dict)
        assert (elements(text) is not None) == isinstance(expected, list)
