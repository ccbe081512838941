"""Publishing over HTTP (docs/reference/webhooks.md, Publishing)."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from dataapi.webhooks.model import Permission
from support.management import ORGANIZATION, OTHER, OTHER_REF, PROJECT, Management, event
from support.webhooks import PAUSED, REF, claim

EVENTS = "/v1/webhooks/events"
INVALID = 400, "bad_request.validation"
ATTRIBUTES = "/data/attributes"
JSON = {"content-type": "application/json"}


async def bodies(api: Management) -> list[Any]:
    """Return the bodies that are to be delivered."""
    return [json.loads(work.body or b"") for work in await claim(api.store)]


async def test_a_project_event_reaches_both_scopes(api: Management) -> None:
    """201 with the ingress; one copy for each matching endpoint, each with its own id (events 3)."""
    for scope in (ORGANIZATION, PROJECT):
        await api.create(scope)
    token = await api.new_token(permissions=[Permission.PUBLISH])
    answer = await api.send("POST", EVENTS, event("one"), token=token)
    assert (answer.status, answer.data["type"]) == (201, "ingress")
    assert set(answer.data) == {"type", "id"}
    assert UUID(answer.data["id"]).version == 7
    sent = await bodies(api)
    assert len({one["id"] for one in sent}) == 2
    for one in sent:
        assert one["type"] == PAUSED
        assert one["payload"] == {
            "organization_slug": "acme", "project_ref": REF, "actor": None, "reason": "inactivity",
        }  # fmt: skip


@pytest.mark.parametrize("named", [{"project_ref": None}, {}])
async def test_an_organization_event_reaches_organizations_alone(
    api: Management, named: dict[str, Any]
) -> None:
    """``project_ref`` null or absent means an event of the organization (publish body)."""
    for scope in (ORGANIZATION, PROJECT):
        await api.create(scope)
    sent = event("one", type="v1.organization.member.added", payload={"organization_slug": "forged"})
    del sent["data"]["attributes"]["project_ref"]
    sent["data"]["attributes"] |= named
    assert (await api.send("POST", EVENTS, sent)).status == 201
    [one] = await bodies(api)
    assert one["payload"] == {"organization_slug": "acme", "project_ref": None, "actor": None}


async def test_one_key_raises_one_event(api: Management) -> None:
    """The same key within 24 h returns the first answer and raises nothing (publish body)."""
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


async def test_one_organizations_key_is_no_others(api: Management) -> None:
    mine = await api.send("POST", EVENTS, event("same"))
    token = await api.new_token(OTHER)
    theirs = event("same", type="v1.organization.member.added", organization_slug=OTHER, project_ref=None)
    answer = await api.send("POST", EVENTS, theirs, token=token)
    assert answer.status == 201
    assert answer.data != mine.data


MEMBER_ADDED = "v1.organization.member.added"
NUMBERS = "[0.30000000000000000001, 1.10, 123456789012345678, 12345678901234567890.5, -0.10, 1.0, 7]"


def numbered(key: str, numbers: str, **members: Any) -> bytes:
    """Return the body that publishes an event with these numbers in its payload."""
    whole = event(key, type=MEMBER_ADDED, project_ref=None, payload={"numbers": "NUMBERS", **members})
    return json.dumps(whole).replace('"NUMBERS"', numbers).encode()


@pytest.mark.parametrize("in_list", [False, True])
async def test_numbers_keep_their_digits(api: Management, in_list: bool) -> None:
    await api.create()
    body = numbered("one", NUMBERS)
    answer = await api.send("POST", EVENTS, b"[%b]" % body if in_list else body, headers=JSON)
    assert answer.status == 201
    [work] = await claim(api.store)
    assert f'"numbers": {NUMBERS}'.encode() in (work.body or b"")
    shown = await api.send("GET", f"{ORGANIZATION}/deliveries/{work.claim.delivery_id}")
    assert f'"numbers":{NUMBERS.replace(" ", "")}' in shown.content.decode()


@pytest.mark.parametrize(
    ("number", "sent"), [("1E400", "1" + 400 * "0"), ("9" * 5000, "9" * 5000), ("1e-320", f"0.{319 * '0'}1")]
)
async def test_numbers_that_python_has_not_are_passed_on(api: Management, number: str, sent: str) -> None:
    """PostgreSQL writes exponents out."""
    await api.create()
    assert (await api.send("POST", EVENTS, numbered("one", number), headers=JSON)).status == 201
    [work] = await claim(api.store)
    assert f'"numbers": {sent}'.encode() in (work.body or b"")
    shown = await api.send("GET", f"{ORGANIZATION}/deliveries/{work.claim.delivery_id}")
    assert f'"numbers":{sent}' in shown.content.decode()


@pytest.mark.parametrize(
    "number", ["1E131072", "1E-16384", "1E99999", "1E9999999999999999999999", "[2,-1e2000]"]
)
async def test_numbers_that_cannot_be_stored_are_refused(api: Management, number: str) -> None:
    answer = await api.send("POST", EVENTS, numbered("one", number), headers=JSON)
    assert answer.refusal == INVALID
    assert "A number has too many digits to be stored" in answer.content.decode()


async def test_a_payload_may_have_256_kib(api: Management) -> None:
    await api.create()
    long, longer = "x" * 261_000, "x" * 263_000
    for number, body in enumerate((numbered("a", "1", long=long), b"[%b]" % numbered("b", "1", long=long))):
        assert (await api.send("POST", EVENTS, body, headers=JSON)).status == 201
        assert len(await claim(api.store)) == 1, number
    answer = await api.send("POST", EVENTS, numbered("c", "1", long=longer), headers=JSON)
    assert answer.refusal == INVALID
    assert "at most 256 KiB" in answer.content.decode()
    too_long = numbered("d", "1", long="x" * 1_048_600)
    assert (await api.send("POST", EVENTS, too_long, headers=JSON)).refusal == (413, "content_too_large")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000Z"),
        ("2026-01-02T03:04:05.6789+02:00", "2026-01-02T01:04:05.678Z"),
    ],
)
async def test_a_time_may_be_given(api: Management, given: str, expected: str) -> None:
    """``timestamp`` is when it happened, told in UTC with milliseconds (publish body; section 2)."""
    await api.create()
    assert (await api.send("POST", EVENTS, event("t", timestamp=given))).status == 201
    assert [one["timestamp"] for one in await bodies(api)] == [expected]


BRANCH = {"branch": {"ref": "x", "name": 1, "git_branch": None, "is_default": "no"}}


@pytest.mark.parametrize(
    ("changes", "places"),
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
        ({"type": "v1.organization.member.added"}, ["/project_ref"]),
        ({"timestamp": "yesterday"}, ["/timestamp"]),
        ({"timestamp": "2026-02-30T00:00:00Z"}, ["/timestamp"]),
        ({"organization": "acme"}, ["/organization"]),
        ({"payload": {"reason": "other", "note": "a\0b"}}, ["/payload/note"]),
        ({"payload": {"reason": "other", "is_test": True}}, ["/payload/is_test"]),
        ({"payload": {"reason": "other", "is_test": False}}, ["/payload/is_test"]),
    ],
)
async def test_events_that_are_refused(api: Management, changes: dict[str, Any], places: list[str]) -> None:
    """Unknown types and payloads that are not their type's are 400 with issues at the member (errors)."""
    await api.create()
    answer = await api.send("POST", EVENTS, event("bad", **changes))
    assert (answer.refusal, answer.pointers) == (INVALID, [ATTRIBUTES + place for place in places])
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
async def test_a_key_is_required(api: Management, meta: Any, pointer: str) -> None:
    """``idempotency_key`` is required, of 1 to 255 characters (publish body)."""
    sent = event("x")
    if meta is None:
        del sent["meta"]
    else:
        sent["meta"] = meta
    answer = await api.send("POST", EVENTS, sent)
    assert (answer.refusal, answer.pointers) == (INVALID, [pointer])


async def test_a_list_is_published_whole_and_in_order(api: Management) -> None:
    await api.create()
    member = event("two", type="v1.organization.member.added", project_ref=None, payload={})
    listed = [event("one"), member, event("one"), event("three", timestamp="2026-01-02T03:04:05Z")]
    answer = await api.send("POST", EVENTS, listed)
    assert answer.status == 201
    assert [set(one) for one in answer.data] == [{"type", "id"}] * 4
    first, second, again, third = [one["id"] for one in answer.data]
    assert first == again
    assert len({first, second, third}) == 3
    sent = sorted(await bodies(api), key=lambda one: UUID(one["id"]).int)
    assert [one["type"] for one in sent] == [PAUSED, "v1.organization.member.added", PAUSED]
    assert sent[-1]["timestamp"] == "2026-01-02T03:04:05.000Z"
    repeated = await api.send("POST", EVENTS, listed)
    assert (repeated.status, repeated.content) == (201, answer.content)
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
async def test_nothing_of_a_list_is_published_if_one_is_refused(
    api: Management, bad: Any, refusal: tuple[int, str], pointers: list[str]
) -> None:
    await api.create()
    answer = await api.send("POST", EVENTS, [event("a"), bad, event("c")])
    assert (answer.refusal, answer.pointers) == (refusal, pointers)
    assert await bodies(api) == []
    assert api.database.execute("select count(*) from webhooks.idempotency") == [(0,)]


async def test_the_length_of_a_list(api: Management) -> None:
    """A list has 1 to 1,000 events and 1 MiB."""
    for listed in ([], [event(str(number)) for number in range(1_001)]):
        answer = await api.send("POST", EVENTS, listed)
        assert (answer.refusal, answer.pointers) == (INVALID, [""])
    answer = await api.send("POST", EVENTS, [event(str(number)) for number in range(1_000)])
    assert (answer.status, len(answer.data)) == (201, 1_000)
    long = [event(str(number), payload={"reason": "other", "note": "x" * 50_000}) for number in range(20)]
    assert (await api.send("POST", EVENTS, long)).status == 201
    assert (await api.send("POST", EVENTS, [*long, *long])).refusal == (413, "content_too_large")


async def test_a_list_needs_what_an_event_needs(api: Management) -> None:
    powerless = await api.new_token(permissions=[Permission.WRITE])
    for token, refusal in ((None, 401), (powerless, 403)):
        for listed in ([event("a")], [1], []):
            assert (await api.send("POST", EVENTS, listed, token=token)).refusal[0] == refusal
