"""Spans of requests and delivery attempts, exported by OpenTelemetry's SDK.

The extra ``otel`` installs the SDK. It is imported only if the environment configures a collector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Thread
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger

from dataapi.http.messages import QueueWait, RoundTrip, StageEnd

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

    from dataapi.telemetry.requests import CompletedRequest, Summary

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""OpenTelemetry's environment variables that configure a collector."""

STOP_TIMEOUT = 5.0
"""Seconds to wait for the collector when the process stops."""

_log = Logger(namespace="dataapi.tracing")


class Tracing:
    """Creates spans.

    :param provider: the SDK's provider. It exports finished spans.
    """

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import trace  # noqa: PLC0415 - an extra
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )

        self._provider = provider
        self._tracer = provider.get_tracer("dataapi")
        self._propagator = TraceContextTextMapPropagator()
        self._trace = trace
        self._failed = False

    def request(self, completed: CompletedRequest, summary: Summary) -> None:
        try:
            self._request(completed, summary)
        except Exception:
            self._log_failure()

    def _request(self, completed: CompletedRequest, summary: Summary) -> None:
        request, (route, traceparent, *_) = completed.request, completed.request.context
        now = time_ns()
        offset = now - round(perf_counter() * 1e9)
        attributes: dict[str, str | int] = {
            "http.request.method": request.method,
            "url.path": request.path,
            "http.response.status_code": completed.status,
            "dataapi.request_id": request.id,
        }
        known = {
            "http.route": route,
            "error.type": completed.code,
            "dataapi.role": summary.role,
            # OpenTelemetry's attributes for a GraphQL operation and an agent's tool.
            "gen_ai.tool.name" if completed.area == "mcp" else "graphql.operation.name": summary.operation,
        }
        attributes.update((name, value) for name, value in known.items() if value)
        span = self._tracer.start_span(
            f"{request.method} {route}".strip(),
            self._parent(traceparent),
            self._trace.SpanKind.SERVER,
            attributes,
            start_time=now - round(completed.seconds * 1e9),
        )
        if completed.status >= 500:
            span.set_status(self._trace.StatusCode.ERROR)
        context = self._trace.set_span_in_context(span)
        for name, began, ended, text in _parts(completed):
            part = self._tracer.start_span(
                name,
                context,
                attributes={"db.system.name": "postgresql", "db.query.text": text} if text else None,
                start_time=offset + round(began * 1e9),
            )
            part.end(offset + round(ended * 1e9))
        span.end(now)

    def attempt(self, traceparent: str, event_type: str) -> tuple[Span | None, str]:
        try:
            span = self._tracer.start_span(
                f"deliver {event_type}", self._parent(traceparent), self._trace.SpanKind.PRODUCER
            )
            headers: dict[str, str] = {}
            self._propagator.inject(headers, self._trace.set_span_in_context(span))
        except Exception:
            self._log_failure()
            return None, traceparent
        return span, headers.get("traceparent", traceparent)

    def end(self, span: Span | None, attributes: Mapping[str, str | int | None]) -> None:
        if span is None:
            return
        try:
            span.set_attributes({name: value for name, value in attributes.items() if value is not None})
            span.end()
        except Exception:
            self._log_failure()

    async def stop(self, reactor: Any) -> None:
        """Export the remaining spans, for at most ``STOP_TIMEOUT`` seconds.

        The export runs in its own thread, because a stopping reactor waits for all threads of its pool.
        """
        stopped: Deferred[None] = Deferred()

        def shut_down() -> None:
            try:
                self._provider.shutdown()
            finally:
                reactor.callFromThread(stopped.callback, None)

        Thread(target=shut_down, name="tracing", daemon=True).start()
        stopped.addTimeout(STOP_TIMEOUT, reactor)
        try:
            await stopped
        except DeferredTimeout:
            _log.warn("the collector did not accept the last spans within {seconds} s", seconds=STOP_TIMEOUT)

    def _log_failure(self) -> None:
        # Log only the first failure, because every request would log the same failure.
        if not self._failed:
            self._failed = True
            _log.failure("cannot create a span; further failures are not logged")

    def _parent(self, traceparent: str) -> Context:
        return self._propagator.extract({"traceparent": traceparent})


def _parts(completed: CompletedRequest) -> Iterator[tuple[str, float, float, str]]:
    stage_began = completed.began
    for fact in completed.facts:
        match fact:
            case StageEnd(name, ended):
                if name == "plan":
                    yield name, stage_began, ended, ""
                stage_began = ended
            case QueueWait(began, ended):
                yield "queue", began, ended, ""
            case RoundTrip(began, ended, text):
                yield "statement", began, ended, text


def tracing_of(environ: Mapping[str, str]) -> Tracing | None:
    if not any(environ.get(name) for name in ENDPOINTS):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        _log.warn("tracing is disabled: install dataapi-daemon[otel] ({error})", error=error)
        return None
    name = environ.get("OTEL_SERVICE_NAME", "dataapi")
    provider = TracerProvider(resource=Resource.create({"service.name": name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)
