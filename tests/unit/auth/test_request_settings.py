"""Settings that describe the request to SQL."""

from __future__ import annotations

import json

import pytest
from dataapi.auth.caller import Caller
from dataapi.auth.transaction import settings_for
from dataapi.http.messages import Request
from hypothesis import given
from hypothesis import strategies as st

CALLER = Caller("authenticated", '{"role":"authenticated","sub":"7"}')


def settings(path: str = "/graphql/v1", headers: dict[str, str] | None = None) -> dict[str, str]:
    return dict(settings_for(Request("id", "PATCH", path, "a=b", headers or {}, b""), CALLER))


def test_claims_method_path_headers_and_cookies_are_always_set() -> None:
    assert settings() == {
        "request.jwt.claims": CALLER.claims,
        "request.method": "PATCH",
        "request.path": "/graphql/v1",
        "request.headers": "{}",
        "request.cookies": "{}",
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/rest/v1/blog", "/blog"),
        ("/rest/v1/rpc/f", "/rpc/f"),
        ("/rest/v1", "/"),
        ("/rest/v1/", "/"),
        ("/graphql/v1", "/graphql/v1"),
    ],
)
def test_rest_paths_are_passed_to_sql_like_postgrest(path: str, expected: str) -> None:
    assert settings(path)["request.path"] == expected


@given(st.dictionaries(st.text(), st.text()))
def test_headers_become_a_json_object(headers: dict[str, str]) -> None:
    assert json.loads(settings(headers=headers)["request.headers"]) == headers


@pytest.mark.parametrize(
    ("header", "cookies"),
    [
        ("a=1; b=2", {"a": "1", "b": "2"}),
        ('a="quoted"', {"a": "quoted"}),
        ("a=x=y", {"a": "x=y"}),
        ("a=1; a=2", {"a": "1"}),
        ("nonsense; =nameless; ;a=1", {"a": "1"}),
        ("", {}),
    ],
)
def test_cookies_become_a_json_object(header: str, cookies: dict[str, str]) -> None:
    assert json.loads(settings(headers={"cookie": header})["request.cookies"]) == cookies
