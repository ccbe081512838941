"""API keys and bearer tokens determine the caller (docs/reference/rest.md, API keys)."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import jwt
import pytest
from dataapi.auth.authenticator import Authenticator, split_query
from dataapi.auth.caller import Caller
from dataapi.http.errors import GatewayError, TokenError
from dataapi.http.messages import Request
from dataapi.settings import Project

SECRET = "a secret of at least thirty-two characters"
NOW = 1_800_000_000.0
PUBLISHABLE = "sb_publishable_ACJWlzQHlZjBrEguHvfOxg"
SECRET_KEY = "sb_secret_N7UND0UgjKTVK-Uodkm0Hg"
PROJECT = Project(
    ref="abcdefghijklmnopqrst",
    organization="acme",
    db_uri="postgresql://unused",
    jwt_secret=SECRET,
    publishable_keys=("another-key", PUBLISHABLE),
    secret_keys=(SECRET_KEY,),
)
ANON = Caller("anon", '{"role":"anon"}')
SERVICE = Caller("service_role", '{"role":"service_role"}')


def token(claims: dict[str, Any] | None = None, secret: str = SECRET) -> str:
    return jwt.encode({"role": "authenticated", "sub": "42"} if claims is None else claims, secret, "HS256")


def admit(
    apikey: str | None = PUBLISHABLE,
    bearer: str | None = None,
    *,
    project: Project = PROJECT,
    path: str = "/graphql/v1",
    query: str = "",
) -> Caller:
    headers = {"apikey": apikey, "authorization": None if bearer is None else f"Bearer {bearer}"}
    present = {name: value for name, value in headers.items() if value is not None}
    return Authenticator(project, lambda: NOW).caller_of(Request("id", "POST", path, query, present, b""))


def test_publishable_key_selects_the_anonymous_role() -> None:
    assert admit() == ANON


def test_publishable_key_selects_the_configured_anonymous_role() -> None:
    assert admit(project=replace(PROJECT, db_anon_role="visitor")).role == "visitor"


def test_secret_key_selects_the_service_role() -> None:
    assert admit(SECRET_KEY) == SERVICE


def test_user_token_determines_role_and_claims() -> None:
    caller = admit(bearer=token())
    assert caller.role == "authenticated"
    assert json.loads(caller.claims) == {"role": "authenticated", "sub": "42"}


def test_user_token_takes_precedence_over_secret_key() -> None:
    assert admit(SECRET_KEY, token()).role == "authenticated"


def test_bearer_scheme_is_case_insensitive_and_other_schemes_are_ignored() -> None:
    authenticator = Authenticator(PROJECT, lambda: NOW)
    for header, role in ((f"bEARER  {token()}", "authenticated"), ("Basic dXNlcjpwYXNz", "anon")):
        headers = {"apikey": PUBLISHABLE, "authorization": header}
        assert authenticator.caller_of(Request("id", "GET", "/rest/v1/t", "", headers, b"")).role == role


@pytest.mark.parametrize("key", [PUBLISHABLE, SECRET_KEY, "another-key"])
def test_api_key_repeated_as_bearer_token_is_no_user(key: str) -> None:
    assert admit(key, key) == admit(key)


def test_another_opaque_key_as_bearer_token_grants_nothing() -> None:
    assert admit(PUBLISHABLE, SECRET_KEY) == ANON
    assert admit(PUBLISHABLE, "sb_secret_guessed") == ANON


@pytest.mark.parametrize("role", ["anon", "service_role"])
def test_jwt_signed_with_the_secret_is_an_api_key(role: str) -> None:
    key = token({"role": role, "iss": "us"})
    for caller in (admit(key), admit(key, key)):
        assert caller.role == role
        assert json.loads(caller.claims) == {"role": role, "iss": "us"}


@pytest.mark.parametrize(
    "key",
    [
        "wrong",
        "a.b.c",
        PUBLISHABLE + "x",
        PUBLISHABLE[:-1],
        PUBLISHABLE.upper(),
        "schlüssel",
        token({"role": "service_role"}, "another secret of at least thirty-two characters"),
        token({"role": "anon", "exp": NOW - 31}),
        token({"sub": "a token without a role is no key"}),
    ],
)
@pytest.mark.parametrize("bearer", [None, token()])
def test_invalid_api_key_is_rejected_with_and_without_token(key: str, bearer: str | None) -> None:
    with pytest.raises(GatewayError) as error:
        admit(key, bearer)
    assert error.value.status == 401
    assert error.value.message == "Invalid API key"
    assert error.value.hint is not None
    assert "`dataapi keys`" in error.value.hint


@pytest.mark.parametrize("key", [None, ""])
@pytest.mark.parametrize("bearer", [None, token()])
def test_missing_api_key_is_rejected_with_and_without_token(key: str | None, bearer: str | None) -> None:
    with pytest.raises(GatewayError) as error:
        admit(key, bearer)
    assert error.value.status == 401
    assert error.value.message == "No API key found in request"
    assert error.value.hint == "No `apikey` request header or url param was found."


def test_rest_accepts_the_api_key_in_the_query_string() -> None:
    query = f"select=*&apikey={SECRET_KEY}"
    assert admit(None, path="/rest/v1/blog", query=query) == SERVICE
    assert admit(PUBLISHABLE, path="/rest/v1/blog", query=query) == ANON, "the header takes precedence"


def test_graphql_rejects_the_api_key_in_the_query_string() -> None:
    with pytest.raises(GatewayError):
        admit(None, path="/graphql/v1", query=f"apikey={PUBLISHABLE}")


def test_parameter_with_a_longer_name_is_no_api_key() -> None:
    with pytest.raises(GatewayError, match="No API key"):
        admit(None, path="/rest/v1/blog", query=f"myapikey={PUBLISHABLE}")


def test_api_key_is_removed_from_the_query_and_decoded() -> None:
    assert split_query("a=eq.1&apikey=k%2B1&b=eq.2") == ("k+1", "a=eq.1&b=eq.2")
    assert split_query("apikey=first&apikey=second") == ("first", "")
    assert split_query("") == (None, "")


def test_api_key_is_optional_without_the_key_check() -> None:
    project = replace(PROJECT, require_api_key=False)
    assert admit(None, project=project) == ANON
    assert admit(None, token(), project=project).role == "authenticated"
    assert admit("unknown to us", token(), project=project).role == "authenticated"
    assert admit("unknown to us", project=project) == ANON


def test_invalid_key_as_bearer_token_is_rejected_without_the_key_check() -> None:
    project = replace(PROJECT, require_api_key=False)
    for key, message in (
        (token({"role": "r", "exp": NOW - 100}), "JWT expired"),
        ("nobody's", "Expected 3 parts"),
    ):
        with pytest.raises(TokenError, match=message):
            admit(key, key, project=project)


def test_own_keys_select_their_role_without_the_key_check() -> None:
    project = replace(PROJECT, require_api_key=False)
    assert admit(SECRET_KEY, project=project) == SERVICE
    assert admit(None, SECRET_KEY, project=project) == SERVICE
    with pytest.raises(TokenError, match="Expected 3 parts in JWT; got 1"):
        admit(None, "sb_secret_guessed", project=project)


@pytest.mark.parametrize("agent", ["Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (linux) jsdom/24.0"])
@pytest.mark.parametrize("required", [True, False])
def test_secret_key_from_a_browser_is_rejected(agent: str, required: bool) -> None:
    authenticator = Authenticator(replace(PROJECT, require_api_key=required), lambda: NOW)
    bearer = {"authorization": f"Bearer {SECRET_KEY}"}
    credentials = [{"apikey": SECRET_KEY}, {"apikey": SECRET_KEY, **bearer}] + ([] if required else [bearer])
    for headers in credentials:
        with pytest.raises(GatewayError) as error:
            authenticator.caller_of(
                Request("id", "GET", "/rest/v1/t", "", {"user-agent": agent, **headers}, b"")
            )
        assert error.value.status == 401
        assert error.value.message == "Forbidden use of secret API key in browser"
    for server_agent in ("node", "python-httpx/0.27", "not Mozilla/5.0"):
        headers = {"user-agent": server_agent, "apikey": SECRET_KEY}
        assert authenticator.caller_of(Request("id", "GET", "/rest/v1/t", "", headers, b"")) == SERVICE
    headers = {"user-agent": agent, "apikey": PUBLISHABLE}
    assert authenticator.caller_of(Request("id", "GET", "/rest/v1/t", "", headers, b"")) == ANON


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("ending", ["", "\n"])
def test_base64_secret_may_be_binary(encode: Any, ending: str) -> None:
    secret = bytes(range(200, 256))
    for text in (encode(secret).decode(), encode(secret).decode().rstrip("=")):
        project = replace(PROJECT, jwt_secret=text + ending, jwt_secret_is_base64=True)
        assert admit(bearer=jwt.encode({"role": "authenticated"}, secret, "HS256"), project=project).role == (
            "authenticated"
        )
        with pytest.raises(TokenError, match="No suitable key"):
            admit(bearer=jwt.encode({"role": "authenticated"}, text, "HS256"), project=project)


def test_empty_bearer_token_is_rejected() -> None:
    with pytest.raises(TokenError, match="Empty JWT is sent in Authorization header") as error:
        admit(bearer="")
    assert (error.value.status, error.value.code) == (401, "PGRST301")


def test_token_without_configured_secret_is_a_server_error() -> None:
    with pytest.raises(TokenError, match="Server lacks JWT secret") as error:
        admit(bearer=token(), project=replace(PROJECT, jwt_secret=None))
    assert (error.value.status, error.value.code) == (500, "PGRST300")


def test_token_is_required_without_an_anonymous_role() -> None:
    project = replace(PROJECT, db_anon_role="", require_api_key=False)
    for bearer in (None, token({"sub": "no role"})):
        with pytest.raises(TokenError, match="Anonymous access is disabled") as error:
            admit(None, bearer, project=project)
        assert error.value.code == "PGRST302"
        assert error.value.headers == (("WWW-Authenticate", "Bearer"),)


def test_verified_token_is_cached() -> None:
    authenticator = Authenticator(PROJECT, lambda: NOW)
    headers = {"apikey": PUBLISHABLE, "authorization": f"Bearer {token()}"}
    request = Request("id", "POST", "/graphql/v1", "", headers, b"")
    assert authenticator.caller_of(request) == authenticator.caller_of(request)
    assert (authenticator.tokens.hits, authenticator.tokens.misses) == (1, 1)


@pytest.mark.parametrize(
    "project", [replace(PROJECT, jwt_secret="short"), replace(PROJECT, jwt_role_claim_key="role")]
)
def test_unusable_jwt_configuration_is_rejected_at_startup(project: Project) -> None:
    with pytest.raises(ValueError, match="expected"):
        Authenticator(project, lambda: NOW)
