"""Endpoints over the management API (docs/reference/webhooks.md, Endpoints)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from dataapi.webhooks.store.endpoints import MAX_ENDPOINTS
from support.management import (
    NO_SUCH,
    ORGANIZATION,
    OTHER,
    PROJECT,
    SCOPES,
    Management,
    document,
    endpoint,
)
from support.webhooks import ACME, REF, SECRET, claim

INVALID = 400, "bad_request.validation"
ABSENT = 404, "not_found.endpoint"
ATTRIBUTES = "/data/attributes"
NAMES = {
    "id", "url", "enabled", "description", "event_types", "custom_headers", "created_by", "created_at",
    "updated_at", "max_per_second", "failing_since", "disabled_reason", "disabled_since",
    "previous_secret_until",
}  # fmt: skip


# ---------------------------------------------------------------- create


@pytest.mark.parametrize("scope", SCOPES)
async def test_created_endpoint_is_returned_with_its_location(api: Management, scope: str) -> None:
    sent = endpoint(
        event_types=[{"type": "v1.project.paused"}, {"type": "v1.project.restored"}],
        custom_headers={"X-Key": "value", "x-empty": ""},
        description="Tells the team",
        enabled=False,
    )
    response = await api.send("POST", f"{scope}/endpoints", sent)
    assert response.status == 201
    record = response.data
    assert response.headers["location"] == f"{scope}/endpoints/{record['id']}"
    assert (record["type"], UUID(record["id"]).version) == ("endpoint", 7)
    shown = record["attributes"]
    assert set(shown) == NAMES
    assert shown["id"] == record["id"]
    expected = dict(sent["data"]["attributes"])
    del expected["signing_secret"]
    assert {name: shown[name] for name in expected} == expected
    assert shown["created_at"] == shown["updated_at"]
    assert shown["created_at"].endswith("Z")
    access = await api.store.directory.access(api.token)
    assert access is not None
    assert shown["created_by"] == str(access.token.id)
    assert (await api.send("GET", response.headers["location"])).data == record


async def test_optional_attributes_have_defaults(api: Management) -> None:
    shown = (await api.create())["attributes"]
    assert (shown["enabled"], shown["description"], shown["custom_headers"]) == (True, None, {})


async def test_endpoint_is_not_created_if_its_project_is_transferred_meanwhile(
    api: Management,
) -> None:
    check = api.address_check.addresses
    made = await api.create(PROJECT)
    theirs = await api.new_token(OTHER)

    async def transfer_first(destination: Any) -> Any:
        await api.store.directory.transfer_project(REF, OTHER, "away")
        return await check(destination)

    api.address_check.addresses = transfer_first  # type: ignore[method-assign]
    try:
        response = await api.send("POST", f"{PROJECT}/endpoints", endpoint())
        assert response.refusal == (403, "forbidden.permission_denied")
        assert (await api.send("GET", f"{PROJECT}/endpoints")).refusal[0] == 403
        assert (await api.send("GET", f"{PROJECT}/endpoints", token=theirs)).data == [made]
    finally:
        api.address_check.addresses = check  # type: ignore[method-assign]
        await api.store.directory.transfer_project(REF, ACME.organization, "back")


async def test_null_headers_create_an_endpoint_without_headers(api: Management) -> None:
    sent = endpoint()
    sent["data"]["attributes"]["custom_headers"] = None
    assert (await api.send("POST", f"{ORGANIZATION}/endpoints", sent)).data["attributes"][
        "custom_headers"
    ] == {}


async def test_duplicate_event_types_are_removed(api: Management) -> None:
    event_types = [
        {"type": "v1.project.restored"},
        {"type": "v1.project.paused"},
        {"type": "v1.project.restored"},
    ]
    made = await api.create(event_types=event_types)
    assert made["attributes"]["event_types"] == event_types[:2]


@pytest.mark.parametrize("scope", SCOPES)
async def test_no_response_contains_the_signing_secret(api: Management, scope: str) -> None:
    made = await api.create(scope, signing_secret=SECRET)
    one = f"{scope}/endpoints/{made['id']}"
    wrong = [
        document("endpoint", signing_secret=f"{SECRET}{'x' * 64}"),
        document("endpoint", signing_secret=f"{SECRET}\u00e9"),
        document("endpoint", signing_secret=[SECRET]),
        {"data": {"type": "endpoint", "attributes": SECRET}},
        {"data": {"type": SECRET, "attributes": {"enabled": SECRET, "event_types": [{"type": SECRET}]}}},
    ]
    responses = [
        await api.send("PATCH", one, document("endpoint", signing_secret=SECRET, enabled=True)),
        *[await api.send("PATCH", one, sent) for sent in wrong],
        *[await api.send("POST", f"{scope}/endpoints", sent) for sent in wrong],
        await api.send("GET", one),
        await api.send("GET", f"{scope}/endpoints"),
        await api.send("DELETE", one),
    ]
    assert {response.status for response in responses} == {200, 400}
    for response in responses:
        assert SECRET.encode() not in response.content


# ---------------------------------------------------------------- attributes


def without(name: str) -> dict[str, Any]:
    sent = endpoint()
    del sent["data"]["attributes"][name]
    return sent


@pytest.mark.parametrize("name", ["url", "event_types", "signing_secret"])
async def test_missing_attributes_are_rejected(api: Management, name: str) -> None:
    response = await api.send("POST", f"{ORGANIZATION}/endpoints", without(name))
    assert (response.refusal, response.pointers) == (INVALID, [f"{ATTRIBUTES}/{name}"])


async def test_every_issue_is_reported(api: Management) -> None:
    sent = {"data": {"type": "webhook", "attributes": {"enabled": 1, "more/~": 2}, "id": "x"}, "also": 1}
    response = await api.send("POST", f"{ORGANIZATION}/endpoints", sent)
    assert response.refusal == INVALID
    assert set(response.pointers) == {
        "/also", "/data/id", "/data/type", f"{ATTRIBUTES}/enabled", f"{ATTRIBUTES}/more~1~0",
        f"{ATTRIBUTES}/url", f"{ATTRIBUTES}/event_types", f"{ATTRIBUTES}/signing_secret",
    }  # fmt: skip
    assert all(issue["code"] and issue["message"] for issue in response.body["error"]["issues"])


MANY_HEADERS = {f"x-{number}": "" for number in range(21)}


@pytest.mark.parametrize(
    ("attributes", "member"),
    [
        ({"url": 1}, "url"),
        ({"url": ["https://receiver.example/"]}, "url"),
        ({"event_types": []}, "event_types"),
        ({"event_types": "*"}, "event_types"),
        ({"event_types": ["*"]}, "event_types/0"),
        ({"event_types": [{}]}, "event_types/0/type"),
        ({"event_types": [{"type": "*", "also": 1}]}, "event_types/0/also"),
        ({"event_types": [{"type": "*"}, {"type": "v1.project.unheard"}]}, "event_types/1/type"),
        ({"event_types": [{"type": "v1.project.*"}]}, "event_types/0/type"),
        ({"event_types": [{"type": "*"}] * 101}, "event_types"),
        ({"signing_secret": "1234567"}, "signing_secret"),
        ({"signing_secret": "x" * 65}, "signing_secret"),
        ({"signing_secret": "\u00fcmlauts are refused"}, "signing_secret"),
        ({"signing_secret": "12345678\0"}, "signing_secret"),
        ({"signing_secret": 12345678}, "signing_secret"),
        ({"description": "x" * 513}, "description"),
        ({"description": 1}, "description"),
        ({"description": "a\0b"}, "description"),
        ({"description": "\ud83d"}, "description"),
        ({"enabled": "true"}, "enabled"),
        ({"enabled": 1}, "enabled"),
        ({"custom_headers": []}, "custom_headers"),
        ({"custom_headers": MANY_HEADERS}, "custom_headers"),
        ({"custom_headers": {"x": 1}}, "custom_headers/x"),
        ({"custom_headers": {"x": None}}, "custom_headers/x"),
        ({"custom_headers": {"x y": ""}}, "custom_headers/x y"),
        ({"custom_headers": {"": ""}}, "custom_headers/"),
        ({"custom_headers": {"x/y": ""}}, "custom_headers/x~1y"),
        ({"custom_headers": {"x" * 129: ""}}, "custom_headers/" + "x" * 129),
        ({"custom_headers": {"x": "v" * 4097}}, "custom_headers/x"),
        ({"custom_headers": {"x": "a\r\nb: c"}}, "custom_headers/x"),
        ({"custom_headers": {"x": "a\n"}}, "custom_headers/x"),
        ({"custom_headers": {"x": "\u00e9"}}, "custom_headers/x"),
        ({"custom_headers": {"x": " padded"}}, "custom_headers/x"),
        ({"custom_headers": {"X-A": "", "x-a": ""}}, "custom_headers/x-a"),
        ({"id": NO_SUCH}, "id"),
        ({"created_by": "me"}, "created_by"),
    ],
)
async def test_invalid_attributes_are_rejected(
    api: Management, attributes: dict[str, Any], member: str
) -> None:
    made = await api.create()
    for method, target, sent in (
        ("POST", f"{ORGANIZATION}/endpoints", endpoint(**attributes)),
        ("PATCH", f"{ORGANIZATION}/endpoints/{made['id']}", document("endpoint", **attributes)),
    ):
        response = await api.send(method, target, sent)
        assert (response.refusal, response.pointers) == (INVALID, [f"{ATTRIBUTES}/{member}"])
    assert (await api.send("GET", f"{ORGANIZATION}/endpoints")).data == [made]


@pytest.mark.parametrize("name", ["event_types", "custom_headers"])
async def test_too_many_entries_are_reported_as_one_issue(api: Management, name: str) -> None:
    many = [{"kind": 1}] * 1000 if name == "event_types" else {f"a b {number}": 1 for number in range(1000)}
    response = await api.send("POST", f"{ORGANIZATION}/endpoints", endpoint(**{name: many}))
    assert (response.refusal, response.pointers) == (INVALID, [f"{ATTRIBUTES}/{name}"])


@pytest.mark.parametrize(
    "name",
    [
        "Host", "content-length", "Content-Type", "transfer-encoding", "connection", "TE", "trailer",
        "upgrade", "keep-alive", "proxy-authorization", "Proxy-X", "expect", "User-Agent", "webhook-id",
        "Webhook-Anything",
    ],
)  # fmt: skip
async def test_reserved_headers_are_rejected(api: Management, name: str) -> None:
    response = await api.send("POST", f"{ORGANIZATION}/endpoints", endpoint(custom_headers={name: "x"}))
    assert (response.refusal, response.pointers) == (INVALID, [f"{ATTRIBUTES}/custom_headers/{name}"])


async def test_values_of_maximum_length_are_accepted(api: Management) -> None:
    url = "https://receiver.example/".ljust(2048, "a")
    headers = {f"x-{number}".ljust(128, "n"): "v" for number in range(19)} | {"x": "v" * 4096}
    for secret in ("12345678", "s" * 64):
        made = await api.create(
            url=url, custom_headers=headers, description="\U0001f4e3" * 512, signing_secret=secret
        )
        assert made["attributes"]["custom_headers"] == headers
        assert made["attributes"]["description"] == "\U0001f4e3" * 512


async def test_scope_has_at_most_50_endpoints(api: Management) -> None:
    for _ in range(MAX_ENDPOINTS):
        await api.create()
    response = await api.send("POST", f"{ORGANIZATION}/endpoints", endpoint())
    assert response.refusal == (409, "conflict.endpoint.limit")
    await api.create(SCOPES[1])


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"", b"[]", b"null", b"1", b'"x"', b"\xff", b'{"data": NaN}', b'{"data": 1e400}',
        b'{"data":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"data":' + b"1" * 5000 + b"}", b"\xef\xbb\xbf{}",
        b'{"data":{"type":"endpoint"}}', b'{"data":{"attributes":{}}}', b'{"data":[]}', b"{}",
        b'{"data":{"type":"endpoint","attributes":{"a\\u0000":1}}}',
    ],
)  # fmt: skip
async def test_malformed_bodies_are_rejected(api: Management, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    response = await api.send("POST", f"{ORGANIZATION}/endpoints", body, headers=headers)
    assert response.refusal == INVALID
    assert response.pointers


# ---------------------------------------------------------------- url


@pytest.mark.parametrize(
    "url",
    [
        "", "receiver.example", "ftp://receiver.example/", "https://", "https://user:pass@receiver.example/",
        "https://93.184.216.34/", "https://[2606:2800:220:1::1]/", "https://2130706433/", "https://0x7f.1/",
        "https://receiver.example:0/", "https://receiver.example:65536/", "https://receiver.example/#x",
        "https://receiver.example\\@x.example/", "https://localhost/", "https://a.internal/",
        "https://receiver.example/a b", "https://receiver.example/\n", "https://receiver%2eexample/",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_invalid_urls_are_rejected(api: Management, method: str, url: str) -> None:
    await expect_rejection(api, method, url, "invalid")


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize("name", ["inside", "mixed"])
async def test_urls_with_reserved_addresses_are_rejected(api: Management, method: str, name: str) -> None:
    """A host is rejected even if only one of its addresses is reserved."""
    await expect_rejection(api, method, f"https://{name}.example/", "reserved_address")


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize("name", ["nowhere", "unknown"])
async def test_unresolvable_urls_are_rejected(api: Management, method: str, name: str) -> None:
    await expect_rejection(api, method, f"https://{name}.example/", "unresolvable")


@pytest.mark.time_limit(20)
async def test_url_is_rejected_when_its_lookup_times_out(api: Management) -> None:
    await expect_rejection(api, "POST", "https://slow.example/", "unresolvable")


async def expect_rejection(api: Management, method: str, url: str, reason: str) -> None:
    """Send a URL and expect an error."""
    made = await api.create()
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    if method == "POST":
        response = await api.send("POST", f"{ORGANIZATION}/endpoints", endpoint(url=url))
    else:
        response = await api.send("PATCH", one, document("endpoint", url=url))
    assert response.refusal == (400, f"bad_request.endpoint.url.{reason}")
    assert response.pointers == [f"{ATTRIBUTES}/url"]
    assert (await api.send("GET", f"{ORGANIZATION}/endpoints")).data == [made]


async def test_urls_over_2048_characters_are_rejected(api: Management) -> None:
    response = await api.send(
        "POST", f"{ORGANIZATION}/endpoints", endpoint(url="https://receiver.example/".ljust(2049, "a"))
    )
    assert response.refusal[0] == 400
    assert response.pointers == [f"{ATTRIBUTES}/url"]


# ---------------------------------------------------------------- list


@pytest.mark.parametrize("scope", SCOPES)
async def test_page_links_visit_each_endpoint_once(api: Management, scope: str) -> None:
    made = [(await api.create(scope))["id"] for _ in range(5)]
    await api.create(SCOPES[1 - SCOPES.index(scope)])
    page = await api.send("GET", f"{scope}/endpoints?page[limit]=2")
    assert page.body["links"] == {
        "first": f"{scope}/endpoints?page[limit]=2&page[offset]=0",
        "prev": None,
        "next": f"{scope}/endpoints?page[limit]=2&page[offset]=2",
        "last": f"{scope}/endpoints?page[limit]=2&page[offset]=4",
    }
    forward = []
    while True:
        forward += [one["id"] for one in page.data]
        if page.body["links"]["next"] is None:
            break
        page = await api.send("GET", page.body["links"]["next"])
    assert forward == made
    backward: list[str] = []
    while True:
        backward = [one["id"] for one in page.data] + backward
        if page.body["links"]["prev"] is None:
            break
        page = await api.send("GET", page.body["links"]["prev"])
    assert backward == made


async def test_page_has_20_records_by_default(api: Management) -> None:
    for _ in range(21):
        await api.create()
    assert len((await api.send("GET", f"{ORGANIZATION}/endpoints")).data) == 20
    whole = await api.send("GET", f"{ORGANIZATION}/endpoints?page%5Blimit%5D=100")
    assert len(whole.data) == 21


async def test_page_beyond_the_end_is_empty_and_links_back(api: Management) -> None:
    await api.create()
    page = await api.send("GET", f"{ORGANIZATION}/endpoints?page[offset]=7&page[limit]=3")
    assert page.data == []
    assert page.body["links"]["next"] is None
    back = await api.send("GET", page.body["links"]["prev"])
    assert len(back.data) == 1


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("page[limit]=0", "page[limit]"), ("page[limit]=101", "page[limit]"), ("page[limit]=", "page[limit]"),
        ("page[limit]=-1", "page[limit]"), ("page[limit]=1.5", "page[limit]"),
        ("page[limit]=%C2%B2", "page[limit]"),
        ("page[offset]=-1", "page[offset]"), ("page[offset]=99999999999999999999", "page[offset]"),
        ("page[limit]=1&page[limit]=2", "page[limit]"), ("limit=1", "limit"), ("page[size]=1", "page[size]"),
    ],
)  # fmt: skip
async def test_invalid_pages_are_rejected(api: Management, query: str, parameter: str) -> None:
    response = await api.send("GET", f"{ORGANIZATION}/endpoints?{query}")
    assert (response.refusal, response.pointers) == (INVALID, [parameter])


# ---------------------------------------------------------------- change


@pytest.mark.parametrize("scope", SCOPES)
async def test_change_preserves_absent_attributes(api: Management, scope: str) -> None:
    made = await api.create(
        scope, custom_headers={"X-A": "1"}, description="first", event_types=[{"type": "v1.project.paused"}]
    )
    one = f"{scope}/endpoints/{made['id']}"
    expected = dict(made["attributes"])
    for change in (
        {"description": "second"},
        {"event_types": [{"type": "v1.project.restored"}, {"type": "*"}]},
        {"custom_headers": {"x-b": "2"}},
        {"url": "http://receiver.example:8080/other?x=1"},
        {"enabled": False},
        {"description": None},
        {"signing_secret": "another secret"},
    ):
        record = (await api.send("PATCH", one, document("endpoint", **change))).data
        expected |= {name: value for name, value in change.items() if name != "signing_secret"}
        changed = record["attributes"].pop("updated_at")
        assert record["attributes"] == {k: v for k, v in expected.items() if k != "updated_at"}
        assert changed >= expected["updated_at"]
    nothing = await api.send("PATCH", one, document("endpoint"))
    assert nothing.data == (await api.send("GET", one)).data


async def test_null_headers_remove_all_headers(api: Management) -> None:
    made = await api.create(custom_headers={"X-A": "1"})
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    changed = await api.send("PATCH", one, document("endpoint", custom_headers=None))
    assert changed.data["attributes"]["custom_headers"] == {}
    for name in ("url", "event_types", "signing_secret", "enabled"):
        response = await api.send("PATCH", one, document("endpoint", **{name: None}))
        assert (response.refusal, response.pointers) == (INVALID, [f"{ATTRIBUTES}/{name}"])


async def test_new_secret_signs_pending_deliveries(api: Management) -> None:
    made = await api.create()
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    await api.send("POST", f"{one}/test")
    change = {"signing_secret": "the second one", "url": "https://receiver.example/new"}
    await api.send("PATCH", one, document("endpoint", **change))
    [work] = await claim(api.store)
    assert (work.signing_secret, work.url) == ("the second one", "https://receiver.example/new")


# ---------------------------------------------------------------- delete


@pytest.mark.parametrize("scope", SCOPES)
async def test_deleting_an_endpoint_returns_it_and_deletes_its_deliveries(
    api: Management, scope: str
) -> None:
    delivery = await api.delivery(scope)
    attributes = (await api.send("GET", f"{scope}/deliveries/{delivery}")).data["attributes"]
    one = f"{scope}/endpoints/{attributes['endpoint_id']}"
    record = (await api.send("GET", one)).data
    assert (await api.send("DELETE", one)).data == record
    assert (await api.send("DELETE", one)).refusal == ABSENT
    assert (await api.send("GET", one)).refusal == ABSENT
    gone = await api.send("GET", f"{scope}/deliveries/{delivery}")
    assert gone.refusal == (404, "not_found.delivery")


@pytest.mark.parametrize("scope", SCOPES)
async def test_deleting_all_endpoints_affects_only_one_scope(api: Management, scope: str) -> None:
    other = SCOPES[1 - SCOPES.index(scope)]
    remaining = await api.create(other)
    made = [await api.create(scope) for _ in range(3)]
    assert (await api.send("DELETE", f"{scope}/endpoints")).data == made
    assert (await api.send("DELETE", f"{scope}/endpoints")).data == []
    assert (await api.send("GET", f"{other}/endpoints")).data == [remaining]


@pytest.mark.parametrize("identifier", ["1", "x", NO_SUCH, NO_SUCH.replace("-", ""), "%00x", "{}"])
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
async def test_absent_and_malformed_identifiers_are_not_found(
    api: Management, method: str, identifier: str
) -> None:
    sent = document("endpoint", enabled=False) if method == "PATCH" else None
    response = await api.send(method, f"{ORGANIZATION}/endpoints/{identifier}", sent)
    if identifier == "%00x":
        assert response.refusal == (400, "bad_request")
    else:
        assert response.refusal == ABSENT
