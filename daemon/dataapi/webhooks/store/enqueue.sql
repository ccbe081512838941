-- name: publish
select webhooks.publish_events($1, $2::jsonb)::text[];

-- name: publish_as
-- Returns no row without a valid token of the organization. The headers contain the trace context.
select set_config('request.headers', $4, true);
select webhooks.publish_events(organization_slug, $2::jsonb)::text[]
from webhooks.token
where hash = $3 and organization_slug = $1 and 'events:publish' = any (permissions)
    and revoked_at is null and (expires_at is null or expires_at > now());

-- name: replace_event_types
delete from webhooks.event_type
where type <> all ($3::text[]) and type not in (select type from webhooks.row_change_type);
insert into webhooks.event_type select unnest($3::text[]) on conflict do nothing;
delete from webhooks.event_type_version
where (type, renders) not in (select * from unnest($1::text[], $2::text[]));
insert into webhooks.event_type_version (type, renders)
select * from unnest($1::text[], $2::text[])
on conflict do nothing;

-- name: test
-- Serializes requests for an endpoint, to enforce the limit across daemons.
select 1 from webhooks.endpoint where id = $3::uuid for no key update;
with target as (
    select e.*, recent.number, recent.first
    from webhooks.endpoint e
    cross join (
        select count(*) as number, min(at) as first from webhooks.request
        where endpoint_id = $3::uuid and at > now() - interval '60 seconds'
    ) recent
    where e.id = $3::uuid and e.organization_slug = $1 and e.project_ref is not distinct from $2::text
), copy as materialized (
    select webhooks.uuid_v7() as id, webhooks.uuid_v7() as delivery_id, target.id as endpoint_id, epoch,
           date_trunc('milliseconds', clock_timestamp()) as happened_at,
           jsonb_build_object('actor', null) || $5::jsonb || jsonb_build_object(
               'organization_slug', organization_slug,
               'project_ref', coalesce(to_jsonb(project_ref), $5::jsonb -> 'project_ref'), 'is_test', true
           ) as payload
    from target where enabled and number < $6
), counted as (
    insert into webhooks.request (endpoint_id, at) select endpoint_id, clock_timestamp() from copy
), event as (
    insert into webhooks.event (id, endpoint_id, type, happened_at, body)
    select id, endpoint_id, $4, happened_at, webhooks.envelope(id, $4, happened_at, payload::text) from copy
), queued as (
    insert into webhooks.due (delivery_id, event_id, endpoint_id, epoch, event_type, trigger, due_at, claimable_at)
    select delivery_id, id, endpoint_id, epoch, $4, 'test', clock_timestamp(), clock_timestamp() from copy
    returning event_id, delivery_id, pg_notify('webhooks', '')
)
select target.enabled, ceil(extract(epoch from target.first - now()) + 60)::integer, event_id::text, delivery_id::text
from target left join queued on true;

-- name: retry
select 1 from webhooks.endpoint where id = (select endpoint_id from webhooks.record where id = $3::uuid)
for no key update;
with target as (
    select e.id, e.enabled, e.epoch, r.event_id, r.event_type, r.project_ref, recent.number, recent.first
    from webhooks.record r
    join webhooks.event v on v.id = r.event_id and not v.payload_deleted
    join webhooks.endpoint e on e.id = r.endpoint_id
    cross join lateral (
        select count(*) as number, min(at) as first from webhooks.request
        where endpoint_id = e.id and at > now() - interval '60 seconds'
    ) recent
    where r.id = $3::uuid and r.id >= webhooks.uuid_floor(now() - $4 * interval '1 day')
        and e.organization_slug = $1 and e.project_ref is not distinct from $2::text
), queued as (
    insert into webhooks.due (
        delivery_id, event_id, endpoint_id, epoch, event_type, trigger, due_at, claimable_at, project_ref
    )
    select webhooks.uuid_v7(), event_id, id, epoch, event_type, 'manual', clock_timestamp(), clock_timestamp(), project_ref
    from target where enabled and number < $5
    returning event_id, endpoint_id, delivery_id, pg_notify('webhooks', '')
), counted as (
    insert into webhooks.request (endpoint_id, at) select endpoint_id, clock_timestamp() from queued
), extended as (
    update webhooks.event v set kept_until = now() + ($4 + 1) * interval '1 day'
    from queued where v.id = queued.event_id
)
select target.enabled, ceil(extract(epoch from target.first - now()) + 60)::integer, queued.event_id::text,
       delivery_id::text
from target left join queued on true;

-- name: recover
-- Skips events that have since been delivered or are queued. The row lock serializes concurrent recoveries, so that an
-- event is not enqueued twice.
select 1 from webhooks.endpoint where id = $3::uuid for no key update;
with target as (
    select * from webhooks.endpoint
    where id = $3::uuid and organization_slug = $1 and project_ref is not distinct from $2::text
), lost as (
    select distinct d.event_id, d.event_type, d.project_ref
    from target join webhooks.delivery d on d.endpoint_id = target.id
    join webhooks.event v on v.id = d.event_id and not v.payload_deleted
    where target.enabled and d.endpoint_id = $3::uuid
        and (d.status = 'failed' and d.next_attempt_at is null or d.status = 'skipped')
        and d.id >= greatest(webhooks.uuid_floor(now() - $6 * interval '1 day'), $4::uuid) and d.id < $5::uuid
        and not exists (
            select from webhooks.delivery s where s.event_id = d.event_id and s.status = 'success'
        )
        and d.event_id not in (select w.event_id from webhooks.due w where w.endpoint_id = $3::uuid)
), queued as (
    insert into webhooks.due (
        delivery_id, event_id, endpoint_id, epoch, event_type, trigger, due_at, claimable_at, project_ref
    )
    select webhooks.uuid_v7(), lost.event_id, target.id, epoch, event_type, 'manual', clock_timestamp(),
           clock_timestamp(), lost.project_ref
    from target cross join lost
    returning event_id
), extended as (
    update webhooks.event v set kept_until = now() + ($6 + 1) * interval '1 day'
    from queued where v.id = queued.event_id
)
select target.enabled, webhooks.uuid_v7()::text, (select count(*) from queued), pg_notify('webhooks', '') from target;
