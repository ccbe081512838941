"""Organizations, projects and tokens by an operator's token (docs/reference/webhooks.md, Operators)."""

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
INITECH = f"{ORGANIZATIONS}/umbrella"
NEW_REF = "umbrellaumbrellaumbr"
DENIED = 403, "forbidden.permission_denied"
OPERATORS = [one for one in OPERATIONS if one.operator]
UNAUTHORIZED = 401, "unauthorized"


class Operator:
    """Sends requests with an operator's token."""

    def __init__(self, api: Management) -> None:
        self.api = api

    async def send(self, method: str, target: str, body: Any = None, **named: Any) -> Answer:
        """Send a request."""
        return await self.api.send(method, target, body, token=self.api.operator, **named)

    async def organize(self, *, early_access: bool = True) -> None:
        """Create the organization ``umbrella`` with a project."""
        body = document("organization", slug="umbrella", early_access=early_access)
        assert (await self.send("POST", ORGANIZATIONS, body)).status == 201
        assert (
            await self.send("POST", f"{INITECH}/projects", document("project", ref=NEW_REF))
        ).status == 201

    async def token(self, *permissions: str, **attributes: Any) -> Any:
        """Create a token of ``umbrella`` and return its record."""
        body = document("token", permissions=permissions or ["webhooks:read", "webhooks:write"], **attributes)
        return (await self.send("POST", f"{INITECH}/tokens", body)).data


@pytest.fixture
def operator(api: Management) -> Iterator[Operator]:
    """Give an operator of a platform without the organization ``umbrella``."""
    yield Operator(api)
    api.database.execute("delete from webhooks.organization where slug not in ('acme', 'globex', 'initech')")


# ---------------------------------------------------------------- who


@pytest.mark.parametrize("operation", OPERATORS, ids=lambda one: one.name)
async def test_only_operators_get_there(api: Management, operation: ManagementOperation) -> None:
    """A customer's token is refused, whatever it permits and whosever organization it is."""
    target = operation.path.format(organization_slug=ACME.organization, project_ref=REF, token_id=NO_SUCH)
    before = api.database.execute("select * from webhooks.organization natural left join webhooks.project")
    assert (await api.send(operation.method, target, b"{")).refusal == DENIED
    assert (await api.send(operation.method, target, b"{", token=None)).refusal == UNAUTHORIZED
    assert before == api.database.execute(
        "select * from webhooks.organization natural left join webhooks.project"
    )


async def test_an_operator_reads_every_organization(operator: Operator) -> None:
    """Deliveries, statistics and endpoints, also without early access; but it changes nothing."""
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


async def test_what_is_not_there_is_not_found(operator: Operator) -> None:
    """An operator learns what there is; the body is checked before."""
    for path in (f"{ORGANIZATIONS}/nobody", f"{ORGANIZATIONS}/nobody/webhooks/deliveries"):
        assert (await operator.send("GET", path)).refusal == (404, "not_found.organization")
    for path in (
        f"/v2/projects/{'z' * 20}/webhooks/endpoints",
        f"{ORGANIZATIONS}/acme/projects/{'z' * 20}",
        f"{ORGANIZATIONS}/acme/projects/{OTHER_REF}",
    ):
        assert (await operator.send("GET", path)).refusal == (404, "not_found.project")
    for path in (NO_SUCH, "malformed"):
        found = await operator.send("GET", f"{ORGANIZATIONS}/acme/tokens/{path}")
        assert found.refusal == (404, "not_found.token")
    invalid = await operator.send(
        "POST", f"{ORGANIZATIONS}/nobody/projects", document("project", ref="short")
    )
    assert invalid.refusal == (400, "bad_request.validation")


async def test_the_console_learns_whose_token_it_is(operator: Operator) -> None:
    """``/v2/access`` says that a token is an operator's."""
    found = (await operator.send("GET", "/v2/access")).data["attributes"]
    assert found == {
        "organization_slug": None, "operator": True, "projects": [], "permissions": ["webhooks:read"],
        "expires_at": None, "project_ref": None, "portal": None,
    }  # fmt: skip


# ---------------------------------------------------------------- organizations and projects


async def test_organizations_come_and_go(operator: Operator) -> None:
    """Create, list, let in, put out, delete."""
    made = await operator.send("POST", ORGANIZATIONS, document("organization", slug="umbrella"))
    assert (made.status, made.headers["location"]) == (201, INITECH)
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
        changed = await operator.send("PATCH", INITECH, document("organization", early_access=allowed))
        assert changed.data["attributes"]["early_access"] is allowed
        assert (await operator.send("GET", INITECH)).data == changed.data
    assert (await operator.send("PATCH", INITECH, document("organization"))).data == changed.data
    assert (await operator.send("DELETE", INITECH)).data == changed.data
    assert (await operator.send("GET", INITECH)).refusal == (404, "not_found.organization")


async def test_projects_come_and_go(operator: Operator) -> None:
    """A reference is taken once among all organizations."""
    await operator.organize()
    place = f"{INITECH}/projects/{NEW_REF}"
    record = (await operator.send("GET", place)).data
    assert (record["type"], record["id"]) == ("project", NEW_REF)
    assert record["attributes"]["organization_slug"] == "umbrella"
    assert (await operator.send("GET", f"{INITECH}/projects")).data == [record]
    taken = await operator.send("POST", f"{INITECH}/projects", document("project", ref=REF))
    assert taken.refusal == (409, "conflict.project.exists")
    assert (await operator.send("DELETE", place)).data == record
    assert (await operator.send("GET", f"{INITECH}/projects")).data == []


@pytest.mark.parametrize(
    ("target", "body", "pointers"),
    [
        (ORGANIZATIONS, document("organization"), ["/data/attributes/slug"]),
        (ORGANIZATIONS, document("organization", slug="a b"), ["/data/attributes/slug"]),
        (ORGANIZATIONS, document("organization", slug="acme\n"), ["/data/attributes/slug"]),
        (ORGANIZATIONS, document("organization", slug="a" * 65), ["/data/attributes/slug"]),
        (ORGANIZATIONS, document("organization", slug="a", more=1), ["/data/attributes/more"]),
        (ORGANIZATIONS, document("project", slug="a"), ["/data/type"]),
        (f"{INITECH}/projects", document("project", ref=f"{NEW_REF}\n"), ["/data/attributes/ref"]),
        (f"{INITECH}/tokens", document("token", permissions=[]), ["/data/attributes/permissions"]),
        (f"{INITECH}/tokens", document("token", permissions=["all"]), ["/data/attributes/permissions/0"]),
        (
            f"{INITECH}/tokens",
            document("token", permissions=["webhooks:read"], expires_at="2020-01-01T00:00:00Z"),
            ["/data/attributes/expires_at"],
        ),
        (
            f"{INITECH}/tokens",
            document("token", permissions=["webhooks:read"], expires_at="2026-02-30T00:00:00Z"),
            ["/data/attributes/expires_at"],
        ),
        (
            f"{INITECH}/tokens/{NO_SUCH}/rotate",
            document("rotation", grace_period=-1),
            ["/data/attributes/grace_period"],
        ),
        (
            f"{INITECH}/tokens/{NO_SUCH}/rotate",
            document("rotation", grace_period="soon"),
            ["/data/attributes/grace_period"],
        ),
    ],
)
async def test_bad_input_is_pointed_at(
    operator: Operator, target: str, body: Any, pointers: list[str]
) -> None:
    """The issues say where in the body."""
    await operator.organize()
    answer = await operator.send("POST", target, body)
    assert answer.refusal == (400, "bad_request.validation")
    assert answer.pointers == pointers


async def test_deleting_an_organization_deletes_all_that_is_its_own(operator: Operator) -> None:
    """Endpoints of all scopes, tokens, history and idempotency keys; the rest of a long history in pieces."""
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
    assert (await operator.send("DELETE", INITECH)).status == 200
    secret = token["attributes"]["secret"]
    assert (await operator.api.send("GET", "/v2/access", token=secret)).refusal == UNAUTHORIZED
    assert database.execute("select id::text from webhooks.endpoint") == [(str(other.id),)]
    assert database.execute("select endpoint_id::text from webhooks.due") == [(str(other.id),)]
    assert database.execute("select organization_slug from webhooks.idempotency") == [("acme",)]
    await store.upkeep.run()
    assert database.execute("select count(*) from webhooks.delivery") == [(0,)]
    assert database.execute("select count(*) from webhooks.event") == [(1,)]
    await operator.organize()
    assert (await operator.send("GET", f"{INITECH}/webhooks/deliveries")).data == []


async def test_deleting_a_project_leaves_its_organization(operator: Operator) -> None:
    """Its endpoints go with their deliveries."""
    await operator.organize()
    store = operator.api.store
    kept = await add_endpoint(store, Scope("umbrella"))
    await add_endpoint(store, Scope("umbrella", NEW_REF))
    await publish(store, Scope("umbrella", NEW_REF))
    assert (await operator.send("DELETE", f"{INITECH}/projects/{NEW_REF}")).status == 200
    assert operator.api.database.execute("select id::text from webhooks.endpoint") == [(str(kept.id),)]
    assert operator.api.database.execute("select endpoint_id::text from webhooks.due") == [(str(kept.id),)]


# ---------------------------------------------------------------- tokens


async def test_a_secret_is_shown_at_creation_and_rotation_alone(operator: Operator) -> None:
    """Only its hash is kept, and operators' tokens are in no organization's list."""
    await operator.organize()
    expiry = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="milliseconds")
    made = await operator.token("events:publish", "webhooks:read", expires_at=expiry)
    secret = made["attributes"].pop("secret")
    assert secret.startswith(PREFIX)
    assert made["attributes"]["permissions"] == ["events:publish", "webhooks:read"]
    assert datetime.fromisoformat(made["attributes"]["expires_at"]) == datetime.fromisoformat(expiry)
    assert (await operator.send("GET", f"{INITECH}/tokens")).data == [made]
    assert (await operator.send("GET", f"{INITECH}/tokens/{made['id']}")).data == made
    [(text, kept)] = operator.api.database.execute(
        "select t::text, hash from webhooks.token t where id = %s", (made["id"],)
    )
    assert secret not in text
    assert bytes(kept) == digest(secret)
    found = (await operator.api.send("GET", "/v2/access", token=secret)).data["attributes"]
    assert (found["organization_slug"], found["operator"]) == ("umbrella", False)


async def test_a_token_of_another_organization_is_not_found(operator: Operator) -> None:
    """Neither read, revoked nor rotated under another organization's path; an operator's under none."""
    await operator.organize()
    made = await operator.token()
    own = await operator.api.store.directory.access(operator.api.operator)
    assert own is not None
    for place, identifier in (("acme", made["id"]), ("umbrella", own.token.id)):
        path = f"{ORGANIZATIONS}/{place}/tokens/{identifier}"
        for method, target in (("GET", path), ("DELETE", path), ("POST", f"{path}/rotate")):
            assert (await operator.send(method, target)).refusal == (404, "not_found.token")
    assert (await operator.api.send("GET", "/v2/access", token=made["attributes"]["secret"])).status == 200


async def test_a_revoked_token_is_gone_and_useless(operator: Operator) -> None:
    """It is neither read, listed, deleted again nor rotated."""
    await operator.organize()
    made = await operator.token()
    path = f"{INITECH}/tokens/{made['id']}"
    assert (await operator.send("DELETE", path)).data["id"] == made["id"]
    for method, target in (("GET", path), ("DELETE", path), ("POST", f"{path}/rotate")):
        assert (await operator.send(method, target)).refusal == (404, "not_found.token")
    assert (await operator.send("GET", f"{INITECH}/tokens")).data == []
    secret = made["attributes"]["secret"]
    assert (await operator.api.send("GET", "/v2/access", token=secret)).refusal == UNAUTHORIZED


async def test_rotation_ends_the_former_token_at_once_or_after_a_grace_period(operator: Operator) -> None:
    """The new one has the same permissions and expiry; no grace period makes the old one live longer."""
    await operator.organize()
    soon = datetime.now(UTC) + timedelta(minutes=5)
    made = await operator.token("webhooks:read", expires_at=soon.isoformat(timespec="milliseconds"))
    path = f"{INITECH}/tokens"
    graced = await operator.send(
        "POST", f"{path}/{made['id']}/rotate", document("rotation", grace_period=86_400)
    )
    second = graced.data
    assert graced.headers["location"] == f"{path}/{second['id']}"
    assert second["attributes"]["permissions"] == ["webhooks:read"]
    assert second["attributes"]["expires_at"] == made["attributes"]["expires_at"]
    first = (await operator.send("GET", f"{path}/{made['id']}")).data["attributes"]
    assert first["expires_at"] == made["attributes"]["expires_at"]
    for one in (made, second):
        secret = one["attributes"]["secret"]
        assert (await operator.api.send("GET", "/v2/access", token=secret)).status == 200
    third = (await operator.send("POST", f"{path}/{second['id']}/rotate")).data
    answers = [
        (await operator.api.send("GET", "/v2/access", token=one["attributes"]["secret"])).status
        for one in (made, second, third)
    ]
    assert answers == [200, 401, 200]


async def test_a_grace_period_ends(operator: Operator) -> None:
    """The former token is refused once it is over."""
    await operator.organize()
    made = await operator.token()
    path = f"{INITECH}/tokens/{made['id']}"
    await operator.send("POST", f"{path}/rotate", document("rotation", grace_period=60))
    ends = datetime.fromisoformat((await operator.send("GET", path)).data["attributes"]["expires_at"])
    assert timedelta(seconds=30) < ends - datetime.now(UTC) <= timedelta(seconds=60)
    operator.api.database.execute(
        "update webhooks.token set expires_at = expires_at - interval '60 s' where id = %s", (made["id"],)
    )
    secret = made["attributes"]["secret"]
    assert (await operator.api.send("GET", "/v2/access", token=secret)).refusal == UNAUTHORIZED


# ---------------------------------------------------------------- idempotency keys


async def test_the_same_request_with_a_key_gets_the_first_answer(operator: Operator) -> None:
    """Nothing is done again, also after it would be refused; members may come in another order."""
    key = {"idempotency-key": str(uuid4())}
    body = {"data": {"attributes": {"slug": "umbrella"}, "type": "organization"}}
    first = await operator.send("POST", ORGANIZATIONS, body, headers=key)
    again = await operator.send("POST", ORGANIZATIONS, document("organization", slug="umbrella"), headers=key)
    assert (again.status, again.content, again.headers["location"]) == (201, first.content, INITECH)
    made = [
        await operator.send(
            "POST", f"{INITECH}/tokens", document("token", permissions=["webhooks:read"]), headers=each
        )
        for each in ({"idempotency-key": "t"}, {"idempotency-key": "t"}, {"idempotency-key": "u"})
    ]
    assert made[0].content == made[1].content != made[2].content
    assert len((await operator.send("GET", f"{INITECH}/tokens")).data) == 2
    gone = [await operator.send("DELETE", INITECH, headers={"idempotency-key": "gone"}) for _ in range(2)]
    assert gone[0].status == gone[1].status == 200
    assert gone[0].content == gone[1].content


async def test_no_secret_is_kept_with_an_answer(operator: Operator) -> None:
    """What is stored of it cannot be read without the operator's token."""
    await operator.organize()
    body = document("token", permissions=["webhooks:read"])
    made = await operator.send("POST", f"{INITECH}/tokens", body, headers={"idempotency-key": "secret"})
    secret = made.data["attributes"]["secret"].encode()
    for (kept,) in operator.api.database.execute("select answer from webhooks.answer"):
        assert secret not in bytes(kept)


async def test_a_key_of_another_request_is_refused(operator: Operator) -> None:
    """Another body, path or method; keys of other tokens are others."""
    headers = {"idempotency-key": "one"}
    await operator.send("POST", ORGANIZATIONS, document("organization", slug="umbrella"), headers=headers)
    for method, target, body in (
        ("POST", ORGANIZATIONS, document("organization", slug="other")),
        ("POST", f"{ORGANIZATIONS}/acme/projects", document("project", ref="z" * 20)),
        ("DELETE", INITECH, None),
    ):
        refused = await operator.send(method, target, body, headers=headers)
        assert refused.refusal == (409, "conflict.idempotency_key.used")
    assert (await operator.send("GET", INITECH)).status == 200


@pytest.mark.parametrize("key", ["", "x" * 256, "\xe9"])
async def test_a_malformed_key_is_refused(operator: Operator, key: str) -> None:
    """The issue names the header."""
    body = document("organization", slug="umbrella")
    answer = await operator.send("POST", ORGANIZATIONS, body, headers={"idempotency-key": key})
    assert answer.refusal == (400, "bad_request.validation")
    [issue] = answer.body["error"]["issues"]
    assert issue["meta"] == {"header": "Idempotency-Key"}
    assert (await operator.send("GET", INITECH)).refusal == (404, "not_found.organization")


async def test_a_key_is_free_after_a_refusal_and_after_a_day(operator: Operator) -> None:
    """A request that was refused has changed nothing; upkeep forgets old keys."""
    headers = {"idempotency-key": "again"}
    taken = await operator.send("POST", ORGANIZATIONS, document("organization", slug="acme"), headers=headers)
    assert taken.refusal == (409, "conflict.organization.exists")
    body = document("organization", slug="umbrella")
    assert (await operator.send("POST", ORGANIZATIONS, body, headers=headers)).status == 201
    operator.api.database.execute("update webhooks.answer set created_at = now() - interval '24 hours'")
    late = await operator.send("POST", ORGANIZATIONS, body, headers=headers)
    assert late.refusal == (409, "conflict.organization.exists")
    assert (
        await operator.send("POST", ORGANIZATIONS, document("organization", slug="late"), headers=headers)
    ).data
    operator.api.database.execute("update webhooks.answer set created_at = now() - interval '24 hours'")
    await operator.api.store.upkeep.run()
    assert operator.api.database.execute("select key from webhooks.answer") == []


async def test_requests_with_one_key_at_once_are_carried_out_once(operator: Operator) -> None:
    """One gets the answer, another one the same, or is told that the first is under way."""
    await operator.organize()
    body = document("token", permissions=["webhooks:read"])

    async def create() -> Answer:
        return await operator.send("POST", f"{INITECH}/tokens", body, headers={"idempotency-key": "once"})

    answers = await gatherResults([Deferred.fromCoroutine(create()) for _ in range(6)])
    assert {one.content for one in answers if one.status == 201} == {(await create()).content}
    others = {one.refusal for one in answers if one.status != 201}
    assert others <= {(409, "conflict.idempotency_key.unanswered")}
    assert len((await operator.send("GET", f"{INITECH}/tokens")).data) == 1
