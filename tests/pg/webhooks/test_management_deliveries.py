"""Deliveries over the management API (docs/reference/webhooks.md, Deliveries)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from dataapi.http.messages import Request
from dataapi.webhooks.event_types import schema_for_receivers
from dataapi.webhooks.management import operations
from dataapi.webhooks.management.api import ManagementApi
from dataapi.webhooks.management.errors import ManagementError
from dataapi.webhooks.management.url_check import EndpointUrlCheck
from support.management import (
    NO_SUCH,
    ORGANIZATION,
    PROJECT,
    SCOPES,
    Management,
    document,
)
from support.webhooks import PAUSED, REF, claim, failure, publish, success

INVALID = 400, "bad_request.validation"
NO_ENDPOINT = 404, "not_found.endpoint"
NO_DELIVERY = 404, "not_found.delivery"
MANY = 429, "too_many_requests"
TEST = operations.ORGANIZATION + "/endpoints/{endpoint_id}/test"
NAMES = {
    "id", "event_id", "endpoint_id", "endpoint_scope", "event_type", "status", "attempt_number", "trigger",
    "response_code",
    "response_headers", "response_body", "error", "duration_ms", "attempt_timestamp", "next_attempt_at",
    "expires_at", "created_at",
}  # fmt: skip


async def list_ids(api: Management, target: str) -> list[str]:
    return [record["id"] for record in (await api.send("GET", target)).data]


async def finish(api: Management, *, ok: bool, retry_in: float | None = None, **named: Any) -> None:
    work = await claim(api.store)
    done = [success(one, **named) if ok else failure(one, retry_in, **named) for one in work]
    await api.store.queue.finish(done)


# ---------------------------------------------------------------- records


@pytest.mark.parametrize("scope", SCOPES)
async def test_delivery_is_shown_while_pending_and_when_done(api: Management, scope: str) -> None:
    made = await api.create(scope)
    await publish(api.store, reason="inactivity")
    target = f"{scope}/endpoints/{made['id']}/deliveries"
    [pending] = (await api.send("GET", target)).data
    shown = pending["attributes"]
    assert (pending["type"], set(shown)) == ("delivery", NAMES)
    assert (shown["id"], UUID(shown["id"]).version) == (pending["id"], 7)
    assert (shown["status"], shown["attempt_number"], shown["trigger"]) == ("pending", 1, "automatic")
    assert (shown["response_code"], shown["error"], shown["attempt_timestamp"]) == (0, None, None)
    assert shown["endpoint_id"] == made["id"]
    expires, created = map(datetime.fromisoformat, (shown["expires_at"], shown["created_at"]))
    assert expires - created == timedelta(days=14)
    await finish(api, ok=True, response_headers=(("server", "x"),), response_body="\u00fc\ud83d")
    done = (await api.send("GET", f"{scope}/deliveries/{pending['id']}")).data["attributes"]
    event = done.pop("event")
    assert set(done) == NAMES
    assert (done["status"], done["response_code"], done["duration_ms"]) == ("success", 200, 12)
    assert done["response_headers"] == {"server": "x"}
    assert done["attempt_timestamp"].endswith("Z")
    assert (event["id"], event["type"]) == (shown["event_id"], PAUSED)
    assert event["payload"] == {
        "organization_slug": "acme", "project_ref": REF, "actor": None, "reason": "inactivity",
    }  # fmt: skip
    assert event["timestamp"].endswith("Z")


async def test_failed_attempt_and_its_retry_have_separate_records(api: Management) -> None:
    await api.create()
    await publish(api.store)
    await finish(api, ok=False, retry_in=10.0, error="dns")
    second, first = (await api.send("GET", f"{ORGANIZATION}/deliveries")).data
    assert (first["attributes"]["status"], second["attributes"]["status"]) == ("failed", "pending")
    assert (first["attributes"]["error"], first["attributes"]["response_code"]) == ("dns", 0)
    assert (first["attributes"]["attempt_number"], second["attributes"]["attempt_number"]) == (1, 2)
    assert first["attributes"]["event_id"] == second["attributes"]["event_id"]
    assert first["attributes"]["next_attempt_at"] == second["attributes"]["next_attempt_at"]


async def test_expired_deliveries_are_hidden_and_cannot_be_retried(api: Management) -> None:
    made = await api.create()
    old = api.database.execute(
        "insert into webhooks.due"
        " (delivery_id, event_id, endpoint_id, epoch, event_type, trigger, due_at, claimable_at) "
        "select webhooks.uuid_floor(now() - interval '15 days'), webhooks.uuid_v7(), id, 0, 'v1.a.b',"
        " 'manual', now(), now() from webhooks.endpoint returning delivery_id::text"
    )[0][0]
    assert await list_ids(api, f"{ORGANIZATION}/endpoints/{made['id']}/deliveries") == []
    assert (await api.send("GET", f"{ORGANIZATION}/deliveries/{old}")).refusal == NO_DELIVERY
    assert (await api.send("POST", f"{ORGANIZATION}/deliveries/{old}/retry")).refusal == NO_DELIVERY


# ---------------------------------------------------------------- lists


@pytest.mark.parametrize("scope", SCOPES)
async def test_page_links_visit_each_delivery_once(api: Management, scope: str) -> None:
    one, other = await api.create(scope), await api.create(scope)
    for _ in range(5):
        await publish(api.store)
    newest = await list_ids(api, f"{scope}/deliveries?page[size]=100")
    assert newest == sorted(newest, reverse=True)
    assert len(newest) == 10
    of_one = await list_ids(api, f"{scope}/endpoints/{one['id']}/deliveries")
    of_other = await list_ids(api, f"{scope}/endpoints/{other['id']}/deliveries")
    assert sorted(of_one + of_other, reverse=True) == newest
    assert len(of_one) == 5

    page = await api.send("GET", f"{scope}/deliveries?page[size]=3&filter[status]=pending")
    first, forward = page.body["links"]["first"], [one["id"] for one in page.data]
    assert page.body["links"]["prev"] is None
    while page.body["links"]["next"]:
        assert "filter[status]=pending" in page.body["links"]["next"]
        page = await api.send("GET", page.body["links"]["next"])
        forward += [one["id"] for one in page.data]
    assert forward == newest
    backward = [one["id"] for one in page.data]
    while page.body["links"]["prev"]:
        page = await api.send("GET", page.body["links"]["prev"])
        backward = [one["id"] for one in page.data] + backward
    assert backward == newest
    last = await api.send("GET", page.body["links"]["last"])
    assert [one["id"] for one in last.data] == newest[-3:]
    assert last.body["links"]["next"] is None
    before = await api.send("GET", last.body["links"]["prev"])
    assert [one["id"] for one in before.data] == newest[-6:-3]
    assert await list_ids(api, first) == newest[:3]


async def test_empty_page_links_to_existing_records(api: Management) -> None:
    delivery = await api.delivery()
    page = await api.send("GET", f"{ORGANIZATION}/deliveries?page[after]={delivery}")
    assert page.data == []
    assert await list_ids(api, page.body["links"]["prev"]) == [delivery]
    page = await api.send("GET", f"{ORGANIZATION}/deliveries?page[before]={delivery}")
    assert page.data == []
    assert await list_ids(api, page.body["links"]["next"]) == [delivery]


async def test_deliveries_can_be_filtered(api: Management) -> None:
    await api.create()
    await publish(api.store)
    await finish(api, ok=True)
    [worked] = await list_ids(api, f"{ORGANIZATION}/deliveries")
    await publish(api.store, event_type="v1.project.restored")
    await finish(api, ok=False)
    failed = (await list_ids(api, f"{ORGANIZATION}/deliveries"))[0]
    await publish(api.store)
    waiting = (await list_ids(api, f"{ORGANIZATION}/deliveries"))[0]
    record = (await api.send("GET", f"{ORGANIZATION}/deliveries/{failed}")).data["attributes"]
    middle = record["created_at"]
    whole = [waiting, failed, worked]
    later = [waiting, failed] if middle <= datetime.now(UTC).isoformat() else []
    for query, expected in (
        ("filter[status]=success", [worked]),
        ("filter[status]=failed", [failed]),
        ("filter[status]=failure", [failed]),
        ("filter[status]=pending", [waiting]),
        ("filter[status]=skipped", []),
        (f"filter[event_id]={record['event_id']}", [failed]),
        (f"filter[event_id]={NO_SUCH}", []),
        (f"filter[event_type]={PAUSED}", [waiting, worked]),
        (f"filter[event_type]={PAUSED}&filter[status]=success", [worked]),
        (f"filter[since]={middle}", later),
        ("filter[since]=2026-01-01T00:00:00%2B02:00", whole),
        ("filter[until]=2026-01-01T00:00:00Z", []),
        ("filter[since]=9999-12-31T23:59:60z", []),
        ("filter[until]=9999-12-31T23:59:59.999999999Z", whole),
    ):
        assert await list_ids(api, f"{ORGANIZATION}/deliveries?{query}") == expected, query


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("page[size]", "0"), ("page[size]", "101"), ("page[after]", "x"), ("page[before]", "1"),
        ("filter[status]", "done"), ("filter[status]", ""), ("filter[event_id]", "x"),
        ("filter[event_type]", "*"), ("filter[event_type]", "paused"), ("filter[since]", "yesterday"),
        ("filter[since]", "2026-01-01"), ("filter[since]", "2026-01-01T00:00:00"),
        ("filter[until]", "2026-02-30T00:00:00Z"), ("filter[until]", "0001-01-01T00:00:00%2B14:00"),
        ("filter[other]", "x"), ("page[limit]", "1"), ("sort", "id"),
    ],
)  # fmt: skip
async def test_invalid_filters_and_pages_are_rejected(api: Management, name: str, value: str) -> None:
    response = await api.send("GET", f"{PROJECT}/deliveries?{name}={value}")
    assert (response.refusal, response.pointers) == (INVALID, [name])


@pytest.mark.parametrize("identifier", [NO_SUCH, "x"])
async def test_absent_endpoints_and_deliveries_are_not_found(api: Management, identifier: str) -> None:
    for method, target, refusal in (
        ("GET", f"endpoints/{identifier}/deliveries", NO_ENDPOINT),
        ("POST", f"endpoints/{identifier}/test", NO_ENDPOINT),
        ("POST", f"endpoints/{identifier}/recover", NO_ENDPOINT),
        ("GET", f"deliveries/{identifier}", NO_DELIVERY),
        ("POST", f"deliveries/{identifier}/retry", NO_DELIVERY),
    ):
        sent = document("recovery", since="2026-01-01T00:00:00Z") if "recover" in target else None
        assert (await api.send(method, f"{ORGANIZATION}/{target}", sent)).refusal == refusal


# ---------------------------------------------------------------- test events


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("body", [None, {}, document("event"), document("event", type=PAUSED)])
async def test_test_event_is_queued_and_recorded(api: Management, scope: str, body: Any) -> None:
    made = await api.create(scope)
    response = await api.send("POST", f"{scope}/endpoints/{made['id']}/test", body)
    assert response.status == 201
    ingress = response.data
    assert (ingress["type"], UUID(ingress["id"]).version) == ("ingress", 7)
    delivery = ingress["attributes"]["delivery_id"]
    record = (await api.send("GET", f"{scope}/deliveries/{delivery}")).data["attributes"]
    assert (record["trigger"], record["status"], record["event_id"]) == ("test", "pending", ingress["id"])
    assert record["event"]["payload"]["is_test"] is True
    assert record["event"]["payload"]["organization_slug"] == "acme"
    assert not api.catalogue.issues(record["event_type"], record["event"]["payload"])
    default = PAUSED if scope == PROJECT else "v1.organization.member.added"
    assert record["event_type"] == (default if body in (None, {}, document("event")) else PAUSED)


async def test_test_event_has_the_first_concrete_type_by_default(api: Management) -> None:
    made = await api.create(event_types=[{"type": "*"}, {"type": "v1.project.restored"}])
    sent = await api.send("POST", f"{ORGANIZATION}/endpoints/{made['id']}/test")
    target = f"{ORGANIZATION}/deliveries/{sent.data['attributes']['delivery_id']}"
    assert (await api.send("GET", target)).data["attributes"]["event_type"] == "v1.project.restored"


async def test_invalid_test_events_are_rejected(api: Management) -> None:
    made = await api.create(event_types=[{"type": PAUSED}])
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    wrong = await api.send("POST", f"{one}/test", document("event", type="v1.project.restored"))
    assert wrong.refusal == (400, "bad_request.endpoint.test.wrong_event_type")
    for sent, pointer in (
        (document("event", type="v1.project.unheard"), "/data/attributes/type"),
        (document("event", type="*"), "/data/attributes/type"),
        (document("event", other=1), "/data/attributes/other"),
        (document("endpoint"), "/data/type"),
        ([], ""),
    ):
        response = await api.send("POST", f"{one}/test", sent)
        assert (response.refusal, response.pointers) == (INVALID, [pointer])
    await api.send("PATCH", one, document("endpoint", enabled=False))
    disabled = await api.send("POST", f"{one}/test", document("event", type=PAUSED))
    assert disabled.refusal == (400, "bad_request.endpoint.test.disabled")
    assert await list_ids(api, f"{ORGANIZATION}/deliveries") == []


async def test_test_event_of_a_removed_type_is_rejected(api: Management) -> None:
    made = await api.create(event_types=[{"type": PAUSED}])
    api.database.execute("update webhooks.endpoint set event_types = '{v1.shop.gone}'")
    response = await api.send("POST", f"{ORGANIZATION}/endpoints/{made['id']}/test")
    assert response.refusal == (400, "bad_request.endpoint.test.wrong_event_type")


# ---------------------------------------------------------------- retry


@pytest.mark.parametrize("scope", SCOPES)
async def test_retry_creates_a_delivery_of_the_same_event(api: Management, scope: str) -> None:
    await api.create(scope)
    await publish(api.store)
    await finish(api, ok=False)
    [failed] = (await api.send("GET", f"{scope}/deliveries")).data
    response = await api.send("POST", f"{scope}/deliveries/{failed['id']}/retry")
    assert response.status == 201
    assert response.data["type"] == "ingress"
    assert response.data["attributes"]["event_id"] == failed["attributes"]["event_id"]
    delivery = response.data["attributes"]["delivery_id"]
    assert await list_ids(api, f"{scope}/deliveries") == [delivery, failed["id"]]
    record = (await api.send("GET", f"{scope}/deliveries/{delivery}")).data["attributes"]
    assert (record["trigger"], record["attempt_number"]) == ("manual", 1)


async def test_successful_retry_skips_pending_attempts(api: Management) -> None:
    await api.create()
    await publish(api.store)
    await finish(api, ok=False, retry_in=60.0)
    pending, failed = await list_ids(api, f"{ORGANIZATION}/deliveries")
    for ok, status in ((False, "pending"), (True, "skipped")):
        assert (await api.send("POST", f"{ORGANIZATION}/deliveries/{failed}/retry")).status == 201
        await finish(api, ok=ok)
        record = (await api.send("GET", f"{ORGANIZATION}/deliveries/{pending}")).data["attributes"]
        assert (record["status"], record["attempt_number"]) == (status, 2)
    assert await api.store.queue.next_due() is None


async def test_retry_and_recovery_are_rejected_if_the_endpoint_is_disabled(api: Management) -> None:
    delivery = await api.delivery()
    record = (await api.send("GET", f"{ORGANIZATION}/deliveries/{delivery}")).data
    one = f"{ORGANIZATION}/endpoints/{record['attributes']['endpoint_id']}"
    await api.send("PATCH", one, document("endpoint", enabled=False))
    disabled = 400, "bad_request.delivery.retry.disabled"
    assert (await api.send("POST", f"{ORGANIZATION}/deliveries/{delivery}/retry")).refusal == disabled
    recovery = document("recovery", since="2026-01-01T00:00:00Z")
    assert (await api.send("POST", f"{one}/recover", recovery)).refusal == disabled


async def test_test_events_and_retries_share_a_rate_limit(api: Management, reactor: Any) -> None:
    """The limit is 10 per minute and endpoint, across all daemons."""
    made, free = await api.create(), await api.create()
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    sent = await api.send("POST", f"{one}/test")
    retry = f"{ORGANIZATION}/deliveries/{sent.data['attributes']['delivery_id']}/retry"
    for number in range(9):
        assert (await api.send("POST", retry if number % 2 else f"{one}/test")).status == 201
    for target in (f"{one}/test", retry):
        response = await api.send("POST", target)
        assert response.refusal == MANY
        assert 0 < int(response.headers["retry-after"]) <= 60
    assert (await api.send("POST", f"{ORGANIZATION}/endpoints/{free['id']}/test")).status == 201
    other = ManagementApi(
        api.store,
        api.catalogue,
        EndpointUrlCheck(reactor, api.address_check, require_https=False),
        lambda: None,
    )
    headers = {"authorization": f"Bearer {api.token}"}
    parameters = {"organization_slug": "acme", "endpoint_id": made["id"]}
    with pytest.raises(ManagementError) as refused:
        await other.handle(Request("id", "POST", f"{one}/test", "", headers, b""), TEST, parameters)
    assert refused.value.code == MANY[1]
    api.database.execute("update webhooks.request set at = at - interval '60 seconds'")
    assert (await api.send("POST", retry)).status == 201


# ---------------------------------------------------------------- recover


@pytest.mark.parametrize("scope", SCOPES)
async def test_recovery_retries_finally_failed_deliveries(api: Management, scope: str) -> None:
    made = await api.create(scope)
    for ok, retry_in in ((False, None), (False, None), (True, None), (False, 60.0)):
        await publish(api.store)
        await finish(api, ok=ok, retry_in=retry_in)
    target = f"{scope}/endpoints/{made['id']}/recover"
    future = document("recovery", since="2100-01-01T00:00:00Z")
    past = document("recovery", since="2020-01-01T00:00:00Z", until="2021-01-01T00:00:00Z")
    for sent in (future, past):
        assert (await api.send("POST", target, sent)).data["attributes"] == {"matched": 0}
    response = await api.send("POST", target, document("recovery", since="2020-01-01T00:00:00Z"))
    assert (response.status, response.data["type"]) == (202, "recovery")
    assert response.data["attributes"] == {"matched": 2}
    UUID(response.data["id"])
    manual = await list_ids(api, f"{scope}/deliveries?filter[status]=pending")
    assert len(manual) == 3


@pytest.mark.parametrize(
    ("attributes", "members"),
    [
        ({}, ["since"]), ({"since": 1}, ["since"]), ({"since": "yesterday"}, ["since"]),
        ({"since": "2026-02-30T00:00:00Z"}, ["since"]), ({"since": None}, ["since"]),
        ({"since": "2026-01-01T00:00:00Z", "until": "x"}, ["until"]),
        ({"since": "2026-01-01T00:00:00Z\n"}, ["since"]),
        ({"since": "2026-01-01T00:00:00Z", "to": "x"}, ["to"]),
    ],
)  # fmt: skip
async def test_invalid_recovery_is_rejected(
    api: Management, attributes: dict[str, Any], members: list[str]
) -> None:
    made = await api.create()
    target = f"{ORGANIZATION}/endpoints/{made['id']}/recover"
    response = await api.send("POST", target, document("recovery", **attributes))
    assert response.refusal == INVALID
    assert response.pointers == [f"/data/attributes/{member}" for member in members]


# ---------------------------------------------------------------- keys, types


async def test_deliveries_are_shown_if_headers_cannot_be_decrypted(api: Management) -> None:
    delivery = await api.delivery()
    record = (await api.send("GET", f"{ORGANIZATION}/deliveries/{delivery}")).data
    one = f"{ORGANIZATION}/endpoints/{record['attributes']['endpoint_id']}"
    api.database.execute("update webhooks.endpoint set custom_headers = 'damaged'")
    assert await list_ids(api, f"{one}/deliveries") == [delivery]
    failed = await api.send("GET", one)
    assert failed.refusal == (500, "internal_server_error")
    assert b"key" not in failed.content
    assert (await api.send("DELETE", one)).data["attributes"]["custom_headers"] == {}


@pytest.mark.parametrize("scope", SCOPES)
async def test_event_types_are_listed(api: Management, scope: str) -> None:
    records = (await api.send("GET", f"{scope}/event-types")).data
    assert [record["id"] for record in records] == list(api.catalogue.types)
    assert {record["type"] for record in records} == {"event_type"}
    for record in records:
        shown, known = record["attributes"], api.catalogue.types[record["id"]]
        assert shown == {
            "type": known.type, "description": known.description, "example": known.example,
            "schema": schema_for_receivers(known.schema), "renders": None,
        }  # fmt: skip
