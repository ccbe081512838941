"""The console's receivers of deliveries for trying: who reaches them, what they keep, and what they say."""

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
    """A management API that is there and is not asked."""

    enabled = True
    portal_origins = ()

    async def handle(self, *_: object) -> Reply:
        """Fail: nothing here calls it."""
        raise AssertionError


class Console:
    """A console that a person at this machine opens."""

    def __init__(self, console: Literal["yes", "no", "local"] = "local", *, several: bool = False) -> None:
        self.web = Web(typename, empty_list, replace(PROJECT, console=console, max_body=10_000_000))
        self.web.site = make_site(
            self.web.backends, self.web.clock, webhooks=Management(), receivers=not several, now=lambda: NOW
        )

    def send(
        self, method: str, target: str, body: bytes = b"", host: str = "localhost:8000", **headers: str
    ) -> Response:
        """Send one request from this machine; ``x_y`` names the header ``x-y``."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(body)}"] if body or method == "POST" else []
        connection = Connection(self.web)
        connection.protocol.peer = "127.0.0.1"
        connection.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return connection.take()

    def create(self) -> dict[str, str]:
        """Make a receiver."""
        made: dict[str, str] = self.send("POST", "/console/data/receivers", b"{}", **JSON).json()
        return made


def signed(secret: str, body: bytes = BODY, at: int | None = None) -> dict[str, str]:
    """Return the headers of a delivery."""
    return dict(signed_headers(secret, "msg_1", int(time.time()) if at is None else at, body))


def test_what_is_delivered_is_shown_with_its_signature_verified() -> None:
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


def test_a_receiver_refuses_when_it_is_told_to() -> None:
    console = Console()
    name = console.create()["name"]
    told = f"/console/data/receivers/{name}"
    assert console.send("POST", told, b'{"answer": 500}', **JSON).json()["answer"] == 500
    answer = console.send("POST", f"/console/receivers/{name}", BODY)
    assert (answer.status, answer.headers["content-type"]) == (500, "text/plain; charset=utf-8")
    for bad in (b'{"answer": 302}', b'{"answer": true}', b'{"answer": "500"}', b"[]", b"{"):
        assert console.send("POST", told, bad, **JSON).status == 400


@pytest.mark.parametrize("console", ["yes", "no"])
def test_receivers_are_there_only_where_the_console_is_for_this_machine_alone(
    console: Literal["yes", "no"],
) -> None:
    closed = Console(console)
    assert closed.send("POST", "/console/data/receivers", b"{}", **JSON).status == 404
    assert closed.send("POST", "/console/receivers/name", BODY).status == 404


def test_several_processes_have_no_receivers() -> None:
    """Another one would answer, which does not know the receiver."""
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
def test_neither_other_sites_nor_strangers_reach_receivers(
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


def test_a_form_of_another_site_makes_no_receiver() -> None:
    console = Console()
    for media_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = console.send("POST", "/console/data/receivers", b"{}", Content_Type=media_type)
        assert answer.status == 415
    assert console.send("GET", "/console/data/receivers").status == 405


def test_an_endpoint_that_leads_to_the_console_learns_nothing_from_it() -> None:
    console = Console()
    name = console.create()["name"]
    delivered = signed(SECRET)
    for target in ("settings", "receivers", f"receivers/{name}"):
        assert console.send("POST", f"/console/data/{target}", b"{}", **JSON, **delivered).status == 404
    assert console.send("POST", "/console", b"{}", **delivered).status == 404


def test_a_receiver_that_nobody_made_takes_nothing() -> None:
    console = Console()
    assert console.send("POST", "/console/receivers/invented", BODY).status == 404
    assert console.send("GET", "/console/data/receivers/invented").json() is None
    assert console.send("POST", "/console/data/receivers/invented", b'{"answer": 500}', **JSON).json() is None
    name = console.create()["name"]
    assert console.send("GET", f"/console/receivers/{name}").status == 405


def test_a_delivery_has_a_largest_size() -> None:
    console = Console()
    name = console.create()["name"]
    assert console.send("POST", f"/console/receivers/{name}", b"x" * 524_289).status == 413


class Held:
    """Receivers whose clock the test advances."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        names = iter(range(1000))
        self.receivers = Receivers(lambda: self.now, lambda: f"r{next(names)}", lambda: SECRET)


def test_receivers_are_bounded_in_number_and_the_least_used_goes_first() -> None:
    held = Held()
    names = [held.receivers.create()[0] for _ in range(receivers.RECEIVERS)]
    held.receivers.find(names[0])
    held.receivers.create()
    assert held.receivers.find(names[0])
    assert held.receivers.find(names[1]) is None


def test_a_receiver_that_nobody_uses_is_gone_after_an_hour() -> None:
    held = Held()
    name, _ = held.receivers.create()
    held.now += receivers.IDLE
    assert held.receivers.receive(name, {}, b"") == 200
    held.now += receivers.IDLE + 1
    assert held.receivers.receive(name, {}, b"") is None


def test_a_receiver_keeps_the_newest_deliveries_and_the_beginning_of_large_ones() -> None:
    held = Held()
    name, made = held.receivers.create()
    for number in range(receivers.DELIVERIES + 5):
        body = str(number).encode() + b"\xff" * 500_000
        headers = {f"x-{one}": "y" * 1000 for one in range(40)}
        held.receivers.receive(name, headers, body)
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
def test_a_signature_is_judged_as_a_receiver_does(change: dict[str, str], problem: str) -> None:
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
def test_a_receivers_url_is_an_address_of_this_machine(host: str, peer: str, expected: str) -> None:
    """Names such as localhost are refused in endpoints' URLs."""
    assert address(host, peer, "name") == f"{expected}/console/receivers/name"
