"""Portal links: whose they are, how long they last, and what they let their holder do."""

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


async def link(api: Management, token: str | None = "", **attributes: Any) -> Any:
    """Create a link of acme's and return its attributes."""
    answer = await api.send("POST", LINKS, document("portal_link", **attributes), token=token)
    assert answer.status == 201, answer.body
    return {**answer.data["attributes"], "id": answer.data["id"]}


def token_of(made: Any) -> str:
    """Return the token that stands in a link's fragment, where neither logs nor referrers have it."""
    path, _, token = made["path"].partition("#")
    assert path == "/portal"
    return str(token)


async def test_a_link_has_what_was_requested(api: Management) -> None:
    """By an operator or by a token of the organization that may write."""
    before = datetime.now(UTC)
    for token in (api.operator, await api.new_token(permissions=[Permission.WRITE])):
        made = await link(api, token, project_ref=REF, expires_in=600, name="Acme 7", color="#0F766E")
        left = datetime.fromisoformat(made["expires_at"]) - before
        assert timedelta(seconds=599) < left < timedelta(seconds=660)
        shown = {"name": "Acme 7", "color": "#0f766e", "signing_secrets": False}
        assert {name: made[name] for name in shown} == shown
        found = (await api.send("GET", "/v2/access", token=token_of(made))).data["attributes"]
        assert found == {
            "organization_slug": "acme", "operator": False, "projects": [REF], "project_ref": REF,
            "permissions": ["webhooks:read", "webhooks:write"], "expires_at": made["expires_at"],
            "portal": shown,
        }  # fmt: skip


async def test_a_link_lasts_an_hour_unless_it_is_said_otherwise(api: Management) -> None:
    """It is the organization's, and named after it."""
    answer = await api.send("POST", LINKS, token=api.operator)
    made = answer.data["attributes"]
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
async def test_bad_input_is_pointed_at(api: Management, attributes: Any, pointer: str) -> None:
    """Each member is checked strictly; an organization's link is of its own projects."""
    answer = await api.send("POST", LINKS, document("portal_link", **attributes))
    assert answer.refusal == (400, "bad_request.validation")
    assert answer.pointers == [f"/data/attributes/{pointer}"]


@pytest.mark.parametrize("ref", [OTHER_REF, "z" * 20])
async def test_a_link_is_of_the_organizations_own_projects(api: Management, ref: str) -> None:
    """Whether another organization has it is not told."""
    answer = await api.send("POST", LINKS, document("portal_link", project_ref=ref))
    assert answer.refusal == (404, "not_found.project")
    assert answer.pointers == ["/data/attributes/project_ref"]


async def test_who_may_not_make_links(api: Management) -> None:
    """A reader, a foreign token, a link itself; nor is there one for an organization without early access."""
    made = await link(api, signing_secrets=True)
    for token in (
        await api.new_token(permissions=[Permission.READ, Permission.PUBLISH]),
        await api.new_token(OTHER),
        token_of(made),
    ):
        assert (await api.send("POST", LINKS, {}, token=token)).refusal == DENIED
    closed = f"/v2/organizations/{CLOSED}/portal-links"
    assert (await api.send("POST", closed, {}, token=api.operator)).refusal == (403, "access_disabled")
    nobody = await api.send("POST", "/v2/organizations/nobody/portal-links", {}, token=api.operator)
    assert nobody.refusal == (404, "not_found.organization")


@pytest.mark.parametrize("operation", SCOPED, ids=lambda one: one.name)
async def test_a_link_reaches_its_own_scope_alone(api: Management, operation: ManagementOperation) -> None:
    """Neither another organization, nor, from a project, its organization or another project."""
    api.database.execute(
        "insert into webhooks.project values (%s, 'acme') on conflict do nothing", ("acmeacmeacmeacmeacme",)
    )
    of_project, of_organization = token_of(await link(api, project_ref=REF)), token_of(await link(api))
    path = operation.path.format(endpoint_id=NO_SUCH, delivery_id=NO_SUCH, event_id=NO_SUCH)
    elsewhere = [f"/v2/organizations/{OTHER}/webhooks", f"/v2/projects/{OTHER_REF}/webhooks"]
    for scope in elsewhere:
        for token in (of_project, of_organization):
            assert (await api.send(operation.method, scope + path, b"{", token=token)).refusal == DENIED
    for scope in (ORGANIZATION, "/v2/projects/acmeacmeacmeacmeacme/webhooks"):
        assert (await api.send(operation.method, scope + path, b"{", token=of_project)).refusal == DENIED
        found = await api.send(operation.method, scope + path, b"{", token=of_organization)
        assert found.refusal != DENIED if found.status >= 400 else True


async def test_another_organizations_records_are_not_found_from_within(api: Management) -> None:
    """Their ids, under the link's own path."""
    foreign = await api.new_token(OTHER)
    answer = await api.send(
        "POST", f"/v2/organizations/{OTHER}/webhooks/endpoints", endpoint(), token=foreign
    )
    theirs = answer.data["id"]
    sent = await api.send(
        "POST", f"/v2/organizations/{OTHER}/webhooks/endpoints/{theirs}/test", {}, token=foreign
    )
    delivery = sent.data["attributes"]["delivery_id"]
    token = token_of(await link(api, project_ref=REF, signing_secrets=True))
    for method, path in (
        ("GET", f"endpoints/{theirs}"),
        ("PATCH", f"endpoints/{theirs}"),
        ("DELETE", f"endpoints/{theirs}"),
        ("POST", f"endpoints/{theirs}/test"),
        ("GET", f"deliveries/{delivery}"),
        ("POST", f"deliveries/{delivery}/retry"),
    ):
        body = document("endpoint", description="mine") if method == "PATCH" else None
        answer = await api.send(method, f"{PROJECT}/{path}", body, token=token)
        assert answer.refusal in ((404, "not_found.endpoint"), (404, "not_found.delivery"))


async def test_operators_operations_and_publishing_are_out_of_reach(api: Management) -> None:
    """Whatever the link permits."""
    token = token_of(await link(api, signing_secrets=True))
    for operation in OPERATIONS:
        if operation.operator or operation.name == "publishEvent":
            target = operation.path.format(organization_slug="acme", project_ref=REF, token_id=NO_SUCH)
            assert (await api.send(operation.method, target, b"{", token=token)).refusal == DENIED


async def test_signing_secrets_are_set_only_where_the_link_says_so(api: Management) -> None:
    """Whoever sets one knows it; no answer has it in any case."""
    made = await api.create(PROJECT)
    target = f"{PROJECT}/endpoints/{made['id']}"
    for allowed in (False, True):
        token = token_of(await link(api, signing_secrets=allowed))
        answers: list[Answer] = [
            await api.send("POST", f"{PROJECT}/endpoints", endpoint(), token=token),
            await api.send("PATCH", target, document("endpoint", signing_secret=SECRET + "x"), token=token),
        ]
        assert [one.status for one in answers] == ([201, 200] if allowed else [403, 403])
        changed = await api.send("PATCH", target, document("endpoint", description="mine"), token=token)
        assert changed.status == 200
        for answer in (*answers, changed, await api.send("GET", f"{PROJECT}/endpoints", token=token)):
            assert SECRET.encode() not in answer.content


async def test_a_link_may_be_for_reading_alone(api: Management) -> None:
    """It tests and retries nothing."""
    made = await api.create(PROJECT)
    token = token_of(await link(api, read_only=True))
    assert (await api.send("GET", f"{PROJECT}/endpoints", token=token)).status == 200
    for method, path in (("POST", f"endpoints/{made['id']}/test"), ("DELETE", "endpoints")):
        assert (await api.send(method, f"{PROJECT}/{path}", {}, token=token)).refusal == DENIED


async def test_a_link_for_reading_hides_the_values_of_custom_headers(api: Management) -> None:
    """Those who may change endpoints see them."""
    made = await api.create(PROJECT, custom_headers={"X-Key": "s3cret"})
    for scope, attributes in ((PROJECT, {"project_ref": REF}), (PROJECT, {})):
        token = token_of(await link(api, read_only=True, **attributes))
        for path in ("endpoints", f"endpoints/{made['id']}"):
            answer = await api.send("GET", f"{scope}/{path}", token=token)
            assert b"s3cret" not in answer.content
            assert b'"custom_headers":{"X-Key":null}' in answer.content
    for token in (token_of(await link(api)), await api.new_token(permissions=[Permission.READ])):
        answer = await api.send("GET", f"{PROJECT}/endpoints/{made['id']}", token=token)
        assert answer.data["attributes"]["custom_headers"] == {"X-Key": "s3cret"}


async def test_a_link_ends_with_its_time_and_upkeep_forgets_it(api: Management) -> None:
    """Links that have not ended stay."""
    ended, lasting = await link(api), await link(api)
    api.database.execute("update webhooks.token set expires_at = now() where id = %s", (ended["id"],))
    assert (await api.send("GET", f"{PROJECT}/endpoints", token=token_of(ended))).refusal == UNAUTHORIZED
    await api.store.upkeep.run()
    kept = {str(one) for (one,) in api.database.execute("select id from webhooks.token where portal <> '{}'")}
    assert lasting["id"] in kept
    assert ended["id"] not in kept


async def test_a_link_is_no_token_of_the_lists_and_can_be_revoked(api: Management) -> None:
    """By its id, as tokens are; it can be neither read nor rotated into a token that lasts."""
    made = await link(api)
    tokens = "/v2/organizations/acme/tokens"
    listed = (await api.send("GET", f"{tokens}?page[limit]=100", token=api.operator)).data
    assert made["id"] not in [one["id"] for one in listed]
    assert made["id"] not in [str(one.id) for one in await api.store.directory.tokens()]
    for method, path in (("GET", ""), ("POST", "/rotate")):
        answer = await api.send(method, f"{tokens}/{made['id']}{path}", token=api.operator)
        assert answer.refusal == (404, "not_found.token")
    assert (await api.send("DELETE", f"{tokens}/{made['id']}", token=api.operator)).status == 200
    assert (await api.send("GET", "/v2/access", token=token_of(made))).refusal == UNAUTHORIZED


async def test_a_projects_link_ends_when_the_project_goes_elsewhere(api: Management) -> None:
    """The other organization's page is not the former one's to show, not even if the project comes back."""
    ref = "movesmovesmovesmoves"
    await api.store.directory.create_project(ref, "acme")
    made = await link(api, project_ref=ref)
    assert (
        await api.send("GET", f"/v2/projects/{ref}/webhooks/endpoints", token=token_of(made))
    ).status == 200
    await api.store.directory.transfer_project(ref, "acme", "nowhere")
    assert (await api.send("GET", "/v2/access", token=token_of(made))).status == 200
    for number, organization in enumerate((OTHER, "acme")):
        await api.store.directory.transfer_project(ref, organization, f"move {number}")
        for target in ("/v2/access", f"/v2/projects/{ref}/webhooks/endpoints"):
            assert (await api.send("GET", target, token=token_of(made))).refusal == UNAUTHORIZED
    again = token_of(await link(api, project_ref=ref))
    assert (await api.send("GET", "/v2/access", token=again)).status == 200
    api.database.execute("delete from webhooks.project where ref = %s", (ref,))
    assert api.database.execute("select from webhooks.token where id = %s", (made["id"],)) == []


async def test_no_link_is_created_while_its_project_goes_elsewhere(reactor: Any, api: Management) -> None:
    """It would not have been ended by the transfer."""
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


async def test_early_access_counts_for_links_too(api: Management) -> None:
    """Taken away, the page has nothing to show."""
    token = token_of(await link(api))
    await api.store.directory.set_early_access("acme", False)
    try:
        answer = await api.send("GET", f"{PROJECT}/endpoints", token=token)
        assert answer.refusal == (403, "access_disabled")
    finally:
        await api.store.directory.set_early_access("acme", True)


async def test_a_repeated_request_gets_the_same_link(api: Management) -> None:
    """Within its own time, as the idempotency key says."""
    key = {"idempotency-key": "one link"}
    first = await api.send("POST", LINKS, {}, headers=key)
    assert (await api.send("POST", LINKS, {}, headers=key)).content == first.content
