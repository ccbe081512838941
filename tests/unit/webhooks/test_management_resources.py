"""Parts of the management API that need no database: bodies, timestamps and links."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from dataapi.http.messages import Request
from dataapi.webhooks.catalogue import Catalogue, CompiledSchema, pointer
from dataapi.webhooks.management import body, resources
from dataapi.webhooks.management.errors import ManagementError
from dataapi.webhooks.management.listing import offset_links
from dataapi.webhooks.management.resources import format_timestamp, parse_timestamp
from hypothesis import given
from hypothesis import strategies as st

NEW_ENDPOINT = CompiledSchema(resources.new_endpoint(Catalogue()))
MARK = "s3cr3t-mark"
TEXT = st.text().map(lambda text: text + MARK)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
KNOWN = st.sampled_from(["url", "event_types", "signing_secret", "description", "enabled", "custom_headers"])
DOCUMENTS = JSON | st.fixed_dictionaries(
    {"data": st.fixed_dictionaries({"type": JSON, "attributes": st.dictionaries(KNOWN, JSON)})}
)


def request(content: bytes) -> Request:
    return Request("id", "POST", "/", "", {}, content)


@given(document=DOCUMENTS)
def test_issues_do_not_reveal_values(document: Any) -> None:
    with pytest.raises(ManagementError) as refused:
        body.check(NEW_ENDPOINT, body.document(request(json.dumps(document).encode())))
    assert refused.value.code == "bad_request.validation"
    assert 1 <= len(refused.value.issues) <= 20
    for issue in refused.value.issues:
        assert MARK not in issue.message
        assert issue.pointer is not None


@given(content=st.binary())
def test_any_body_is_parsed_or_rejected(content: bytes) -> None:
    with suppress(ManagementError):
        body.document(request(content))


def test_pointers_are_escaped() -> None:
    """JSON pointers follow RFC 6901."""
    assert pointer("a/b", "m~n", 0) == "/a~1b/m~0n/0"


ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(at=st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=ZONES))
def test_timestamps_survive_formatting_and_parsing(at: datetime) -> None:
    assert parse_timestamp(at.isoformat()) == at
    shown = format_timestamp(at)
    assert shown is not None
    read = parse_timestamp(shown)
    assert read is not None
    assert timedelta(0) <= at - read < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02t03:04:05z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05.123456789Z", datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
        ("2016-12-31T23:59:60Z", datetime(2016, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
        ("0001-01-01T00:00:00+00:01", None),
        ("0000-01-01T00:00:00Z", None),
        ("2026-13-01T00:00:00Z", None),
        ("2026-01-02T03:04:05", None),
        ("2026-01-02 03:04:05Z", None),
        ("2026-W01-1T03:04:05Z", None),
        ("2026-01-02T03:04Z", None),
        ("\u0662026-01-02T03:04:05Z", None),
        ("2026-01-02T03:04:05Z\n", None),
    ],
)
def test_only_rfc_3339_timestamps_are_parsed(text: str, expected: datetime | None) -> None:
    assert parse_timestamp(text) == expected


@given(total=st.integers(0, 60), limit=st.integers(1, 25), offset=st.integers(0, 70))
def test_page_links_visit_each_record_once(total: int, limit: int, offset: int) -> None:

    def offset_of(link: str) -> int:
        query = parse_qs(urlsplit(link).query)
        assert query["page[limit]"] == [str(limit)]
        return int(query["page[offset]"][0])

    links = offset_links("/x", limit, offset, total)
    seen = list(range(offset, min(offset + limit, total)))
    current, last = links, offset
    while current["next"] is not None:
        last = offset_of(current["next"])
        seen += range(last, min(last + limit, total))
        current = offset_links("/x", limit, last, total)
    if offset < total:
        assert links["last"] is not None
        assert offset_of(links["last"]) == last
    back, at = links, offset
    while back["prev"] is not None:
        at, before = offset_of(back["prev"]), at
        assert at < before
        seen = [*range(at, min(before, at + limit, total)), *seen]
        back = offset_links("/x", limit, at, total)
    assert at == 0
    assert seen == list(range(total))
