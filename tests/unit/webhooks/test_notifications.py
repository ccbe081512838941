"""Events from notifications: payloads, and idempotency keys that are equal for all listeners."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dataapi.settings import NotifyChannel
from dataapi.webhooks.notifications import (
    MARKER_CHANNEL,
    NotAnEvent,
    NotificationKeys,
    NotifiedEvent,
    read_notification,
)
from hypothesis import given
from hypothesis import strategies as st
from support import documents

FIXED = NotifyChannel("notify", "", "orders", "v1.shop.order", organization="acme", project="p" * 20)
NAMED = NotifyChannel(
    "notify", "", "orders", "v1.shop.order", organization_member="tenant", project_member="project"
)


def nothing() -> None:
    """Ignore the arrival of a marker."""


@pytest.mark.parametrize(
    ("channel", "text", "expected"),
    [
        (FIXED, '{"tenant": 1}', NotifiedEvent("acme", "p" * 20, {"tenant": 1})),
        (NAMED, '{"tenant": "acme"}', NotifiedEvent("acme", None, {"tenant": "acme"})),
        (
            NAMED,
            '{"tenant": "a", "project": null}',
            NotifiedEvent("a", None, {"tenant": "a", "project": None}),
        ),
        (NAMED, '{"tenant": "a", "project": "p"}', NotifiedEvent("a", "p", {"tenant": "a", "project": "p"})),
        (NAMED, '{"tenant": null}', NotAnEvent.NO_ORGANIZATION),
        (NAMED, '{"tenant": ["acme"]}', NotAnEvent.NO_ORGANIZATION),
        (NAMED, '{"tenant": "acme", "project": 1}', NotAnEvent.NO_PROJECT),
        (FIXED, "[]", NotAnEvent.NOT_AN_OBJECT),
        (FIXED, "", NotAnEvent.NOT_JSON),
        (FIXED, '{"a": Infinity}', NotAnEvent.NOT_JSON),
        (FIXED, '{"a":' * 1300 + "1" + "}" * 1300, NotAnEvent.NOT_JSON),
    ],
)
def test_payload_is_read(channel: NotifyChannel, text: str, expected: object) -> None:
    assert read_notification(channel, text) == expected


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["tenant", "project", "a"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(text=st.text() | JSON.map(json.dumps))
def test_every_text_is_an_event_or_rejected(text: str) -> None:
    event = read_notification(NAMED, text)
    if isinstance(event, NotifiedEvent):
        assert event.payload == json.loads(text)
        assert event.payload["tenant"] == event.organization
        assert event.payload.get("project") == event.project


class Sender:
    """The notifications of a server in order and the server's listeners."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.listeners: list[tuple[int, NotificationKeys]] = []

    def listen(self) -> None:
        """Add a listener. Its marker is the next notification."""
        marker = f"marker {len(self.listeners)}"
        self.listeners.append((len(self.sent), NotificationKeys(FIXED, marker, nothing)))
        self.sent.append((MARKER_CHANNEL, marker))

    def keys(self, number: int) -> dict[int, str]:
        """Return the keys that a listener computes, by the positions of their notifications."""
        first, listener = self.listeners[number]
        received = [
            (position, listener.keyed(*self.sent[position])) for position in range(first, len(self.sent))
        ]
        return {position: key for position, keyed in received for key, _ in keyed}


@given(st.lists(st.sampled_from(["listen", "same", "other"])))
def test_listeners_compute_the_same_keys(steps: list[str]) -> None:
    sender = Sender()
    sender.listen()
    for step in steps:
        sender.listen() if step == "listen" else sender.sent.append(("orders", step))
    every = sender.keys(0)
    assert len(set(every.values())) == len(every) == len(steps) - steps.count("listen")
    for number, (first, _) in enumerate(sender.listeners[1:], 1):
        assert sender.keys(number) == {position: key for position, key in every.items() if position > first}


def test_keys_of_event_types_differ() -> None:
    keys = set()
    for event_type in ("v1.shop.order", "v1.shop.copy"):
        channel = NotifyChannel("notify", "", "orders", event_type, organization="acme")
        listener = NotificationKeys(channel, "marker", nothing)
        listener.keyed(MARKER_CHANNEL, "marker")
        [(key, payload)] = listener.keyed("orders", "{}")
        assert payload == "{}"
        keys.add(key)
    assert len(keys) == 2


def test_notifications_before_a_marker_belong_to_other_listeners() -> None:
    arrivals: list[str] = []
    listener = NotificationKeys(FIXED, "own", lambda: arrivals.append("arrived"))
    assert listener.keyed("orders", "{}") == []
    assert listener.keyed(MARKER_CHANNEL, "another") == []
    assert len(listener.keyed("orders", "{}")) == 1
    assert arrivals == []
    for payload in ("own", "", "own"):
        assert listener.keyed(MARKER_CHANNEL, payload) == []
        assert len(listener.keyed("orders", "{}")) == 1
    assert arrivals == ["arrived"]


def test_statement_quotes_the_channel() -> None:
    channel = NotifyChannel("notify", "", 'odd" channel', "v1.shop.order", organization="acme")
    statement = NotificationKeys(channel, "marker", nothing).statement
    assert statement == 'listen "odd"" channel"; listen dataapi_notify; notify dataapi_notify, \'marker\''


def test_example_of_an_event_source_is_short() -> None:
    """docs/webhooks.md, Event sources, refers to the example."""
    assert len(documents.read("plugins/notify_events.py").splitlines()) <= 120
