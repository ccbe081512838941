"""Spans of requests and of deliveries' attempts, which OpenTelemetry's SDK exports from a thread of its own.

The extra ``otel`` installs the SDK.  Nothing of it is imported unless its environment names a collector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Thread
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as Late
from twisted.logger import Logger

from dataapi.http.messages import QueueWait, RoundTrip, StageEnd

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

    from dataapi.telemetry.requests import CompletedRequest, Summary

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Variables that name a collector, as OpenTelemetry's specification has them."""

STOP_WITHIN = 5.0
"""Seconds that the end of the process waits for the collector."""

_log = Logger(namespace="dataapi.tracing")


class Tracing:
    """Makes spans.

    :param provider: the SDK's, whose processors export what ends.
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

    def request(self, answered: CompletedRequest, summary: Summary) -> None:
        """Make the spans of a request that was just answered: its own, and one for each part of its time."""
        try:
            self._request(answered, summary)
        except Exception:
            self._report()

    def _request(self, answered: CompletedRequest, summary: Summary) -> None:
        request, (route, traceparent, _) = answered.request, answered.request.context
        now = time_ns()
        offset = now - round(perf_counter() * 1e9)
        attributes: dict[str, str | int] = {
            "http.request.method": request.method,
            "url.path": request.path,
            "http.response.status_code": answered.status,
            "dataapi.request_id": request.id,
        }
        known = {
            "http.route": route,
            "error.type": answered.code,
            "dataapi.role": summary.role,
            "graphql.operation.name": summary.operation,
        }
        attributes.update((name, value) for name, value in known.items() if value)
        span = self._tracer.start_span(
            f"{request.method} {route}".strip(),
            self._parent(traceparent),
            self._trace.SpanKind.SERVER,
            attributes,
            start_time=now - round(answered.seconds * 1e9),
        )
        if answered.status >= 500:
            span.set_status(self._trace.StatusCode.ERROR)
        context = self._trace.set_span_in_context(span)
        for name, began, ended, text in _parts(answered):
            part = self._tracer.start_span(
                name,
                context,
                attributes={"db.system.name": "postgresql", "db.query.text": text} if text else None,
                start_time=offset + round(began * 1e9),
            )
            part.end(offset + round(ended * 1e9))
        span.end(now)

    def attempt(self, traceparent: str, event_type: str) -> tuple[Span | None, str]:
        """Begin the span of an attempt; return it, and the ``traceparent`` that the attempt sends."""
        try:
            span = self._tracer.start_span(
                f"deliver {event_type}", self._parent(traceparent), self._trace.SpanKind.PRODUCER
            )
            headers: dict[str, str] = {}
            self._propagator.inject(headers, self._trace.set_span_in_context(span))
        except Exception:
            self._report()
            return None, traceparent
        return span, headers.get("traceparent", traceparent)

    def end(self, span: Span | None, attributes: Mapping[str, str | int | None]) -> None:
        """End the span of an attempt, with the attributes that are known."""
        if span is None:
            return
        try:
            span.set_attributes({name: value for name, value in attributes.items() if value is not None})
            span.end()
        except Exception:
            self._report()

    async def stop(self, reactor: Any) -> None:
        """Export what is left, as far as the collector takes it in time.

        The thread is no part of the reactor's pool, whose end waits for all of its threads.
        """
        stopped: Deferred[None] = Deferred()

        def shut_down() -> None:
            try:
                self._provider.shutdown()
            finally:
                reactor.callFromThread(stopped.callback, None)

        Thread(target=shut_down, name="tracing", daemon=True).start()
        stopped.addTimeout(STOP_WITHIN, reactor)
        try:
            await stopped
        except Late:
            _log.warn("the collector did not take the last spans within {seconds} s", seconds=STOP_WITHIN)

    def _report(self) -> None:
        """Log the first failure; a line for each request would add nothing."""
        if not self._failed:
            self._failed = True
            _log.failure("a span was not made; further failures are not logged")

    def _parent(self, traceparent: str) -> Context:
        return self._propagator.extract({"traceparent": traceparent})


def _parts(answered: CompletedRequest) -> Iterator[tuple[str, float, float, str]]:
    """Give the parts of a request's time, by ``time.perf_counter``: name, begin, end and SQL."""
    reached = answered.began
    for fact in answered.facts:
        match fact:
            case StageEnd(name, ended):
                if name == "plan":
                    yield name, reached, ended, ""
                reached = ended
            case QueueWait(began, ended):
                yield "queue", began, ended, ""
            case RoundTrip(began, ended, text):
                yield "statement", began, ended, text


def tracing_of(environ: Mapping[str, str]) -> Tracing | None:
    """Return what makes spans if the environment names a collector, and the SDK is installed."""
    if not any(environ.get(name) for name in ENDPOINTS):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        _log.warn("there are no traces: install dataapi-daemon[otel] ({error})", error=error)
        return None
    name = environ.get("OTEL_SERVICE_NAME", "dataapi")
    provider = TracerProvider(resource=Resource.create({"service.name": name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)
