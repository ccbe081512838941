"""Portal links: scope, lifetime and permissions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from dataapi.webhooks.management.api import OPERATIONS
from dataapi.webhooks.model import Permission, Portal, Scope
from support.management import (
    CLOSED,
    NO_SUCH,
    ORGANIZATION,
    OTHER,
    OTHER_REF,
    PROJECT,
    Management,
    document,
    endpoint,
)
from support.messages import until
from support.webhooks import ACME, REF, SECRET
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from dataapi.webhooks.management.operations import ManagementOperation
    from support.management import Answer

LINKS = f"/v2/organizations/{ACME.organization}/portal-links"
DENIED = 403, "forbidden.permission_denied"
UNAUTHORIZED = 401, "unauthorized"
SCOPED = [one for one in OPERATIONS if one.scoped]


async def create_link(api: Management, token: str | None = "", **attributes: Any) -> Any:
    """Create a portal link for acme and return its attributes."""
    response = await api.send("POST", LINKS, document("portal_link", **attributes), token=token)
    assert response.status == 201, response.body
    return {**response.data["attributes"], "id": response.data["id"]}


def token_of(made: Any) -> str:
    """Return a link's token from the URL fragment. Fragments do not appear in logs and Referer headers."""
    path, _, token = made["path"].partition("#")
    assert path == "/portal"
    return str(token)


async def test_link_has_the_requested_attributes(api: Management) -> None:
    before = datetime.now(UTC)
    for token in (api.operator, await api.new_token(permissions=[Permission.WRITE])):
        made = await create_link(api, token, project_ref=REF, expires_in=600, name="Acme 7", color="#0F766E")
        left = datetime.fromisoformat(made["expires_at"]) - before
        assert timedelta(seconds=599) < left < timedelta(seconds=660)
        shown = {"name": "Acme 7", "color": "#0f766e", "signing_secrets": False}
        assert {name: made[name] for name in shown} == shown
        access = (await api.send("GET", "/v2/access", token=token_of(made))).data["attributes"]
        assert access == {
            "organization_slug": "acme", "operator": False, "projects": [REF], "project_ref": REF,
            "permissions": ["webhooks:read", "webhooks:write"], "expires_at": made["expires_at"],
            "portal": shown,
        }  # fmt: skip


async def test_link_attributes_have_defaults(api: Management) -> None:
    response = await api.send("POST", LINKS, token=api.operator)
    made = response.data["attributes"]
    left = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
    assert (made["name"], made["color"], made["project_ref"], made["read_only"]) == (
        "acme",
        None,
        None,
        False,
    )


@pytest.mark.parametrize(
    ("attributes", "pointer"),
    [
        ({"expires_in": 59}, "expires_in"),
        ({"expires_in": 86_401}, "expires_in"),
        ({"expires_in": "3600"}, "expires_in"),
        ({"project_ref": "short"}, "project_ref"),
        ({"name": ""}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "abc\u202e"}, "name"),
        ({"color": "red"}, "color"),
        ({"color": "#fff"}, "color"),
        ({"color": "#0f766e\n"}, "color"),
        ({"color": "#0f766e;background:url(//evil.example)"}, "color"),
        ({"signing_secrets": "yes"}, "signing_secrets"),
        ({"origin": "https://evil.example"}, "origin"),
    ],
)
async def test_invalid_attributes_are_rejected_with_their_pointer(
    api: Management, attributes: Any, pointer: str
) -> None:
    response = await api.send("POST", LINKS, document("portal_link", **attributes))
    assert response.refusal == (400, "bad_request.validation")
    assert response.pointers == [f"/data/attributes/{pointer}"]


@pytest.mark.parametrize("ref", [OTHER_REF, "z" * 20])
async def test_link_requires_a_project_of_the_organization(api: Management, ref: str) -> None:
    response = await api.send("POST", LINKS, document("portal_link", project_ref=ref))
    assert response.refusal == (404, "not_found.project")
    assert response.pointers == ["/data/attributes/project_ref"]


async def test_unauthorized_tokens_cannot_create_links(api: Management) -> None:
    made = await create_link(api, signing_secrets=True)
    for token in (
        await api.new_token(permissions=[Permission.READ, Permission.PUBLISH]),
        await api.new_token(OTHER),
        token_of(made),
    ):
        assert (await api.send("POST", LINKS, {}, token=token)).refusal == DENIED
    closed = f"/v2/organizations/{CLOSED}/portal-links"
    assert (await api.send("POST", closed, {}, token=api.operator)).refusal == (403, "access_disabled")
    absent = await api.send("POST", "/v2/organizations/nobody/portal-links", {}, token=api.operator)
    assert absent.refusal == (404, "not_found.organization")


@pytest.mark.parametrize("operation", SCOPED, ids=lambda one: one.name)
async def test_link_is_limited_to_its_scope(api: Management, operation: ManagementOperation) -> None:
    api.database.execute(
        "insert into webhooks.project values (%s, 'acme') on conflict do nothing", ("acmeacmeacmeacmeacme",)
    )
    of_project, of_organization = (
        token_of(await create_link(api, project_ref=REF)),
        token_of(await create_link(api)),
    )
    path = operation.path.format(endpoint_id=NO_SUCH, delivery_id=NO_SUCH, event_id=NO_SUCH)
    other_scopes = [f"/v2/organizations/{OTHER}/webhooks", f"/v2/projects/{OTHER_REF}/webhooks"]
    for scope in other_scopes:
        for token in (of_project, of_organization):
            assert (await api.send(operation.method, scope + path, b"{", token=token)).refusal == DENIED
    for scope in (ORGANIZATION, "/v2/projects/acmeacmeacmeacmeacme/webhooks"):
        assert (await api.send(operation.method, scope + path, b"{", token=of_project)).refusal == DENIED
        response = await api.send(operation.method, scope + path, b"{", token=of_organization)
        assert response.refusal != DENIED if response.status >= 400 else True


async def test_link_does_not_find_records_of_another_organization(api: Management) -> None:
    foreign = await api.new_token(OTHER)
    response = await api.send(
        "POST", f"/v2/organizations/{OTHER}/webhooks/endpoints", endpoint(), token=foreign
    )
    theirs = response.data["id"]
    sent = await api.send(
        "POST", f"/v2/organizations/{OTHER}/webhooks/endpoints/{theirs}/test", {}, token=foreign
    )
    delivery = sent.data["attributes"]["delivery_id"]
    token = token_of(await create_link(api, project_ref=REF, signing_secrets=True))
    for method, path in (
        ("GET", f"endpoints/{theirs}"),
        ("PATCH", f"endpoints/{theirs}"),
        ("DELETE", f"endpoints/{theirs}"),
        ("POST", f"endpoints/{theirs}/test"),
        ("GET", f"deliveries/{delivery}"),
        ("POST", f"deliveries/{delivery}/retry"),
    ):
        body = document("endpoint", description="mine") if method == "PATCH" else None
        response = await api.send(method, f"{PROJECT}/{path}", body, token=token)
        assert response.refusal in ((404, "not_found.endpoint"), (404, "not_found.delivery"))


async def test_link_cannot_publish_or_use_operator_operations(api: Management) -> None:
    token = token_of(await create_link(api, signing_secrets=True))
    for operation in OPERATIONS:
        if operation.operator or operation.name == "publishEvent":
            target = operation.path.format(organization_slug="acme", project_ref=REF, token_id=NO_SUCH)
            assert (await api.send(operation.method, target, b"{", token=token)).refusal == DENIED


async def test_link_sets_signing_secrets_only_if_allowed(api: Management) -> None:
    made = await api.create(PROJECT)
    target = f"{PROJECT}/endpoints/{made['id']}"
    for allowed in (False, True):
        token = token_of(await create_link(api, signing_secrets=allowed))
        responses: list[Answer] = [
            await api.send("POST", f"{PROJECT}/endpoints", endpoint(), token=token),
            await api.send("PATCH", target, document("endpoint", signing_secret=SECRET + "x"), token=token),
        ]
        assert [one.status for one in responses] == ([201, 200] if allowed else [403, 403])
        changed = await api.send("PATCH", target, document("endpoint", description="mine"), token=token)
        assert changed.status == 200
        for response in (*responses, changed, await api.send("GET", f"{PROJECT}/endpoints", token=token)):
            assert SECRET.encode() not in response.content


async def test_read_only_link_cannot_change_anything(api: Management) -> None:
    made = await api.create(PROJECT)
    token = token_of(await create_link(api, read_only=True))
    assert (await api.send("GET", f"{PROJECT}/endpoints", token=token)).status == 200
    for method, path in (("POST", f"endpoints/{made['id']}/test"), ("DELETE", "endpoints")):
        assert (await api.send(method, f"{PROJECT}/{path}", {}, token=token)).refusal == DENIED


async def test_read_only_link_hides_custom_header_values(api: Management) -> None:
    made = await api.create(PROJECT, custom_headers={"X-Key": "s3cret"})
    for scope, attributes in ((PROJECT, {"project_ref": REF}), (PROJECT, {})):
        token = token_of(await create_link(api, read_only=True, **attributes))
        for path in ("endpoints", f"endpoints/{made['id']}"):
            response = await api.send("GET", f"{scope}/{path}", token=token)
            assert b"s3cret" not in response.content
            assert b'"custom_headers":{"X-Key":null}' in response.content
    for token in (token_of(await create_link(api)), await api.new_token(permissions=[Permission.READ])):
        response = await api.send("GET", f"{PROJECT}/endpoints/{made['id']}", token=token)
        assert response.data["attributes"]["custom_headers"] == {"X-Key": "s3cret"}


async def test_expired_link_is_rejected_and_deleted_by_maintenance(api: Management) -> None:
    ended, lasting = await create_link(api), await create_link(api)
    api.database.execute("update webhooks.token set expires_at = now() where id = %s", (ended["id"],))
    assert (await api.send("GET", f"{PROJECT}/endpoints", token=token_of(ended))).refusal == UNAUTHORIZED
    await api.store.maintenance.run()
    remaining = {
        str(one) for (one,) in api.database.execute("select id from webhooks.token where portal <> '{}'")
    }
    assert lasting["id"] in remaining
    assert ended["id"] not in remaining


async def test_link_is_not_listed_as_a_token_and_can_be_revoked(api: Management) -> None:
    made = await create_link(api)
    tokens = "/v2/organizations/acme/tokens"
    listed = (await api.send("GET", f"{tokens}?page[limit]=100", token=api.operator)).data
    assert made["id"] not in [one["id"] for one in listed]
    assert made["id"] not in [str(one.id) for one in await api.store.directory.tokens()]
    for method, path in (("GET", ""), ("POST", "/rotate")):
        response = await api.send(method, f"{tokens}/{made['id']}{path}", token=api.operator)
        assert response.refusal == (404, "not_found.token")
    assert (await api.send("DELETE", f"{tokens}/{made['id']}", token=api.operator)).status == 200
    assert (await api.send("GET", "/v2/access", token=token_of(made))).refusal == UNAUTHORIZED


async def test_project_link_ends_when_the_project_is_transferred(api: Management) -> None:
    ref = "movesmovesmovesmoves"
    await api.store.directory.create_project(ref, "acme")
    made = await create_link(api, project_ref=ref)
    assert (
        await api.send("GET", f"/v2/projects/{ref}/webhooks/endpoints", token=token_of(made))
    ).status == 200
    await api.store.directory.transfer_project(ref, "acme", "nowhere")
    assert (await api.send("GET", "/v2/access", token=token_of(made))).status == 200
    for number, organization in enumerate((OTHER, "acme")):
        await api.store.directory.transfer_project(ref, organization, f"move {number}")
        for target in ("/v2/access", f"/v2/projects/{ref}/webhooks/endpoints"):
            assert (await api.send("GET", target, token=token_of(made))).refusal == UNAUTHORIZED
    again = token_of(await create_link(api, project_ref=ref))
    assert (await api.send("GET", "/v2/access", token=again)).status == 200
    api.database.execute("delete from webhooks.project where ref = %s", (ref,))
    assert api.database.execute("select from webhooks.token where id = %s", (made["id"],)) == []


async def test_no_link_is_created_while_its_project_is_transferred(reactor: Any, api: Management) -> None:
    """The transfer of the project would not revoke such a link."""
    ref = "departsdepartsdepart"
    await api.store.directory.create_project(ref, "acme")
    moving = psycopg2.connect(api.database.admin_uri)
    try:
        cursor = moving.cursor()
        cursor.execute("select from webhooks.project where ref = %s for update", (ref,))
        scope, portal = Scope("acme", ref), Portal()
        creating = Deferred.fromCoroutine(
            api.store.directory.create_link("dapat_x", scope, [Permission.READ], 60, portal)
        )
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        await until(reactor, lambda: creating.called or api.database.execute(waiting) == [(1,)])
        cursor.execute("update webhooks.project set organization_slug = %s where ref = %s", (OTHER, ref))
        moving.commit()
    finally:
        moving.close()
    assert await creating is None
    api.database.execute("delete from webhooks.project where ref = %s", (ref,))


async def test_link_requires_early_access(api: Management) -> None:
    token = token_of(await create_link(api))
    await api.store.directory.set_early_access("acme", False)
    try:
        response = await api.send("GET", f"{PROJECT}/endpoints", token=token)
        assert response.refusal == (403, "access_disabled")
    finally:
        await api.store.directory.set_early_access("acme", True)


async def test_repeated_request_returns_the_same_link(api: Management) -> None:
    key = {"idempotency-key": "one link"}
    first = await api.send("POST", LINKS, {}, headers=key)
    assert (await api.send("POST", LINKS, {}, headers=key)).content == first.content
