-- What a platform with many organizations needs: tokens of its operators, links for its customers, and requests that
-- may be repeated.

-- An operator's token reaches every organization.
alter table webhooks.token
    alter column organization_slug drop not null,
    add check (organization_slug is not null or permissions = array['webhooks:read']);
comment on column webhooks.token.organization_slug is 'Null: an operator''s.';

-- A link to the page for customers is a token of limited time, which may be for one project alone.  It ends when the
-- project goes to another organization.
alter table webhooks.token
    add column project_ref text references webhooks.project on delete cascade,
    add column portal jsonb,
    add check (portal is null or organization_slug is not null and expires_at is not null),
    add check (portal is not null or project_ref is null);
create index token_project on webhooks.token (project_ref);
create index token_portal on webhooks.token (expires_at) where portal is not null;
comment on column webhooks.token.portal is 'How the page looks, and what it shows; null: no link.';

create table webhooks.answer (
    token_id uuid not null references webhooks.token on delete cascade,
    key text not null,
    request bytea not null,
    answer bytea,
    created_at timestamptz not null default now(),
    primary key (token_id, key)
);
create index answer_created on webhooks.answer (created_at);
comment on table webhooks.answer is 'The answers to requests with an idempotency key, for 24 hours.';
comment on column webhooks.answer.request is 'A hash, by which another request with the same key is detected.';
comment on column webhooks.answer.answer is
    'Encrypted with a key that is made from the token, as it may hold a secret; null while the request is under way.';

-- A project's history has its events' deliveries to the organization's endpoints, too.  A page of them comes from an
-- index for each endpoint, as that of the endpoint's own deliveries does.
alter table webhooks.due add column project_ref text;
alter table webhooks.delivery add column project_ref text;
comment on column webhooks.due.project_ref is
    'The project of the event, where the endpoint is its organization''s; null for the project''s own endpoints.';
comment on column webhooks.delivery.project_ref is 'As in webhooks.due.';
create index due_project on webhooks.due (endpoint_id, project_ref, delivery_id) include (event_type)
    where project_ref is not null;
create index delivery_by_project on webhooks.delivery (endpoint_id, project_ref, id) include (status)
    where project_ref is not null;
create index delivery_by_project_and_type on webhooks.delivery (endpoint_id, project_ref, event_type, id) include (status)
    where project_ref is not null;
create index delivery_by_project_and_status on webhooks.delivery (endpoint_id, project_ref, status, id)
    where project_ref is not null and status <> 'success';
create index delivery_by_project_type_and_status on webhooks.delivery (endpoint_id, project_ref, event_type, status, id)
    where project_ref is not null and status <> 'success';

create or replace view webhooks.record as
select id, event_id, endpoint_id, event_type, status, attempt_number, trigger, response_code, response_headers,
       response_body, error, duration_ms, attempt_timestamp, next_attempt_at, project_ref
from webhooks.delivery
union all
select d.delivery_id, d.event_id, d.endpoint_id, e.type, 'pending', d.attempt_number, d.trigger, 0::smallint,
       null, null, null, null, null, d.due_at, d.project_ref
from webhooks.due d join webhooks.event e on e.id = d.event_id;

-- The endpoints that get an event of an organization, or of its project, the type as which each one gets it: that of the
-- event, and the older ones that go out beside it; and whether it is the organization's own.  Becomes part of the query
-- that calls it.
drop function webhooks.recipients(text, text, text);
create function webhooks.recipients(given_type text, slug text, ref text)
returns table (endpoint_id uuid, epoch integer, type text, of_organization boolean)
language sql stable
as $$
    select e.id, e.epoch, version.type, e.project_ref is null
    from webhooks.endpoint e
    join pg_catalog.unnest(given_type || array(
        select v.renders from webhooks.event_type_version v where v.type = given_type
    )) as version (type) on e.event_types && array[version.type, '*']
    -- A project's endpoints are its own, even if it goes to another organization just now.
    where e.enabled and (e.organization_slug = slug and e.project_ref is null or e.project_ref = ref)
$$;
revoke all on function webhooks.recipients from public;

create or replace function webhooks.publish_row_changes(
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
        -- Rows of a partition belong to the partitioned table.
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

-- Types of row changes that are added while daemons run, besides those of catalogues and configurations.
create table webhooks.row_change_type (
    type text primary key check (type ~ '^v[1-9][0-9]{0,3}([.][a-z][a-z0-9_]*){2,}$' and length(type) <= 56),
    created_at timestamptz not null default now()
);
comment on table webhooks.row_change_type is 'What "dataapi webhooks types add" added; daemons look every two seconds.';

create or replace function webhooks.check_watch(given_type text, slug text, ref text) returns void
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
