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
async def test_a_created_endpoint_is_shown_and_found_where_location_says(api: Management, scope: str) -> None:
    """Operation 2: 201 with the record and ``Location``, at both scopes."""
    sent = endpoint(
        event_types=[{"type": "v1.project.paused"}, {"type": "v1.project.restored"}],
        custom_headers={"X-Key": "value", "x-empty": ""},
        description="Tells the team",
        enabled=False,
    )
    answer = await api.send("POST", f"{scope}/endpoints", sent)
    assert answer.status == 201
    record = answer.data
    assert answer.headers["location"] == f"{scope}/endpoints/{record['id']}"
    assert (record["type"], UUID(record["id"]).version) == ("endpoint", 7)
    shown = record["attributes"]
    assert set(shown) == NAMES
    assert shown["id"] == record["id"]
    given = dict(sent["data"]["attributes"])
    del given["signing_secret"]
    assert {name: shown[name] for name in given} == given
    assert shown["created_at"] == shown["updated_at"]
    assert shown["created_at"].endswith("Z")
    access = await api.store.directory.access(api.token)
    assert access is not None
    assert shown["created_by"] == str(access.token.id)
    assert (await api.send("GET", answer.headers["location"])).data == record


async def test_what_may_be_left_out_has_a_default(api: Management) -> None:
    shown = (await api.create())["attributes"]
    assert (shown["enabled"], shown["description"], shown["custom_headers"]) == (True, None, {})


async def test_a_project_that_is_given_away_meanwhile_gets_no_endpoint_of_its_former_owner(
    api: Management,
) -> None:
    check = api.address_check.addresses
    made = await api.create(PROJECT)
    theirs = await api.new_token(OTHER)

    async def given_away(destination: Any) -> Any:
        await api.store.directory.transfer_project(REF, OTHER, "away")
        return await check(destination)

    api.address_check.addresses = given_away  # type: ignore[method-assign]
    try:
        answer = await api.send("POST", f"{PROJECT}/endpoints", endpoint())
        assert answer.refusal == (403, "forbidden.permission_denied")
        assert (await api.send("GET", f"{PROJECT}/endpoints")).refusal[0] == 403
        assert (await api.send("GET", f"{PROJECT}/endpoints", token=theirs)).data == [made]
    finally:
        api.address_check.addresses = check  # type: ignore[method-assign]
        await api.store.directory.transfer_project(REF, ACME.organization, "back")


async def test_null_headers_mean_no_headers(api: Management) -> None:
    """``custom_headers`` null on write means ``{}`` (endpoint attributes)."""
    sent = endpoint()
    sent["data"]["attributes"]["custom_headers"] = None
    assert (await api.send("POST", f"{ORGANIZATION}/endpoints", sent)).data["attributes"][
        "custom_headers"
    ] == {}


async def test_types_that_are_there_twice_count_once(api: Management) -> None:
    listed = [{"type": "v1.project.restored"}, {"type": "v1.project.paused"}, {"type": "v1.project.restored"}]
    made = await api.create(event_types=listed)
    assert made["attributes"]["event_types"] == listed[:2]


@pytest.mark.parametrize("scope", SCOPES)
async def test_no_answer_has_the_signing_secret(api: Management, scope: str) -> None:
    """``signing_secret`` is write-only: no answer, errors included, has it (endpoint attributes)."""
    made = await api.create(scope, signing_secret=SECRET)
    one = f"{scope}/endpoints/{made['id']}"
    wrong = [
        document("endpoint", signing_secret=f"{SECRET}{'x' * 64}"),
        document("endpoint", signing_secret=f"{SECRET}\u00e9"),
        document("endpoint", signing_secret=[SECRET]),
        {"data": {"type": "endpoint", "attributes": SECRET}},
        {"data": {"type": SECRET, "attributes": {"enabled": SECRET, "event_types": [{"type": SECRET}]}}},
    ]
    answers = [
        await api.send("PATCH", one, document("endpoint", signing_secret=SECRET, enabled=True)),
        *[await api.send("PATCH", one, sent) for sent in wrong],
        *[await api.send("POST", f"{scope}/endpoints", sent) for sent in wrong],
        await api.send("GET", one),
        await api.send("GET", f"{scope}/endpoints"),
        await api.send("DELETE", one),
    ]
    assert {answer.status for answer in answers} == {200, 400}
    for answer in answers:
        assert SECRET.encode() not in answer.content


# ---------------------------------------------------------------- attributes


def without(name: str) -> dict[str, Any]:
    """Return a document that lacks an attribute."""
    sent = endpoint()
    del sent["data"]["attributes"][name]
    return sent


@pytest.mark.parametrize("name", ["url", "event_types", "signing_secret"])
async def test_required_attributes(api: Management, name: str) -> None:
    answer = await api.send("POST", f"{ORGANIZATION}/endpoints", without(name))
    assert (answer.refusal, answer.pointers) == (INVALID, [f"{ATTRIBUTES}/{name}"])


async def test_every_issue_is_reported(api: Management) -> None:
    """One answer names all that is wrong (errors, ``issues``)."""
    sent = {"data": {"type": "webhook", "attributes": {"enabled": 1, "more/~": 2}, "id": "x"}, "also": 1}
    answer = await api.send("POST", f"{ORGANIZATION}/endpoints", sent)
    assert answer.refusal == INVALID
    assert set(answer.pointers) == {
        "/also", "/data/id", "/data/type", f"{ATTRIBUTES}/enabled", f"{ATTRIBUTES}/more~1~0",
        f"{ATTRIBUTES}/url", f"{ATTRIBUTES}/event_types", f"{ATTRIBUTES}/signing_secret",
    }  # fmt: skip
    assert all(issue["code"] and issue["message"] for issue in answer.body["error"]["issues"])


LONG_NAMES = {f"x-{number}": "" for number in range(21)}


@pytest.mark.parametrize(
    ("attributes", "place"),
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
        ({"custom_headers": LONG_NAMES}, "custom_headers"),
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
async def test_attributes_that_are_refused(api: Management, attributes: dict[str, Any], place: str) -> None:
    made = await api.create()
    for method, target, sent in (
        ("POST", f"{ORGANIZATION}/endpoints", endpoint(**attributes)),
        ("PATCH", f"{ORGANIZATION}/endpoints/{made['id']}", document("endpoint", **attributes)),
    ):
        answer = await api.send(method, target, sent)
        assert (answer.refusal, answer.pointers) == (INVALID, [f"{ATTRIBUTES}/{place}"])
    assert (await api.send("GET", f"{ORGANIZATION}/endpoints")).data == [made]


@pytest.mark.parametrize("name", ["event_types", "custom_headers"])
async def test_too_many_entries_are_one_issue(api: Management, name: str) -> None:
    many = [{"kind": 1}] * 1000 if name == "event_types" else {f"a b {number}": 1 for number in range(1000)}
    answer = await api.send("POST", f"{ORGANIZATION}/endpoints", endpoint(**{name: many}))
    assert (answer.refusal, answer.pointers) == (INVALID, [f"{ATTRIBUTES}/{name}"])


@pytest.mark.parametrize(
    "name",
    [
        "Host", "content-length", "Content-Type", "transfer-encoding", "connection", "TE", "trailer",
        "upgrade", "keep-alive", "proxy-authorization", "Proxy-X", "expect", "User-Agent", "webhook-id",
        "Webhook-Anything",
    ],
)  # fmt: skip
async def test_reserved_headers(api: Management, name: str) -> None:
    answer = await api.send("POST", f"{ORGANIZATION}/endpoints", endpoint(custom_headers={name: "x"}))
    assert (answer.refusal, answer.pointers) == (INVALID, [f"{ATTRIBUTES}/custom_headers/{name}"])


async def test_the_longest_of_everything(api: Management) -> None:
    """20 headers of 128 and 4096 characters, a description of 512, secrets of 8 and 64, a URL of 2048."""
    url = "https://receiver.example/".ljust(2048, "a")
    headers = {f"x-{number}".ljust(128, "n"): "v" for number in range(19)} | {"x": "v" * 4096}
    for secret in ("12345678", "s" * 64):
        made = await api.create(
            url=url, custom_headers=headers, description="\U0001f4e3" * 512, signing_secret=secret
        )
        assert made["attributes"]["custom_headers"] == headers
        assert made["attributes"]["description"] == "\U0001f4e3" * 512


async def test_a_scope_is_full_at_50(api: Management) -> None:
    """A scope has at most 50 endpoints; another scope is not affected (limits)."""
    for _ in range(MAX_ENDPOINTS):
        await api.create()
    answer = await api.send("POST", f"{ORGANIZATION}/endpoints", endpoint())
    assert answer.refusal == (409, "conflict.endpoint.limit")
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
async def test_bodies_that_are_not_a_document_are_refused(api: Management, body: bytes) -> None:
    """Bad JSON and other shapes are 400 with issues (errors)."""
    headers = {"content-type": "application/json"}
    answer = await api.send("POST", f"{ORGANIZATION}/endpoints", body, headers=headers)
    assert answer.refusal == INVALID
    assert answer.pointers


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
async def test_urls_that_are_invalid(api: Management, method: str, url: str) -> None:
    await expect_url(api, method, url, "invalid")


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize("name", ["inside", "mixed"])
async def test_urls_that_lead_inside(api: Management, method: str, name: str) -> None:
    """A URL any of whose addresses is reserved is refused (errors, url.reserved_address; section 4)."""
    await expect_url(api, method, f"https://{name}.example/", "reserved_address")


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize("name", ["nowhere", "unknown"])
async def test_urls_that_do_not_resolve(api: Management, method: str, name: str) -> None:
    await expect_url(api, method, f"https://{name}.example/", "unresolvable")


@pytest.mark.time_limit(20)
async def test_names_that_are_never_answered(api: Management) -> None:
    """A look-up has a few seconds, then the name counts as one that does not resolve (part 3)."""
    await expect_url(api, "POST", "https://slow.example/", "unresolvable")


async def expect_url(api: Management, method: str, url: str, reason: str) -> None:
    """Send a URL and expect its refusal."""
    made = await api.create()
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    if method == "POST":
        answer = await api.send("POST", f"{ORGANIZATION}/endpoints", endpoint(url=url))
    else:
        answer = await api.send("PATCH", one, document("endpoint", url=url))
    assert answer.refusal == (400, f"bad_request.endpoint.url.{reason}")
    assert answer.pointers == [f"{ATTRIBUTES}/url"]
    assert (await api.send("GET", f"{ORGANIZATION}/endpoints")).data == [made]


async def test_urls_that_are_too_long(api: Management) -> None:
    """A URL has at most 2048 characters (limits)."""
    answer = await api.send(
        "POST", f"{ORGANIZATION}/endpoints", endpoint(url="https://receiver.example/".ljust(2049, "a"))
    )
    assert answer.refusal[0] == 400
    assert answer.pointers == [f"{ATTRIBUTES}/url"]


# ---------------------------------------------------------------- list


@pytest.mark.parametrize("scope", SCOPES)
async def test_pages_lead_to_each_other(api: Management, scope: str) -> None:
    """Operation 1: oldest first, with links to the other pages; following them visits each record once."""
    made = [(await api.create(scope))["id"] for _ in range(5)]
    await api.create(SCOPES[1 - SCOPES.index(scope)])
    page = await api.send("GET", f"{scope}/endpoints?page[limit]=2")
    assert page.body["links"] == {
        "first": f"{scope}/endpoints?page[limit]=2&page[offset]=0",
        "prev": None,
        "next": f"{scope}/endpoints?page[limit]=2&page[offset]=2",
        "last": f"{scope}/endpoints?page[limit]=2&page[offset]=4",
    }
    found = []
    while True:
        found += [one["id"] for one in page.data]
        if page.body["links"]["next"] is None:
            break
        page = await api.send("GET", page.body["links"]["next"])
    assert found == made
    back: list[str] = []
    while True:
        back = [one["id"] for one in page.data] + back
        if page.body["links"]["prev"] is None:
            break
        page = await api.send("GET", page.body["links"]["prev"])
    assert back == made


async def test_a_page_has_20_records_by_default(api: Management) -> None:
    for _ in range(21):
        await api.create()
    assert len((await api.send("GET", f"{ORGANIZATION}/endpoints")).data) == 20
    whole = await api.send("GET", f"{ORGANIZATION}/endpoints?page%5Blimit%5D=100")
    assert len(whole.data) == 21


async def test_a_page_beyond_the_end_is_empty_and_leads_back(api: Management) -> None:
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
async def test_pages_that_are_refused(api: Management, query: str, parameter: str) -> None:
    answer = await api.send("GET", f"{ORGANIZATION}/endpoints?{query}")
    assert (answer.refusal, answer.pointers) == (INVALID, [parameter])


# ---------------------------------------------------------------- change


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_change_leaves_what_is_absent(api: Management, scope: str) -> None:
    """Operation 5: absent means unchanged; ``event_types`` replaces the list (rules)."""
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


async def test_null_headers_empty_them(api: Management) -> None:
    """``custom_headers`` null on write means ``{}``, other nulls are refused (endpoint attributes)."""
    made = await api.create(custom_headers={"X-A": "1"})
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    changed = await api.send("PATCH", one, document("endpoint", custom_headers=None))
    assert changed.data["attributes"]["custom_headers"] == {}
    for name in ("url", "event_types", "signing_secret", "enabled"):
        answer = await api.send("PATCH", one, document("endpoint", **{name: None}))
        assert (answer.refusal, answer.pointers) == (INVALID, [f"{ATTRIBUTES}/{name}"])


async def test_a_new_secret_signs_what_is_pending(api: Management) -> None:
    made = await api.create()
    one = f"{ORGANIZATION}/endpoints/{made['id']}"
    await api.send("POST", f"{one}/test")
    change = {"signing_secret": "the second one", "url": "https://receiver.example/new"}
    await api.send("PATCH", one, document("endpoint", **change))
    [work] = await claim(api.store)
    assert (work.signing_secret, work.url) == ("the second one", "https://receiver.example/new")


# ---------------------------------------------------------------- delete


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_deleted_endpoint_is_shown_once_more(api: Management, scope: str) -> None:
    """Operation 6: 200 with the deleted record, then 404; its deliveries are gone."""
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
async def test_all_endpoints_of_a_scope_are_deleted(api: Management, scope: str) -> None:
    """Operation 3: 200 with every deleted record; other scopes keep theirs."""
    other = SCOPES[1 - SCOPES.index(scope)]
    kept = await api.create(other)
    made = [await api.create(scope) for _ in range(3)]
    assert (await api.send("DELETE", f"{scope}/endpoints")).data == made
    assert (await api.send("DELETE", f"{scope}/endpoints")).data == []
    assert (await api.send("GET", f"{other}/endpoints")).data == [kept]


@pytest.mark.parametrize("identifier", ["1", "x", NO_SUCH, NO_SUCH.replace("-", ""), "%00x", "{}"])
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
async def test_absent_and_malformed_identifiers(api: Management, method: str, identifier: str) -> None:
    """No such endpoint and a malformed identifier are 404 alike (errors)."""
    sent = document("endpoint", enabled=False) if method == "PATCH" else None
    answer = await api.send(method, f"{ORGANIZATION}/endpoints/{identifier}", sent)
    if identifier == "%00x":
        assert answer.refusal == (400, "bad_request")
    else:
        assert answer.refusal == ABSENT
