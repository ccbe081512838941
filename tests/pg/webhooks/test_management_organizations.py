"""Organizations, projects and tokens, managed by operators (docs/reference/webhooks.md, Operators)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from dataapi.webhooks.management.api import OPERATIONS
from dataapi.webhooks.model import Scope
from dataapi.webhooks.store.directory import PREFIX, digest
from dataapi.webhooks.store.endpoints import DELETE_BATCH
from support.management import CLOSED, CLOSED_REF, NO_SUCH, OTHER_REF, Management, document, endpoint
from support.webhooks import ACME, REF, add_endpoint, publish
from twisted.internet.defer import Deferred, gatherResults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dataapi.webhooks.management.operations import ManagementOperation
    from support.management import Answer

ORGANIZATIONS = "/v2/organizations"
UMBRELLA = f"{ORGANIZATIONS}/umbrella"
NEW_REF = "umbrellaumbrellaumbr"
DENIED = 403, "forbidden.permission_denied"
OPERATORS = [one for one in OPERATIONS if one.operator]
UNAUTHORIZED = 401, "unauthorized"


class Operator:
    """A client that sends requests with an operator token."""

    def __init__(self, api: Management) -> None:
        self.api = api

    async def send(self, method: str, target: str, body: Any = None, **named: Any) -> Answer:
        return await self.api.send(method, target, body, token=self.api.operator, **named)

    async def organize(self, *, early_access: bool = True) -> None:
        """Create the organization ``umbrella`` with a project."""
        body = document("organization", slug="umbrella", early_access=early_access)
        assert (await self.send("POST", ORGANIZATIONS, body)).status == 201
        assert (
            await self.send("POST", f"{UMBRELLA}/projects", document("project", ref=NEW_REF))
        ).status == 201

    async def token(self, *permissions: str, **attributes: Any) -> Any:
        """Create a token for ``umbrella`` and return its record."""
        body = document("token", permissions=permissions or ["webhooks:read", "webhooks:write"], **attributes)
        return (await self.send("POST", f"{UMBRELLA}/tokens", body)).data


@pytest.fixture
def operator(api: Management) -> Iterator[Operator]:
    """Return an operator. Organizations that the test creates are deleted after the test."""
    yield Operator(api)
    api.database.execute("delete from webhooks.organization where slug not in ('acme', 'globex', 'initech')")


# ---------------------------------------------------------------- access


@pytest.mark.parametrize("operation", OPERATORS, ids=lambda one: one.name)
async def test_operator_operations_reject_other_tokens(
    api: Management, operation: ManagementOperation
) -> None:
    target = operation.path.format(organization_slug=ACME.organization, project_ref=REF, token_id=NO_SUCH)
    before = api.database.execute("select * from webhooks.organization natural left join webhooks.project")
    assert (await api.send(operation.method, target, b"{")).refusal == DENIED
    assert (await api.send(operation.method, target, b"{", token=None)).refusal == UNAUTHORIZED
    assert before == api.database.execute(
        "select * from webhooks.organization natural left join webhooks.project"
    )


async def test_operator_can_read_but_not_change_every_organization(operator: Operator) -> None:
    for scope, path in (
        (Scope(CLOSED), f"{ORGANIZATIONS}/{CLOSED}/webhooks"),
        (Scope(CLOSED, CLOSED_REF), f"/v2/projects/{CLOSED_REF}/webhooks"),
        (ACME, f"{ORGANIZATIONS}/{ACME.organization}/webhooks"),
    ):
        made = await add_endpoint(operator.api.store, scope)
        for part in (
            "endpoints",
            "deliveries",
            "statistics",
            "event-types",
            f"endpoints/{made.id}/deliveries",
        ):
            assert (await operator.send("GET", f"{path}/{part}")).status == 200
        assert [one["id"] for one in (await operator.send("GET", f"{path}/endpoints")).data] == [str(made.id)]
        for method, part in (
            ("DELETE", "endpoints"),
            ("POST", "endpoints"),
            ("PATCH", f"endpoints/{made.id}"),
            ("POST", f"endpoints/{made.id}/test"),
            ("POST", f"deliveries/{NO_SUCH}/retry"),
        ):
            assert (await operator.send(method, f"{path}/{part}", endpoint())).refusal == DENIED
    assert (await operator.send("POST", "/v1/webhooks/events", b"{}")).refusal == DENIED


async def test_absent_organizations_projects_and_tokens_are_not_found(operator: Operator) -> None:
    for path in (f"{ORGANIZATIONS}/nobody", f"{ORGANIZATIONS}/nobody/webhooks/deliveries"):
        assert (await operator.send("GET", path)).refusal == (404, "not_found.organization")
    for path in (
        f"/v2/projects/{'z' * 20}/webhooks/endpoints",
        f"{ORGANIZATIONS}/acme/projects/{'z' * 20}",
        f"{ORGANIZATIONS}/acme/projects/{OTHER_REF}",
    ):
        assert (await operator.send("GET", path)).refusal == (404, "not_found.project")
    for path in (NO_SUCH, "malformed"):
        response = await operator.send("GET", f"{ORGANIZATIONS}/acme/tokens/{path}")
        assert response.refusal == (404, "not_found.token")
    invalid = await operator.send(
        "POST", f"{ORGANIZATIONS}/nobody/projects", document("project", ref="short")
    )
    assert invalid.refusal == (400, "bad_request.validation")


async def test_access_identifies_an_operator_token(operator: Operator) -> None:
    attributes = (await operator.send("GET", "/v2/access")).data["attributes"]
    assert attributes == {
        "organization_slug": None, "operator": True, "projects": [], "permissions": ["webhooks:read"],
        "expires_at": None, "project_ref": None, "portal": None,
    }  # fmt: skip


# ---------------------------------------------------------------- organizations and projects


async def test_organization_is_created_changed_and_deleted(operator: Operator) -> None:
    made = await operator.send("POST", ORGANIZATIONS, document("organization", slug="umbrella"))
    assert (made.status, made.headers["location"]) == (201, UMBRELLA)
    assert made.data["attributes"] == {
        "slug": "umbrella", "early_access": False, "created_at": made.data["attributes"]["created_at"],
    }  # fmt: skip
    again = await operator.send("POST", ORGANIZATIONS, document("organization", slug="umbrella"))
    assert again.refusal == (409, "conflict.organization.exists")
    listed = await operator.send("GET", f"{ORGANIZATIONS}?page[limit]=1&page[offset]=3")
    assert listed.data == [made.data]
    assert listed.body["links"]["prev"] == f"{ORGANIZATIONS}?page[limit]=1&page[offset]=2"
    assert listed.body["links"]["next"] is None
    for allowed in (True, False):
        changed = await operator.send("PATCH", UMBRELLA, document("organization", early_access=allowed))
        assert changed.data["attributes"]["early_access"] is allowed
        assert (await operator.send("GET", UMBRELLA)).data == changed.data
    assert (await operator.send("PATCH", UMBRELLA, document("organization"))).data == changed.data
    assert (await operator.send("DELETE", UMBRELLA)).data == changed.data
    assert (await operator.send("GET", UMBRELLA)).refusal == (404, "not_found.organization")


async def test_project_is_created_listed_and_deleted(operator: Operator) -> None:
    await operator.organize()
    path = f"{UMBRELLA}/projects/{NEW_REF}"
    record = (await operator.send("GET", path)).data
    assert (record["type"], record["id"]) == ("project", NEW_REF)
    assert record["attributes"]["organization_slug"] == "umbrella"
    assert (await operator.send("GET", f"{UMBRELLA}/projects")).data == [record]
    duplicate = await operator.send("POST", f"{UMBRELLA}/projects", document("project", ref=REF))
    assert duplicate.refusal == (409, "conflict.project.exists")
    assert (await operator.send("DELETE", path)).data == record
    assert (await operator.send("GET", f"{UMBRELLA}/projects")).data == []


@pytest.mark.parametrize(
    ("target", "body", "pointers"),
    [
        (ORGANIZATIONS, document("organization"), ["/data/attributes/slug"]),
        (ORGANIZATIONS, document("organization", slug="a b"), ["/data/attributes/slug"]),
        (ORGANIZATIONS, document("organization", slug="acme\n"), ["/data/attributes/slug"]),
        (ORGANIZATIONS, document("organization", slug="a" * 65), ["/data/attributes/slug"]),
        (ORGANIZATIONS, document("organization", slug="a", more=1), ["/data/attributes/more"]),
        (ORGANIZATIONS, document("project", slug="a"), ["/data/type"]),
        (f"{UMBRELLA}/projects", document("project", ref=f"{NEW_REF}\n"), ["/data/attributes/ref"]),
        (f"{UMBRELLA}/tokens", document("token", permissions=[]), ["/data/attributes/permissions"]),
        (f"{UMBRELLA}/tokens", document("token", permissions=["all"]), ["/data/attributes/permissions/0"]),
        (
            f"{UMBRELLA}/tokens",
            document("token", permissions=["webhooks:read"], expires_at="2020-01-01T00:00:00Z"),
            ["/data/attributes/expires_at"],
        ),
        (
            f"{UMBRELLA}/tokens",
            document("token", permissions=["webhooks:read"], expires_at="2026-02-30T00:00:00Z"),
            ["/data/attributes/expires_at"],
        ),
        (
            f"{UMBRELLA}/tokens/{NO_SUCH}/rotate",
            document("rotation", grace_period=-1),
            ["/data/attributes/grace_period"],
        ),
        (
            f"{UMBRELLA}/tokens/{NO_SUCH}/rotate",
            document("rotation", grace_period="soon"),
            ["/data/attributes/grace_period"],
        ),
    ],
)
async def test_invalid_attributes_are_rejected_with_their_pointer(
    operator: Operator, target: str, body: Any, pointers: list[str]
) -> None:
    await operator.organize()
    response = await operator.send("POST", target, body)
    assert response.refusal == (400, "bad_request.validation")
    assert response.pointers == pointers


async def test_deleting_an_organization_deletes_its_data(operator: Operator) -> None:
    await operator.organize()
    store, database = operator.api.store, operator.api.database
    own, of_project = Scope("umbrella"), Scope("umbrella", NEW_REF)
    endpoints = [await add_endpoint(store, scope) for scope in (own, of_project)]
    other = await add_endpoint(store)
    token = await operator.token()
    for scope in (of_project, ACME):
        await publish(store, scope)
    database.execute(
        "insert into webhooks.delivery"
        " (id, event_id, endpoint_id, event_type, status, attempt_number, trigger)"
        " select webhooks.uuid_v7(), gen_random_uuid(), %s, 'v1.a.b', 'failed', 1, 'automatic'"
        " from generate_series(1, %s)",
        (str(endpoints[0].id), DELETE_BATCH),
    )
    assert (await operator.send("DELETE", UMBRELLA)).status == 200
    secret = token["attributes"]["secret"]
    assert (await operator.api.send("GET", "/v2/access", token=secret)).refusal == UNAUTHORIZED
    assert database.execute("select id::text from webhooks.endpoint") == [(str(other.id),)]
    assert database.execute("select endpoint_id::text from webhooks.due") == [(str(other.id),)]
    assert database.execute("select organization_slug from webhooks.idempotency") == [("acme",)]
    await store.maintenance.run()
    assert database.execute("select count(*) from webhooks.delivery") == [(0,)]
    assert database.execute("select count(*) from webhooks.event") == [(1,)]
    await operator.organize()
    assert (await operator.send("GET", f"{UMBRELLA}/webhooks/deliveries")).data == []


async def test_deleting_a_project_preserves_its_organization(operator: Operator) -> None:
    await operator.organize()
    store = operator.api.store
    remaining = await add_endpoint(store, Scope("umbrella"))
    await add_endpoint(store, Scope("umbrella", NEW_REF))
    await publish(store, Scope("umbrella", NEW_REF))
    assert (await operator.send("DELETE", f"{UMBRELLA}/projects/{NEW_REF}")).status == 200
    assert operator.api.database.execute("select id::text from webhooks.endpoint") == [(str(remaining.id),)]
    assert operator.api.database.execute("select endpoint_id::text from webhooks.due") == [
        (str(remaining.id),)
    ]


# ---------------------------------------------------------------- tokens


async def test_token_secret_is_shown_only_on_creation(operator: Operator) -> None:
    await operator.organize()
    expiry = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="milliseconds")
    made = await operator.token("events:publish", "webhooks:read", expires_at=expiry)
    secret = made["attributes"].pop("secret")
    assert secret.startswith(PREFIX)
    assert made["attributes"]["permissions"] == ["events:publish", "webhooks:read"]
    assert datetime.fromisoformat(made["attributes"]["expires_at"]) == datetime.fromisoformat(expiry)
    assert (await operator.send("GET", f"{UMBRELLA}/tokens")).data == [made]
    assert (await operator.send("GET", f"{UMBRELLA}/tokens/{made['id']}")).data == made
    [(text, stored)] = operator.api.database.execute(
        "select t::text, hash from webhooks.token t where id = %s", (made["id"],)
    )
    assert secret not in text
    assert bytes(stored) == digest(secret)
    attributes = (await operator.api.send("GET", "/v2/access", token=secret)).data["attributes"]
    assert (attributes["organization_slug"], attributes["operator"]) == ("umbrella", False)


async def test_token_of_another_organization_is_not_found(operator: Operator) -> None:
    await operator.organize()
    made = await operator.token()
    own = await operator.api.store.directory.access(operator.api.operator)
    assert own is not None
    for slug, identifier in (("acme", made["id"]), ("umbrella", own.token.id)):
        path = f"{ORGANIZATIONS}/{slug}/tokens/{identifier}"
        for method, target in (("GET", path), ("DELETE", path), ("POST", f"{path}/rotate")):
            assert (await operator.send(method, target)).refusal == (404, "not_found.token")
    assert (await operator.api.send("GET", "/v2/access", token=made["attributes"]["secret"])).status == 200


async def test_revoked_token_is_deleted_and_rejected(operator: Operator) -> None:
    await operator.organize()
    made = await operator.token()
    path = f"{UMBRELLA}/tokens/{made['id']}"
    assert (await operator.send("DELETE", path)).data["id"] == made["id"]
    for method, target in (("GET", path), ("DELETE", path), ("POST", f"{path}/rotate")):
        assert (await operator.send(method, target)).refusal == (404, "not_found.token")
    assert (await operator.send("GET", f"{UMBRELLA}/tokens")).data == []
    secret = made["attributes"]["secret"]
    assert (await operator.api.send("GET", "/v2/access", token=secret)).refusal == UNAUTHORIZED


async def test_rotation_ends_a_token_immediately_or_after_a_grace_period(operator: Operator) -> None:
    await operator.organize()
    soon = datetime.now(UTC) + timedelta(minutes=5)
    made = await operator.token("webhooks:read", expires_at=soon.isoformat(timespec="milliseconds"))
    path = f"{UMBRELLA}/tokens"
    rotated = await operator.send(
        "POST", f"{path}/{made['id']}/rotate", document("rotation", grace_period=86_400)
    )
    second = rotated.data
    assert rotated.headers["location"] == f"{path}/{second['id']}"
    assert second["attributes"]["permissions"] == ["webhooks:read"]
    assert second["attributes"]["expires_at"] == made["attributes"]["expires_at"]
    first = (await operator.send("GET", f"{path}/{made['id']}")).data["attributes"]
    assert first["expires_at"] == made["attributes"]["expires_at"]
    for one in (made, second):
        secret = one["attributes"]["secret"]
        assert (await operator.api.send("GET", "/v2/access", token=secret)).status == 200
    third = (await operator.send("POST", f"{path}/{second['id']}/rotate")).data
    statuses = [
        (await operator.api.send("GET", "/v2/access", token=one["attributes"]["secret"])).status
        for one in (made, second, third)
    ]
    assert statuses == [200, 401, 200]


async def test_rotated_token_expires_after_its_grace_period(operator: Operator) -> None:
    await operator.organize()
    made = await operator.token()
    path = f"{UMBRELLA}/tokens/{made['id']}"
    await operator.send("POST", f"{path}/rotate", document("rotation", grace_period=60))
    ends = datetime.fromisoformat((await operator.send("GET", path)).data["attributes"]["expires_at"])
    assert timedelta(seconds=30) < ends - datetime.now(UTC) <= timedelta(seconds=60)
    operator.api.database.execute(
        "update webhooks.token set expires_at = expires_at - interval '60 s' where id = %s", (made["id"],)
    )
    secret = made["attributes"]["secret"]
    assert (await operator.api.send("GET", "/v2/access", token=secret)).refusal == UNAUTHORIZED


# ---------------------------------------------------------------- idempotency keys


async def test_repeated_key_returns_the_first_response(operator: Operator) -> None:
    key = {"idempotency-key": str(uuid4())}
    body = {"data": {"attributes": {"slug": "umbrella"}, "type": "organization"}}
    first = await operator.send("POST", ORGANIZATIONS, body, headers=key)
    again = await operator.send("POST", ORGANIZATIONS, document("organization", slug="umbrella"), headers=key)
    assert (again.status, again.content, again.headers["location"]) == (201, first.content, UMBRELLA)
    made = [
        await operator.send(
            "POST", f"{UMBRELLA}/tokens", document("token", permissions=["webhooks:read"]), headers=each
        )
        for each in ({"idempotency-key": "t"}, {"idempotency-key": "t"}, {"idempotency-key": "u"})
    ]
    assert made[0].content == made[1].content != made[2].content
    assert len((await operator.send("GET", f"{UMBRELLA}/tokens")).data) == 2
    gone = [await operator.send("DELETE", UMBRELLA, headers={"idempotency-key": "gone"}) for _ in range(2)]
    assert gone[0].status == gone[1].status == 200
    assert gone[0].content == gone[1].content


async def test_stored_responses_do_not_contain_secrets(operator: Operator) -> None:
    await operator.organize()
    body = document("token", permissions=["webhooks:read"])
    made = await operator.send("POST", f"{UMBRELLA}/tokens", body, headers={"idempotency-key": "secret"})
    secret = made.data["attributes"]["secret"].encode()
    for (stored,) in operator.api.database.execute("select answer from webhooks.answer"):
        assert secret not in bytes(stored)


async def test_key_of_a_different_request_is_rejected(operator: Operator) -> None:
    headers = {"idempotency-key": "one"}
    await operator.send("POST", ORGANIZATIONS, document("organization", slug="umbrella"), headers=headers)
    for method, target, body in (
        ("POST", ORGANIZATIONS, document("organization", slug="other")),
        ("POST", f"{ORGANIZATIONS}/acme/projects", document("project", ref="z" * 20)),
        ("DELETE", UMBRELLA, None),
    ):
        refused = await operator.send(method, target, body, headers=headers)
        assert refused.refusal == (409, "conflict.idempotency_key.used")
    assert (await operator.send("GET", UMBRELLA)).status == 200


@pytest.mark.parametrize("key", ["", "x" * 256, "\xe9"])
async def test_malformed_key_is_rejected(operator: Operator, key: str) -> None:
    body = document("organization", slug="umbrella")
    response = await operator.send("POST", ORGANIZATIONS, body, headers={"idempotency-key": key})
    assert response.refusal == (400, "bad_request.validation")
    [issue] = response.body["error"]["issues"]
    assert issue["meta"] == {"header": "Idempotency-Key"}
    assert (await operator.send("GET", UMBRELLA)).refusal == (404, "not_found.organization")


async def test_key_can_be_reused_after_an_error_and_after_a_day(operator: Operator) -> None:
    headers = {"idempotency-key": "again"}
    duplicate = await operator.send(
        "POST", ORGANIZATIONS, document("organization", slug="acme"), headers=headers
    )
    assert duplicate.refusal == (409, "conflict.organization.exists")
    body = document("organization", slug="umbrella")
    assert (await operator.send("POST", ORGANIZATIONS, body, headers=headers)).status == 201
    operator.api.database.execute("update webhooks.answer set created_at = now() - interval '24 hours'")
    late = await operator.send("POST", ORGANIZATIONS, body, headers=headers)
    assert late.refusal == (409, "conflict.organization.exists")
    assert (
        await operator.send("POST", ORGANIZATIONS, document("organization", slug="late"), headers=headers)
    ).data
    operator.api.database.execute("update webhooks.answer set created_at = now() - interval '24 hours'")
    await operator.api.store.maintenance.run()
    assert operator.api.database.execute("select key from webhooks.answer") == []


async def test_concurrent_requests_with_one_key_run_once(operator: Operator) -> None:
    await operator.organize()
    body = document("token", permissions=["webhooks:read"])

    async def create() -> Answer:
        return await operator.send("POST", f"{UMBRELLA}/tokens", body, headers={"idempotency-key": "once"})

    responses = await gatherResults([Deferred.fromCoroutine(create()) for _ in range(6)])
    assert {one.content for one in responses if one.status == 201} == {(await create()).content}
    others = {one.refusal for one in responses if one.status != 201}
    assert others <= {(409, "conflict.idempotency_key.unanswered")}
    assert len((await operator.send("GET", f"{UMBRELLA}/tokens")).data) == 1
