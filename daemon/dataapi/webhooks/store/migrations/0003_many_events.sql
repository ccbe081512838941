-- Many events are published by one statement, and each by less work.

-- As before, with random bits of PostgreSQL's own generator: its last 64 bits begin with the variant.
create or replace function webhooks.uuid_v7() returns uuid
language plpgsql volatile
as $$
declare
    microseconds bigint := extract(epoch from pg_catalog.clock_timestamp()) * 1000000;
begin
    return (pg_catalog.lpad(pg_catalog.to_hex(microseconds / 1000), 12, '0')
            || pg_catalog.to_hex(28672 + microseconds % 1000 * 4096 / 1000)
            || pg_catalog.substr(pg_catalog.gen_random_uuid()::text, 20))::uuid;
end
$$;

-- Plans outlive the statistics of tables that grow fast: endpoints are always looked up by index.
alter function webhooks.raise_event set enable_seqscan = off;
alter function webhooks.raise_event set plan_cache_mode = force_generic_plan;

-- Raises events of one organization in their order, all or none; returns the identifiers that they are known by.
-- An event is {"type", "project_ref", "payload", "key", "timestamp"}.  The detail of an error is the index of the
-- event that is refused.
create function webhooks.publish_events(slug text, events jsonb) returns uuid[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    event record;
    published uuid[];
begin
    for event in
        select e.* from rows from (jsonb_to_recordset(events)
            as (type text, project_ref text, payload jsonb, key text, "timestamp" timestamptz)) with ordinality
            as e (type, project_ref, payload, key, happened_at, number)
    loop
        published[event.number] := webhooks.publish_at(
            event.type, slug, event.project_ref, event.payload, event.key, event.happened_at);
    end loop;
    return published;
exception when invalid_parameter_value or sqlstate 'WH002' or sqlstate 'WH003' or sqlstate 'WH005' then
    raise exception '%', sqlerrm using errcode = sqlstate, detail = event.number - 1;
end
$$;
revoke all on function webhooks.publish_events from public;
