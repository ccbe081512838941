"""OpenTelemetry spans that a collector receives."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon import KEY, SCHEMA, SLOW, Daemon, wait_for
from support.recorder import HOOK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.installation import Installation
    from support.postgres import Server

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(ThreadingHTTPServer):
    """An OTLP collector of spans over HTTP.

    :ivar spans: the received spans.
    """

    daemon_threads = True

    def __init__(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: PLC0415 - an extra
            ExportTraceServiceRequest,
        )

        self.spans: list[Any] = []
        spans = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                body = self.rfile.read(int(self.headers["content-length"]))
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in resource.scope_spans:
                        spans.extend(scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield listening
        listening.shutdown()
        thread.join()


def test_request_span_belongs_to_the_trace_of_the_caller(
    server: Server, tmp_path: Path, collector: Collector
) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}"}
    database = server.create_database(SCHEMA)
    with Daemon(tmp_path, database.uri, "--workers", "2", environ=environ) as daemon:
        daemon.wait_ready()
        headers = {"apikey": KEY, "traceparent": f"00-{TRACE}-{SPAN}-01"}
        assert daemon.request("GET", "/rest/v1/note", None, headers).status == 200
        daemon.stop()
    wait_for(lambda: len(collector.spans) >= 3, "the spans")
    by_name = {span.name: span for span in collector.spans}
    request = by_name["GET /rest/v1/{resource}"]
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE, SPAN)
    for name in ("plan", "statement"):
        part = by_name[name]
        assert (part.trace_id.hex(), part.parent_span_id) == (TRACE, request.span_id)
        assert request.start_time_unix_nano <= part.start_time_unix_nano
        assert part.start_time_unix_nano <= part.end_time_unix_nano <= request.end_time_unix_nano
    sql = {one.key: one.value.string_value for one in by_name["statement"].attributes}["db.query.text"]
    assert '"note"' in sql


def test_waiting_graphql_requests_have_a_queue_span(
    server: Server, tmp_path: Path, collector: Collector
) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}"}
    database = server.create_database(SCHEMA)
    with Daemon(tmp_path, database.uri, project={"db-pool": "1"}, environ=environ) as daemon:
        daemon.wait_ready()
        with ThreadPoolExecutor(3) as threads:
            responses = list(threads.map(daemon.graphql, [SLOW] * 3))
        assert [response.status for response in responses] == [200] * 3
        daemon.stop()
    requests = {span.span_id for span in collector.spans if span.name == "POST /graphql/v1"}
    assert len(requests) == 3
    for name in ("plan", "statement"):
        assert {span.parent_span_id for span in collector.spans if span.name == name} == requests
    waited = [span for span in collector.spans if span.name == "queue"]
    assert {span.parent_span_id for span in waited} <= requests
    assert any(span.end_time_unix_nano - span.start_time_unix_nano > 500_000_000 for span in waited)


def test_delivery_attempt_passes_its_span_to_the_receiver(
    installation: Installation, collector: Collector
) -> None:
    installation.endpoint()
    url = f"http://127.0.0.1:{collector.server_port}"
    daemon = installation.daemon(environ={"OTEL_EXPORTER_OTLP_ENDPOINT": url})
    installation.publish(1)
    installation.wait_settled()
    daemon.stop()
    [attempt] = [span for span in collector.spans if span.name.startswith("deliver ")]
    [delivery] = installation.recorder.at(HOOK)
    _, trace, parent, _ = delivery.headers["traceparent"].split("-")
    assert (trace, parent) == (attempt.trace_id.hex(), attempt.span_id.hex())
    known = {one.key: one.value for one in attempt.attributes}
    assert known["dataapi.attempt"].int_value == 1
    assert known["dataapi.outcome"].string_value == "success"


def test_unresponsive_collector_does_not_delay_shutdown(server: Server, tmp_path: Path) -> None:
    """The exporter would otherwise wait for an hour, and the SDK for 30 seconds."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "3600",
        }
        database = server.create_database(SCHEMA)
        with Daemon(tmp_path, database.uri, environ=environ) as daemon:
            daemon.wait_ready()
            assert daemon.request("GET", "/rest/v1/note", None, {"apikey": KEY}).status == 200
            assert daemon.stop() == 0
            assert "did not accept the last spans" in daemon.text


def test_opentelemetry_is_not_imported_without_a_collector() -> None:
    """Importing the SDK costs time and memory."""
    program = (
        "import sys, dataapi.service.assembly, dataapi.service.webhooks, dataapi.web.app\n"
        "from dataapi.telemetry.tracing import tracing_of\n"
        "assert tracing_of({}) is None\n"
        "sys.exit(any(name.partition('.')[0] == 'opentelemetry' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
