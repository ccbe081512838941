"""Requests to the web layer, with fake handlers and without sockets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jwt
import pytest
from dataapi.auth.caller import Caller
from dataapi.graphql.transport import GraphQLRequest, GraphQLResponse, Stage
from dataapi.http.errors import ApiError, DatabaseUnavailable
from dataapi.http.messages import Reply, Request
from dataapi.telemetry.log_record import LogRecord
from dataapi.telemetry.logs import request_id
from dataapi.telemetry.requests import RequestMetrics, request_observer
from dataapi.web.app import make_site
from support.memory_http import KEY, NOW, PROJECT, SECRET, Connection, Web, raw
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import LogEvent

QUERY = {"query": "{ __typename }"}
NEEDED_BY_CLIENTS = {
    *("apikey", "authorization", "prefer", "accept-profile", "content-profile", "x-client-info"),
    *("content-type", "range", "accept", "x-retry-count", "traceparent", "tracestate", "baggage"),
}
BROWSER = (("Origin", "https://app.example.org"),)


def bearer(claims: dict[str, Any]) -> tuple[str, str]:
    return ("Authorization", f"Bearer {jwt.encode(claims, SECRET, 'HS256')}")


def test_query_returns_a_response() -> None:
    web = Web()
    response = web.graphql(QUERY)
    assert (response.status, response.reason) == (200, "OK")
    assert response.json() == {"data": {"__typename": "Query"}}
    assert response.headers == {
        "server": "dataapi",
        "date": "Fri, 15 Jan 2027 08:00:00 GMT",
        "x-request-id": "generated",
        "content-type": "application/json; charset=utf-8",
        "content-length": "31",
    }


def test_engine_receives_request_caller_and_http_request() -> None:
    web = Web()
    web.graphql(QUERY, bearer({"role": "authenticated", "sub": "1"}), ("X-Request-Id", "mine-7"))
    ((request, caller, http),) = web.engine.received
    assert request == GraphQLRequest("{ __typename }")
    assert caller.role == "authenticated"
    assert (http.id, http.method, http.path) == ("mine-7", "POST", "/graphql/v1")
    assert http.headers["host"] == "api.example.org"


def test_vary_separates_callers_in_caches() -> None:
    """HTTP caches treat requests with different apikey headers as equal unless Vary lists the header."""
    response = Web().request("GET", "/graphql/v1?query={__typename}")
    assert {"Accept", "Authorization", "apikey"} <= set(response.headers["vary"].split(", "))


def test_get_runs_a_query_from_the_query_string() -> None:
    web = Web()
    assert web.request("GET", "/graphql/v1?query=%7Ba%7D&variables=%7B%22x%22:1%7D").status == 200
    assert web.engine.received[0][0] == GraphQLRequest("{a}", None, {"x": 1}, None, read_only=True)


def test_head_returns_the_headers_of_get_without_a_body() -> None:
    web = Web()
    connection = Connection(web)
    connection.send(raw("HEAD", "/graphql/v1?query=%7Ba%7D"))
    head, _, rest = connection.transport.value().partition(b"\r\n\r\n")
    assert b"200 OK" in head
    assert b"Content-Length: 31" in head
    assert rest == b""


@pytest.mark.parametrize(
    "path", ["/rest/v1", "/rest/v1/", "/rest/v1/blog", "/rest/v1/rpc/f", "/rest/v1/%C3%A9"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"])
def test_rest_paths_and_methods_reach_the_handler(method: str, path: str) -> None:
    web = Web()
    assert web.request(method, f"{path}?a=eq.1").status == 200
    ((request, caller),) = web.rest.received
    assert (request.method, request.query, caller.role) == (method, "a=eq.1", "anon")
    assert request.path == path.replace("%C3%A9", "é")


def test_api_key_in_the_url_is_hidden_from_handler_and_log() -> None:
    web = Web()
    assert web.request("GET", f"/rest/v1/blog?select=id&apikey={KEY}", key=None).status == 200
    assert web.rest.received[0][0].query == "select=id"
    lines: list[LogRecord] = []
    observe = request_observer(RequestMetrics(), "debug", lines.append)
    for record in web.served:
        observe(record)
    assert lines
    assert KEY not in repr(lines)


@pytest.mark.parametrize("target", ["/graphql/v1", "/rest/v1/blog"])
@pytest.mark.parametrize(
    ("key", "message"), [(None, "No API key found in request"), ("wrong", "Invalid API key")]
)
def test_missing_or_wrong_key_returns_401_with_message_and_hint(
    target: str, key: str | None, message: str
) -> None:
    web = Web()
    headers = (bearer({"role": "authenticated"}), ("Content-Type", "application/json"), *BROWSER)
    response = web.request("POST", target, json.dumps(QUERY).encode(), headers, key=key)
    assert response.status == 401
    assert response.json().keys() == {"message", "hint"}
    assert response.json()["message"] == message
    assert response.headers["access-control-allow-origin"] == "*"
    assert web.engine.received == []
    assert web.rest.received == []


def test_expired_token_returns_401_in_the_format_of_each_api() -> None:
    web = Web()
    expired = bearer({"exp": NOW - 60})
    rest = web.request("GET", "/rest/v1/blog", headers=(expired,))
    graphql = web.graphql(QUERY, expired)
    for response in (rest, graphql):
        assert response.status == 401
        assert response.headers["www-authenticate"].startswith('Bearer error="invalid_token"')
    assert rest.json() == {"code": "PGRST303", "details": None, "hint": None, "message": "JWT expired"}
    assert graphql.json() == {"errors": [{"message": "JWT expired", "extensions": {"code": "PGRST303"}}]}


def test_malformed_body_is_a_graphql_error() -> None:
    response = Web().graphql(None, body=b'{"query": }')
    assert response.status == 400
    (error,) = response.json()["errors"]
    assert error["message"] == "The request body is not valid JSON: Expecting value at line 1 column 11"


@pytest.mark.parametrize("accept", ["application/json", "application/graphql-response+json"])
def test_unavailable_database_returns_503_with_retry_after(accept: str) -> None:
    async def unavailable(*_: Any) -> Any:
        raise DatabaseUnavailable(
            503, "PGRST001", "database connection error", headers=(("Retry-After", "4"),)
        )

    web = Web(unavailable, unavailable)
    graphql = web.graphql(QUERY, ("Accept", accept))
    assert graphql.headers["content-type"] == f"{accept}; charset=utf-8"
    assert graphql.json()["errors"][0]["extensions"] == {"code": "PGRST001"}
    rest = web.request("GET", "/rest/v1/blog")
    assert rest.json().keys() == {"code", "details", "hint", "message"}
    for response in (graphql, rest):
        assert (response.status, response.headers["retry-after"]) == (503, "4")


@pytest.mark.parametrize("target", ["/graphql/v1?query=%7Ba%7D", "/rest/v1/blog"])
def test_internal_error_is_logged_with_its_request_and_hidden(target: str, failures: list[LogEvent]) -> None:
    async def broken(*_: Any) -> Any:
        raise RuntimeError("the password is hunter2")

    response = Web(broken, broken).request("GET", target, headers=(("X-Request-Id", "find-me"),))
    assert response.status == 500
    assert b"hunter2" not in response.body
    assert b"find-me" in response.body
    (event,) = failures
    assert event["request"] == "find-me"
    assert "hunter2" in event["log_failure"].getErrorMessage()


def test_request_id_is_set_only_while_a_handler_runs() -> None:
    seen: list[str] = []

    async def remember(*_: Any) -> GraphQLResponse:
        seen.append(request_id.get())
        return GraphQLResponse(Stage.EXECUTION, "{}")

    Web(remember).graphql(QUERY, ("X-Request-Id", "abc"))
    assert seen == ["abc"]
    assert request_id.get() == ""


@pytest.mark.parametrize(
    ("target", "status"),
    [("/", 404), ("/graphql", 404), ("/graphql/v2", 404), ("/rest/v2/blog", 404), ("/rest/v1//blog", 404)],
)
def test_unknown_path_returns_404_as_json(target: str, status: int) -> None:
    response = Web().request("GET", target)
    assert (response.status, response.headers["content-type"]) == (status, "application/json; charset=utf-8")
    assert "Invalid path specified in request URL" in response.body.decode()


@pytest.mark.parametrize("target", ["/rest/v1/%zz", "/rest/v1/%ff", "/graphql/v1?query=%ff", "/rest/v1/a%00"])
def test_undecodable_target_returns_400_with_the_position(target: str) -> None:
    response = Web().request("GET", target)
    assert response.status == 400
    assert "character" in response.body.decode() or "byte 1" in response.body.decode()


@pytest.mark.parametrize(
    ("method", "target", "allow"),
    [
        ("DELETE", "/graphql/v1", "GET, POST, HEAD, OPTIONS"),
        ("BREW", "/rest/v1/blog", "GET, POST, PATCH, PUT, DELETE, OPTIONS, HEAD"),
        ("get", "/rest/v1/blog", "GET, POST, PATCH, PUT, DELETE, OPTIONS, HEAD"),
    ],
)
def test_unsupported_method_returns_405_with_allow(method: str, target: str, allow: str) -> None:
    response = Web().request(method, target)
    assert (response.status, response.headers["allow"]) == (405, allow)
    assert f"Unsupported HTTP method: {method}" in response.body.decode()


def test_head_has_no_content_length_without_a_body() -> None:
    """Caches would expect the Content-Length of a HEAD response for GET responses."""

    async def no_body(_request: Any, _caller: Any) -> Reply:
        return Reply(200, (("Content-Range", "0-2/*"),), b"")

    web = Web(rest=no_body)
    assert "content-length" not in web.request("HEAD", "/rest/v1/blog").headers
    assert web.request("GET", "/rest/v1/blog").headers["content-length"] == "0"


def test_options_without_a_preflight_lists_graphql_methods() -> None:
    response = Web().request("OPTIONS", "/graphql/v1", key=None)
    assert (response.status, response.headers["allow"]) == (204, "GET, POST, HEAD, OPTIONS")
    assert response.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("target", ["/rest/v1/blog", "/graphql/v1"])
def test_preflight_needs_no_key(target: str) -> None:
    headers = (
        *BROWSER,
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "apikey, X-Custom, <script>"),
    )
    response = Web().request("OPTIONS", target, headers=headers, key=None)
    assert response.status == 200
    allowed = response.headers["access-control-allow-headers"].split(", ")
    assert set(allowed) >= NEEDED_BY_CLIENTS
    assert "x-custom" in allowed
    assert "<script>" not in allowed
    assert "POST" in response.headers["access-control-allow-methods"]
    assert response.headers["access-control-max-age"] == "86400"
    assert response.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    ("method", "target", "key"),
    [
        ("GET", "/rest/v1/blog", KEY),
        ("GET", "/rest/v1/blog", None),
        ("GET", "/nowhere", KEY),
        ("GET", "/rest/v1/%ff", KEY),
        ("DELETE", "/graphql/v1", KEY),
    ],
)
def test_browsers_can_read_every_response_and_its_headers(method: str, target: str, key: str | None) -> None:
    response = Web().request(method, target, headers=BROWSER, key=key)
    assert response.headers["access-control-allow-origin"] == "*"
    exposed = response.headers["access-control-expose-headers"].split(", ")
    assert {"Content-Range", "Location", "Preference-Applied", "X-Request-Id"} <= set(exposed)


def test_response_without_origin_has_no_cors_headers() -> None:
    assert not any(name.startswith("access-control") for name in Web().graphql(QUERY).headers)


def test_body_over_the_limit_is_rejected_before_it_is_complete() -> None:
    web = Web()
    connection = Connection(web)
    head = raw("POST", "/graphql/v1", headers=(*BROWSER, ("Content-Type", "application/json")))
    connection.send(head.replace(b"\r\n\r\n", b"\r\nContent-Length: 10001\r\n\r\n"))
    response = connection.take()
    assert (response.status, response.headers["connection"]) == (413, "close")
    assert response.json()["errors"][0]["message"] == "The request body is larger than 10000 bytes"
    assert response.headers["access-control-allow-origin"] == "*"
    connection.send(b"x" * 10_000)
    assert not connection.lost, "the client can read the response"
    connection.send(b"x")
    assert connection.lost
    assert [served.status for served in web.served] == [413]


def test_chunked_body_over_the_limit_is_rejected() -> None:
    web = Web()
    connection = Connection(web)
    head = raw("POST", "/rest/v1/blog")
    connection.send(head.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"))
    for _ in range(3):
        connection.send(b"fa0\r\n" + b"x" * 4000 + b"\r\n")
    response = connection.take()
    assert response.status == 413
    assert response.json()["message"] == "The request body is larger than 10000 bytes"
    assert web.rest.received == []
    for _ in range(5000):
        if connection.lost:
            break
        connection.send(b"fa0\r\n" + b"x" * 4000 + b"\r\n")
    assert connection.lost, "a client that does not stop is disconnected"


def test_rejected_body_gets_no_100_continue() -> None:
    connection = Connection(Web())
    head = raw("POST", "/graphql/v1", headers=(("Expect", "100-continue"), ("Content-Length", "99999")))
    connection.send(head)
    assert connection.transport.value().startswith(b"HTTP/1.1 413")
    assert b"100 Continue" not in connection.transport.value()


def test_body_of_exactly_the_limit_is_accepted() -> None:
    body = json.dumps({"query": "{a}", "x": ""}).encode()
    body = body.replace(b'""', b'"' + b"x" * (10_000 - len(body)) + b'"')
    assert len(body) == 10_000
    assert Web().graphql(None, body=body).status == 200


def test_body_in_pieces_is_reassembled() -> None:
    web = Web()
    connection = Connection(web)
    data = raw("POST", "/graphql/v1", json.dumps(QUERY).encode(), (("Content-Type", "application/json"),))
    for byte in data:
        connection.send(bytes([byte]))
    assert connection.take().status == 200


@pytest.mark.parametrize(
    ("data", "status", "message"),
    [
        (b"nonsense\r\n\r\n", 400, "The request is not valid HTTP"),
        (b"GET /rest/v1/blog HTTP/1.1\r\nno colon\r\n\r\n", 400, "The request is not valid HTTP"),
        (b"GET /" + b"x" * 140_000, 414, "The request target is longer than 131072 bytes"),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 40_000, 431, "A header of the request is longer than 32768 bytes"),
        (
            b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
            400,
            "The request is not valid HTTP",
        ),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 300, 431, "The request has more than 200 headers"),
        (
            b"GET / HTTP/1.1\r\n" + (b"A: " + b"x" * 30_000 + b"\r\n") * 3,
            431,
            "The request's headers are longer than 65536 bytes",
        ),
    ],
)
def test_invalid_request_is_rejected_and_the_connection_closed(
    data: bytes, status: int, message: str
) -> None:
    web = Web()
    connection = Connection(web)
    connection.send(data)
    response = connection.take()
    assert (response.status, response.json()["message"]) == (status, message)
    assert connection.lost
    assert [served.status for served in web.served] == [status]


def test_url_longer_than_128_kilobytes_returns_414() -> None:
    target = "/rest/v1/blog?id=in.(" + "1234," * 26_210
    target += "1" * (131_071 - len(target)) + ")"
    assert Web().request("GET", target).status == 200
    assert Web().request("GET", f"{target}&").status == 414


def test_connection_serves_pipelined_requests() -> None:
    connection = Connection(Web())
    request = raw("GET", "/rest/v1/blog")
    connection.send(request * 3)
    assert [connection.take().status for _ in range(3)] == [200, 200, 200]
    assert not connection.lost


@pytest.mark.parametrize("change", [("HTTP/1.1", "HTTP/1.0"), ("\r\n\r\n", "\r\nConnection: close\r\n\r\n")])
def test_connection_is_closed_on_request(change: tuple[str, str]) -> None:
    connection = Connection(Web())
    connection.send(raw("GET", "/rest/v1/blog").replace(change[0].encode(), change[1].encode()))
    assert connection.take().headers["connection"] == "close"
    assert connection.lost


def test_body_that_arrives_too_slowly_ends_the_connection() -> None:
    """Otherwise, a client could keep a connection open forever by sending a byte per minute."""
    web = Web()
    connection = Connection(web)
    connection.send(raw("POST", "/rest/v1/blog", headers=[("Content-Length", "9000")]))
    for _ in range(7):
        assert not connection.lost
        connection.send(b"G")
        web.clock.advance(9)
        connection.notice()
    assert connection.lost


@pytest.mark.parametrize("before", [b"", raw("GET", "/rest/v1/blog")])
@pytest.mark.parametrize("begun", [b"", b"\r\n", b"G", b"GET / HTTP/1.1\r\nHost: api.example.org\r\n"])
def test_incomplete_head_ends_the_connection_after_header_timeout(before: bytes, begun: bytes) -> None:
    web = Web()
    web.site.header_timeout = 7.0
    connection = Connection(web)
    connection.send(before)
    if before and not begun:
        return  # idle connections have another timeout
    web.clock.advance(3 if before else 0)
    connection.send(begun)
    for _ in range(6):
        web.clock.advance(1)
        connection.send(b"G" if begun.startswith(b"G") else b"")
        connection.notice()
    assert not connection.lost
    web.clock.advance(1)
    connection.notice()
    assert connection.lost


def test_idle_connection_outlives_the_timeout_of_load_balancers() -> None:
    web = Web()
    connection = Connection(web)
    connection.send(raw("GET", "/rest/v1/blog"))
    connection.take()
    for _ in range(7):
        web.clock.advance(10)
        connection.notice()
    assert not connection.lost
    web.clock.advance(5.1)
    connection.notice()
    assert connection.lost


def test_slow_request_is_served() -> None:
    web = Web()
    connection = Connection(web)
    head = raw("POST", "/rest/v1/blog").replace(b"\r\n\r\n", b"\r\nContent-Length: 9000\r\n\r\n")
    for piece, seconds in ((head[:20], 9), (head[20:], 50), (b"x" * 4500, 50), (b"x" * 4500, 0)):
        connection.send(piece)
        web.clock.advance(seconds)
    assert connection.take().status == 200


class Pending:
    """A handler that waits and counts cancellations."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.waiting: list[Deferred[Any]] = []

    async def __call__(self, *_: Any) -> Any:
        """Wait until the test continues the request."""
        waiting: Deferred[Any] = Deferred()
        self.waiting.append(waiting)
        try:
            return await waiting
        except CancelledError:
            self.cancelled += 1
            raise


ROWS = Reply(200, (), b"[]")


def test_disconnect_cancels_the_request() -> None:
    pending = Pending()
    web = Web(rest=pending)
    connection = Connection(web)
    connection.send(raw("GET", "/rest/v1/blog"))
    assert web.site.in_flight == 1
    connection.close()
    assert pending.cancelled == 1
    assert web.site.in_flight == 0
    assert [served.status for served in web.served] == [499]


def test_handler_cancelled_for_another_reason_returns_503() -> None:
    pending = Pending()
    web = Web(rest=pending)
    connection = Connection(web)
    connection.send(raw("GET", "/rest/v1/blog"))
    pending.waiting[0].cancel()
    response = connection.take()
    assert (response.status, response.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize("target", ["/rest/v1/blog", "/graphql/v1?query={__typename}"])
def test_request_timeout_returns_504_in_the_format_of_each_api(target: str) -> None:
    cancelled: list[Deferred[Any]] = []

    async def hang(*_: Any) -> Any:
        await Deferred(cancelled.append)

    web = Web(hang, hang, replace(PROJECT, request_timeout=5.0))
    connection = Connection(web)
    connection.send(raw("GET", target))
    web.clock.advance(4.9)
    assert not connection.transport.value()
    web.clock.advance(0.1)
    response = connection.take()
    assert response.status == 504
    error = response.json()["errors"][0] if "graphql" in target else response.json()
    assert error["message"] == "The request timed out after 5 seconds"
    code = error["extensions"]["code"] if "graphql" in target else error["code"]
    assert code == "REQUEST_TIMEOUT"
    assert len(cancelled) == 1
    assert web.served[0].status == 504
    assert web.site.in_flight == 0
    connection.send(raw("GET", "/console-of-none"))
    assert connection.take().status == 404


def test_requests_share_one_timer() -> None:
    web = Web()
    waiting: list[Deferred[Any]] = []

    async def later(*_: Any) -> Any:
        waiting.append(Deferred())
        return await waiting[-1]

    def timers() -> int:
        return sum("_expire" in str(call) for call in web.clock.getDelayedCalls())

    web.rest.function = later
    connections = [Connection(web) for _ in range(3)]
    for connection in connections:
        connection.send(raw("GET", "/rest/v1/blog"))
    assert timers() == 1
    waiting[0].callback(Reply(200, (), b"[]"))
    assert connections[0].take().status == 200
    connections[0].close()
    waiting[1].errback(ApiError(400, "PGRST100", "No"))
    connections[1].close()
    assert timers() == 1
    connections[2].close()
    assert timers() == 0


def test_drain_closes_idle_connections_and_waits_for_others() -> None:
    pending = Pending()
    web = Web(rest=pending)
    idle, busy = Connection(web), Connection(web)
    busy.send(raw("GET", "/rest/v1/blog"))
    web.clock.advance(1)
    drained: list[None] = []
    web.site.drain(30).addCallback(drained.append)
    idle.notice()
    assert idle.lost
    assert drained == []
    pending.waiting[0].callback(ROWS)
    response = busy.take()
    assert (response.status, response.headers["connection"]) == (200, "close")
    busy.notice()
    assert drained == [None]
    assert web.clock.getDelayedCalls() == []


def test_drain_serves_clients_that_have_just_connected() -> None:
    web = Web()
    silent, active = Connection(web), Connection(web)
    drained: list[None] = []
    web.site.drain(30).addCallback(drained.append)
    active.send(raw("GET", "/rest/v1/blog"))
    response = active.take()
    assert (response.status, response.headers["connection"]) == (200, "close")
    active.notice()
    assert not silent.lost
    web.clock.advance(1)
    silent.notice()
    assert drained == [None]
    assert web.clock.getDelayedCalls() == []


def test_drain_cancels_requests_after_its_time_limit() -> None:
    pending = Pending()
    web = Web(rest=pending)
    connection = Connection(web)
    connection.send(raw("GET", "/rest/v1/blog"))
    drained: list[None] = []
    web.site.drain(30).addCallback(drained.append)
    web.clock.advance(29)
    assert drained == []
    web.clock.advance(1)
    assert drained == [None]
    connection.notice()
    assert connection.lost
    assert pending.cancelled == 1


def test_drain_without_connections_completes_immediately() -> None:
    drained: list[None] = []
    Web().site.drain(30).addCallback(drained.append)
    assert drained == [None]


def test_every_request_is_reported_once_with_area_status_and_size() -> None:
    web = Web()
    web.graphql(QUERY)
    web.request("GET", "/rest/v1/blog?secret=1", headers=(("X-Request-Id", "r"),))
    web.request("GET", "/nowhere", key=None)
    error = [(one.area, one.request.method, one.request.path, one.status, one.size) for one in web.served[:2]]
    assert error == [
        ("graphql", "POST", "/graphql/v1", 200, 31),
        ("rest", "GET", "/rest/v1/blog", 200, 2),
    ]
    assert (web.served[2].area, web.served[2].status) == ("other", 404)
    assert web.served[1].request.id == "r"
    assert all(one.seconds >= 0 for one in web.served)


async def project_ref(_request: Request, caller: Caller) -> Reply:
    return Reply(200, (), caller.role.encode())


def test_host_selects_the_project() -> None:
    first = replace(PROJECT, hosts=("one.example.org",), db_anon_role="of_one")
    second = replace(PROJECT, hosts=("two.example.org", "::1"), db_anon_role="of_two")
    web = Web(Web().engine.function, project_ref, first, second)
    for host, role in (
        ("one.example.org", b"of_one"),
        ("ONE.example.org.:8000", b"of_one"),
        ("two.example.org:80", b"of_two"),
        ("[::1]:80", b"of_two"),
    ):
        connection = Connection(web)
        connection.send(raw("GET", "/rest/v1/blog").replace(b"api.example.org", host.encode()))
        assert connection.take().body == role
    response = web.request("GET", "/rest/v1/blog")
    assert (response.status, response.json()["message"]) == (404, "No project is served at this host name")


@pytest.mark.parametrize(
    ("method", "target"), [("PUT", "/graphql/v1"), ("TRACE", "/rest/v1/blog"), ("GET", "/rest/v1/blog")]
)
def test_every_405_has_an_allow_header(method: str, target: str) -> None:
    async def refuse(*_: Any) -> Any:
        raise ApiError(405, "PT405", "Not so")

    response = Web(rest=refuse).request(method, target)
    assert response.status == 405
    assert "OPTIONS" in response.headers["allow"].split(", ")


def test_error_from_a_handler_is_returned_completely() -> None:
    async def refuse(*_: Any) -> Any:
        raise ApiError(409, "23505", "duplicate", details={"a": 1}, hint="another")  # type: ignore[arg-type]

    response = Web(rest=refuse).request("POST", "/rest/v1/blog")
    assert (response.status, response.reason) == (409, "Conflict")
    assert response.json() == {
        "code": "23505",
        "message": "duplicate",
        "details": {"a": 1},
        "hint": "another",
    }


@pytest.mark.parametrize("target", ["/graphql/v1", "/rest/v1/blog"])
def test_compressed_body_returns_415(target: str) -> None:
    response = Web().request("POST", target, b"\x1f\x8b", (("Content-Encoding", "gzip"),))
    assert response.status == 415
    assert b"The Content-Encoding gzip is not supported" in response.body


def test_unencodable_character_in_a_header_is_replaced() -> None:
    async def odd(*_: Any) -> Any:
        return Reply(200, (("Location", "/\ud800"),), b"[]")

    assert Web(rest=odd).request("GET", "/rest/v1/blog").headers["location"] == "/?"


def test_failing_observer_does_not_fail_the_request(failures: list[LogEvent]) -> None:
    web = Web()
    web.site = make_site(web.backends, web.clock, lambda _: 1 / 0)
    connection = Connection(web)
    connection.send(raw("GET", "/rest/v1/blog") * 2)
    assert [connection.take().status for _ in range(2)] == [200, 200]
    assert len(failures) == 2


def test_invalid_response_ends_the_connection_and_is_logged(failures: list[LogEvent]) -> None:
    async def nothing(*_: Any) -> Any:
        return Reply(200, (), None)  # type: ignore[arg-type]

    web = Web(rest=nothing)
    connection = Connection(web)
    connection.send(raw("GET", "/rest/v1/blog"))
    connection.notice()
    assert connection.lost
    assert len(failures) == 1
    assert web.site.in_flight == 0


def test_rejected_connections_do_not_count_against_the_limit() -> None:
    async def never(_request: Request, _caller: Caller) -> Reply:
        return await Deferred()

    web = Web(rest=never, max_connections=2)
    sent = raw("GET", "/rest/v1/note")
    busy = [Connection(web), Connection(web)]
    for connection in busy:
        connection.send(sent)
    refused = []
    for _ in range(2):
        refused.append(Connection(web))
        refused[-1].protocol.dataReceived(sent)
        assert refused[-1].take().status == 503
    for connection in (*busy, *refused):
        connection.close()
