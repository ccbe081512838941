-- An event belongs to the trace of the request that publishes it, which its deliveries continue.

alter table webhooks.event add column traceparent text;

-- The request's headers are JSON, in which a quotation mark within a value is escaped: this is a header's name.
alter table webhooks.event alter column traceparent set default substring(
    pg_catalog.current_setting('request.headers', true) from '"traceparent":\s*"([0-9a-f-]{55})"');
comment on column webhooks.event.traceparent is
    'As the header of the request says it (W3C Trace Context), in whose transaction the event was published.';
