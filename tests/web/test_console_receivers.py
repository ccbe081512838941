"""The console's test receivers: access, storage limits, and signature checks."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest
from dataapi.http.messages import Reply
from dataapi.web.app import make_site
from dataapi.web.console import receivers
from dataapi.web.console.receivers import Receivers, address, signature_problem
from dataapi.webhooks.delivery.headers import signed_headers
from support.memory_http import NOW, PROJECT, Connection, Web, empty_list, typename

if TYPE_CHECKING:
    from support.memory_http import Response

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"id": "1", "type": "v1.project.paused"}'
JSON = {"Content-Type": "application/json"}


class Management:
    """A fake management API that must not be called."""

    enabled = True
    portal_origins = ()

    async def handle(self, *_: object) -> Reply:
        raise AssertionError


class Console:
    """A console that is opened from the local machine."""

    def __init__(self, console: Literal["yes", "no", "local"] = "local", *, several: bool = False) -> None:
        self.web = Web(typename, empty_list, replace(PROJECT, console=console, max_body=10_000_000))
        self.web.site = make_site(
            self.web.backends, self.web.clock, webhooks=Management(), receivers=not several, now=lambda: NOW
        )

    def send(
        self, method: str, target: str, body: bytes = b"", host: str = "localhost:8000", **headers: str
    ) -> Response:
        """Send a request from the local machine. Underscores in header names become hyphens."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(body)}"] if body or method == "POST" else []
        connection = Connection(self.web)
        connection.protocol.peer = "127.0.0.1"
        connection.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return connection.take()

    def create(self) -> dict[str, str]:
        made: dict[str, str] = self.send("POST", "/console/data/receivers", b"{}", **JSON).json()
        return made


def signed(secret: str, body: bytes = BODY, at: int | None = None) -> dict[str, str]:
    """Return the headers of a webhook request."""
    return dict(signed_headers(secret, "msg_1", int(time.time()) if at is None else at, body))


def test_deliveries_are_shown_with_verified_signatures() -> None:
    console = Console()
    assert console.send("GET", "/console/data/settings").json()["receivers"] is True
    made = console.create()
    assert made["url"] == f"http://127.0.0.1:8000/console/receivers/{made['name']}"
    target = made["url"].removeprefix("http://127.0.0.1:8000")
    assert console.send("POST", target, BODY, "127.0.0.1:8000", **signed(made["secret"])).status == 200
    assert console.send("POST", target, BODY, "127.0.0.1:8000", **signed(SECRET)).status == 200
    shown = console.send("GET", f"/console/data/receivers/{made['name']}").json()
    newest, first = shown["received"]
    assert (first["problem"], first["body"], first["answer"]) == ("", BODY.decode(), 200)
    assert first["headers"]["webhook-id"] == "msg_1"
    assert "different secret" in newest["problem"]
    assert made["secret"] not in json.dumps(shown)


def test_receiver_responds_with_the_chosen_status() -> None:
    console = Console()
    name = console.create()["name"]
    target = f"/console/data/receivers/{name}"
    assert console.send("POST", target, b'{"answer": 500}', **JSON).json()["answer"] == 500
    response = console.send("POST", f"/console/receivers/{name}", BODY)
    assert (response.status, response.headers["content-type"]) == (500, "text/plain; charset=utf-8")
    for bad in (b'{"answer": 302}', b'{"answer": true}', b'{"answer": "500"}', b"[]", b"{"):
        assert console.send("POST", target, bad, **JSON).status == 400


@pytest.mark.parametrize("console", ["yes", "no"])
def test_receivers_need_a_local_console(
    console: Literal["yes", "no"],
) -> None:
    closed = Console(console)
    assert closed.send("POST", "/console/data/receivers", b"{}", **JSON).status == 404
    assert closed.send("POST", "/console/receivers/name", BODY).status == 404


def test_receivers_are_unavailable_with_several_processes() -> None:
    """Only the process that created a receiver could store the receiver's requests."""
    console = Console(several=True)
    assert console.send("GET", "/console/data/settings").json()["receivers"] is False
    assert console.send("POST", "/console/data/receivers", b"{}", **JSON).status == 404


@pytest.mark.parametrize(
    ("host", "headers", "status"),
    [
        ("localhost:8000", {"Origin": "https://evil.example"}, 403),
        (
            "localhost:8000",
            {"Origin": "null", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
            403,
        ),
        ("localhost:8000", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("localhost:8000", {"X-Forwarded-For": "127.0.0.1"}, 404),
        ("rebound.example:8000", {}, 404),
    ],
)
def test_other_sites_and_remote_clients_cannot_use_receivers(
    host: str, headers: dict[str, str], status: int
) -> None:
    console = Console()
    name = console.create()["name"]
    for target in (
        "/console/data/receivers",
        f"/console/data/receivers/{name}",
        f"/console/receivers/{name}",
    ):
        assert console.send("POST", target, b"{}", host, **JSON, **headers).status == status, target
    assert console.send("GET", f"/console/data/receivers/{name}").json()["received"] == []


def test_form_of_another_site_creates_no_receiver() -> None:
    console = Console()
    for media_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        response = console.send("POST", "/console/data/receivers", b"{}", Content_Type=media_type)
        assert response.status == 415
    assert console.send("GET", "/console/data/receivers").status == 405


def test_deliveries_to_other_console_urls_get_404() -> None:
    console = Console()
    name = console.create()["name"]
    delivered = signed(SECRET)
    for target in ("settings", "receivers", f"receivers/{name}"):
        assert console.send("POST", f"/console/data/{target}", b"{}", **JSON, **delivered).status == 404
    assert console.send("POST", "/console", b"{}", **delivered).status == 404


def test_unknown_receiver_accepts_nothing() -> None:
    console = Console()
    assert console.send("POST", "/console/receivers/invented", BODY).status == 404
    assert console.send("GET", "/console/data/receivers/invented").json() is None
    assert console.send("POST", "/console/data/receivers/invented", b'{"answer": 500}', **JSON).json() is None
    name = console.create()["name"]
    assert console.send("GET", f"/console/receivers/{name}").status == 405


def test_delivery_size_is_limited() -> None:
    console = Console()
    name = console.create()["name"]
    assert console.send("POST", f"/console/receivers/{name}", b"x" * 524_289).status == 413


class TimedReceivers:
    """Receivers with a clock that the test advances."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        names = iter(range(1000))
        self.receivers = Receivers(lambda: self.now, lambda: f"r{next(names)}", lambda: SECRET)


def test_least_recently_used_receiver_is_evicted() -> None:
    timed = TimedReceivers()
    names = [timed.receivers.create()[0] for _ in range(receivers.RECEIVERS)]
    timed.receivers.find(names[0])
    timed.receivers.create()
    assert timed.receivers.find(names[0])
    assert timed.receivers.find(names[1]) is None


def test_unused_receiver_expires_after_an_hour() -> None:
    timed = TimedReceivers()
    name, _ = timed.receivers.create()
    timed.now += receivers.IDLE
    assert timed.receivers.receive(name, {}, b"") == 200
    timed.now += receivers.IDLE + 1
    assert timed.receivers.receive(name, {}, b"") is None


def test_receiver_stores_newest_deliveries_and_truncates_bodies() -> None:
    timed = TimedReceivers()
    name, made = timed.receivers.create()
    for number in range(receivers.DELIVERIES + 5):
        body = str(number).encode() + b"\xff" * 500_000
        headers = {f"x-{one}": "y" * 1000 for one in range(40)}
        timed.receivers.receive(name, headers, body)
    assert len(made.received) == receivers.DELIVERIES
    newest = made.received[0]
    assert newest.length == 500_002
    assert len(newest.body) == receivers.BODY_LIMIT
    assert sum(len(name) + len(value) for name, value in newest.headers) <= receivers.HEADERS_LIMIT


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"webhook-signature": "v1,AAAA"}, "different secret"),
        ({"webhook-id": "msg_2"}, "different secret"),
        ({"webhook-timestamp": "1000301"}, "5 minutes"),
        ({"webhook-timestamp": "999699"}, "5 minutes"),
        ({"webhook-timestamp": "soon"}, "not a number"),
        ({"webhook-timestamp": "²"}, "not a number"),
        ({"webhook-id": "ä"}, "not ASCII"),
        ({"webhook-signature": ""}, "header is missing"),
    ],
)
def test_signature_problems_are_reported(change: dict[str, str], problem: str) -> None:
    headers = {**signed(SECRET, at=1_000_000), **change}
    found = signature_problem(SECRET, headers, BODY, 1_000_000.0)
    assert problem in found
    assert bool(found) == bool(problem)


@pytest.mark.parametrize(
    ("host", "peer", "expected"),
    [
        ("127.0.0.1:8000", "127.0.0.1", "http://127.0.0.1:8000"),
        ("localhost:8000", "127.0.0.1", "http://127.0.0.1:8000"),
        ("localhost:8000", "::1", "http://[::1]:8000"),
        ("localhost", "::ffff:127.0.0.1", "http://127.0.0.1:80"),
        ("[::1]:8000", "::1", "http://[::1]:8000"),
        ("[::1]", "::1", "http://[::1]:80"),
    ],
)
def test_receiver_url_contains_a_loopback_address(host: str, peer: str, expected: str) -> None:
    """URLs of endpoints cannot contain names such as localhost."""
    assert address(host, peer, "name") == f"{expected}/console/receivers/name"
