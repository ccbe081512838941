-- Lists by status and by type, and both together, read no row in vain, and statistics read an index alone.  A partition
-- that has such an index already, built before without keeping writers waiting, keeps it.

create index delivery_by_endpoint on webhooks.delivery (endpoint_id, id) include (status, duration_ms);
create index delivery_by_type on webhooks.delivery (endpoint_id, event_type, id) include (status);
create index delivery_by_status on webhooks.delivery (endpoint_id, status, id) where status <> 'success';
create index delivery_by_type_and_status on webhooks.delivery (endpoint_id, event_type, status, id)
    where status <> 'success';
drop index webhooks.delivery_endpoint, webhooks.delivery_type, webhooks.delivery_unsuccessful;

alter table webhooks.due add column event_type text;
comment on column webhooks.due.event_type is 'That of the event, for lists by type.';
drop index webhooks.due_listed;
-- Each event is looked up: there are more of them than of what is due.
update webhooks.due d set event_type = (select v.type from webhooks.event v where v.id = d.event_id);
create index due_listed on webhooks.due (endpoint_id, delivery_id) include (event_type);

-- As before, with the type in what is due.
create or replace function webhooks.raise_event(
    given_type text, slug text, ref text, given_payload jsonb, given_key text, given_time timestamptz
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    happened constant timestamptz := date_trunc('milliseconds', coalesce(given_time, clock_timestamp()));
    ingress uuid := webhooks.uuid_v7();
    whole jsonb;
    raised uuid;
    allowed boolean;
    owner text;
    copies bigint;
begin
    if given_type is null or given_type !~ '^v[0-9]+([.][a-z0-9_]+){2,}$' or length(given_type) > 128 then
        raise exception 'an event type has the form v<N>.<area>.<name>' using errcode = '22023';
    end if;
    if jsonb_typeof(given_payload) not in ('object', 'null') then
        raise exception 'the payload of an event is a JSON object' using errcode = '22023';
    end if;
    -- A daemon holds hundreds of them at once.
    if octet_length(given_payload::text) > 262144 then
        raise exception 'the payload of an event has at most 256 KiB' using errcode = '22023';
    end if;
    if coalesce(given_key, '') = '' or length(given_key) > 255 then
        raise exception 'an event needs an idempotency key of 1 to 255 characters' using errcode = '22023';
    end if;
    select o.early_access into allowed from webhooks.organization o where o.slug = raise_event.slug;
    if not found then
        raise exception 'there is no organization %', slug using errcode = 'WH001';
    end if;
    if ref is not null then
        select p.organization_slug into owner from webhooks.project p where p.ref = raise_event.ref;
        if not found then
            raise exception 'there is no project %', ref using errcode = 'WH002';
        elsif owner <> slug then
            raise exception 'project % does not belong to organization %', ref, slug using errcode = 'WH003';
        end if;
    end if;
    if not allowed then
        raise exception 'organization % is not on the early access allowlist', slug using errcode = 'WH004';
    end if;

    -- Who comes second waits here for the first one's transaction to end, and then finds its identifier.
    insert into webhooks.idempotency as known (organization_slug, key, ingress_id)
    values (slug, given_key, ingress)
    on conflict (organization_slug, key) do update
        set ingress_id = excluded.ingress_id, created_at = excluded.created_at
        where known.created_at <= now() - interval '24 hours'
    returning known.ingress_id into raised;
    if not found then
        select known.ingress_id into strict raised
        from webhooks.idempotency known where known.organization_slug = slug and known.key = given_key;
        return raised;
    end if;

    whole := jsonb_build_object('actor', null)
        || case when jsonb_typeof(given_payload) = 'object' then given_payload else '{}' end
        || jsonb_build_object('organization_slug', slug, 'project_ref', ref);
    with version (type, rendered_from) as (
        select given_type, null
        union all
        select v.renders, given_type from webhooks.event_type_version v where v.type = given_type
    ), copy as materialized (
        select webhooks.uuid_v7() as id, e.id as endpoint_id, e.epoch, version.type, version.rendered_from
        from webhooks.endpoint e
        join version on e.event_types && array[version.type, '*']
        -- A project's endpoints are its own, even if it goes to another organization just now.
        where e.enabled and (e.organization_slug = slug and e.project_ref is null or e.project_ref = ref)
    ), event as (
        insert into webhooks.event (id, endpoint_id, type, rendered_from, happened_at, body, payload)
        select copy.id, copy.endpoint_id, copy.type, copy.rendered_from, happened,
               case when copy.rendered_from is null
                   then webhooks.envelope(copy.id, copy.type, happened, whole) end,
               case when copy.rendered_from is not null then whole end
        from copy
    )
    insert into webhooks.due (delivery_id, event_id, endpoint_id, epoch, event_type, trigger, due_at, claimable_at)
    select webhooks.uuid_v7(), copy.id, copy.endpoint_id, copy.epoch, copy.type, 'automatic', clock_timestamp(),
           clock_timestamp()
    from copy;
    get diagnostics copies = row_count;
    if copies > 0 then
        perform pg_notify('webhooks', '');
    end if;
    return ingress;
end
$$;

-- Endpoints that have many rows are deleted at once, and their rows little by little.

create table webhooks.removal (endpoint_id uuid primary key);
comment on table webhooks.removal is 'Endpoints that were deleted, of which upkeep has rows to remove.';

-- Deletes so many due rows and so many deliveries of an endpoint that is deleted, with their events, and remembers
-- whether any are left.  Each statement sees what was committed before it: an outcome that is written while due rows
-- are waited for is deleted with the history, and one that comes later finds no due row and does nothing.
create function webhooks.remove_rows(endpoint uuid, most integer) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    latest constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    removed integer;
    more integer;
begin
    with gone as (
        delete from webhooks.due
        where endpoint_id = endpoint and delivery_id < coalesce((
            select delivery_id from webhooks.due where endpoint_id = endpoint order by delivery_id offset most limit 1
        ), latest)
        returning event_id
    ), events as (
        delete from webhooks.event where id in (select event_id from gone)
    )
    select count(*) into removed from gone;
    with gone as (
        delete from webhooks.delivery
        where endpoint_id = endpoint and id < coalesce((
            select id from webhooks.delivery where endpoint_id = endpoint order by id offset most limit 1
        ), latest)
        returning event_id
    ), events as (
        delete from webhooks.event where id in (select event_id from gone)
    )
    select count(*) into more from gone;
    if exists (select from webhooks.due where endpoint_id = endpoint)
        or exists (select from webhooks.delivery where endpoint_id = endpoint)
    then
        insert into webhooks.removal values (endpoint) on conflict do nothing;
    else
        delete from webhooks.removal where endpoint_id = endpoint;
    end if;
    return removed + more;
end
$$;
revoke all on function webhooks.remove_rows from public;
