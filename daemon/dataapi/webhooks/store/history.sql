-- name: list
-- $1, $2, $3: organization, project, endpoint. $4, $5: lower and upper bound of identifiers. $6: retention in days.
-- Reads up to a page of identifiers for each endpoint from its index, and then only the records of the page.
-- A project's events are also sent to endpoints of its organization. The responses of these endpoints are not returned.
-- For pages of newer records, "desc" is replaced with "asc".
with page as (
    select one.id
    from webhooks.endpoint e
    cross join lateral (
        (
            select d.id from webhooks.delivery d
            where d.endpoint_id = e.id
                and d.id >= greatest(webhooks.uuid_floor(now() - $6 * interval '1 day'), $4::uuid) and d.id < $5::uuid
                and ($7::text is null or d.status = $7)
                and ($8::uuid is null or d.event_id = $8::uuid)
                and ($9::text is null or d.event_type = $9)
            order by d.id desc limit $10
        )
        union all
        (
            select w.delivery_id from webhooks.due w
            where w.endpoint_id = e.id
                and w.delivery_id >= greatest(webhooks.uuid_floor(now() - $6 * interval '1 day'), $4::uuid)
                and w.delivery_id < $5::uuid
                and ($7::text is null or $7 = 'pending')
                and ($8::uuid is null or w.event_id = $8::uuid)
                and ($9::text is null or w.event_type = $9)
            order by w.delivery_id desc limit $10
        )
    ) one
    where e.organization_slug = $1 and e.project_ref is not distinct from $2::text and e.id = coalesce($3::uuid, e.id)
        and ($8::uuid is null or e.id = (select v.endpoint_id from webhooks.event v where v.id = $8::uuid))
    union all
    select one.id
    from webhooks.endpoint e
    cross join lateral (
        (
            select d.id from webhooks.delivery d
            where d.endpoint_id = e.id and d.project_ref = $2
                and d.id >= greatest(webhooks.uuid_floor(now() - $6 * interval '1 day'), $4::uuid) and d.id < $5::uuid
                and ($7::text is null or d.status = $7)
                and ($8::uuid is null or d.event_id = $8::uuid)
                and ($9::text is null or d.event_type = $9)
            order by d.id desc limit $10
        )
        union all
        (
            select w.delivery_id from webhooks.due w
            where w.endpoint_id = e.id and w.project_ref = $2
                and w.delivery_id >= greatest(webhooks.uuid_floor(now() - $6 * interval '1 day'), $4::uuid)
                and w.delivery_id < $5::uuid
                and ($7::text is null or $7 = 'pending')
                and ($8::uuid is null or w.event_id = $8::uuid)
                and ($9::text is null or w.event_type = $9)
            order by w.delivery_id desc limit $10
        )
    ) one
    where e.organization_slug = $1 and e.project_ref is null and $2::text is not null and $3::uuid is null
        and ($8::uuid is null or e.id = (select v.endpoint_id from webhooks.event v where v.id = $8::uuid))
    order by 1 desc
    limit $10
)
select r.id::text, r.event_id::text, r.endpoint_id::text, r.event_type, r.status, r.attempt_number, r.trigger,
       r.response_code, case when e.project_ref is not distinct from $2 then r.response_headers::text end,
       case when e.project_ref is not distinct from $2 then r.response_body end,
       r.error, r.duration_ms, r.attempt_timestamp, r.next_attempt_at,
       webhooks.uuid_time(r.id) + $6 * interval '1 day', webhooks.uuid_time(r.id),
       case when e.project_ref is null then 'organization' else 'project' end
from page
cross join lateral (select * from webhooks.record where id = page.id limit 1) r
join webhooks.endpoint e on e.id = r.endpoint_id
order by r.id desc;

-- name: read
select r.id::text, r.event_id::text, r.endpoint_id::text, r.event_type, r.status, r.attempt_number, r.trigger,
       r.response_code, case when e.project_ref is not distinct from $2::text then r.response_headers::text end,
       case when e.project_ref is not distinct from $2 then r.response_body end,
       r.error, r.duration_ms, r.attempt_timestamp, r.next_attempt_at,
       webhooks.uuid_time(r.id) + $4 * interval '1 day', webhooks.uuid_time(r.id),
       case when e.project_ref is null then 'organization' else 'project' end,
       v.type, v.happened_at, coalesce(v.payload, v.body::jsonb -> 'payload')::text,
       case when v.body is null then v.rendered_from end
from webhooks.record r
join webhooks.endpoint e on e.id = r.endpoint_id
join webhooks.event v on v.id = r.event_id
where r.id = $3::uuid and e.organization_slug = $1
    and (e.project_ref is not distinct from $2 or e.project_ref is null and r.project_ref = $2)
    and r.id >= webhooks.uuid_floor(now() - $4 * interval '1 day');

-- name: statistics
-- $1, $2: organization, project. $3, $4: lower and upper bound of identifiers. $5: retention in days. Each day of an
-- endpoint is read from the index. Percentiles are computed from counts of durations, without sorting.
with span as (
    select greatest(webhooks.uuid_floor(now() - $5 * interval '1 day'), $3::uuid) as low,
           least(webhooks.uuid_floor(now() + interval '1 day'), $4::uuid) as high
), day as (
    select day, greatest(low, webhooks.uuid_floor(day)) as low,
           least(high, webhooks.uuid_floor(day + interval '24 hours')) as high
    from span
    cross join generate_series(
        date_trunc('day', webhooks.uuid_time(low), 'UTC'), webhooks.uuid_time(high), interval '24 hours'
    ) day
), counted as (
    select day.day, e.id, d.duration_ms, sum(number) filter (where d.status = 'success') as success,
           sum(number) filter (where d.status = 'failed') as failed,
           sum(number) filter (where d.status = 'skipped') as skipped,
           sum(number) filter (where d.duration_ms is not null) as timed
    from day
    cross join webhooks.endpoint e
    cross join lateral (
        select status, duration_ms, count(*) as number from webhooks.delivery
        where endpoint_id = e.id and delivery.id >= day.low and delivery.id < day.high
        group by status, duration_ms
    ) d
    where e.organization_slug = $1 and e.project_ref is not distinct from $2::text
    group by grouping sets ((day.day, d.duration_ms), (day.day, e.id, d.duration_ms))
), ranked as (
    select *, sum(timed) over (partition by day, id order by duration_ms) as rank,
           sum(timed) over (partition by day, id) as number
    from counted
)
select (day at time zone 'UTC')::date, id::text, coalesce(sum(success), 0)::bigint, coalesce(sum(failed), 0)::bigint,
       coalesce(sum(skipped), 0)::bigint, min(duration_ms) filter (where rank >= ceil(0.5 * number)),
       min(duration_ms) filter (where rank >= ceil(0.95 * number))
from ranked
group by day, id
order by day, id nulls first;

-- name: make_partitions
select webhooks.make_partitions($1);

-- name: drop_partition
select webhooks.drop_partition($1 * interval '1 day');

-- name: keep_events
-- Extends the retention of events with attempts that are still queued. Enqueuing a later attempt also extends it.
-- Therefore purge_events does not check the queue for each batch.
update webhooks.event v set kept_until = now() + interval '1 day'
from webhooks.due d
where d.event_id = v.id and d.event_id < webhooks.uuid_floor(now() - ($1 + 1) * interval '1 day')
    and coalesce(v.kept_until, '-infinity') < now();

-- name: purge_events
-- Events are kept one day longer than deliveries, because the last attempt may be made long after the event was
-- published.
delete from webhooks.event
where id in (
    select v.id from webhooks.event v
    where v.id < webhooks.uuid_floor(now() - ($1 + 1) * interval '1 day')
        and coalesce(v.kept_until, '-infinity') < now()
    order by v.id
    limit $2
)
returning 1;

-- name: remove_rows
select webhooks.remove_rows(endpoint_id, $1)
from (select endpoint_id from webhooks.removal order by endpoint_id limit 1 for update skip locked) next;

-- name: purge_keys
delete from webhooks.idempotency
where (organization_slug, key) in (
    select organization_slug, key from webhooks.idempotency
    where created_at <= now() - interval '24 hours' order by created_at limit $1
)
returning 1;

-- name: purge_endpoints
-- Deletes data of deleted endpoints, and previous secrets after their grace period.
delete from webhooks.failing f where not exists (select from webhooks.endpoint e where e.id = f.endpoint_id);
delete from webhooks.pace p where not exists (select from webhooks.endpoint e where e.id = p.endpoint_id);
update webhooks.endpoint set previous_secret = null, previous_secret_until = null where previous_secret_until <= now();

-- name: purge_requests
delete from webhooks.request where at < now() - interval '60 seconds' returning 1;

-- name: purge_stored_responses
delete from webhooks.answer
where (token_id, key) in (
    select token_id, key from webhooks.answer
    where created_at <= now() - interval '24 hours' order by created_at limit $1
)
returning 1;

-- name: purge_links
delete from webhooks.token
where id in (select id from webhooks.token where portal is not null and expires_at <= now() order by expires_at limit $1)
returning 1;
