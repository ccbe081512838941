"""Who may use the management API (docs/reference/webhooks.md, Scopes and tokens)."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dataapi.webhooks.management.api import OPERATIONS
from dataapi.webhooks.management.operations import ManagementOperation
from dataapi.webhooks.model import Permission
from support.management import (
    ALL,
    CLOSED,
    CLOSED_REF,
    NO_SUCH,
    ORGANIZATION,
    OTHER,
    OTHER_REF,
    PROJECT,
    SCOPES,
    Management,
    document,
    endpoint,
    event,
)
from support.webhooks import ACME, REF

SCOPED = [one for one in OPERATIONS if one.scoped]
CASES = [(one, scope) for one in SCOPED for scope in SCOPES]
IDS = [f"{one.name}-{scope.split('/')[2]}" for one, scope in CASES]

UNAUTHORIZED = 401, "unauthorized"
DENIED = 403, "forbidden.permission_denied"
DISABLED = 403, "access_disabled"
INVALID = 400, "bad_request.validation"


def path(operation: ManagementOperation, scope: str, **places: str) -> str:
    """Return an operation's path in a scope, about things that are not there unless they are named."""
    names = {"endpoint_id": NO_SUCH, "delivery_id": NO_SUCH, "event_id": NO_SUCH, **places}
    return scope + operation.path.format(**names)


def body(operation: ManagementOperation) -> Any:
    """Return a body that an operation takes."""
    return {
        "createEndpoint": endpoint(),
        "changeEndpoint": document("endpoint", description="changed"),
        "testEndpoint": {},
        "recoverEndpoint": document("recovery", since="2026-01-01T00:00:00Z"),
        "checkUrl": document("url_check", url="https://receiver.example/hooks"),
    }.get(operation.name)


def scope_of(slug: str | None = None, ref: str | None = None) -> str:
    """Return the path of a scope."""
    return f"/v2/organizations/{slug}/webhooks" if slug else f"/v2/projects/{ref}/webhooks"


# ---------------------------------------------------------------- tokens


@pytest.mark.parametrize("header", ["", "Basic YTpi", "Bearer", "Bearer a b", "Token {}", "{}", "Bearer {}x"])
async def test_a_token_is_a_bearer(api: Management, header: str) -> None:
    headers = {"authorization": header.format(api.token)}
    answer = await api.send("GET", f"{ORGANIZATION}/endpoints", token=None, headers=headers)
    assert answer.refusal == UNAUTHORIZED
    good = await api.send(
        "GET", f"{ORGANIZATION}/endpoints", token=None, headers={"authorization": f"bearer  {api.token}"}
    )
    assert good.status == 200


async def test_expired_and_revoked_tokens_are_unknown(api: Management) -> None:
    """A token is good until it expires or is revoked (errors, row 1)."""
    expired = await api.new_token(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert (await api.send("GET", f"{PROJECT}/endpoints", token=expired)).refusal == UNAUTHORIZED
    token = await api.new_token(expires_at=datetime.now(UTC) + timedelta(days=1))
    assert (await api.send("GET", f"{PROJECT}/endpoints", token=token)).status == 200
    found = await api.store.directory.access(token)
    assert found is not None
    await api.store.directory.revoke(found.token.id)
    assert (await api.send("GET", f"{PROJECT}/endpoints", token=token)).refusal == UNAUTHORIZED


@pytest.mark.parametrize(("operation", "scope"), CASES, ids=IDS)
async def test_every_operation_needs_its_permission(
    api: Management, operation: ManagementOperation, scope: str
) -> None:
    """A token without the operation's permission is 403, which names it; nothing is done (errors, row 2)."""
    others = [one for one in ALL if one is not operation.permission]
    token = await api.new_token(permissions=others)
    made = await api.create(scope)
    target = path(operation, scope, endpoint_id=made["id"])
    answer = await api.send(operation.method, target, body(operation), token=token)
    assert answer.refusal == DENIED
    assert answer.body["error"]["message"] == f"The token lacks the permission {operation.permission}"
    assert (await api.send("GET", f"{scope}/endpoints/{made['id']}")).data == made
    await api.send("DELETE", f"{scope}/endpoints/{made['id']}")


# ---------------------------------------------------------------- isolation


@pytest.mark.parametrize(("operation", "scope"), CASES, ids=IDS)
async def test_another_organizations_token_sees_and_changes_nothing(
    api: Management, operation: ManagementOperation, scope: str
) -> None:
    """Every operation is 403 to a foreign token, existing things or not (errors, row 2; scope isolation)."""
    foreign = await api.new_token(OTHER)
    delivery = await api.delivery(scope)
    record = (await api.send("GET", f"{scope}/deliveries/{delivery}")).data
    made = record["attributes"]["endpoint_id"]
    before = (await api.send("GET", f"{scope}/endpoints/{made}")).data
    for target in (path(operation, scope), path(operation, scope, endpoint_id=made, delivery_id=delivery)):
        answer = await api.send(operation.method, target, body(operation), token=foreign)
        assert answer.refusal == DENIED
    assert (await api.send("GET", f"{scope}/endpoints/{made}")).data == before
    assert (await api.send("GET", f"{scope}/deliveries/{delivery}")).data == record
    await api.send("DELETE", f"{scope}/endpoints/{made}")


@pytest.mark.parametrize(("operation", "scope"), CASES, ids=IDS)
async def test_nothing_is_found_under_another_scope(
    api: Management, operation: ManagementOperation, scope: str
) -> None:
    foreign = await api.new_token(OTHER)
    delivery = await api.delivery(scope)
    made = (await api.send("GET", f"{scope}/deliveries/{delivery}")).data["attributes"]["endpoint_id"]
    before = (await api.send("GET", f"{scope}/endpoints/{made}")).data
    elsewhere = [
        (PROJECT if scope == ORGANIZATION else ORGANIZATION, api.token),
        (scope_of(OTHER), foreign),
        (scope_of(ref=OTHER_REF), foreign),
    ]
    for other, token in elsewhere:
        target = path(operation, other, endpoint_id=made, delivery_id=delivery)
        answer = await api.send(operation.method, target, body(operation), token=token)
        if "{" in operation.path:
            [kind] = re.findall(r"{(\w+)_id}", operation.path)
            assert answer.refusal == (404, f"not_found.{kind}")
        else:
            assert answer.status < 300
            assert made.encode() not in answer.content
            assert delivery.encode() not in answer.content
    assert (await api.send("GET", f"{scope}/endpoints/{made}")).data == before
    assert (await api.send("GET", f"{scope}/deliveries/{delivery}")).status == 200
    for place in (scope, *(one for one, _ in elsewhere)):
        token = foreign if place not in SCOPES else api.token
        await api.send("DELETE", f"{place}/endpoints", token=token)


@pytest.mark.parametrize(
    "scope", [scope_of("nobody"), scope_of(OTHER), scope_of(ref="z" * 20), scope_of(ref=OTHER_REF)]
)
async def test_absent_and_foreign_scopes_look_alike(api: Management, scope: str) -> None:
    """Whether an organization or project exists is not told to others (errors, row 2)."""
    assert (await api.send("GET", f"{scope}/endpoints")).refusal == DENIED


# ---------------------------------------------------------------- allowlist


@pytest.mark.parametrize("scope", [scope_of(CLOSED), scope_of(ref=CLOSED_REF)])
@pytest.mark.parametrize("operation", SCOPED, ids=lambda one: one.name)
async def test_organizations_outside_of_the_allowlist_are_refused(
    api: Management, operation: ManagementOperation, scope: str
) -> None:
    """Every operation is 403 ``access_disabled``."""
    token = await api.new_token(CLOSED)
    answer = await api.send(operation.method, path(operation, scope), body(operation), token=token)
    assert answer.refusal == DISABLED


async def test_the_allowlist_takes_effect_at_once(api: Management) -> None:
    directory = api.store.directory
    for allowed, status in ((False, 403), (True, 200)):
        await directory.set_early_access(ACME.organization, allowed)
        for scope in SCOPES:
            assert (await api.send("GET", f"{scope}/endpoints")).status == status


# ---------------------------------------------------------------- syntax of the scope


@pytest.mark.parametrize("slug", ["a.b", "a%20b", "%C3%A9", "a+b", "acme%0A", "a:b"])
async def test_malformed_slugs(api: Management, slug: str) -> None:
    r"""A slug is ``^[\w-]+$`` (errors, row 4)."""
    answer = await api.send("GET", f"{scope_of(slug)}/endpoints")
    assert answer.refusal == (400, "bad_request.invalid_slug")


@pytest.mark.parametrize("ref", ["abc", REF[:-1], REF + "a", REF.upper(), REF[:-1] + "1", REF + "%0A"])
async def test_malformed_references(api: Management, ref: str) -> None:
    """A reference is 20 letters from a to z (errors, row 4)."""
    answer = await api.send("GET", f"{scope_of(ref=ref)}/endpoints")
    assert answer.refusal == (400, "bad_request.invalid_ref")


# ---------------------------------------------------------------- order


@pytest.mark.parametrize("scope", SCOPES)
async def test_checks_come_in_their_order(api: Management, scope: str) -> None:
    malformed = scope_of("a.b") if scope == ORGANIZATION else scope_of(ref="short")
    closed = scope_of(CLOSED) if scope == ORGANIZATION else scope_of(ref=CLOSED_REF)
    powerless = await api.new_token(CLOSED, [Permission.READ])
    able = await api.new_token(CLOSED)
    bad, good = b"{", body(SCOPED[4])
    absent = f"/endpoints/{NO_SUCH}"
    syntax = 400, "bad_request.invalid_slug" if scope == ORGANIZATION else "bad_request.invalid_ref"
    steps = [
        (malformed, None, bad, UNAUTHORIZED),
        (malformed, powerless, bad, syntax),
        (closed, powerless, bad, DENIED),
        (closed, able, bad, DISABLED),
        (scope, api.token, bad, INVALID),
        (scope, api.token, good, (404, "not_found.endpoint")),
    ]
    for place, token, sent, refusal in steps:
        headers = {"content-type": "application/json"}
        answer = await api.send("PATCH", place + absent, sent, token=token, headers=headers)
        assert answer.refusal == refusal


async def test_publishing_checks_in_the_same_order(api: Management) -> None:
    powerless = await api.new_token(CLOSED, [Permission.WRITE])
    able = await api.new_token(CLOSED)
    bad = b"{"
    headers = {"content-type": "application/json"}
    steps: list[tuple[str | None, Any, tuple[int, str]]] = [
        (None, bad, UNAUTHORIZED),
        (powerless, bad, DENIED),
        (able, bad, DISABLED),
        (api.token, bad, INVALID),
        (api.token, event("k", organization_slug="a.b", type=1), (400, "bad_request.invalid_slug")),
        (api.token, event("k", project_ref="short", type=1), (400, "bad_request.invalid_ref")),
        (api.token, event("k", organization_slug=OTHER, type=1), DENIED),
        (api.token, event("k", organization_slug="nobody", type=1), DENIED),
        (api.token, event("k", project_ref=OTHER_REF, type=1), DENIED),
        (api.token, event("k", project_ref="z" * 20, type=1), DENIED),
        (api.token, event("k", type=1), INVALID),
    ]
    for token, sent, refusal in steps:
        answer = await api.send("POST", "/v1/webhooks/events", sent, token=token, headers=headers)
        assert answer.refusal == refusal, sent


# ---------------------------------------------------------------- HTTP


@pytest.mark.parametrize(
    ("target", "allowed"),
    [
        (f"{ORGANIZATION}/endpoints", "GET, POST, DELETE, HEAD, OPTIONS"),
        (f"{PROJECT}/endpoints/{NO_SUCH}", "GET, PATCH, DELETE, HEAD, OPTIONS"),
        (f"{PROJECT}/endpoints/{NO_SUCH}/test", "POST, OPTIONS"),
        (f"{ORGANIZATION}/deliveries", "GET, HEAD, OPTIONS"),
        (f"{PROJECT}/event-types", "GET, HEAD, OPTIONS"),
        ("/v1/webhooks/events", "POST, OPTIONS"),
        ("/v2/openapi.json", "GET, HEAD, OPTIONS"),
    ],
)
async def test_methods(api: Management, target: str, allowed: str) -> None:
    """A wrong method is 405 with the path's own ``Allow``, which OPTIONS tells as well (errors)."""
    methods = allowed.split(", ")
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"):
        if method not in methods:
            answer = await api.send(method, target)
            assert answer.refusal == (405, "method_not_allowed")
            assert answer.headers["allow"] == allowed
    options = await api.send("OPTIONS", target, token=None)
    assert (options.status, options.headers["allow"], options.content) == (204, allowed, b"")


@pytest.mark.parametrize("target", [f"{ORGANIZATION}/endpoints", f"{PROJECT}/deliveries", "/v2/openapi.json"])
async def test_head_is_get_without_a_body(api: Management, target: str) -> None:
    head, get = await api.send("HEAD", target), await api.send("GET", target)
    assert (head.status, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(get.content))


@pytest.mark.parametrize("target", ["/v2/", "/v2/nothing", f"{ORGANIZATION}/nothing", "/v1/webhooks/nothing"])
async def test_paths_that_lead_nowhere(api: Management, target: str) -> None:
    """An unknown path is 404 in the management API's form."""
    assert (await api.send("GET", target)).refusal == (404, "not_found")


async def test_media_types(api: Management) -> None:
    """JSON and JSON:API are taken with any parameters; others are 415 (errors)."""
    target = f"{ORGANIZATION}/endpoints"
    for kind in ("application/json", "application/vnd.api+json", "Application/JSON; charset=utf-8"):
        answer = await api.send("POST", target, endpoint(), headers={"content-type": kind})
        assert answer.status == 201
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", "json"):
        answer = await api.send("POST", target, endpoint(), headers={"content-type": kind})
        assert answer.refusal == (415, "unsupported_media_type")
    plain = await api.send("POST", target, json.dumps(endpoint()).encode())
    assert plain.status == 201
    zipped = {"content-type": "application/json", "content-encoding": "gzip"}
    assert (await api.send("POST", target, endpoint(), headers=zipped)).refusal[0] == 415
    await api.send("DELETE", target)


async def test_bodies_over_64_kib(api: Management) -> None:
    text = b"{" + b" " * 65_536
    for method, target in (
        ("POST", f"{ORGANIZATION}/endpoints"),
        ("DELETE", f"{ORGANIZATION}/endpoints/{NO_SUCH}"),
    ):
        answer = await api.send(method, target, text, headers={"content-type": "application/json"})
        assert answer.refusal == (413, "content_too_large")
    for token, place, refusal in (
        (None, ORGANIZATION, UNAUTHORIZED),
        (api.token, scope_of("a.b"), (400, "bad_request.invalid_slug")),
        (await api.new_token(permissions=[Permission.READ]), ORGANIZATION, DENIED),
        (await api.new_token(CLOSED), scope_of(CLOSED), DISABLED),
    ):
        assert (await api.send("POST", f"{place}/endpoints", text, token=token)).refusal == refusal
    whole = json.dumps(endpoint()).encode().ljust(65_536)
    answer = await api.send(
        "POST", f"{ORGANIZATION}/endpoints", whole, headers={"content-type": "application/json"}
    )
    assert answer.status == 201


async def test_bodies_that_no_one_would_read_are_not_built(api: Management) -> None:
    answer = await api.send("POST", f"{ORGANIZATION}/endpoints", b" " * 1_048_577, token=None)
    assert answer.refusal == (413, "content_too_large")


async def test_scripts_of_any_origin_may_call(api: Management) -> None:
    asking = {"origin": "https://app.example", "access-control-request-method": "PATCH"}
    preflight = await api.send("OPTIONS", f"{ORGANIZATION}/endpoints", token=None, headers=asking)
    assert preflight.status == 200
    assert "PATCH" in preflight.headers["access-control-allow-methods"]
    assert "authorization" in preflight.headers["access-control-allow-headers"]
    read = await api.send("GET", f"{ORGANIZATION}/endpoints", headers={"origin": "https://app.example"})
    assert read.headers["access-control-allow-origin"] == "*"


async def test_the_request_id_is_the_errors(api: Management) -> None:
    answer = await api.send("GET", f"{ORGANIZATION}/endpoints/{NO_SUCH}", headers={"x-request-id": "mine-1"})
    assert answer.body["error"]["id"] == answer.headers["x-request-id"] == "mine-1"


async def test_internal_failures_are_reported_to_the_log_alone(api: Management) -> None:
    """A failure of the database is 500 without detail (errors); webhooks that do not work yet are 503."""
    api.reason = "permission denied for database"
    try:
        answer = await api.send("GET", f"{ORGANIZATION}/endpoints")
        assert answer.refusal == (503, "service_unavailable")
        assert b"permission" not in answer.content
        assert (await api.send("GET", "/v2/openapi.json", token=None)).status == 200
    finally:
        api.reason = None
    api.database.execute("alter table webhooks.endpoint rename to elsewhere")
    try:
        answer = await api.send("GET", f"{ORGANIZATION}/endpoints")
        assert answer.refusal == (500, "internal_server_error")
        assert b"relation" not in answer.content
    finally:
        api.database.execute("alter table webhooks.elsewhere rename to endpoint")
