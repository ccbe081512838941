"""The admin listener over HTTP in memory, for something operated on paper."""

from __future__ import annotations

import json
from dataclasses import replace
from socket import gethostname
from typing import Any

import pytest
from dataapi.settings import Settings
from dataapi.telemetry.metrics import Snapshot
from dataapi.telemetry.readiness import DaemonState, ProjectState, Reloaded
from dataapi.web.admin import make_admin_site
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import LogEvent

READY = DaemonState(
    (ProjectState("p", database_available=True, generation=3, problems=("table x: bad name",)),)
)
AWAY = DaemonState(
    (ProjectState("p", database_available=False, generation=None, reason="connection refused"),)
)


class DaemonControl:
    """Something operated on paper."""

    def __init__(self, state: DaemonState = READY, reloaded: Reloaded | None = None) -> None:
        self._state = state
        self._reloaded = reloaded or Reloaded({"p": 4}, {})
        self.reload_began: Deferred[None] | None = None

    async def state(self) -> DaemonState:
        """Tell the state."""
        return self._state

    async def catalogs(self) -> dict[str, Any]:
        """Have no catalog."""
        return {}

    async def snapshot(self) -> Snapshot:
        """Fail, or tell one figure."""
        if self._state is AWAY:
            raise LookupError("inside")
        return {"dataapi_workers": {(): 2.0}}

    async def reload(self, _settings: Settings | None = None) -> Reloaded:
        """Reload, when allowed to."""
        if self.reload_began is not None:
            await self.reload_began
        return self._reloaded


class Answer:
    """An answer, read from the wire."""

    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        first, *rest = head.decode().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = dict(line.split(": ", 1) for line in rest)

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


class Connection:
    """A connection to the admin listener, in memory."""

    def __init__(self, operated: DaemonControl, peer: str = "10.0.0.7", **settings: Any) -> None:
        self.transport = StringTransport(peerAddress=IPv4Address("TCP", peer, 40000))
        site = make_admin_site(operated, Clock(), operated.reload, lambda: Settings((), **settings))
        site.doStart()
        self.protocol = site.buildProtocol(None)
        assert self.protocol is not None
        self.protocol.makeConnection(self.transport)

    def send(self, method: str, path: str, *headers: str, host: str = "x") -> None:
        """Send a request."""
        assert self.protocol is not None
        lines = (f"{method} {path} HTTP/1.1", f"Host: {host}", "Content-Length: 0", *headers, "", "")
        self.protocol.dataReceived("\r\n".join(lines).encode())


def ask(operated: DaemonControl, method: str, path: str, **settings: Any) -> Answer:
    """Return the answer to one request."""
    connection = Connection(operated, **settings)
    connection.send(method, path)
    return Answer(connection.transport.value())


def test_live_needs_nothing() -> None:
    """``GET /live`` is 200 whatever the state of databases."""
    assert ask(DaemonControl(AWAY), "GET", "/live").status == 200


def test_ready_reports_the_reason() -> None:
    """``GET /ready`` is 200 or 503, with what is wrong with which project."""
    answer = ask(DaemonControl(), "GET", "/ready")
    assert answer.status == 200
    assert answer.json["projects"][0]["problems"] == ["table x: bad name"]
    answer = ask(DaemonControl(AWAY), "GET", "/ready")
    assert answer.status == 503
    assert answer.headers["Retry-After"] == "1"
    assert answer.json["projects"][0]["reason"] == "connection refused"


def test_one_project_without_its_database_takes_no_others_away() -> None:
    """The daemon is ready while any project serves, unless ``ready-requires`` says all."""
    both = DaemonControl(DaemonState((*READY.projects, replace(AWAY.projects[0], ref="q"))))
    answer = ask(both, "GET", "/ready")
    assert (answer.status, answer.json["ready"], answer.json["writes"]) == (200, True, True)
    assert answer.json["unready_projects"] == ["q"]
    answer = ask(both, "GET", "/ready", ready_requires="all")
    assert (answer.status, answer.json["ready"]) == (503, False)
    assert ask(both, "GET", "/ready?project=p", ready_requires="all").status == 200
    asked = ask(both, "GET", "/ready?project=q")
    assert (asked.status, [project["ref"] for project in asked.json["projects"]]) == (503, ["q"])
    assert ask(both, "GET", "/ready?project=p&project=q").status == 503
    unknown = ask(both, "GET", "/ready?project=r")
    assert (unknown.status, unknown.json["projects"]) == (404, ["p", "q"])


def test_metrics_are_in_the_text_format_with_the_process_beside() -> None:
    """``GET /metrics`` has our figures and those of the process."""
    answer = ask(DaemonControl(), "GET", "/metrics?name=x")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b"\ndataapi_workers 2.0\n" in answer.body
    assert b"process_resident_memory_bytes" in answer.body


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "OPTIONS"])
@pytest.mark.parametrize("path", ["/live", "/reload", "/nothing", "/", "/live/", "/%ff", "//live"])
@pytest.mark.parametrize("host", ["evil.example", "[evil", "localhost"])
def test_no_request_is_an_internal_error(failures: list[LogEvent], method: str, path: str, host: str) -> None:
    """Neither one of a page of a foreign site, nor one for a path or method that there is not."""
    connection = Connection(DaemonControl(), "127.0.0.1")
    connection.send(method, path, host=host)
    status = Answer(connection.transport.value()).status
    assert status == 403 if host != "localhost" else status in (200, 404, 405)
    assert failures == []


def test_head_has_no_body() -> None:
    """``HEAD`` answers like ``GET`` without the body."""
    answer = ask(DaemonControl(), "HEAD", "/ready")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 0


def test_reload_answers_when_it_is_done() -> None:
    """``POST /reload`` answers 200 with the generations, and not before they serve."""
    operated = DaemonControl()
    operated.reload_began = Deferred()
    connection = Connection(operated)
    connection.send("POST", "/reload")
    assert connection.transport.value() == b""
    operated.reload_began.callback(None)
    answer = Answer(connection.transport.value())
    assert (answer.status, answer.json["generations"]) == (200, {"p": 4})


def test_a_reload_that_failed_says_so() -> None:
    """A reload that left an old catalog in place is 503 with the reason."""
    answer = ask(DaemonControl(reloaded=Reloaded({}, {"p": "away"})), "POST", "/reload")
    assert (answer.status, answer.json["failures"]) == (503, {"p": "away"})


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("POST", "/ready", "GET, HEAD"), ("GET", "/reload", "POST"), ("DELETE", "/metrics", "GET, HEAD")],
)
def test_a_wrong_method_is_405_with_the_right_ones(method: str, path: str, allowed: str) -> None:
    """A path that takes other methods says which."""
    answer = ask(DaemonControl(), method, path)
    assert (answer.status, answer.headers["Allow"]) == (405, allowed)


def test_an_unknown_path_is_404_and_names_the_known_ones() -> None:
    """Whoever mistypes a path is told which there are."""
    answer = ask(DaemonControl(), "GET", "/health")
    assert answer.status == 404
    assert "/ready" in answer.json["paths"]


def test_a_failure_inside_shows_nothing_of_itself() -> None:
    """An unforeseen failure is 500, its text in the log alone."""
    answer = ask(DaemonControl(AWAY), "GET", "/metrics")
    assert answer.status == 500
    assert b"inside" not in answer.body


@pytest.mark.parametrize(
    ("peer", "host", "status"),
    [
        ("127.0.0.1", "127.0.0.1:8001", 200),
        ("127.0.0.1", "localhost:8001", 200),
        ("127.0.0.1", "[::1]:8001", 200),
        ("127.0.0.1", "10.0.0.5:8001", 200),
        ("127.0.0.1", f"{gethostname()}:8001", 200),
        ("127.0.0.1", "rebound.example.org:8001", 403),
        ("127.0.0.1", "localhost.example.org", 403),
        ("10.0.0.7", "metrics.example.org:8001", 200),
    ],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/ready"), ("POST", "/reload")])
def test_a_name_that_a_foreign_site_may_have_is_refused(
    peer: str, host: str, status: int, method: str, path: str
) -> None:
    """Its owner can have it lead a browser here; other machines call this one by names of their own."""
    connection = Connection(DaemonControl(), peer)
    connection.send(method, path, host=host)
    answer = Answer(connection.transport.value())
    assert answer.status == status
    if status == 403:
        assert host in answer.json["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ((), 200),
        (("Origin: http://127.0.0.1:8001", "Sec-Fetch-Site: same-origin"), 200),
        (("Sec-Fetch-Site: none",), 200),
        (("Origin: https://evil.example.org",), 403),
        (("Origin: null",), 403),
        (("Origin: http://127.0.0.1:8000",), 403),
        (("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"), 403),
        (("Sec-Fetch-Site: same-site",), 403),
    ],
)
def test_a_page_of_another_site_reloads_nothing(headers: tuple[str, ...], status: int) -> None:
    """A form needs no permission to be sent here; opening an address that only shows something is no harm."""
    for peer in ("127.0.0.1", "10.0.0.7"):
        operated = DaemonControl()
        connection = Connection(operated, peer)
        connection.send("POST", "/reload", *headers, host="127.0.0.1:8001")
        assert Answer(connection.transport.value()).status == status
        connection = Connection(operated, peer)
        connection.send("GET", "/ready", *headers, host="127.0.0.1:8001")
        assert Answer(connection.transport.value()).status == 200
