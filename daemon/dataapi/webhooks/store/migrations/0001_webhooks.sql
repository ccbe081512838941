-- The schema of webhooks. Functions qualify all names, or set search_path, so that the caller's search path has no
-- effect.

-- Identifiers ---------------------------------------------------------------------------------------------

-- Returns a UUIDv7 (RFC 9562) for a time in microseconds. The fraction of the millisecond follows the milliseconds
-- (method 3), so that identifiers sort in the order of their creation. The last 64 bits, including the variant, are
-- copied from a random UUID. PostgreSQL inlines this function.
create function webhooks.uuid_at(microseconds bigint) returns uuid
language sql volatile
as $$
    select (pg_catalog.lpad(pg_catalog.to_hex(
                (microseconds / 1000 << 16) + 28672 + microseconds % 1000 * 4096 / 1000), 16, '0')
            || pg_catalog.substr(pg_catalog.gen_random_uuid()::text, 20))::uuid
$$;

-- PL/pgSQL, because an SQL function would be inlined and could read the clock several times.
create function webhooks.uuid_v7() returns uuid
language plpgsql volatile
as $$
declare
    microseconds bigint := extract(epoch from pg_catalog.clock_timestamp()) * 1000000;
begin
    return webhooks.uuid_at(microseconds);
end
$$;

-- Returns a lower bound for identifiers created at this time or later. Older identifiers are less than it.
create function webhooks.uuid_floor(at timestamptz) returns uuid
language sql stable
as $$
    select (pg_catalog.lpad(pg_catalog.to_hex((extract(epoch from at) * 1000000)::bigint / 1000), 12, '0')
            || '00000000000000000000')::uuid
$$;

-- Returns the creation time of an identifier, to the millisecond.
create function webhooks.uuid_time(id uuid) returns timestamptz
language sql stable
as $$
    select pg_catalog.to_timestamp(
        ('x' || pg_catalog.substr(pg_catalog.replace(id::text, '-', ''), 1, 12))::bit(48)::bigint / 1000.0)
$$;

-- Organizations, projects and tokens ----------------------------------------------------------------------

create table webhooks.organization (
    slug text primary key check (slug ~ '^[A-Za-z0-9_-]{1,64}$'),
    early_access boolean not null default false,
    created_at timestamptz not null default now()
);
comment on column webhooks.organization.early_access is
    'Whether the organization is on the allowlist. Other organizations cannot use webhooks.';

create table webhooks.project (
    ref text primary key check (ref ~ '^[a-z]{20}$'),
    organization_slug text not null references webhooks.organization on delete cascade,
    created_at timestamptz not null default now(),
    unique (ref, organization_slug)
);
create index project_organization on webhooks.project (organization_slug);

create table webhooks.token (
    id uuid primary key,
    organization_slug text references webhooks.organization on delete cascade,
    hash bytea not null unique check (octet_length(hash) = 32),
    permissions text[] not null
        check (permissions <@ array['webhooks:read', 'webhooks:write', 'events:publish'] and permissions <> '{}'),
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    project_ref text references webhooks.project on delete cascade,
    portal jsonb,
    check (organization_slug is not null or permissions = array['webhooks:read']),
    check (portal is null or organization_slug is not null and expires_at is not null),
    check (portal is not null or project_ref is null)
);
create index token_organization on webhooks.token (organization_slug);
create index token_project on webhooks.token (project_ref);
create index token_portal on webhooks.token (expires_at) where portal is not null;
comment on column webhooks.token.organization_slug is 'Null for operators'' tokens. They have access to all organizations.';
comment on column webhooks.token.portal is 'Appearance and content of the customer portal that the token opens, or null.';
comment on column webhooks.token.hash is 'SHA-256 of the token. The token itself is not stored.';

create table webhooks.answer (
    token_id uuid not null references webhooks.token on delete cascade,
    key text not null,
    request bytea not null,
    answer bytea,
    created_at timestamptz not null default now(),
    primary key (token_id, key)
);
create index answer_created on webhooks.answer (created_at);
comment on table webhooks.answer is 'Responses to requests with an idempotency key, stored for 24 hours.';
comment on column webhooks.answer.request is 'Hash of the request, to detect a different request with the same key.';
comment on column webhooks.answer.answer is
    'Encrypted with a key derived from the token, because it may contain a secret. Null while the request runs.';

-- Endpoints -----------------------------------------------------------------------------------------------

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
    previous_secret bytea,
    previous_secret_until timestamptz,
    max_per_second integer check (max_per_second between 1 and 1000),
    disabled_since timestamptz,
    -- If a project is transferred to another organization, so are its endpoints.
    foreign key (project_ref, organization_slug) references webhooks.project (ref, organization_slug)
        on update cascade on delete cascade
);
create index endpoint_organization on webhooks.endpoint (organization_slug, project_ref, id);
create index endpoint_project on webhooks.endpoint (project_ref, organization_slug);
comment on column webhooks.endpoint.project_ref is 'Null if the endpoint belongs to the organization instead of a project.';
comment on column webhooks.endpoint.signing_secret is 'Encrypted, with the endpoint''s id as associated data.';
comment on column webhooks.endpoint.custom_headers is 'JSON object, encrypted with the endpoint''s id as associated data.';
comment on column webhooks.endpoint.epoch is
    'Number of times the endpoint was disabled. Attempts enqueued in an earlier epoch are never sent.';
comment on column webhooks.endpoint.previous_secret is
    'Secret before the last rotation, encrypted. It also signs deliveries until previous_secret_until.';
comment on column webhooks.endpoint.max_per_second is 'Maximum attempts per second, across all daemons (null: no limit).';
comment on column webhooks.endpoint.disabled_since is
    'When the service disabled the endpoint because all attempts failed. Null if its owner disabled it.';

create table webhooks.failing (
    endpoint_id uuid primary key,
    since timestamptz not null,
    reported boolean not null default false
);
comment on table webhooks.failing is 'Endpoints whose automatic attempts have all failed since a given time.';
comment on column webhooks.failing.reported is 'Whether v1.webhook.endpoint.failing was published, because a delivery failed permanently after "since".';

-- Returns the time since which all automatic attempts for an endpoint have failed, or null.
create function webhooks.failing_since(endpoint uuid) returns timestamptz
language sql stable
as $$
    select f.since from webhooks.failing f where f.endpoint_id = endpoint
$$;

-- A table of its own, because claims lock its rows, and must not lock rows of webhooks.endpoint.
create table webhooks.pace (
    endpoint_id uuid primary key,
    next_at timestamptz not null default now()
);
comment on table webhooks.pace is 'Earliest time of the next attempt, for endpoints with max_per_second.';

-- Tests and manual retries of the last minute, to enforce the limit for each endpoint.
create table webhooks.request (
    endpoint_id uuid not null references webhooks.endpoint on delete cascade,
    at timestamptz not null default now()
);
create index request_endpoint on webhooks.request (endpoint_id, at);

-- Events --------------------------------------------------------------------------------------------------

create table webhooks.event_type (type text primary key);
comment on table webhooks.event_type is 'Event types in the catalogues of the most recently started daemon.';

create table webhooks.event_type_version (
    type text not null,
    renders text not null check (renders <> type),
    primary key (type, renders)
);
comment on table webhooks.event_type_version is
    'Older versions that are sent in addition to a published type, according to the daemon''s catalogues.';

create table webhooks.row_change_type (
    type text primary key check (type ~ '^v[1-9][0-9]{0,3}([.][a-z][a-z0-9_]*){2,}$' and length(type) <= 56),
    created_at timestamptz not null default now()
);
comment on table webhooks.row_change_type is 'Event types added with "dataapi webhooks types add". Daemons read them every two seconds.';

-- The tables below have no foreign keys, because their rows are inserted and deleted frequently. Rows of deleted
-- endpoints are deleted when they are due, or after the retention period. Columns that only functions of this schema
-- write have no check constraints: checking a row would take longer than writing it.
create table webhooks.event (
    id uuid primary key,
    endpoint_id uuid not null,
    type text not null,
    rendered_from text,
    happened_at timestamptz not null,
    body text,
    payload jsonb,
    kept_until timestamptz,
    -- The request's headers are JSON. Quotation marks in values are escaped, so this matches only a header's name.
    traceparent text default substring(
        pg_catalog.current_setting('request.headers', true) from '"traceparent":\s*"([0-9a-f-]{55})"'),
    delivered boolean not null default false,
    ingress_id uuid,
    payload_deleted boolean not null default false
);
create index event_ingress on webhooks.event (ingress_id) where ingress_id is not null;
comment on table webhooks.event is 'Events, with one copy for each endpoint and type.';
comment on column webhooks.event.body is
    'Text that each attempt signs and sends. Null if the event must first be rendered from payload as an older type.';
comment on column webhooks.event.kept_until is
    'If set, the event is not deleted before this time, because deliveries need it.';
comment on column webhooks.event.traceparent is
    'Header of the request that published the event (W3C Trace Context).';
comment on column webhooks.event.delivered is
    'Whether a manual retry succeeded. No more automatic attempts are made then.';
comment on column webhooks.event.ingress_id is
    'Identifier returned to the publisher, shared by all copies. Null for tests and row changes.';

create table webhooks.idempotency (
    organization_slug text not null,
    key text not null,
    ingress_id uuid not null,
    created_at timestamptz not null default now(),
    primary key (organization_slug, key)
);
create index idempotency_created on webhooks.idempotency (created_at);

-- Due attempts --------------------------------------------------------------------------------------------

-- One row for each outstanding attempt. Rows are inserted, updated and deleted frequently.
create table webhooks.due (
    delivery_id uuid primary key,
    event_id uuid not null,
    endpoint_id uuid not null,
    epoch integer not null,
    trigger text not null,
    attempt_number smallint not null default 1,
    due_at timestamptz not null,
    claimable_at timestamptz not null,
    leased boolean not null default false,
    fence bigint not null default 0,
    holder integer,
    event_type text not null,
    waiting boolean not null default false,
    project_ref text
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
        autovacuum_analyze_scale_factor = 0.05);
-- Excludes rows that cannot be claimed yet, such as retries, so that claims do not scan them.
create index due_ready on webhooks.due (endpoint_id, claimable_at) where not waiting;
create index due_waiting on webhooks.due (claimable_at) where waiting;
create index due_listed on webhooks.due (endpoint_id, delivery_id) include (event_type);
-- Only retries: first attempts are due immediately, and no query finds them by event.
create index due_retry on webhooks.due (event_id) where attempt_number > 1;
create index due_project on webhooks.due (endpoint_id, project_ref, delivery_id) include (event_type)
    where project_ref is not null;
comment on column webhooks.due.delivery_id is 'Identifier of the attempt, and of its later row in webhooks.delivery.';
comment on column webhooks.due.claimable_at is 'due_at, or the end of the lease while the attempt is leased.';
comment on column webhooks.due.fence is 'Incremented by each claim and retry. Outcomes with an older number are ignored.';
comment on column webhooks.due.holder is
    'Dispatcher that last claimed the attempt, or null if its liveness cannot be checked.';
comment on column webhooks.due.event_type is 'Copy of webhooks.event.type, for listing by type.';
comment on column webhooks.due.waiting is
    'Whether claimable_at was in the future when the row was last updated. Claims skip such rows.';
comment on column webhooks.due.project_ref is
    'Project of the event if the endpoint belongs to the organization. Null for the project''s own endpoints.';

-- If a dispatcher terminates, others take over its claims before their leases expire.
create table webhooks.dispatcher (
    number integer primary key,
    missing_since timestamptz
);
comment on table webhooks.dispatcher is
    'Processes that deliver. Each holds the advisory lock (723614825, number) in a session while it runs.';
comment on column webhooks.dispatcher.missing_since is 'When the lock was first found to be free.';

-- Completed attempts --------------------------------------------------------------------------------------

-- One row for each completed or skipped attempt. Each partition contains the identifiers created on one day (UTC).
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
    project_ref text,
    primary key (id)
) partition by range (id);
create index delivery_event on webhooks.delivery (event_id);
-- Lists filtered by status, type or both read only matching index entries. Statistics use an index-only scan.
create index delivery_by_endpoint on webhooks.delivery (endpoint_id, id) include (status, duration_ms);
create index delivery_by_type on webhooks.delivery (endpoint_id, event_type, id) include (status);
create index delivery_by_status on webhooks.delivery (endpoint_id, status, id) where status <> 'success';
create index delivery_by_type_and_status on webhooks.delivery (endpoint_id, event_type, status, id)
    where status <> 'success';
-- The history of a project includes deliveries of its events to the organization's endpoints.
create index delivery_by_project on webhooks.delivery (endpoint_id, project_ref, id) include (status)
    where project_ref is not null;
create index delivery_by_project_and_type on webhooks.delivery (endpoint_id, project_ref, event_type, id) include (status)
    where project_ref is not null;
create index delivery_by_project_and_status on webhooks.delivery (endpoint_id, project_ref, status, id)
    where project_ref is not null and status <> 'success';
create index delivery_by_project_type_and_status on webhooks.delivery (endpoint_id, project_ref, event_type, status, id)
    where project_ref is not null and status <> 'success';
comment on column webhooks.delivery.project_ref is 'See webhooks.due.project_ref.';

-- Outstanding and completed attempts, for looking up one by its identifier. Lists read a page of each table from its
-- index, because a page of this view would require sorting all rows.
create view webhooks.record as
select * from webhooks.delivery
union all
select d.delivery_id, d.event_id, d.endpoint_id, e.type, 'pending', d.attempt_number, d.trigger, 0::smallint,
       null, null, null, null, null, d.due_at, d.project_ref
from webhooks.due d join webhooks.event e on e.id = d.event_id;

-- Returns the creation time of the oldest due attempt.
create function webhooks.oldest_due() returns timestamptz
language sql stable
as $$
    select webhooks.uuid_time(delivery_id) from webhooks.due order by delivery_id limit 1
$$;

-- Creates missing partitions for days with due attempts, today and the next days, and returns their number. ATTACH
-- PARTITION does not block readers or writers.
create function webhooks.make_partitions(days_ahead integer) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set lock_timeout = '5s'
as $$
declare
    made integer := 0;
    day date;
    partition text;
begin
    perform pg_advisory_xact_lock(7236148250117002);
    for day in
        select generate_series(least(webhooks.oldest_due(), now())::date, now()::date + days_ahead, interval '1 day')::date
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

-- Drops the oldest partition that is past the retention period and that no due attempt needs. Returns whether it dropped one.
-- DROP TABLE blocks all queries on the history, so it waits for locks for at most half a second, less than
-- deadlock_timeout (default: 1s). Partitions in use are skipped. Drop each partition in its own transaction.
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
        -- Another daemon is creating or dropping partitions.
        return false;
    end if;
    oldest_due := webhooks.oldest_due();
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

create table webhooks.removal (endpoint_id uuid primary key);
comment on table webhooks.removal is 'Deleted endpoints with remaining rows. Maintenance deletes the rows in batches.';

-- Deletes up to "most" due rows and up to "most" deliveries of a deleted endpoint, with their events. If rows remain, the
-- endpoint is added to webhooks.removal. Returns the number of deleted rows. Each statement has a new snapshot: if an
-- outcome is recorded while the first one waits for a due row, the second one deletes it. A later outcome finds no due
-- row and has no effect.
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

-- Publishing ----------------------------------------------------------------------------------------------

-- Returns the text that is signed and sent.
create function webhooks.envelope(id uuid, type text, happened_at timestamptz, payload text) returns text
language sql stable
as $$
    select pg_catalog.concat(
        '{"id":"', id, '","type":', pg_catalog.to_json(type), ',"timestamp":"',
        pg_catalog.to_char(happened_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        '","payload":', payload, '}')
$$;

-- Raises an error unless the event type is well-formed.
create function webhooks.check_type(given_type text) returns void
language plpgsql immutable
as $$
begin
    if given_type is null or given_type !~ '^v[0-9]+([.][a-z0-9_]+){2,}$' or pg_catalog.length(given_type) > 128 then
        raise exception 'an event type must have the form v<N>.<area>.<name>' using errcode = '22023';
    end if;
end
$$;

-- Returns whether a payload is within the limit of 256 KiB. A daemon holds hundreds of payloads in memory.
create function webhooks.is_short(payload text) returns boolean
language sql immutable
as $$
    select pg_catalog.octet_length(payload) <= 262144
$$;

-- Returns the subscribed endpoints for an event of an organization or its project, with the type to send: the event's
-- type and its older versions. PostgreSQL inlines this function.
create function webhooks.recipients(given_type text, slug text, ref text)
returns table (endpoint_id uuid, epoch integer, type text, of_organization boolean)
language sql stable
as $$
    select e.id, e.epoch, version.type, e.project_ref is null
    from webhooks.endpoint e
    join pg_catalog.unnest(given_type || array(
        select v.renders from webhooks.event_type_version v where v.type = given_type
    )) as version (type) on e.event_types && array[version.type, '*']
    -- Endpoints of a project are not filtered by organization, because the project may be transferred concurrently.
    where e.enabled and (e.organization_slug = slug and e.project_ref is null or e.project_ref = ref)
$$;

-- Returns whether only the service raises events of this type.
create function webhooks.is_operational(type text) returns boolean
language sql immutable
as $$
    select pg_catalog.starts_with(type, 'v1.webhook.endpoint.')
$$;

-- Raises an event with the given time (default: now); see webhooks.publish. At most one of the concurrent transactions
-- sends a notification, because NOTIFY serializes commits. Dispatchers find events without a notification when they
-- poll. enable_seqscan is off, because cached plans would be based on outdated statistics of tables that grow fast.
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
        raise exception 'the payload of an event must be a JSON object' using errcode = '22023';
    end if;
    if not webhooks.is_short(given_payload::text) then
        raise exception 'the payload of an event must not exceed 256 KiB' using errcode = '22023';
    end if;
    if coalesce(given_key, '') = '' or length(given_key) > 255 then
        raise exception 'an event requires an idempotency key of 1 to 255 characters' using errcode = '22023';
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

    -- A concurrent transaction with the same key waits here for the first one to end, and then reads its identifier.
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

-- Raises an event about an endpoint (disabled, failing, recovered or secret_rotated) for the organization's other
-- endpoints. Errors become warnings, because the outcome of the attempt must still be recorded.
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
    raise warning 'could not raise event % of endpoint %: %', name, endpoint, sqlerrm;
end
$$;

-- Publishes an event with the given time. Rejects is_test and types that only the service may publish; see
-- webhooks.publish.
create function webhooks.publish_at(
    given_type text, slug text, ref text, given_payload jsonb, given_key text, given_time timestamptz
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if given_payload -> 'is_test' is not null then
        raise exception 'the payload of an event must not contain is_test: the service marks test events with it'
            using errcode = 'WH005';
    end if;
    if webhooks.is_operational(given_type) then
        raise exception 'only the service raises events about endpoints' using errcode = '22023';
    end if;
    return webhooks.raise_event(given_type, slug, ref, given_payload, given_key, given_time);
end
$$;

-- Publishes an event. If it is rejected, returns null, so that the publisher's transaction can continue.
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
        raise warning 'could not publish an event: %', sqlerrm;
        return null;
end
$$;

create function webhooks.publish(
    type text, organization_slug text, project_ref text, payload jsonb, idempotency_key text,
    on_refusal text default 'raise'
) returns uuid
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if on_refusal = 'raise' then
        return webhooks.publish_at(type, organization_slug, project_ref, payload, idempotency_key, null);
    elsif on_refusal = 'ignore' then
        return webhooks.publish_if_accepted(type, organization_slug, project_ref, payload, idempotency_key);
    end if;
    raise exception 'on_refusal must be raise or ignore' using errcode = '22023';
end
$$;
comment on function webhooks.publish is
'Publishes an event in the current transaction and returns its identifier. The event is delivered only if the
transaction commits. If the key was used in the last 24 hours, the function returns the first identifier and publishes
nothing. project_ref is null for an event of the organization. To allow a role to call it:
    grant usage on schema webhooks to app;
    grant execute on function webhooks.publish to app;
Errors: 22023 malformed type, payload or key; WH001 no such organization; WH002 no such project;
WH003 the project belongs to another organization; WH004 the organization is not on the allowlist;
WH005 the payload contains is_test, which is reserved.
With on_refusal => ''ignore'', the function returns null instead of raising these errors.';

-- Publishes events of an organization, all or none, and returns their identifiers in the same order.
-- An event is {"type", "project_ref", "payload", "key", "timestamp"}. The detail of an error is the index of the rejected
-- event.
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

-- Transfers a project to another organization, with its endpoints and their deliveries. Raises an event for each of the
-- two organizations if it is on the allowlist. Returns the previous organization, or null if there is no such project.
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

-- Row changes ----------------------------------------------------------------------------------------------

-- Raises an error if events of this type and scope cannot be published.
create function webhooks.check_watch(given_type text, slug text, ref text) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from webhooks.event_type t where t.type = given_type) then
        raise exception 'no event catalogue has the type %', given_type using errcode = '22023',
            hint = 'Add it to row-change-types in [webhooks] and reload the daemon, run dataapi webhooks types add, or declare it in a catalogue plugin.';
    elsif slug is not null and not exists (select from webhooks.organization o where o.slug = check_watch.slug) then
        raise exception 'there is no organization %', slug using errcode = 'WH001';
    elsif ref is not null and not exists (select from webhooks.project p where p.ref = check_watch.ref) then
        raise exception 'there is no project %', ref using errcode = 'WH002';
    end if;
end
$$;

-- Returns the payload for a row change.
create function webhooks.row_change(
    slug text, ref text, operation text, schema text, relation text, before jsonb, after jsonb, truncated boolean
) returns text
language sql stable
as $$
    select pg_catalog.json_build_object(
        'actor', null, 'organization_slug', slug, 'project_ref', ref, 'operation', operation, 'schema', schema,
        'table', relation, 'old', before, 'new', after, 'truncated', truncated)::text
$$;

-- Returns the payload for a row that is too long: only its primary key, or no columns if the key is also too long.
create function webhooks.truncated_row_change(
    watched regclass, slug text, ref text, operation text, schema text, relation text, before jsonb, after jsonb
) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    payload text;
begin
    select jsonb_object_agg(key, before -> key) filter (where before ? key),
           jsonb_object_agg(key, after -> key) filter (where after ? key)
        into before, after
        from pg_index i
        join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
        cross join lateral (values (a.attname::text)) as named (key)
        where i.indrelid = watched and i.indisprimary;
    payload := webhooks.row_change(slug, ref, operation, schema, relation, before, after, true);
    if not webhooks.is_short(payload) then
        payload := webhooks.row_change(slug, ref, operation, schema, relation, null, null, true);
    end if;
    return payload;
end
$$;

-- Publishes row changes of a table, each for its project, or for its organization if it has no project. Changes of
-- unknown projects, and of organizations without access, are skipped, so that writes do not fail. It sends no
-- notification, because NOTIFY would serialize the writers' commits, and prevent PREPARE TRANSACTION.
create function webhooks.publish_row_changes(
    given_type text, relation regclass, schema text, "table" text, operations text[], before jsonb[], after jsonb[],
    organizations text[], projects text[]
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    happened constant timestamptz := clock_timestamp();
begin
    perform webhooks.check_type(given_type);
    if pg_partition_root(relation) <> relation then
        -- Report the partitioned table instead of the partition.
        select n.nspname, c.relname into schema, "table"
        from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = pg_partition_root(relation);
    end if;
    if array_remove(projects, null) <> '{}' then
        organizations := array(
            select case when c.project is null then c.organization else p.organization_slug end
            from unnest(organizations, projects) with ordinality as c (organization, project, number)
            left join webhooks.project p on p.ref = c.project
            order by c.number
        );
    end if;
    with copy as materialized (
        select webhooks.uuid_at(c.made_at) as id, c.endpoint_id, c.epoch, c.type, c.of_organization, c.made_at, c.project,
               case when webhooks.is_short(c.payload) then c.payload else webhooks.truncated_row_change(
                   relation, c.slug, c.project, lower(c.operation), schema, "table", c.old, c.new
               ) end as payload
        from (
            select r.*, o.slug, c.*,
                   (date_part('epoch', happened) * 1000000)::bigint + c.number as made_at,
                   webhooks.row_change(
                       o.slug, c.project, lower(c.operation), schema, "table", c.old, c.new, false) as payload
            from unnest(operations, before, after, organizations, projects) with ordinality
                as c (operation, old, new, organization, project, number)
            join webhooks.organization o on o.slug = c.organization and o.early_access
            cross join webhooks.recipients(given_type, o.slug, c.project) r
            order by c.number
            offset 0
        ) c
    ), event as (
        insert into webhooks.event (id, endpoint_id, type, rendered_from, happened_at, body, payload)
        select copy.id, copy.endpoint_id, copy.type, nullif(given_type, copy.type), happened,
               case when copy.type = given_type
                   then webhooks.envelope(copy.id, copy.type, happened, copy.payload) end,
               case when copy.type <> given_type then copy.payload::jsonb end
        from copy
    )
    insert into webhooks.due (
        delivery_id, event_id, endpoint_id, epoch, event_type, trigger, due_at, claimable_at, project_ref
    )
    select webhooks.uuid_at(copy.made_at), copy.id, copy.endpoint_id, copy.epoch, copy.type, 'automatic', happened,
           happened, case when copy.of_organization then copy.project end
    from copy;
end
$$;

-- Does not drop the trigger function of a former owner if the caller lacks the privilege.
create function webhooks.unwatch("table" regclass, type text default null) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    made regprocedure;
    triggers name[];
    trigger name;
begin
    for made, triggers in
        select p.oid, array_agg(t.tgname)
        from pg_trigger t join pg_proc p on p.oid = t.tgfoid
        -- Triggers cloned from the partitioned table cannot be dropped.
        where t.tgrelid = "table" and not t.tgisinternal and t.tgparentid = 0
            and p.proname ~ '^webhooks_watch_[0-9a-f]{32}$'
        group by p.oid
        having type is null or bool_or(starts_with(t.tgname, type || ' '))
    loop
        foreach trigger in array triggers loop
            execute format('drop trigger %I on %s', trigger, "table");
        end loop;
        begin
            execute format('drop function %s', made);
        exception when insufficient_privilege or dependent_objects_still_exist then
            null;
        end;
    end loop;
end
$$;
comment on function webhooks.unwatch is 'Removes the watches of a table that publish events of this type (null: all).';

-- Returns PL/pgSQL that appends a row change to the lists of a trigger function. If by_column is true,
-- it also appends to the lists of event types, organizations and projects.
create function webhooks.watched_row(kind text, before text, after text, scope text[], by_column boolean) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select case when by_column then format(
        'n := n + 1; kinds[n] := %L; olds[n] := %s; news[n] := %s; organizations[n] := %s; projects[n] := %s; ',
        kind, coalesce(before, 'null'), coalesce(after, 'null'), scope[1], scope[2]
    ) else concat('n := n + 1; ', 'olds[n] := ' || before || '; ', 'news[n] := ' || after || '; ') end
$$;

-- Creates a trigger function for each watch, owned by the table's owner. Casts of the table's types and "when" may contain
-- code of other users. They run with the privileges of the table's owner, never of this schema's owner. DDL runs with the
-- privileges of the caller.
create function webhooks.watch(
    "table" regclass,
    type text,
    columns text[] default null,
    "when" text default null,
    operations text[] default '{insert,update,delete}',
    organization text default null,
    project text default null,
    organization_column text default null,
    project_column text default null,
    always boolean default false
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    watched record;
    wrong text;
    checked refcursor;
    made text;
    by_statement boolean;
    by_column constant boolean := num_nonnulls(organization_column, project_column) > 0;
    condition constant text := format('(%s%s%1$s)', chr(10), coalesce("when", 'true'));
    before text := 'to_jsonb(old)';
    after text := 'to_jsonb(new)';
    changed text := 'old.* operator(pg_catalog.*<>) new.*';
    former text[];
    latter text[];
    moved text := 'false';
    fired text[] := operations;
    lists text;
    branch text;
    body text := '';
    needed constant text := 'grant usage on schema webhooks to %1$s; grant execute on function webhooks.watch, '
        'webhooks.unwatch, webhooks.check_watch, webhooks.publish_row_changes to %1$s;';
    operation text;
begin
    select c.relnamespace::regnamespace as namespace, c.relowner::regrole as owner, c.relkind as kind into watched
    from pg_class c where c.oid = "table";
    if not pg_has_role(watched.owner, 'usage') or watched.namespace = 'webhooks'::regnamespace then
        raise exception 'only the owner of table % may watch it, and tables in schema webhooks cannot be watched', "table"
            using errcode = '42501';
    elsif not has_schema_privilege(watched.owner, 'webhooks', 'usage') or not has_function_privilege(watched.owner,
        'webhooks.publish_row_changes(text,regclass,text,text,text[],jsonb[],jsonb[],text[],text[])', 'execute')
    then
        raise exception 'role % is not allowed to publish row changes', watched.owner
            using errcode = '42501', hint = format(needed, watched.owner);
    elsif not has_function_privilege('webhooks.check_watch(text,text,text)', 'execute')
        or not has_function_privilege('webhooks.unwatch(regclass,text)', 'execute')
    then
        raise exception 'role % is not allowed to watch tables', current_user
            using errcode = '42501', hint = format(needed, quote_ident(current_user));
    end if;
    if coalesce(organization, organization_column, project, project_column) is null
        or num_nonnulls(organization, organization_column) > 1 or num_nonnulls(project, project_column) > 1
    then
        raise exception 'specify an organization, a project or both, each by its name or a column' using errcode = '22023';
    elsif coalesce(operations, '{}') = '{}' or not array_remove(operations, null) <@ array['insert', 'update', 'delete']
        or columns = '{}'
    then
        raise exception 'operations must be insert, update or delete, and columns must not be empty' using errcode = '22023';
    elsif octet_length(type) > 56 then
        raise exception 'the event type of a watch must not exceed 56 characters' using errcode = '22023';
    end if;
    select format(case when name is null then '%s must not contain NULL' else '%s contain %s more than once' end, list, name)
        into wrong
    from (select 'operations' as list, unnest(operations) as name union all select 'columns', unnest(columns)) as named
    group by list, name having name is null or count(*) > 1 limit 1;
    if found then
        raise exception '%', wrong using errcode = '22023';
    end if;
    perform webhooks.check_watch(type, organization, project);
    select name into wrong from unnest(columns || organization_column || project_column) as named (name)
    where name is not null and not exists (
        select from pg_attribute where attrelid = "table" and attname = name and attnum > 0 and not attisdropped);
    if found then
        raise exception 'table % has no column %', "table", wrong using errcode = '42703';
    end if;
    -- Statement triggers miss changes made through a partitioned or parent table, fire for rows of child tables, and do
    -- not fire for logical replication.
    by_statement := not always and watched.kind = 'r'
        and not exists (select from pg_inherits where "table" in (inhrelid, inhparent));
    if "when" is not null then
        -- Check that "when" is a single expression: it must be valid with and without parentheses, and a cursor
        -- rejects several statements.
        open checked for execute format('select from only %1$s as old, only %1$s as new where %2$s limit 0',
            "table", condition);
        close checked;
        open checked for execute format('select from only %1$s as old, only %1$s as new where %2$s%3$s%2$s limit 0',
            "table", chr(10), "when");
        close checked;
        -- In a statement trigger, OLD and NEW are records, so "when" may only refer to their columns. Ignore words in
        -- simple strings.
        by_statement := by_statement and case when "when" ~ '--|/[*]|[$]|\\' then "when" else
                regexp_replace("when", '''[^'']*''', '''''', 'g') end
            !~* '\m(old|new)\M(?!\s*[.]\s*["[:alpha:]_])';
    end if;

    if columns is not null then
        -- Functions accept at most 100 arguments.
        select string_agg(format('jsonb_build_object(%s)', olds), ' || '),
               string_agg(format('jsonb_build_object(%s)', news), ' || ')
            into before, after
            from (
                select string_agg(format('%1$L, old.%1$I', name), ', ' order by number),
                       string_agg(format('%1$L, new.%1$I', name), ', ' order by number)
                from unnest(columns) with ordinality as named (name, number) group by number / 50
            ) as pieces (olds, news);
        select format('row(%s)::record operator(pg_catalog.*<>) row(%s)::record',
                string_agg(format('old.%I', name), ', '), string_agg(format('new.%I', name), ', '))
            into changed from unnest(columns) as named (name);
    end if;
    -- If a row has a project, its organization is the project's organization.
    former := array[coalesce('old.' || quote_ident(organization_column) || '::text', quote_nullable(organization)),
        coalesce('old.' || quote_ident(project_column) || '::text', quote_nullable(project))];
    latter := array[coalesce('new.' || quote_ident(organization_column) || '::text', quote_nullable(organization)),
        coalesce('new.' || quote_ident(project_column) || '::text', quote_nullable(project))];
    if by_column then
        moved := format(
            '(%2$s is distinct from %4$s or %2$s is null and %4$s is null and %1$s is distinct from %3$s)',
            former[1], former[2], latter[1], latter[2]);
    end if;

    -- PL/pgSQL takes microseconds to prepare each expression in each transaction, so each operation has its own branch.
    lists := case when by_column then 'kinds, olds, news, organizations, projects' else format(
        'array_fill(tg_op, array[n]), olds, news, array_fill(%s::text, array[n]), array_fill(%s::text, array[n])',
        latter[1], latter[2]) end;
    if by_column and not 'update' = any (operations) then
        fired := operations || array['update'];
    end if;
    foreach operation in array fired loop
        branch := case
            when operation = 'insert' then format('if %s then %s end if;', condition,
                webhooks.watched_row('INSERT', null, after, latter, by_column))
            when operation = 'delete' then format('if %s then %s end if;', condition,
                webhooks.watched_row('DELETE', before, null, former, by_column))
            when not by_column then format('if %s and %s then %s end if;', changed, condition,
                webhooks.watched_row('UPDATE', before, after, latter, by_column))
            else format('if %s then if %s then %s%s elsif %s then %s end if; end if;', condition, moved,
                case when 'delete' = any (operations) then webhooks.watched_row('DELETE', before, null, former, true) end,
                case when 'insert' = any (operations) then webhooks.watched_row('INSERT', null, after, latter, true) end,
                changed,
                case when 'update' = any (operations) then webhooks.watched_row('UPDATE', before, after, latter, true) end)
            end;
        body := body || format($branch$
    if tg_op = %L then
        %s
        loop
            begin
                %s
            exception when undefined_column then
                raise exception using errcode = sqlstate, message = sqlerrm, hint = format(
                    'A watch uses a column that was renamed or dropped. Run: dataapi webhooks watch %%s %%s, or unwatch.',
                    tg_relid::regclass, %L);
            end;
            if n > 0 then
                -- Arguments of the type name have the collation C, but the indexes have the default collation.
                perform webhooks.publish_row_changes(
                    %4$L collate "default", tg_relid, tg_table_schema, tg_table_name, %5$s);
            end if;
            exit when ended;
            n := 0; kinds := null; olds := null; news := null; organizations := null; projects := null;
        end loop;
        %6$s
        return null;
    end if;
$branch$, upper(operation),
            case when by_statement then concat(
                case when operation <> 'insert' then 'open olds_read for select * from old_rows; ' end,
                case when operation <> 'delete' then 'open news_read for select * from new_rows;' end) end,
            case when not by_statement then branch || ' ended := true;' else concat('loop ',
                case when operation <> 'insert' then 'fetch olds_read into old; ' end,
                case when operation <> 'delete' then 'fetch news_read into new; ' end,
                'exit when not found; ', branch,
                -- Limit the memory for lists of long rows.
                format(' exit when n >= 100 or pg_column_size(%s[n]) > 100000; end loop; ended := not found;',
                    case when operation = 'delete' then 'olds' else 'news' end)) end,
            type, lists,
            case when by_statement then concat(
                case when operation <> 'insert' then 'close olds_read; ' end,
                case when operation <> 'delete' then 'close news_read;' end) end);
    end loop;

    perform webhooks.unwatch("table", type);
    made := format('%s.%I', watched.namespace, 'webhooks_watch_' || md5(gen_random_uuid()::text));
    execute format('create function %s() returns trigger language plpgsql security definer '
        'set search_path = pg_catalog, pg_temp as %L', made, format($body$
declare
    olds_read refcursor;
    news_read refcursor;
    ended boolean;
    n integer := 0;
    kinds text[];
    olds jsonb[];
    news jsonb[];
    organizations text[];
    projects text[];
begin
    if to_regproc('webhooks.publish_row_changes') is null then
        -- Webhooks were removed.
        return null;
    end if;%s
end
$body$, body));
    execute format('revoke all on function %s() from public', made);
    execute format('alter function %s() owner to %s', made, watched.owner);
    foreach operation in array fired loop
        -- "when" does not change the row trigger's WHEN clause: "(true or ...)" only lets PostgreSQL check it and record
        -- dependencies on the columns. The trigger function evaluates "when".
        wrong := format('%s (true or %s)', case when operation = 'update' then format(
            '(%s or %s) and', changed, moved) else '' end, condition);
        if by_statement then
            -- This trigger never fires. Because of its transition table, PostgreSQL does not let the table become a
            -- partition or a child. The statement trigger would miss its changes.
            execute format('create trigger %I after %s on %s referencing %s for each row when (false and %s) '
                'execute function %s()', type || ':' || operation, operation, "table",
                case when operation = 'delete' then 'old table as old_rows' else 'new table as new_rows' end, wrong, made);
            execute format('create trigger %I after %s on %s referencing %s for each statement execute function %s()',
                type || ' ' || operation, operation, "table", case operation
                    when 'insert' then 'new table as new_rows'
                    when 'delete' then 'old table as old_rows'
                    else 'old table as old_rows new table as new_rows' end, made);
        else
            execute format('create trigger %I after %s on %s for each row when (%s) execute function %s()',
                type || ' ' || operation, operation, "table", wrong, made);
            if always then
                execute format('alter table %s enable always trigger %I', "table", type || ' ' || operation);
            end if;
        end if;
    end loop;
    execute format('comment on function %s() is %L', made, jsonb_strip_nulls(jsonb_build_object(
        'type', type, 'columns', columns, 'when', "when", 'operations', operations, 'organization', organization,
        'project', project, 'organization_column', organization_column, 'project_column', project_column,
        'always', nullif(always, false), 'by_statement', by_statement,
        -- Columns that the watch requires, including those in "when".
        'needs', array(
            select distinct a.attname
            from pg_trigger t
            join pg_depend d on d.classid = 'pg_trigger'::regclass and d.objid = t.oid and d.refobjid = t.tgrelid
            join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid and a.attnum > 0
            where t.tgrelid = "table" and t.tgfoid = to_regprocedure(made || '()')
            union select unnest(array_remove(columns || organization_column || project_column, null))
        ))));
end
$$;
comment on function webhooks.watch is
'Publishes an event, in the writer''s transaction, for each row of the table that is inserted, updated or deleted.
The payload contains the columns (null: all). If "when" is set, rows are only published if this condition on OLD
and NEW is true. The event belongs to the project, or to the organization if there is no project. With always, the
watch also publishes changes while session_replication_role is replica.';

-- Privacy ---------------------------------------------------------------------------------------------------

-- Deletes the payload of an event, and receivers' responses to it, for the endpoints of an organization or project. The
-- identifier is the one returned to the publisher, or that of one copy. Skips outstanding attempts that are not in
-- flight. Returns the number of copies.
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

revoke all on schema webhooks from public;
revoke all on all functions in schema webhooks from public;
-- Safe for all roles: it only formats text.
grant execute on function webhooks.watched_row to public;
