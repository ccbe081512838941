"""The admin listener over HTTP in memory, with a fake daemon."""

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
DOWN = DaemonState(
    (ProjectState("p", database_available=False, generation=None, reason="connection refused"),)
)


class DaemonControl:
    """A fake daemon."""

    def __init__(self, state: DaemonState = READY, reloaded: Reloaded | None = None) -> None:
        self._state = state
        self._reloaded = reloaded or Reloaded({"p": 4}, {})
        self.reload_began: Deferred[None] | None = None

    async def state(self) -> DaemonState:
        return self._state

    async def catalogs(self) -> dict[str, Any]:
        return {}

    async def snapshot(self) -> Snapshot:
        """Return one metric, or fail."""
        if self._state is DOWN:
            raise LookupError("inside")
        return {"dataapi_workers": {(): 2.0}}

    async def reload(self, _settings: Settings | None = None) -> Reloaded:
        if self.reload_began is not None:
            await self.reload_began
        return self._reloaded


class Response:
    """A response, parsed from bytes."""

    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        first, *rest = head.decode().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = dict(line.split(": ", 1) for line in rest)

    @property
    def json(self) -> Any:
        """The parsed body."""
        return json.loads(self.body)


class Connection:
    """An in-memory connection to the admin listener."""

    def __init__(self, daemon: DaemonControl, peer: str = "10.0.0.7", **settings: Any) -> None:
        self.transport = StringTransport(peerAddress=IPv4Address("TCP", peer, 40000))
        site = make_admin_site(daemon, Clock(), daemon.reload, lambda: Settings((), **settings))
        site.doStart()
        self.protocol = site.buildProtocol(None)
        assert self.protocol is not None
        self.protocol.makeConnection(self.transport)

    def send(self, method: str, path: str, *headers: str, host: str = "x") -> None:
        assert self.protocol is not None
        lines = (f"{method} {path} HTTP/1.1", f"Host: {host}", "Content-Length: 0", *headers, "", "")
        self.protocol.dataReceived("\r\n".join(lines).encode())


def send(daemon: DaemonControl, method: str, path: str, **settings: Any) -> Response:
    """Return the response to a request."""
    connection = Connection(daemon, **settings)
    connection.send(method, path)
    return Response(connection.transport.value())


def test_live_returns_200_without_a_database() -> None:
    assert send(DaemonControl(DOWN), "GET", "/live").status == 200


def test_ready_reports_problems_and_reasons() -> None:
    response = send(DaemonControl(), "GET", "/ready")
    assert response.status == 200
    assert response.json["projects"][0]["problems"] == ["table x: bad name"]
    response = send(DaemonControl(DOWN), "GET", "/ready")
    assert response.status == 503
    assert response.headers["Retry-After"] == "1"
    assert response.json["projects"][0]["reason"] == "connection refused"


def test_ready_returns_200_while_any_project_is_ready() -> None:
    both = DaemonControl(DaemonState((*READY.projects, replace(DOWN.projects[0], ref="q"))))
    response = send(both, "GET", "/ready")
    assert (response.status, response.json["ready"], response.json["writes"]) == (200, True, True)
    assert response.json["unready_projects"] == ["q"]
    response = send(both, "GET", "/ready", ready_requires="all")
    assert (response.status, response.json["ready"]) == (503, False)
    assert send(both, "GET", "/ready?project=p", ready_requires="all").status == 200
    single = send(both, "GET", "/ready?project=q")
    assert (single.status, [project["ref"] for project in single.json["projects"]]) == (503, ["q"])
    assert send(both, "GET", "/ready?project=p&project=q").status == 503
    unknown = send(both, "GET", "/ready?project=r")
    assert (unknown.status, unknown.json["projects"]) == (404, ["p", "q"])


def test_metrics_include_process_metrics_in_text_format() -> None:
    response = send(DaemonControl(), "GET", "/metrics?name=x")
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b"\ndataapi_workers 2.0\n" in response.body
    assert b"process_resident_memory_bytes" in response.body


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "OPTIONS"])
@pytest.mark.parametrize("path", ["/live", "/reload", "/nothing", "/", "/live/", "/%ff", "//live"])
@pytest.mark.parametrize("host", ["evil.example", "[evil", "localhost"])
def test_no_request_causes_an_internal_error(
    failures: list[LogEvent], method: str, path: str, host: str
) -> None:
    connection = Connection(DaemonControl(), "127.0.0.1")
    connection.send(method, path, host=host)
    status = Response(connection.transport.value()).status
    assert status == 403 if host != "localhost" else status in (200, 404, 405)
    assert failures == []


def test_head_has_no_body() -> None:
    response = send(DaemonControl(), "HEAD", "/ready")
    assert (response.status, response.body) == (200, b"")
    assert int(response.headers["Content-Length"]) > 0


def test_reload_responds_when_it_is_complete() -> None:
    daemon = DaemonControl()
    daemon.reload_began = Deferred()
    connection = Connection(daemon)
    connection.send("POST", "/reload")
    assert connection.transport.value() == b""
    daemon.reload_began.callback(None)
    response = Response(connection.transport.value())
    assert (response.status, response.json["generations"]) == (200, {"p": 4})


def test_failed_reload_returns_503_with_the_reason() -> None:
    response = send(DaemonControl(reloaded=Reloaded({}, {"p": "away"})), "POST", "/reload")
    assert (response.status, response.json["failures"]) == (503, {"p": "away"})


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("POST", "/ready", "GET, HEAD"), ("GET", "/reload", "POST"), ("DELETE", "/metrics", "GET, HEAD")],
)
def test_wrong_method_returns_405_with_allow(method: str, path: str, allowed: str) -> None:
    response = send(DaemonControl(), method, path)
    assert (response.status, response.headers["Allow"]) == (405, allowed)


def test_unknown_path_returns_404_with_known_paths() -> None:
    response = send(DaemonControl(), "GET", "/health")
    assert response.status == 404
    assert "/ready" in response.json["paths"]


def test_internal_error_reveals_no_details() -> None:
    response = send(DaemonControl(DOWN), "GET", "/metrics")
    assert response.status == 500
    assert b"inside" not in response.body


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
def test_loopback_requests_with_foreign_host_names_are_rejected(
    peer: str, host: str, status: int, method: str, path: str
) -> None:
    connection = Connection(DaemonControl(), peer)
    connection.send(method, path, host=host)
    response = Response(connection.transport.value())
    assert response.status == status
    if status == 403:
        assert host in response.json["message"]


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
def test_cross_site_reload_is_rejected(headers: tuple[str, ...], status: int) -> None:
    for peer in ("127.0.0.1", "10.0.0.7"):
        daemon = DaemonControl()
        connection = Connection(daemon, peer)
        connection.send("POST", "/reload", *headers, host="127.0.0.1:8001")
        assert Response(connection.transport.value()).status == status
        connection = Connection(daemon, peer)
        connection.send("GET", "/ready", *headers, host="127.0.0.1:8001")
        assert Response(connection.transport.value()).status == 200
