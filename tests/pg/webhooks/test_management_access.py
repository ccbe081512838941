"""Access to the management API (docs/reference/webhooks.md, Scopes and tokens)."""

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


def path(operation: ManagementOperation, scope: str, **identifiers: str) -> str:
    """Return an operation's path in a scope. By default, the IDs are of resources that do not exist."""
    names = {"endpoint_id": NO_SUCH, "delivery_id": NO_SUCH, "event_id": NO_SUCH, **identifiers}
    return scope + operation.path.format(**names)


def body(operation: ManagementOperation) -> Any:
    return {
        "createEndpoint": endpoint(),
        "changeEndpoint": document("endpoint", description="changed"),
        "testEndpoint": {},
        "recoverEndpoint": document("recovery", since="2026-01-01T00:00:00Z"),
        "checkUrl": document("url_check", url="https://receiver.example/hooks"),
    }.get(operation.name)


def scope_of(slug: str | None = None, ref: str | None = None) -> str:
    return f"/v2/organizations/{slug}/webhooks" if slug else f"/v2/projects/{ref}/webhooks"


# ---------------------------------------------------------------- tokens


@pytest.mark.parametrize("header", ["", "Basic YTpi", "Bearer", "Bearer a b", "Token {}", "{}", "Bearer {}x"])
async def test_token_must_use_the_bearer_scheme(api: Management, header: str) -> None:
    headers = {"authorization": header.format(api.token)}
    response = await api.send("GET", f"{ORGANIZATION}/endpoints", token=None, headers=headers)
    assert response.refusal == UNAUTHORIZED
    good = await api.send(
        "GET", f"{ORGANIZATION}/endpoints", token=None, headers={"authorization": f"bearer  {api.token}"}
    )
    assert good.status == 200


async def test_expired_and_revoked_tokens_are_rejected(api: Management) -> None:
    expired = await api.new_token(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert (await api.send("GET", f"{PROJECT}/endpoints", token=expired)).refusal == UNAUTHORIZED
    token = await api.new_token(expires_at=datetime.now(UTC) + timedelta(days=1))
    assert (await api.send("GET", f"{PROJECT}/endpoints", token=token)).status == 200
    access = await api.store.directory.access(token)
    assert access is not None
    await api.store.directory.revoke(access.token.id)
    assert (await api.send("GET", f"{PROJECT}/endpoints", token=token)).refusal == UNAUTHORIZED


@pytest.mark.parametrize(("operation", "scope"), CASES, ids=IDS)
async def test_operation_requires_its_permission(
    api: Management, operation: ManagementOperation, scope: str
) -> None:
    others = [one for one in ALL if one is not operation.permission]
    token = await api.new_token(permissions=others)
    made = await api.create(scope)
    target = path(operation, scope, endpoint_id=made["id"])
    response = await api.send(operation.method, target, body(operation), token=token)
    assert response.refusal == DENIED
    assert response.body["error"]["message"] == f"The token lacks the permission {operation.permission}"
    assert (await api.send("GET", f"{scope}/endpoints/{made['id']}")).data == made
    await api.send("DELETE", f"{scope}/endpoints/{made['id']}")


# ---------------------------------------------------------------- isolation


@pytest.mark.parametrize(("operation", "scope"), CASES, ids=IDS)
async def test_token_of_another_organization_sees_and_changes_nothing(
    api: Management, operation: ManagementOperation, scope: str
) -> None:
    foreign = await api.new_token(OTHER)
    delivery = await api.delivery(scope)
    record = (await api.send("GET", f"{scope}/deliveries/{delivery}")).data
    made = record["attributes"]["endpoint_id"]
    before = (await api.send("GET", f"{scope}/endpoints/{made}")).data
    for target in (path(operation, scope), path(operation, scope, endpoint_id=made, delivery_id=delivery)):
        response = await api.send(operation.method, target, body(operation), token=foreign)
        assert response.refusal == DENIED
    assert (await api.send("GET", f"{scope}/endpoints/{made}")).data == before
    assert (await api.send("GET", f"{scope}/deliveries/{delivery}")).data == record
    await api.send("DELETE", f"{scope}/endpoints/{made}")


@pytest.mark.parametrize(("operation", "scope"), CASES, ids=IDS)
async def test_records_are_not_found_in_another_scope(
    api: Management, operation: ManagementOperation, scope: str
) -> None:
    foreign = await api.new_token(OTHER)
    delivery = await api.delivery(scope)
    made = (await api.send("GET", f"{scope}/deliveries/{delivery}")).data["attributes"]["endpoint_id"]
    before = (await api.send("GET", f"{scope}/endpoints/{made}")).data
    other_scopes = [
        (PROJECT if scope == ORGANIZATION else ORGANIZATION, api.token),
        (scope_of(OTHER), foreign),
        (scope_of(ref=OTHER_REF), foreign),
    ]
    for other, token in other_scopes:
        target = path(operation, other, endpoint_id=made, delivery_id=delivery)
        response = await api.send(operation.method, target, body(operation), token=token)
        if "{" in operation.path:
            [kind] = re.findall(r"{(\w+)_id}", operation.path)
            assert response.refusal == (404, f"not_found.{kind}")
        else:
            assert response.status < 300
            assert made.encode() not in response.content
            assert delivery.encode() not in response.content
    assert (await api.send("GET", f"{scope}/endpoints/{made}")).data == before
    assert (await api.send("GET", f"{scope}/deliveries/{delivery}")).status == 200
    for target_scope in (scope, *(one for one, _ in other_scopes)):
        token = foreign if target_scope not in SCOPES else api.token
        await api.send("DELETE", f"{target_scope}/endpoints", token=token)


@pytest.mark.parametrize(
    "scope", [scope_of("nobody"), scope_of(OTHER), scope_of(ref="z" * 20), scope_of(ref=OTHER_REF)]
)
async def test_absent_and_foreign_scopes_are_indistinguishable(api: Management, scope: str) -> None:
    assert (await api.send("GET", f"{scope}/endpoints")).refusal == DENIED


# ---------------------------------------------------------------- allowlist


@pytest.mark.parametrize("scope", [scope_of(CLOSED), scope_of(ref=CLOSED_REF)])
@pytest.mark.parametrize("operation", SCOPED, ids=lambda one: one.name)
async def test_organizations_not_on_the_allowlist_are_rejected(
    api: Management, operation: ManagementOperation, scope: str
) -> None:
    token = await api.new_token(CLOSED)
    response = await api.send(operation.method, path(operation, scope), body(operation), token=token)
    assert response.refusal == DISABLED


async def test_allowlist_changes_take_effect_immediately(api: Management) -> None:
    directory = api.store.directory
    for allowed, status in ((False, 403), (True, 200)):
        await directory.set_early_access(ACME.organization, allowed)
        for scope in SCOPES:
            assert (await api.send("GET", f"{scope}/endpoints")).status == status


# ---------------------------------------------------------------- syntax of the scope


@pytest.mark.parametrize("slug", ["a.b", "a%20b", "%C3%A9", "a+b", "acme%0A", "a:b"])
async def test_malformed_slug_is_rejected(api: Management, slug: str) -> None:
    response = await api.send("GET", f"{scope_of(slug)}/endpoints")
    assert response.refusal == (400, "bad_request.invalid_slug")


@pytest.mark.parametrize("ref", ["abc", REF[:-1], REF + "a", REF.upper(), REF[:-1] + "1", REF + "%0A"])
async def test_malformed_project_ref_is_rejected(api: Management, ref: str) -> None:
    response = await api.send("GET", f"{scope_of(ref=ref)}/endpoints")
    assert response.refusal == (400, "bad_request.invalid_ref")


# ---------------------------------------------------------------- order


@pytest.mark.parametrize("scope", SCOPES)
async def test_checks_are_made_in_the_documented_order(api: Management, scope: str) -> None:
    malformed = scope_of("a.b") if scope == ORGANIZATION else scope_of(ref="short")
    closed = scope_of(CLOSED) if scope == ORGANIZATION else scope_of(ref=CLOSED_REF)
    unprivileged = await api.new_token(CLOSED, [Permission.READ])
    privileged = await api.new_token(CLOSED)
    bad, good = b"{", body(SCOPED[4])
    absent = f"/endpoints/{NO_SUCH}"
    syntax = 400, "bad_request.invalid_slug" if scope == ORGANIZATION else "bad_request.invalid_ref"
    steps = [
        (malformed, None, bad, UNAUTHORIZED),
        (malformed, unprivileged, bad, syntax),
        (closed, unprivileged, bad, DENIED),
        (closed, privileged, bad, DISABLED),
        (scope, api.token, bad, INVALID),
        (scope, api.token, good, (404, "not_found.endpoint")),
    ]
    for target_scope, token, sent, refusal in steps:
        headers = {"content-type": "application/json"}
        response = await api.send("PATCH", target_scope + absent, sent, token=token, headers=headers)
        assert response.refusal == refusal


async def test_publishing_makes_checks_in_the_same_order(api: Management) -> None:
    unprivileged = await api.new_token(CLOSED, [Permission.WRITE])
    privileged = await api.new_token(CLOSED)
    bad = b"{"
    headers = {"content-type": "application/json"}
    steps: list[tuple[str | None, Any, tuple[int, str]]] = [
        (None, bad, UNAUTHORIZED),
        (unprivileged, bad, DENIED),
        (privileged, bad, DISABLED),
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
        response = await api.send("POST", "/v1/webhooks/events", sent, token=token, headers=headers)
        assert response.refusal == refusal, sent


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
async def test_wrong_method_is_rejected_with_an_allow_header(
    api: Management, target: str, allowed: str
) -> None:
    methods = allowed.split(", ")
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"):
        if method not in methods:
            response = await api.send(method, target)
            assert response.refusal == (405, "method_not_allowed")
            assert response.headers["allow"] == allowed
    options = await api.send("OPTIONS", target, token=None)
    assert (options.status, options.headers["allow"], options.content) == (204, allowed, b"")


@pytest.mark.parametrize("target", [f"{ORGANIZATION}/endpoints", f"{PROJECT}/deliveries", "/v2/openapi.json"])
async def test_head_returns_the_length_of_get_without_a_body(api: Management, target: str) -> None:
    head, get = await api.send("HEAD", target), await api.send("GET", target)
    assert (head.status, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(get.content))


@pytest.mark.parametrize("target", ["/v2/", "/v2/nothing", f"{ORGANIZATION}/nothing", "/v1/webhooks/nothing"])
async def test_unknown_path_is_not_found(api: Management, target: str) -> None:
    assert (await api.send("GET", target)).refusal == (404, "not_found")


async def test_only_json_media_types_are_accepted(api: Management) -> None:
    target = f"{ORGANIZATION}/endpoints"
    for kind in ("application/json", "application/vnd.api+json", "Application/JSON; charset=utf-8"):
        response = await api.send("POST", target, endpoint(), headers={"content-type": kind})
        assert response.status == 201
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", "json"):
        response = await api.send("POST", target, endpoint(), headers={"content-type": kind})
        assert response.refusal == (415, "unsupported_media_type")
    plain = await api.send("POST", target, json.dumps(endpoint()).encode())
    assert plain.status == 201
    zipped = {"content-type": "application/json", "content-encoding": "gzip"}
    assert (await api.send("POST", target, endpoint(), headers=zipped)).refusal[0] == 415
    await api.send("DELETE", target)


async def test_bodies_over_64_kib_are_rejected(api: Management) -> None:
    text = b"{" + b" " * 65_536
    for method, target in (
        ("POST", f"{ORGANIZATION}/endpoints"),
        ("DELETE", f"{ORGANIZATION}/endpoints/{NO_SUCH}"),
    ):
        response = await api.send(method, target, text, headers={"content-type": "application/json"})
        assert response.refusal == (413, "content_too_large")
    for token, target_scope, refusal in (
        (None, ORGANIZATION, UNAUTHORIZED),
        (api.token, scope_of("a.b"), (400, "bad_request.invalid_slug")),
        (await api.new_token(permissions=[Permission.READ]), ORGANIZATION, DENIED),
        (await api.new_token(CLOSED), scope_of(CLOSED), DISABLED),
    ):
        assert (await api.send("POST", f"{target_scope}/endpoints", text, token=token)).refusal == refusal
    whole = json.dumps(endpoint()).encode().ljust(65_536)
    response = await api.send(
        "POST", f"{ORGANIZATION}/endpoints", whole, headers={"content-type": "application/json"}
    )
    assert response.status == 201


async def test_bodies_over_1_mib_are_rejected_before_authentication(api: Management) -> None:
    response = await api.send("POST", f"{ORGANIZATION}/endpoints", b" " * 1_048_577, token=None)
    assert response.refusal == (413, "content_too_large")


async def test_cross_origin_requests_are_allowed(api: Management) -> None:
    headers = {"origin": "https://app.example", "access-control-request-method": "PATCH"}
    preflight = await api.send("OPTIONS", f"{ORGANIZATION}/endpoints", token=None, headers=headers)
    assert preflight.status == 200
    assert "PATCH" in preflight.headers["access-control-allow-methods"]
    assert "authorization" in preflight.headers["access-control-allow-headers"]
    read = await api.send("GET", f"{ORGANIZATION}/endpoints", headers={"origin": "https://app.example"})
    assert read.headers["access-control-allow-origin"] == "*"


async def test_error_id_is_the_request_id(api: Management) -> None:
    response = await api.send(
        "GET", f"{ORGANIZATION}/endpoints/{NO_SUCH}", headers={"x-request-id": "mine-1"}
    )
    assert response.body["error"]["id"] == response.headers["x-request-id"] == "mine-1"


async def test_internal_failures_are_not_disclosed_to_clients(api: Management) -> None:
    api.reason = "permission denied for database"
    try:
        response = await api.send("GET", f"{ORGANIZATION}/endpoints")
        assert response.refusal == (503, "service_unavailable")
        assert b"permission" not in response.content
        assert (await api.send("GET", "/v2/openapi.json", token=None)).status == 200
    finally:
        api.reason = None
    api.database.execute("alter table webhooks.endpoint rename to elsewhere")
    try:
        response = await api.send("GET", f"{ORGANIZATION}/endpoints")
        assert response.refusal == (500, "internal_server_error")
        assert b"relation" not in response.content
    finally:
        api.database.execute("alter table webhooks.elsewhere rename to endpoint")
