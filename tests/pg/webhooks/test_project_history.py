"""A project's history includes deliveries to the organization's endpoints (reference, Deliveries)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from dataapi.webhooks.model import Cursor, DeliveryFilter, NewEvent, Scope, Status
from dataapi.webhooks.store.history import History
from support.management import ORGANIZATION, OTHER, PROJECT, Management
from support.webhooks import ACME, PAUSED, REF, add_endpoint, claim, failure, migrated, publish, success
from support.webhooks import PROJECT as PROJECT_SCOPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataapi.database.pool import Pool
    from support.postgres import Database

OTHERS = "othersothersothersot"


async def create_both(api: Management) -> tuple[str, str]:
    theirs = await api.create(ORGANIZATION, url="https://receiver.example/of/the/organization")
    return theirs["id"], (await api.create(PROJECT))["id"]


async def history(api: Management, scope: str = PROJECT, query: str = "") -> dict[str, Any]:
    """Return the attributes of a scope's deliveries by endpoint."""
    listed = (await api.send("GET", f"{scope}/deliveries?page[size]=100{query}")).data
    by_endpoint = {one["attributes"]["endpoint_id"]: one["attributes"] for one in listed}
    assert len(by_endpoint) == len(listed)
    return by_endpoint


async def test_both_deliveries_of_a_project_event_are_listed(api: Management) -> None:
    theirs, ours = await create_both(api)
    await publish(api.store)
    for status in ("pending", "success"):
        deliveries = await history(api)
        assert {name: one["endpoint_scope"] for name, one in deliveries.items()} == {
            theirs: "organization",
            ours: "project",
        }
        assert {one["status"] for one in deliveries.values()} == {status}
        assert set(await history(api, ORGANIZATION)) == {theirs}
        await api.store.queue.finish([success(work) for work in await claim(api.store)])


async def test_response_of_the_organizations_receiver_is_not_shown(api: Management) -> None:
    """Response headers may contain the endpoint's URL, for example in a redirect."""
    theirs, _ = await create_both(api)
    await publish(api.store)
    headers = (("location", "https://receiver.example/of/the/organization"),)
    await api.store.queue.finish(
        [
            failure(work, response_code=302, response_headers=headers, response_body="secret", error=None)
            for work in await claim(api.store)
            if str(work.endpoint_id) == theirs
        ]
    )
    shown = (await history(api))[theirs]
    assert (shown["response_code"], shown["response_headers"], shown["response_body"]) == (302, None, None)
    one = await api.send("GET", f"{PROJECT}/deliveries/{shown['id']}")
    assert one.data["attributes"] == {**shown, "event": one.data["attributes"]["event"]}
    assert one.data["attributes"]["event"]["payload"]["project_ref"] == REF
    for response in (one, await api.send("GET", f"{PROJECT}/deliveries")):
        assert b"of/the/organization" not in response.content
    full = (await history(api, ORGANIZATION))[theirs]
    assert full["response_headers"] == dict(headers)
    assert full["response_body"] == "secret"


async def test_project_cannot_send_to_organization_endpoints(api: Management) -> None:
    theirs, _ = await create_both(api)
    await publish(api.store)
    await api.store.queue.finish([failure(work) for work in await claim(api.store)])
    delivery = (await history(api))[theirs]["id"]
    retried = await api.send("POST", f"{PROJECT}/deliveries/{delivery}/retry")
    assert retried.refusal == (404, "not_found.delivery")
    for method, path in (("GET", ""), ("POST", "/test"), ("GET", "/deliveries")):
        response = await api.send(method, f"{PROJECT}/endpoints/{theirs}{path}")
        assert response.refusal == (404, "not_found.endpoint")
    assert (await api.send("POST", f"{ORGANIZATION}/deliveries/{delivery}/retry")).status == 201


async def test_project_history_includes_retries_and_later_attempts(api: Management) -> None:
    theirs, _ = await create_both(api)
    await api.send("DELETE", f"{PROJECT}/endpoints")
    await publish(api.store)
    [work] = await claim(api.store)
    await api.store.queue.finish([failure(work, 0.0)])
    first = (await api.send("GET", f"{ORGANIZATION}/deliveries?filter[status]=failed")).data[0]["id"]
    await api.send("POST", f"{ORGANIZATION}/deliveries/{first}/retry")
    works = sorted(await claim(api.store), key=lambda one: one.attempt_number)
    await api.store.queue.finish([success(works[0])])
    await api.store.queue.finish([success(one) for one in works[1:]])
    await publish(api.store)
    await api.send(
        "PATCH",
        f"{ORGANIZATION}/endpoints/{theirs}",
        {"data": {"type": "endpoint", "attributes": {"enabled": False}}},
    )
    await claim(api.store)
    expected = (await api.send("GET", f"{ORGANIZATION}/deliveries")).data
    records = (await api.send("GET", f"{PROJECT}/deliveries")).data
    assert [one["id"] for one in records] == [one["id"] for one in expected]
    assert "skipped" in {one["attributes"]["status"] for one in records}
    assert len(records) == 4


async def test_events_of_the_organization_and_other_projects_are_not_shown(api: Management) -> None:
    theirs, ours = await create_both(api)
    await api.store.directory.create_project(OTHERS, ACME.organization)
    await publish(api.store, ACME, "v1.organization.member.added")
    await publish(api.store, Scope(ACME.organization, OTHERS))
    await api.send("POST", f"{ORGANIZATION}/endpoints/{theirs}/test")
    assert await history(api) == {}
    await publish(api.store)
    delivery = (await history(api))[theirs]["id"]
    await api.store.directory.set_early_access(OTHER, True)
    await api.store.directory.transfer_project(REF, OTHER, "away")
    try:
        token = await api.new_token(OTHER)
        listed = await api.send("GET", f"{PROJECT}/deliveries", token=token)
        assert {one["attributes"]["endpoint_id"] for one in listed.data} == {ours}
        gone = await api.send("GET", f"{PROJECT}/deliveries/{delivery}", token=token)
        assert gone.refusal == (404, "not_found.delivery")
    finally:
        await api.store.directory.transfer_project(REF, ACME.organization, "back")


async def test_filters_and_pages_cover_both_endpoints(api: Management) -> None:
    theirs, ours = await create_both(api)
    for _ in range(4):
        await publish(api.store)
    works = await claim(api.store)
    await api.store.queue.finish(
        [success(one) if str(one.endpoint_id) == ours else failure(one) for one in works]
    )
    listed = (await api.send("GET", f"{PROJECT}/deliveries?filter[status]=failed")).data
    assert {one["attributes"]["endpoint_id"] for one in listed} == {theirs}
    assert len(listed) == 4
    event = listed[0]["attributes"]["event_id"]
    [one] = (await api.send("GET", f"{PROJECT}/deliveries?filter[event_id]={event}")).data
    assert one == listed[0]
    assert (await api.send("GET", f"{PROJECT}/deliveries?filter[event_type]=v1.project.restored")).data == []
    everything = (await api.send("GET", f"{PROJECT}/deliveries")).data
    assert [one["id"] for one in everything] == sorted((one["id"] for one in everything), reverse=True)
    paged, target = [], f"{PROJECT}/deliveries?page[size]=3"
    while target:
        response = await api.send("GET", target)
        paged += response.data
        target = response.body["links"]["next"]
    assert paged == everything
    assert len(everything) == 8


class Explained:
    """Runs statements with EXPLAIN ANALYZE.

    :ivar passed_over: number of rows that a filter removed.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.passed_over = 0

    async def fetch(self, text: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        [(plan,)] = await self._pool.fetch(f"explain (analyze, format json) {text}", values)
        nodes = [json.loads(bytes(plan))[0]["Plan"]]
        while nodes:
            node = nodes.pop()
            # The index of queued deliveries includes the type, so filtering them is cheap.
            if node.get("Relation Name") != "due":
                self.passed_over += node.get("Rows Removed by Filter", 0) * node["Actual Loops"]
            nodes += node.get("Plans", [])
        return []


FILLED = """
insert into webhooks.delivery (
    id, event_id, endpoint_id, event_type, status, attempt_number, trigger, project_ref
)
select webhooks.uuid_v7(), webhooks.uuid_v7(), %s, %s, 'success', 1, 'automatic',
       case when n %% 5 = 0 then %s end
from generate_series(1, 20000) n;
insert into webhooks.due (
    delivery_id, event_id, endpoint_id, event_type, epoch, trigger, due_at, claimable_at, project_ref
)
select webhooks.uuid_v7(), webhooks.uuid_v7(), %s, %s, 0, 'automatic', now(), now(), %s
from generate_series(1, 5000) n;
analyze webhooks.delivery, webhooks.due
"""


@pytest.mark.parametrize(
    "rare",
    [
        {},
        {"status": Status.FAILED},
        {"status": Status.SKIPPED},
        {"event_type": "v1.project.restored"},
        {"event_type": PAUSED, "status": Status.FAILED},
        {"event_type": "v1.project.restored", "status": Status.PENDING},
        {"event_id": UUID(int=1)},
    ],
)
async def test_page_reads_only_matching_rows(database: Database, pool: Pool, rare: dict[str, Any]) -> None:
    store = await migrated(database, pool)
    endpoint = await add_endpoint(store)
    await store.directory.create_project(OTHERS, ACME.organization)
    await store.publisher.publish(NewEvent(PAUSED, PROJECT_SCOPE, {}, "one"))
    database.execute(FILLED, (str(endpoint.id), PAUSED, OTHERS, str(endpoint.id), PAUSED, OTHERS))
    explained = Explained(pool)
    await History(explained, 14).page(PROJECT_SCOPE, None, DeliveryFilter(**rare), Cursor())
    await History(explained, 14).page(
        Scope(ACME.organization, OTHERS), None, DeliveryFilter(**rare), Cursor()
    )
    assert explained.passed_over < 50
