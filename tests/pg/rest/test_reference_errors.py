"""All errors that a client can cause, with their complete bodies (docs/reference/rest.md, Errors).

``test_errors``, ``test_gate``, ``test_pool`` and ``test_openapi_requests`` test errors of the connection
(PGRST000, 001 and 003), errors of the configuration (PGRST126, 300, 302), and SQLSTATEs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jwt
import pytest
from dataapi.auth.caller import Caller
from dataapi.http.errors import DatabaseUnavailable
from dataapi.http.messages import Request
from dataapi.rest.handler import RestHandler
from support.memory_http import SECRET

if TYPE_CHECKING:
    from support.service import Service

Headers = dict[str, str]
EXACT = {"prefer": "count=exact"}


def error(code: str, message: str, details: Any = None, hint: str | None = None) -> dict[str, Any]:
    return {"code": code, "message": message, "details": details, "hint": hint}


RANGE = "Requested range not satisfiable"
SINGLE = {"accept": "application/vnd.pgrst.object+json"}
KEY_MISMATCH = "Payload values do not match URL in primary key column(s)"
NOT_THE_KEY = "Filters must include all and only primary key columns with 'eq' operators"
NO_LIMIT = "limit/offset querystring parameters are not allowed for PUT"
ERRORS: list[tuple[str, str, Any, Headers, int, dict[str, Any]]] = [
    ("GET", "film?id=eqq.5", None, {}, 400, error(
        "PGRST100", '"failed to parse filter (eqq.5)" (line 1, column 4)',
        'unexpected "q" expecting operator (eq, gt, ...)',
    )),
    ("GET", "film?id=not.gtt.5", None, {}, 400, error(
        "PGRST100", '"failed to parse filter (not.gtt.5)" (line 1, column 8)',
        'unexpected "t" expecting operator (eq, gt, ...)',
    )),
    ("GET", "film?or=(id.eqq.5)", None, {}, 400, error(
        "PGRST100", '"failed to parse logic tree ((id.eqq.5))" (line 1, column 10)',
        'unexpected "q" expecting operator (eq, gt, ...)',
    )),
    ("GET", "film?id=noop.0", None, {}, 400, error(
        "PGRST100", '"failed to parse filter (noop.0)" (line 1, column 1)',
        'unexpected "o" expecting "not" or operator (eq, gt, ...)',
    )),
    ("GET", "film?id=5", None, {}, 400, error(
        "PGRST100", '"failed to parse filter (5)" (line 1, column 1)',
        'unexpected "5" expecting "not" or operator (eq, gt, ...)',
    )),
    ("GET", "film?or=()", None, {}, 400, error(
        "PGRST100", '"failed to parse logic tree (())" (line 1, column 4)',
        'unexpected ")" expecting field name (* or [a..z0..9_$]), negation operator (not) or logic operator '
        "(and, or)",
    )),
    ("GET", "film?select=id,director(name[])", None, {}, 400, error(
        "PGRST100", '"failed to parse select parameter (id,director(name[]))" (line 1, column 17)',
        'unexpected \'[\' expecting letter, digit, "-", "->>", "->", "::", ".", ")", "," or end of input',
    )),
    ("GET", "film?order=id.smth34", None, {}, 400, error(
        "PGRST100", '"failed to parse order (id.smth34)" (line 1, column 4)',
        'unexpected "s" expecting "asc", "desc", "nullsfirst" or "nullslast"',
    )),
    *[
        (method, "rpc/add", None, {}, 405, error("PGRST101", f"Cannot use the {method} method on RPC"))
        for method in ("PUT", "PATCH", "DELETE")
    ],
    ("POST", "film", "{bad", {}, 400, error("PGRST102", "Empty or invalid json")),
    ("POST", "film", [{"id": 50}, {"title": "x"}], {}, 400, error("PGRST102", "All object keys must match")),
    ("POST", "film", "x", {"content-type": "text/odd"}, 400, error(
        "PGRST102", "Content-Type not acceptable: text/odd",
    )),
    ("GET", "film?offset=6", None, EXACT, 416, error(
        "PGRST103", RANGE, "An offset of 6 was requested, but there are only 5 rows.",
    )),
    ("GET", "film?limit=-1", None, {}, 416, error(
        "PGRST103", RANGE, "Limit should be greater than or equal to zero.",
    )),
    ("GET", "film", None, {"range": "5-2"}, 416, error(
        "PGRST103", RANGE,
        "The lower boundary must be lower than or equal to the upper boundary in the Range header.",
    )),
    ("PUT", "part?film=eq.5", {"film": 5, "actor": 1}, {}, 405, error("PGRST105", NOT_THE_KEY)),
    ("GET", "film", None, {"accept-profile": "nope"}, 406, error(
        "PGRST106", "Invalid schema: nope", None, "Only the following schemas are exposed: public, other",
    )),
    ("POST", "film", {}, {"content-profile": "nope"}, 406, error(
        "PGRST106", "Invalid schema: nope", None, "Only the following schemas are exposed: public, other",
    )),
    ("GET", "film", None, {"accept": "image/png, text/odd"}, 406, error(
        "PGRST107", "None of these media types are available: image/png, text/odd",
    )),
    *[
        ("GET", f"film?{parameter}", None, {}, 400, error(
            "PGRST108", "'zzz' is not an embedded resource in this request", None,
            "Verify that 'zzz' is included in the 'select' query parameter.",
        ))
        for parameter in ("zzz.id=eq.1", "zzz.or=(id.eq.1)", "zzz.limit=1", "zzz.order=id", "order=zzz(id)")
    ],
    ("POST", "rpc/bad_headers", {}, {}, 500, error(
        "PGRST111",
        "response.headers guc must be a JSON array composed of objects with a single key and a string value",
    )),
    ("POST", "rpc/bad_status", {}, {}, 500, error(
        "PGRST112", "response.status guc must be a valid status code",
    )),
    ("PUT", "unrelated?id=eq.1&limit=1", {"id": 1}, {}, 400, error("PGRST114", NO_LIMIT)),
    ("PUT", "unrelated?id=eq.1&offset=1", {"id": 1}, {}, 400, error("PGRST114", NO_LIMIT)),
    ("PUT", "unrelated?id=eq.1", {"id": 2}, {}, 400, error("PGRST115", KEY_MISMATCH)),
    *[
        ("GET", f"film?{query}", None, SINGLE, 406, error(
            "PGRST116", "Cannot coerce the result to a single JSON object",
            f"The result contains {rows} rows",
        ))
        for query, rows in (("id=eq.0", 0), ("year=eq.1995", 2))
    ],
    ("TRACE", "film", None, {}, 405, error("PGRST117", "Unsupported HTTP method: TRACE")),
    ("GET", "film?select=id,actor(id)&order=actor(id)", None, {}, 400, error(
        "PGRST118", "A related order on 'actor' is not possible",
        "'film' and 'actor' do not form a many-to-one or one-to-one relationship",
    )),
    ("GET", "film?select=id,actor()&actor=eq.1", None, {}, 400, error(
        "PGRST120", "Bad operator on the 'actor' embedded resource",
        "Only is null or not is null filters are allowed on embedded resources",
    )),
    ("POST", "rpc/bad_raise", {}, {}, 500, error(
        "PGRST121", "Could not parse JSON in the \"RAISE SQLSTATE 'PGRST'\" error",
        "Invalid JSON value for MESSAGE: 'x'",
        "MESSAGE must be a JSON object with obligatory keys: 'code', 'message' and optional keys: 'details', "
        "'hint'.",
    )),
    ("GET", "film", None, {"prefer": "handling=strict, odd=1, count=some"}, 400, error(
        "PGRST122", "Invalid preferences given with handling=strict",
        "Invalid preferences: odd=1, count=some",
    )),
    ("DELETE", "sale?region=eq.north", None, {"prefer": "handling=strict, max-affected=1"}, 400, error(
        "PGRST124", "Query result exceeds max-affected preference constraint", "The query affects 2 rows",
    )),
    ("POST", "rpc/paints", {}, {"prefer": "handling=strict, max-affected=1"}, 400, error(
        "PGRST124", "Query result exceeds max-affected preference constraint", "The query affects 3 rows",
    )),
    ("GET", "a/b", None, {}, 404, error("PGRST125", "Invalid path specified in request URL")),
    ("POST", "rpc/add", {"a": 1}, {"prefer": "handling=strict, max-affected=1"}, 400, error(
        "PGRST128",
        "Function must return SETOF or TABLE when max-affected preference is used with handling=strict",
    )),
    ("GET", "film?select=unrelated(*)", None, {}, 400, error(
        "PGRST200", "Could not find a relationship between 'film' and 'unrelated' in the schema cache",
        "Searched for a foreign key relationship between 'film' and 'unrelated' in the schema 'public', but "
        "no matches were found.",
        "Perhaps you meant 'director' instead of 'unrelated'.",
    )),
    ("GET", "film?select=actor!odd(*)", None, {}, 400, error(
        "PGRST200", "Could not find a relationship between 'film' and 'actor' in the schema cache",
        "Searched for a foreign key relationship between 'film' and 'actor' using the hint 'odd' in the "
        "schema 'public', but no matches were found.",
    )),
    ("GET", "film?select=acto(*)", None, {}, 400, error(
        "PGRST200", "Could not find a relationship between 'film' and 'acto' in the schema cache",
        "Searched for a foreign key relationship between 'film' and 'acto' in the schema 'public', but "
        "no matches were found.",
        "Perhaps you meant 'actor' instead of 'acto'.",
    )),
    ("GET", "rpc/add?a=1&zz=1", None, {}, 404, error(
        "PGRST202", "Could not find the function public.add(a, zz) in the schema cache",
        "Searched for the function public.add with parameters a, zz, but no matches were found in the schema "
        "cache.",
        "Perhaps you meant to call the function public.add(a, b)",
    )),
    ("GET", "rpc/nowhere", None, {}, 404, error(
        "PGRST202", "Could not find the function public.nowhere without parameters in the schema cache",
        "Searched for the function public.nowhere without parameters, but no matches were found in the "
        "schema cache.",
    )),
    ("GET", "rpc/ambiguous?a=1", None, {}, 300, error(
        "PGRST203",
        "Could not choose the best candidate function between: public.ambiguous(a => integer), "
        "public.ambiguous(a => text)",
        None,
        "Try renaming the parameters or the function itself in the database so function overloading can be "
        "resolved",
    )),
    ("POST", "film", {"nope": 1}, {}, 400, error(
        "PGRST204", "Could not find the 'nope' column of 'film' in the schema cache",
    )),
    ("GET", "fil", None, {}, 404, error(
        "PGRST205", "Could not find the table 'public.fil' in the schema cache", None,
        "Perhaps you meant the table 'public.film'",
    )),
    # PostgreSQL's own errors keep all their fields.
    ("GET", "rpc/refuse", None, {}, 402, error("PT402", "Pay", "Quota", "Upgrade")),
    ("GET", "rpc/write?a=1", None, {}, 405, error(
        "25006", "cannot execute INSERT in a read-only transaction",
    )),
    ("POST", "director", {"id": 1, "name": "Ada"}, {}, 409, error(
        "23505", 'duplicate key value violates unique constraint "director_pkey"',
        "Key (id)=(1) already exists.",
    )),
    ("DELETE", "director?id=eq.1", None, {}, 409, error(
        "23503",
        'update or delete on table "director" violates foreign key constraint "director_mentor_fkey" on '
        'table "director"',
        'Key (id)=(1) is still referenced from table "director".',
    )),
    ("GET", "film?id=eq.x", None, {}, 400, error("22P02", 'invalid input syntax for type integer: "x"')),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "target", "body", "headers", "status", "expected"),
    ERRORS,
    ids=[f"{case[5]['code']} {case[0]} {case[1]}" for case in ERRORS],
)
async def test_errors_have_a_status_and_a_complete_body(
    reference: Service,
    method: str,
    target: str,
    body: Any,
    headers: Headers,
    status: int,
    expected: dict[str, Any],
) -> None:
    """``Proxy-Status`` names the error code."""
    sent = {"content-type": "application/json", **headers} if isinstance(body, str) else headers
    response = await reference.rest(method, target, body, headers=sent)
    assert (response.status, response.body) == (status, expected)
    assert response.headers["proxy-status"] == f"PostgREST; error={expected['code']}"
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert ("allow" in response.headers) == (status == 405)


@pytest.mark.parametrize(
    ("method", "target", "allowed"),
    [
        ("PATCH", "rpc/add", "OPTIONS,GET,HEAD,POST"),
        ("GET", "rpc/write?a=1", "OPTIONS,POST"),
        ("PUT", "part?film=eq.5", "OPTIONS,GET,HEAD,POST,PUT,PATCH,DELETE"),
        ("POST", "", "OPTIONS,GET,HEAD"),
    ],
)
async def test_405_response_lists_the_allowed_methods(
    reference: Service, method: str, target: str, allowed: str
) -> None:
    """RFC 9110, section 15.5.6, requires ``Allow``."""
    body = None if method == "GET" else {"film": 5, "actor": 1}
    response = await reference.rest(method, target, body)
    assert (response.status, response.headers["allow"]) == (405, allowed)


async def test_ambiguous_resource_error_lists_all_candidates(reference: Service) -> None:
    response = await reference.rest("GET", "premiere?select=city(*)")
    assert (response.status, response.headers["proxy-status"]) == (300, "PostgREST; error=PGRST201")
    assert [each["relationship"] for each in response.body["details"]] == [
        "premiere_city_fkey using premiere(city) and city(id)",
        "premiere_host_fkey using premiere(host) and city(id)",
    ]


@pytest.mark.parametrize(
    ("bearer", "code", "message"),
    [
        ("", "PGRST301", "Empty JWT is sent in Authorization header"),
        ("a.b", "PGRST301", "Expected 3 parts in JWT; got 2"),
        ("a.b.c", "PGRST301", "JWT cryptographic operation failed"),
        (jwt.encode({}, SECRET + "x", "HS256"), "PGRST301", "No suitable key or wrong key type"),
        (jwt.encode({"exp": 1}, SECRET, "HS256"), "PGRST303", "JWT expired"),
        (jwt.encode({"nbf": 9**11}, SECRET, "HS256"), "PGRST303", "JWT not yet valid"),
        (jwt.encode({"iat": 9**11}, SECRET, "HS256"), "PGRST303", "JWT issued at future"),
        (jwt.encode({"exp": "x"}, SECRET, "HS256"), "PGRST303", "The JWT 'exp' claim must be a number"),
    ],
)
async def test_body_and_challenge_explain_why_a_token_is_rejected(
    reference: Service, bearer: str, code: str, message: str
) -> None:
    response = await reference.rest("GET", "film", headers={"authorization": f"Bearer {bearer}"})
    assert (response.status, response.body["code"], response.body["message"]) == (401, code, message)
    assert set(response.body) == {"code", "message", "details", "hint"}
    assert (
        response.headers["www-authenticate"] == f'Bearer error="invalid_token", error_description="{message}"'
    )


async def test_missing_catalog_is_a_503_with_retry_after(reference: Service) -> None:
    handler = RestHandler(reference.project, reference.pool, lambda: None)
    request = Request("1", "GET", "/rest/v1/film", "", {}, b"")
    with pytest.raises(DatabaseUnavailable) as caught:
        await handler.handle(request, Caller("anon", "{}"))
    refused = caught.value
    assert (refused.status, refused.code, refused.message) == (
        503, "PGRST002", "Could not query the database for the schema cache. Retrying.",
    )  # fmt: skip
    assert dict(refused.headers)["Retry-After"].isdigit()
