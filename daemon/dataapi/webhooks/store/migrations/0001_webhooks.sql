-- Everything that webhooks keep.  Functions name each schema, so that no search path changes what they mean.

-- Identifiers ---------------------------------------------------------------------------------------------

-- UUIDv7 (RFC 9562): milliseconds, then the fraction of the millisecond (method 3), so that identifiers made
-- one after the other sort in that order; the rest is random.  Needs no extension.
create function webhooks.uuid_v7() returns uuid
language plpgsql volatile
as $$
declare
    microseconds bigint := extract(epoch from pg_catalog.clock_timestamp()) * 1000000;
    fraction int := microseconds % 1000 * 4096 / 1000;
    bytes bytea := pg_catalog.decode(
        pg_catalog.md5(pg_catalog.random()::text || pg_catalog.random()::text || pg_catalog.pg_backend_pid()), 'hex');
begin
    bytes := pg_catalog.substring(pg_catalog.int8send(microseconds / 1000), 3) || pg_catalog.substring(bytes, 7);
    bytes := pg_catalog.set_byte(bytes, 6, 112 | (fraction >> 8));
    bytes := pg_catalog.set_byte(bytes, 7, fraction & 255);
    bytes := pg_catalog.set_byte(bytes, 8, 128 | (pg_catalog.get_byte(bytes, 8) & 63));
    return pg_catalog.encode(bytes, 'hex')::uuid;
end
$$;

-- The identifier before all those made at a time or later: what is older is less.
create function webhooks.uuid_floor(at timestamptz) returns uuid
language sql stable
as $$
    select (pg_catalog.lpad(pg_catalog.to_hex((extract(epoch from at) * 1000000)::bigint / 1000), 12, '0')
            || '00000000000000000000')::uuid
$$;

-- When an identifier was made, to the millisecond.
create function webhooks.uuid_time(id uuid) returns timestamptz
language sql stable
as $$
    select pg_catalog.to_timestamp(
        ('x' || pg_catalog.substr(pg_catalog.replace(id::text, '-', ''), 1, 12))::bit(48)::bigint / 1000.0)
$$;

-- Who -----------------------------------------------------------------------------------------------------

create table webhooks.organization (
    slug text primary key check (slug ~ '^[A-Za-z0-9_-]{1,64}$'),
    early_access boolean not null default false,
    created_at timestamptz not null default now()
);
comment on column webhooks.organization.early_access is
    'Whether it is on the allowlist; webhooks are refused to all others.';

create table webhooks.project (
    ref text primary key check (ref ~ '^[a-z]{20}$'),
    organization_slug text not null references webhooks.organization on delete cascade,
    created_at timestamptz not null default now(),
    unique (ref, organization_slug)
);
create index project_organization on webhooks.project (organization_slug);

create table webhooks.token (
    id uuid primary key,
    organization_slug text not null references webhooks.organization on delete cascade,
    hash bytea not null unique check (octet_length(hash) = 32),
    permissions text[] not null
        check (permissions <@ array['webhooks:read', 'webhooks:write', 'events:publish'] and permissions <> '{}'),
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz
);
create index token_organization on webhooks.token (organization_slug);
comment on column webhooks.token.hash is 'SHA-256 of the token, which itself is kept nowhere.';

-- Where to ------------------------------------------------------------------------------------------------

create table webhooks.endpoint (
    id uuid primary key,
    organization_slug text not null references webhooks.organization on delete cascade,
    project_ref text,
    url text not null,
    event_types text[] not null check (event_types <> '{}'),
    signing_secret bytea not null,
    custom_headers bytea not null,
    description text,
    enabled boolean not null default true,
    epoch integer not null default 0,
    created_by text,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    -- A project that goes to another organization takes its endpoints along.
    foreign key (project_ref, organization_slug) references webhooks.project (ref, organization_slug)
        on update cascade on delete cascade
);
create index endpoint_organization on webhooks.endpoint (organization_slug, project_ref, id);
create index endpoint_project on webhooks.endpoint (project_ref, organization_slug);
comment on column webhooks.endpoint.project_ref is 'The project that it belongs to; null: the organization.';
comment on column webhooks.endpoint.signing_secret is 'Encrypted, bound to the endpoint''s id.';
comment on column webhooks.endpoint.custom_headers is 'A JSON object, encrypted, bound to the endpoint''s id.';
comment on column webhooks.endpoint.epoch is
    'Counts how often it was disabled: what was enqueued in an earlier epoch is never sent.';

-- Tests and manual retries of the last minute, which are limited per endpoint.
create table webhooks.request (
    endpoint_id uuid not null references webhooks.endpoint on delete cascade,
    at timestamptz not null default now()
);
create index request_endpoint on webhooks.request (endpoint_id, at);

-- What ----------------------------------------------------------------------------------------------------

create table webhooks.event_type_version (
    type text not null,
    renders text not null check (renders <> type),
    primary key (type, renders)
);
comment on table webhooks.event_type_version is
    'The older types that go out beside a published type, as the catalogues of the daemon say.';

-- No foreign key leads to or from the tables below: their rows come and go too fast.  Rows without an endpoint
-- are dropped when they come due or with age.
create table webhooks.event (
    id uuid primary key,
    endpoint_id uuid not null,
    type text not null,
    rendered_from text,
    happened_at timestamptz not null,
    body text,
    payload jsonb,
    kept_until timestamptz,
    check (body is not null or payload is not null and rendered_from is not null)
);
comment on table webhooks.event is 'One copy per endpoint.';
comment on column webhooks.event.body is
    'What is signed and sent, at every attempt the same; null until an older version is rendered from payload.';
comment on column webhooks.event.kept_until is
    'Until when deliveries need it, where that is later than its age alone says.';

create table webhooks.idempotency (
    organization_slug text not null,
    key text not null,
    ingress_id uuid not null,
    created_at timestamptz not null default now(),
    primary key (organization_slug, key)
);
create index idempotency_created on webhooks.idempotency (created_at);

-- When ----------------------------------------------------------------------------------------------------

-- The hot table: one row per attempt that is still to be made.
create table webhooks.due (
    delivery_id uuid primary key,
    event_id uuid not null,
    endpoint_id uuid not null,
    epoch integer not null,
    trigger text not null check (trigger in ('automatic', 'manual', 'test')),
    attempt_number smallint not null default 1 check (attempt_number > 0),
    due_at timestamptz not null,
    claimable_at timestamptz not null,
    leased boolean not null default false,
    fence bigint not null default 0
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
        autovacuum_analyze_scale_factor = 0.05);
create index due_endpoint on webhooks.due (endpoint_id, claimable_at);
create index due_listed on webhooks.due (endpoint_id, delivery_id);
comment on column webhooks.due.delivery_id is 'The identifier of the record that the attempt will leave.';
comment on column webhooks.due.claimable_at is 'due_at, or the end of the lease while somebody holds it.';
comment on column webhooks.due.fence is 'Counts who held it: an outcome of an earlier holder is not taken.';

-- Done ----------------------------------------------------------------------------------------------------

-- One row per attempt made or skipped; never changed.  A partition holds the identifiers made on one day (UTC).
create table webhooks.delivery (
    id uuid not null,
    event_id uuid not null,
    endpoint_id uuid not null,
    event_type text not null,
    status text not null check (status in ('success', 'failed', 'skipped')),
    attempt_number smallint not null,
    trigger text not null,
    response_code smallint not null default 0,
    response_headers jsonb,
    response_body text,
    error text,
    duration_ms integer,
    attempt_timestamp timestamptz,
    next_attempt_at timestamptz,
    primary key (id)
) partition by range (id);
create index delivery_endpoint on webhooks.delivery (endpoint_id, id);
create index delivery_type on webhooks.delivery (endpoint_id, event_type, id);
create index delivery_event on webhooks.delivery (event_id);
create index delivery_unsuccessful on webhooks.delivery (endpoint_id, id) where status <> 'success';

-- Each attempt's record by its identifier, made or still to be made.  For lists read the two tables: a page of
-- each comes from its index, a page of both would be sorted out of all.
create view webhooks.record as
select * from webhooks.delivery
union all
select d.delivery_id, d.event_id, d.endpoint_id, e.type, 'pending', d.attempt_number, d.trigger, 0::smallint,
       null, null, null, null, null, d.due_at
from webhooks.due d join webhooks.event e on e.id = d.event_id;

-- Makes the partitions of the days that have due work, of today and of some days ahead; returns how many.
-- Attaching takes no lock that readers or writers wait for.
create function webhooks.make_partitions(days_ahead integer) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set lock_timeout = '5s'
as $$
declare
    oldest_due timestamptz;
    made integer := 0;
    day date;
    partition text;
begin
    perform pg_advisory_xact_lock(7236148250117002);
    oldest_due := webhooks.uuid_time((select delivery_id from webhooks.due order by delivery_id limit 1));
    for day in
        select generate_series(least(oldest_due, now())::date, now()::date + days_ahead, interval '1 day')::date
    loop
        partition := to_char(day, '"delivery_"YYYYMMDD');
        if to_regclass('webhooks.' || partition) is null then
            execute format('create table webhooks.%I (like webhooks.delivery including all)', partition);
            execute format(
                'alter table webhooks.delivery attach partition webhooks.%I for values from (%L) to (%L)',
                partition, webhooks.uuid_floor(day), webhooks.uuid_floor(day + 1));
            made := made + 1;
        end if;
    end loop;
    return made;
end
$$;
select webhooks.make_partitions(7);

-- Drops the oldest partition past retention that no due work needs any more; returns whether there was one.
-- Dropping keeps all who use the history waiting, for half a second at most, and gives up before PostgreSQL
-- looks for deadlocks: one that somebody reads now is passed over, and each is a transaction of its own.
create function webhooks.drop_partition(retention interval) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set lock_timeout = '500ms'
as $$
declare
    oldest_due timestamptz;
    day date;
    partition text;
begin
    if not pg_try_advisory_xact_lock(7236148250117002) then
        -- Another daemon is at it.
        return false;
    end if;
    oldest_due := webhooks.uuid_time((select delivery_id from webhooks.due order by delivery_id limit 1));
    for partition, day in
        select relname, to_date(relname, '"delivery_"YYYYMMDD')
        from pg_inherits join pg_class on oid = inhrelid
        where inhparent = 'webhooks.delivery'::regclass
        order by relname
    loop
        if day + 1 <= now() - retention and (oldest_due is null or day + 1 <= oldest_due) then
            begin
                execute format('lock table webhooks.%I in access exclusive mode nowait', partition);
                execute format('drop table webhooks.%I', partition);
                return true;
            exception when lock_not_available then
                null;
            end;
        end if;
    end loop;
    return false;
end
$$;

-- Publishing ----------------------------------------------------------------------------------------------

-- The text that is signed and sent.
create function webhooks.envelope(id uuid, type text, happened_at timestamptz, payload jsonb) returns text
language sql stable
as $$
    select pg_catalog.concat(
        '{"id":"', id, '","type":', pg_catalog.to_json(type), ',"timestamp":"',
        pg_catalog.to_char(happened_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        '","payload":', payload, '}')
$$;

-- Raises an event as of a time of the caller's choosing; see webhooks.publish.
create function webhooks.raise_event(
    given_type text, slug text, ref text, given_payload jsonb, given_key text, given_time timestamptz
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
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
    insert into webhooks.due (delivery_id, event_id, endpoint_id, epoch, trigger, due_at, claimable_at)
    select webhooks.uuid_v7(), copy.id, copy.endpoint_id, copy.epoch, 'automatic', clock_timestamp(), clock_timestamp()
    from copy;
    get diagnostics copies = row_count;
    if copies > 0 then
        perform pg_notify('webhooks', '');
    end if;
    return ingress;
end
$$;

create function webhooks.publish(
    type text, organization_slug text, project_ref text, payload jsonb, idempotency_key text
) returns uuid
language sql
security definer
set search_path = pg_catalog, pg_temp
as $$
    select webhooks.raise_event(type, organization_slug, project_ref, payload, idempotency_key, null)
$$;
comment on function webhooks.publish is
'Raises an event inside the caller''s own transaction: it is delivered if and only if that commits.
The same key within 24 hours returns the first identifier and raises nothing.  project_ref is null for an
event of the organization.  Nobody may call it until an operator lets them:
    grant usage on schema webhooks to app;
    grant execute on function webhooks.publish to app;
Errors: 22023 malformed type, payload or key; WH001 no such organization; WH002 no such project;
WH003 the project is another organization''s; WH004 the organization is not on the allowlist.';

-- Gives a project to another organization, its endpoints and what was delivered to them included, and tells
-- those two organizations that are on the allowlist; returns whose it was, null when there is no such project.
create function webhooks.transfer_project(given_ref text, target text, given_key text) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    source text;
    payload jsonb;
begin
    select p.organization_slug into source from webhooks.project p where p.ref = given_ref for update;
    if source is null or source = target then
        return source;
    end if;
    payload := jsonb_build_object(
        'source', jsonb_build_object('organization_slug', source),
        'target', jsonb_build_object('organization_slug', target));
    perform webhooks.raise_event('v1.project.transferred', o.slug, given_ref, payload, given_key, null)
    from webhooks.organization o where o.slug = source and o.early_access;
    update webhooks.project set organization_slug = target where ref = given_ref;
    perform webhooks.raise_event('v1.project.transferred', o.slug, given_ref, payload, given_key, null)
    from webhooks.organization o where o.slug = target and o.early_access;
    return source;
end
$$;

revoke all on schema webhooks from public;
revoke all on all functions in schema webhooks from public;
