"""Statistics of attempts, URL checks and token access (docs/reference/webhooks.md, Management)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dataapi.webhooks.model import AttemptOutcome, DueWork, FinishedAttempt, Permission
from support.management import (
    CLOSED,
    NO_SUCH,
    ORGANIZATION,
    OTHER,
    OTHER_REF,
    PROJECT,
    SCOPES,
    Management,
    document,
    endpoint,
)
from support.webhooks import ACME, REF, add_endpoint, claim, publish


def finished_attempt(work: DueWork, milliseconds: int, *, success: bool = True) -> FinishedAttempt:
    return FinishedAttempt(work.claim, AttemptOutcome(success, datetime.now(UTC), milliseconds, 200))


async def statistics(api: Management, query: str = "", scope: str = ORGANIZATION) -> dict[Any, Any]:
    """Return counts and durations by endpoint."""
    rows = [one["attributes"] for one in (await api.send("GET", f"{scope}/statistics{query}")).data]
    return {row["endpoint_id"]: {name: row[name] for name in row if name != "endpoint_id"} for row in rows}


async def test_attempts_are_counted_by_day_outcome_and_endpoint(
    api: Management,
) -> None:
    steady, disabled = await add_endpoint(api.store), await add_endpoint(api.store)
    for _ in range(4):
        await publish(api.store)
    await api.store.endpoints.change(ACME, disabled.id, {"enabled": False})
    works = await claim(api.store, 8)
    times = (10, 20, 30, 400)
    await api.store.queue.finish(
        [finished_attempt(work, time, success=time != 400) for work, time in zip(works, times, strict=True)]
    )
    counts = await statistics(api)
    days = {counts[endpoint].pop("day") for endpoint in counts}
    assert days <= {str(datetime.now(UTC).date() - timedelta(days=ago)) for ago in (0, 1)}
    assert counts == {
        None: {"success": 3, "failed": 1, "skipped": 4, "median_ms": 20, "slowest_ms": 400},
        str(steady.id): {"success": 3, "failed": 1, "skipped": 0, "median_ms": 20, "slowest_ms": 400},
        str(disabled.id): {"success": 0, "failed": 0, "skipped": 4, "median_ms": None, "slowest_ms": None},
    }


async def test_statistics_are_limited_to_scope_and_period(api: Management) -> None:
    made = await api.delivery(PROJECT)
    [work] = await claim(api.store)
    assert str(work.claim.delivery_id) == made
    await api.store.queue.finish([finished_attempt(work, 5)])
    assert await statistics(api) == {}
    assert len(await statistics(api, scope=PROJECT)) == 2
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert await statistics(api, f"?filter[since]={tomorrow}", PROJECT) == {}
    assert len(await statistics(api, f"?filter[until]={tomorrow}", PROJECT)) == 2
    refused = await api.send("GET", f"{ORGANIZATION}/statistics?filter[status]=failed")
    assert (refused.status, refused.pointers) == (400, ["filter[status]"])


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("https://receiver.example/hooks", None),
        ("receiver.example", "bad_request.endpoint.url.invalid"),
        ("https://user@receiver.example/", "bad_request.endpoint.url.invalid"),
        ("https://inside.example/", "bad_request.endpoint.url.reserved_address"),
        ("https://nowhere.example/", "bad_request.endpoint.url.unresolvable"),
    ],
)
async def test_url_check_agrees_with_endpoint_creation(
    api: Management, scope: str, url: str, code: str | None
) -> None:
    checked = await api.send("POST", f"{scope}/url-check", document("url_check", url=url))
    assert checked.status == 200
    attributes = checked.data["attributes"]
    assert (attributes["accepted"], attributes["code"]) == (code is None, code)
    assert (await api.send("GET", f"{scope}/endpoints")).data == []
    created = await api.send("POST", f"{scope}/endpoints", endpoint(url=url))
    if code is None:
        assert created.status == 201
    else:
        assert created.refusal == (400, code)
        assert created.body["error"]["message"] == attributes["message"]


async def test_url_check_requires_the_write_permission(api: Management) -> None:
    reader = await api.new_token(permissions=[Permission.READ])
    body = document("url_check", url="https://receiver.example/")
    response = await api.send("POST", f"{ORGANIZATION}/url-check", body, token=reader)
    assert response.refusal == (403, "forbidden.permission_denied")


async def test_access_describes_the_token(api: Management) -> None:
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    token = await api.new_token(permissions=[Permission.READ, Permission.PUBLISH], expires_at=expires)
    record = (await api.send("GET", "/v2/access", token=token)).data
    known = await api.store.directory.access(token)
    assert known is not None
    assert record["id"] == str(known.token.id)
    assert record["attributes"] == {
        "organization_slug": ACME.organization,
        "operator": False,
        "project_ref": None,
        "portal": None,
        "projects": [REF],
        "permissions": ["events:publish", "webhooks:read"],
        "expires_at": expires.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
    }
    theirs = await api.send("GET", "/v2/access", token=await api.new_token(OTHER))
    assert theirs.data["attributes"]["projects"] == [OTHER_REF]


async def test_access_rejects_unauthorized_requests(api: Management) -> None:
    path = "/v2/access"
    assert (await api.send("GET", path, token=None)).refusal == (401, "unauthorized")
    writer = await api.new_token(permissions=[Permission.WRITE])
    assert (await api.send("GET", path, token=writer)).refusal == (403, "forbidden.permission_denied")
    closed = await api.new_token(CLOSED)
    assert (await api.send("GET", path, token=closed)).refusal == (403, "access_disabled")
    assert (await api.send("GET", f"{path}?page[size]={NO_SUCH}")).pointers == ["page[size]"]
