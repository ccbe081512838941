-- Endpoints that die, whose secret is rotated, or that take so many attempts a second; events whose payload is deleted;
-- and publishing that never fails its publisher.

alter table webhooks.endpoint
    add column previous_secret bytea,
    add column previous_secret_until timestamptz,
    add column max_per_second integer check (max_per_second between 1 and 1000),
    add column disabled_since timestamptz;
comment on column webhooks.endpoint.previous_secret is
    'The secret before the last rotation, encrypted; deliveries are signed with it too until previous_secret_until.';
comment on column webhooks.endpoint.max_per_second is 'Attempts a second, of all daemons together; null: no limit.';
comment on column webhooks.endpoint.disabled_since is
    'When the service disabled it because every attempt had failed for long; null: its owner did, or it is enabled.';

create table webhooks.failing (
    endpoint_id uuid primary key,
    since timestamptz not null,
    reported boolean not null default false
);
comment on table webhooks.failing is 'Endpoints whose automatic attempts have all failed since a time.';
comment on column webhooks.failing.reported is 'Whether a delivery failed for good since then, for which an event was raised.';

-- Since when all automatic attempts of an endpoint have failed; null: they have not.
create function webhooks.failing_since(endpoint uuid) returns timestamptz
language sql stable
as $$
    select f.since from webhooks.failing f where f.endpoint_id = endpoint
$$;

-- The rows are locked while attempts are claimed, those of webhooks.endpoint are not.
create table webhooks.pace (
    endpoint_id uuid primary key,
    next_at timestamptz not null default now()
);
comment on table webhooks.pace is 'When each endpoint with max_per_second may have its next attempt.';

alter table webhooks.event
    add column ingress_id uuid,
    add column payload_deleted boolean not null default false;
create index event_ingress on webhooks.event (ingress_id) where ingress_id is not null;
comment on column webhooks.event.ingress_id is
    'The identifier that publishing returned, which all copies share; null: a test, or a row''s change.';

-- Operational events ----------------------------------------------------------------------------------------

-- Whether a type is of the events that the service itself raises about endpoints.
create function webhooks.is_operational(type text) returns boolean
language sql immutable
as $$
    select pg_catalog.starts_with(type, 'v1.webhook.endpoint.')
$$;

drop function webhooks.raise_event(text, text, text, jsonb, text, timestamptz);

-- Raises an event as of a time of the caller's choosing; see webhooks.publish.  Of all transactions that are open at a
-- time one notifies at most: NOTIFY makes commits wait for each other.  The dispatchers find what nobody announced when
-- they look again.  Plans outlive the statistics of tables that grow fast: endpoints are always looked up by index.
create function webhooks.raise_event(
    given_type text, slug text, ref text, given_payload jsonb, given_key text, given_time timestamptz,
    left_out uuid default null
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
    perform webhooks.check_type(given_type);
    if jsonb_typeof(given_payload) not in ('object', 'null') then
        raise exception 'the payload of an event is a JSON object' using errcode = '22023';
    end if;
    if not webhooks.is_short(given_payload::text) then
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
    with copy as materialized (
        select webhooks.uuid_v7() as id, r.* from webhooks.recipients(given_type, slug, ref) r
        where r.endpoint_id is distinct from left_out
    ), event as (
        insert into webhooks.event (id, endpoint_id, type, rendered_from, happened_at, body, payload, ingress_id)
        select copy.id, copy.endpoint_id, copy.type, nullif(given_type, copy.type), happened,
               case when copy.type = given_type
                   then webhooks.envelope(copy.id, copy.type, happened, whole::text) end,
               case when copy.type <> given_type then whole end,
               ingress
        from copy
    )
    insert into webhooks.due (
        delivery_id, event_id, endpoint_id, epoch, event_type, trigger, due_at, claimable_at, project_ref
    )
    select webhooks.uuid_v7(), copy.id, copy.endpoint_id, copy.epoch, copy.type, 'automatic', clock_timestamp(),
           clock_timestamp(), case when copy.of_organization then ref end
    from copy;
    get diagnostics copies = row_count;
    if copies > 0 and pg_try_advisory_xact_lock(7236148250117003) then
        perform pg_notify('webhooks', '');
    end if;
    return ingress;
end
$$;

-- Raises an event about an endpoint for the organization's other endpoints: disabled, failing, recovered or
-- secret_rotated.  An error here must not keep the outcome of an attempt from being recorded.
create function webhooks.raise_endpoint_event(endpoint uuid, name text, since timestamptz default null) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    concerned webhooks.endpoint;
begin
    select e.* into concerned
    from webhooks.endpoint e join webhooks.organization o on o.slug = e.organization_slug and o.early_access
    where e.id = endpoint;
    if found then
        perform webhooks.raise_event(
            'v1.webhook.endpoint.' || name, concerned.organization_slug, null,
            jsonb_build_object(
                'endpoint', jsonb_build_object(
                    'id', concerned.id, 'project_ref', concerned.project_ref, 'description', concerned.description),
                'failing_since', to_char(since at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')),
            concat('endpoint ', name, ' ', webhooks.uuid_v7()), null, concerned.id);
    end if;
exception when others then
    raise warning 'the event % of endpoint % is not raised: %', name, endpoint, sqlerrm;
end
$$;

-- Publishing ------------------------------------------------------------------------------------------------

-- Raises an event for whoever publishes it, as of a time of their choosing; see webhooks.publish.
create or replace function webhooks.publish_at(
    given_type text, slug text, ref text, given_payload jsonb, given_key text, given_time timestamptz
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if given_payload -> 'is_test' is not null then
        raise exception 'the payload of an event cannot have is_test: the service marks test events with it'
            using errcode = 'WH005';
    end if;
    if webhooks.is_operational(given_type) then
        raise exception 'events about endpoints are raised by the service' using errcode = '22023';
    end if;
    return webhooks.raise_event(given_type, slug, ref, given_payload, given_key, given_time);
end
$$;

-- Publishes an event; what is refused is not published, and its publisher's transaction goes on.
create function webhooks.publish_if_accepted(
    given_type text, slug text, ref text, given_payload jsonb, given_key text
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    return webhooks.publish_at(given_type, slug, ref, given_payload, given_key, null);
exception
    when sqlstate 'WH001' or sqlstate 'WH002' or sqlstate 'WH003' or sqlstate 'WH004' then
        return null;
    when invalid_parameter_value or sqlstate 'WH005' then
        raise warning 'an event is not published: %', sqlerrm;
        return null;
end
$$;

-- Grants of the function stay.
do $$
declare
    grants text[];
    granting text;
begin
    select array_agg(format('grant execute on function webhooks.publish to %s%s',
            case when a.grantee = 0 then 'public' else a.grantee::regrole::text end,
            case when a.is_grantable then ' with grant option' end))
        into grants
        from pg_catalog.pg_proc p cross join lateral pg_catalog.aclexplode(p.proacl) a
        where p.oid = 'webhooks.publish(text, text, text, jsonb, text)'::regprocedure and a.grantee <> p.proowner;
    drop function webhooks.publish(text, text, text, jsonb, text);
    create function webhooks.publish(
        type text, organization_slug text, project_ref text, payload jsonb, idempotency_key text,
        on_refusal text default 'raise'
    ) returns uuid
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    as $body$
    begin
        if on_refusal = 'raise' then
            return webhooks.publish_at(type, organization_slug, project_ref, payload, idempotency_key, null);
        elsif on_refusal = 'ignore' then
            return webhooks.publish_if_accepted(type, organization_slug, project_ref, payload, idempotency_key);
        end if;
        raise exception 'on_refusal is raise or ignore' using errcode = '22023';
    end
    $body$;
    revoke all on function webhooks.publish from public;
    foreach granting in array coalesce(grants, '{}') loop
        execute granting;
    end loop;
end
$$;
comment on function webhooks.publish is
'Raises an event inside the caller''s own transaction: it is delivered if and only if that commits.
The same key within 24 hours returns the first identifier and raises nothing.  project_ref is null for an
event of the organization.  Nobody may call it until an operator lets them:
    grant usage on schema webhooks to app;
    grant execute on function webhooks.publish to app;
Errors: 22023 malformed type, payload or key; WH001 no such organization; WH002 no such project;
WH003 the project is another organization''s; WH004 the organization is not on the allowlist;
WH005 the payload has is_test, which the service alone writes.
With on_refusal => ''ignore'' none of these is raised: null is returned, and nothing is published.';

-- Privacy ---------------------------------------------------------------------------------------------------

-- Deletes the payload of an event, given by the identifier that publishing returned or by that of one copy, for the
-- endpoints of a scope, with what receivers answered; returns how many copies there were.  What was to be sent is skipped,
-- except what is under way.
create function webhooks.delete_payload(slug text, ref text, identifier uuid) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    copies uuid[];
    endpoints uuid[];
begin
    select array_agg(v.id), array_agg(e.id) into copies, endpoints
    from webhooks.event v join webhooks.endpoint e on e.id = v.endpoint_id
    where (v.id = identifier or v.ingress_id = identifier)
        and e.organization_slug = slug and (ref is null or e.project_ref = ref);
    if copies is null then
        return 0;
    end if;
    update webhooks.event set body = null, payload = null, payload_deleted = true where id = any (copies);
    update webhooks.delivery set response_body = null, response_headers = null
    where event_id = any (copies) and (response_body is not null or response_headers is not null);
    with cancelled as (
        delete from webhooks.due d
        where d.delivery_id = any (array(
            select w.delivery_id from webhooks.due w
            where w.endpoint_id = any (endpoints) and w.event_id = any (copies)
                and not (w.leased and w.claimable_at > now())
            for update
        ))
        returning d.*
    )
    insert into webhooks.delivery (
        id, event_id, endpoint_id, event_type, status, attempt_number, trigger, error, project_ref
    )
    select delivery_id, event_id, endpoint_id, event_type, 'skipped', attempt_number, trigger, 'payload_deleted',
           project_ref
    from cancelled;
    perform pg_notify('webhooks_changed', '');
    return cardinality(copies);
end
$$;

revoke all on function webhooks.failing_since, webhooks.is_operational, webhooks.raise_event, webhooks.raise_endpoint_event,
    webhooks.publish_if_accepted, webhooks.delete_payload from public;
