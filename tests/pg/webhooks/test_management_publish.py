"""Publishing over HTTP (docs/reference/webhooks.md, Publishing)."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from dataapi.webhooks.model import Permission
from support.management import ORGANIZATION, OTHER, OTHER_REF, PROJECT, Management, event
from support.webhooks import MEMBER, PAUSED, REF, claim

EVENTS = "/v1/webhooks/events"
INVALID = 400, "bad_request.validation"
ATTRIBUTES = "/data/attributes"
JSON = {"content-type": "application/json"}


async def bodies(api: Management) -> list[Any]:
    return [json.loads(work.body or b"") for work in await claim(api.store)]


async def test_project_event_is_delivered_to_project_and_organization(api: Management) -> None:
    for scope in (ORGANIZATION, PROJECT):
        await api.create(scope)
    token = await api.new_token(permissions=[Permission.PUBLISH])
    response = await api.send("POST", EVENTS, event("one"), token=token)
    assert (response.status, response.data["type"]) == (201, "ingress")
    assert set(response.data) == {"type", "id"}
    assert UUID(response.data["id"]).version == 7
    sent = await bodies(api)
    assert len({one["id"] for one in sent}) == 2
    for one in sent:
        assert one["type"] == PAUSED
        assert one["payload"] == {
            "organization_slug": "acme", "project_ref": REF, "actor": None, "reason": "inactivity",
        }  # fmt: skip


@pytest.mark.parametrize("named", [{"project_ref": None}, {}])
async def test_organization_event_is_delivered_only_to_the_organization(
    api: Management, named: dict[str, Any]
) -> None:
    for scope in (ORGANIZATION, PROJECT):
        await api.create(scope)
    sent = event(
        "one", type="v1.organization.member.added", payload={"organization_slug": "forged", "member": MEMBER}
    )
    del sent["data"]["attributes"]["project_ref"]
    sent["data"]["attributes"] |= named
    assert (await api.send("POST", EVENTS, sent)).status == 201
    [one] = await bodies(api)
    assert one["payload"] == {
        "organization_slug": "acme", "project_ref": None, "actor": None, "member": MEMBER,
    }  # fmt: skip


async def test_events_with_the_same_key_are_published_once(api: Management) -> None:
    await api.create()
    first = await api.send("POST", EVENTS, event("key"))
    again = await api.send("POST", EVENTS, event("key", payload={"reason": "other"}))
    assert (again.status, again.content) == (first.status, first.content)
    other = await api.send("POST", EVENTS, event("key two"))
    assert other.data != first.data
    assert len(await bodies(api)) == 2
    api.database.execute("update webhooks.idempotency set created_at = now() - interval '24 hours'")
    assert (await api.send("POST", EVENTS, event("key"))).data != first.data
    assert len(await bodies(api)) == 1


async def test_organizations_may_use_the_same_key(api: Management) -> None:
    mine = await api.send("POST", EVENTS, event("same"))
    token = await api.new_token(OTHER)
    theirs = event("same", type="v1.organization.member.added", organization_slug=OTHER, project_ref=None,
                   payload={"member": MEMBER})  # fmt: skip
    response = await api.send("POST", EVENTS, theirs, token=token)
    assert response.status == 201
    assert response.data != mine.data


MEMBER_ADDED = "v1.organization.member.added"
NUMBERS = "[0.30000000000000000001, 1.10, 123456789012345678, 12345678901234567890.5, -0.10, 1.0, 7]"


def numbered(key: str, numbers: str, **members: Any) -> bytes:
    """Return a request body for an event. The payload contains the JSON text ``numbers``."""
    whole = event(
        key, type=MEMBER_ADDED, project_ref=None, payload={"member": MEMBER, "numbers": "NUMBERS", **members}
    )
    return json.dumps(whole).replace('"NUMBERS"', numbers).encode()


@pytest.mark.parametrize("in_list", [False, True])
async def test_numbers_preserve_their_digits(api: Management, in_list: bool) -> None:
    await api.create()
    body = numbered("one", NUMBERS)
    response = await api.send("POST", EVENTS, b"[%b]" % body if in_list else body, headers=JSON)
    assert response.status == 201
    [work] = await claim(api.store)
    assert f'"numbers": {NUMBERS}'.encode() in (work.body or b"")
    shown = await api.send("GET", f"{ORGANIZATION}/deliveries/{work.claim.delivery_id}")
    assert f'"numbers":{NUMBERS.replace(" ", "")}' in shown.content.decode()


@pytest.mark.parametrize(
    ("number", "sent"), [("1E400", "1" + 400 * "0"), ("9" * 5000, "9" * 5000), ("1e-320", f"0.{319 * '0'}1")]
)
async def test_numbers_that_python_cannot_represent_are_preserved(
    api: Management, number: str, sent: str
) -> None:
    """PostgreSQL returns numbers without exponents."""
    await api.create()
    assert (await api.send("POST", EVENTS, numbered("one", number), headers=JSON)).status == 201
    [work] = await claim(api.store)
    assert f'"numbers": {sent}'.encode() in (work.body or b"")
    shown = await api.send("GET", f"{ORGANIZATION}/deliveries/{work.claim.delivery_id}")
    assert f'"numbers":{sent}' in shown.content.decode()


@pytest.mark.parametrize(
    "number", ["1E131072", "1E-16384", "1E99999", "1E9999999999999999999999", "[2,-1e2000]"]
)
async def test_numbers_that_cannot_be_stored_are_rejected(api: Management, number: str) -> None:
    response = await api.send("POST", EVENTS, numbered("one", number), headers=JSON)
    assert response.refusal == INVALID
    assert "A number has too many digits to be stored" in response.content.decode()


async def test_payload_may_have_256_kib(api: Management) -> None:
    await api.create()
    long, longer = "x" * 261_000, "x" * 263_000
    for number, body in enumerate((numbered("a", "1", long=long), b"[%b]" % numbered("b", "1", long=long))):
        assert (await api.send("POST", EVENTS, body, headers=JSON)).status == 201
        assert len(await claim(api.store)) == 1, number
    response = await api.send("POST", EVENTS, numbered("c", "1", long=longer), headers=JSON)
    assert response.refusal == INVALID
    assert "must not exceed 256 KiB" in response.content.decode()
    too_long = numbered("d", "1", long="x" * 1_048_600)
    assert (await api.send("POST", EVENTS, too_long, headers=JSON)).refusal == (413, "content_too_large")


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000Z"),
        ("2026-01-02T03:04:05.6789+02:00", "2026-01-02T01:04:05.678Z"),
    ],
)
async def test_event_timestamp_can_be_set(api: Management, timestamp: str, expected: str) -> None:
    await api.create()
    assert (await api.send("POST", EVENTS, event("t", timestamp=timestamp))).status == 201
    assert [one["timestamp"] for one in await bodies(api)] == [expected]


BRANCH = {"branch": {"ref": "x", "name": 1, "git_branch": None, "is_default": "no"}}


@pytest.mark.parametrize(
    ("changes", "pointers"),
    [
        ({"type": "v1.project.unheard"}, ["/type"]),
        ({"type": "*"}, ["/type"]),
        ({"payload": {}}, ["/payload"]),
        ({"payload": {"reason": "boredom"}}, ["/payload/reason"]),
        ({"payload": []}, ["/payload"]),
        ({"payload": None}, ["/payload"]),
        ({"payload": {"reason": "other", "actor": {"name": "x"}}}, ["/payload/actor"]),
        (
            {"type": "v1.project.branch.created", "payload": BRANCH},
            ["/payload/branch/name", "/payload/branch/is_default"],
        ),
        ({"project_ref": None}, ["/project_ref"]),
        ({"type": "v1.organization.member.added", "payload": {"member": MEMBER}}, ["/project_ref"]),
        ({"timestamp": "yesterday"}, ["/timestamp"]),
        ({"timestamp": "2026-02-30T00:00:00Z"}, ["/timestamp"]),
        ({"organization": "acme"}, ["/organization"]),
        ({"payload": {"reason": "other", "note": "a\0b"}}, ["/payload/note"]),
        ({"payload": {"reason": "other", "is_test": True}}, ["/payload/is_test"]),
        ({"payload": {"reason": "other", "is_test": False}}, ["/payload/is_test"]),
    ],
)
async def test_invalid_events_are_rejected(
    api: Management, changes: dict[str, Any], pointers: list[str]
) -> None:
    await api.create()
    response = await api.send("POST", EVENTS, event("bad", **changes))
    assert (response.refusal, response.pointers) == (INVALID, [ATTRIBUTES + pointer for pointer in pointers])
    assert await bodies(api) == []


@pytest.mark.parametrize(
    ("meta", "pointer"),
    [
        (None, "/meta"), ({}, "/meta/idempotency_key"), ({"idempotency_key": ""}, "/meta/idempotency_key"),
        ({"idempotency_key": "x" * 256}, "/meta/idempotency_key"),
        ({"idempotency_key": 1}, "/meta/idempotency_key"),
        ({"idempotency_key": "a\0"}, "/meta/idempotency_key"),
        ({"idempotency_key": "a", "more": 1}, "/meta/more"),
    ],
)  # fmt: skip
async def test_valid_idempotency_key_is_required(api: Management, meta: Any, pointer: str) -> None:
    sent = event("x")
    if meta is None:
        del sent["meta"]
    else:
        sent["meta"] = meta
    response = await api.send("POST", EVENTS, sent)
    assert (response.refusal, response.pointers) == (INVALID, [pointer])


async def test_list_is_published_in_order(api: Management) -> None:
    await api.create()
    member = event("two", type="v1.organization.member.added", project_ref=None, payload={"member": MEMBER})
    listed = [event("one"), member, event("one"), event("three", timestamp="2026-01-02T03:04:05Z")]
    response = await api.send("POST", EVENTS, listed)
    assert response.status == 201
    assert [set(one) for one in response.data] == [{"type", "id"}] * 4
    first, second, again, third = [one["id"] for one in response.data]
    assert first == again
    assert len({first, second, third}) == 3
    sent = sorted(await bodies(api), key=lambda one: UUID(one["id"]).int)
    assert [one["type"] for one in sent] == [PAUSED, "v1.organization.member.added", PAUSED]
    assert sent[-1]["timestamp"] == "2026-01-02T03:04:05.000Z"
    repeated = await api.send("POST", EVENTS, listed)
    assert (repeated.status, repeated.content) == (201, response.content)
    assert await bodies(api) == []


@pytest.mark.parametrize(
    ("bad", "refusal", "pointers"),
    [
        (event("b", payload={"reason": "boredom"}), INVALID, ["/1/data/attributes/payload/reason"]),
        (
            event("b", payload={"reason": "other", "is_test": True}),
            INVALID,
            ["/1/data/attributes/payload/is_test"],
        ),
        (event("b", payload={"reason": "other", "notes": [1e300] * 900}), INVALID, ["/1/data/attributes"]),
        (event("b", timestamp="2026-02-30T00:00:00Z"), INVALID, ["/1/data/attributes/timestamp"]),
        (event(""), INVALID, ["/1/meta/idempotency_key"]),
        ("b", INVALID, ["/1"]),
        (event("b", organization_slug="a.b"), (400, "bad_request.invalid_slug"), ["/1"]),
        (event("b", project_ref="short"), (400, "bad_request.invalid_ref"), ["/1"]),
        (event("b", organization_slug=OTHER), (403, "forbidden.permission_denied"), ["/1"]),
        (event("b", project_ref=OTHER_REF), (403, "forbidden.permission_denied"), ["/1"]),
    ],
    ids=str,
)
async def test_list_is_not_published_if_one_event_is_invalid(
    api: Management, bad: Any, refusal: tuple[int, str], pointers: list[str]
) -> None:
    await api.create()
    response = await api.send("POST", EVENTS, [event("a"), bad, event("c")])
    assert (response.refusal, response.pointers) == (refusal, pointers)
    assert await bodies(api) == []
    assert api.database.execute("select count(*) from webhooks.idempotency") == [(0,)]


async def test_list_length_is_limited(api: Management) -> None:
    for listed in ([], [event(str(number)) for number in range(1_001)]):
        response = await api.send("POST", EVENTS, listed)
        assert (response.refusal, response.pointers) == (INVALID, [""])
    response = await api.send("POST", EVENTS, [event(str(number)) for number in range(1_000)])
    assert (response.status, len(response.data)) == (201, 1_000)
    long = [event(str(number), payload={"reason": "other", "note": "x" * 50_000}) for number in range(20)]
    assert (await api.send("POST", EVENTS, long)).status == 201
    assert (await api.send("POST", EVENTS, [*long, *long])).refusal == (413, "content_too_large")


async def test_list_requires_the_publish_permission(api: Management) -> None:
    unprivileged = await api.new_token(permissions=[Permission.WRITE])
    for token, refusal in ((None, 401), (unprivileged, 403)):
        for listed in ([event("a")], [1], []):
            assert (await api.send("POST", EVENTS, listed, token=token)).refusal[0] == refusal
