-- name: claim
-- Marks due rows as ready, the earliest first, in batches small enough not to block others. Then walks the endpoints with
-- ready rows, from the one after $4 to the last, and from the first to $4. Each endpoint gets its turn, regardless of the
-- length of other queues. All queries are written to use an index and its order, because statistics are outdated.
set local enable_seqscan = off;
set local enable_bitmapscan = off;
update webhooks.due set waiting = false
where delivery_id = any (array(
    select d.delivery_id from webhooks.due d
    where d.waiting and d.claimable_at <= now() order by d.claimable_at limit 1000
    for update skip locked
));
with recursive walk (endpoint_id, stop, turn) as (
    select * from (values
        ($4::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid, 0),
        ('00000000-0000-0000-0000-000000000000'::uuid, $4::uuid, 1000000000)
    ) as ends (endpoint_id, stop, turn)
    union all
    select next.endpoint_id, walk.stop, walk.turn + 1
    from walk cross join lateral (
        select d.endpoint_id from webhooks.due d
        where not d.waiting and d.endpoint_id > walk.endpoint_id and d.endpoint_id <= walk.stop
        order by d.endpoint_id limit 1
    ) next
), paced as materialized (
    -- Concurrent claims skip the endpoints that are locked here. Besides one attempt, a claim may use the part of
    -- max_per_second that was not used in the last 0.1 seconds.
    select p.endpoint_id, case when p.next_at <= now() then 1 + floor(e.max_per_second * extract(
            epoch from now() - greatest(p.next_at, now() - interval '100 milliseconds')))::integer else 0 end as room
    from webhooks.pace p join webhooks.endpoint e on e.id = p.endpoint_id
    where p.endpoint_id = any (array(select endpoint_id from walk))
    for no key update of p skip locked
), room as materialized (
    select w.endpoint_id, w.turn, least(
        coalesce(l.room, case
            when $7::text[] <> '{}' and exists (
                select from webhooks.endpoint e where e.id = w.endpoint_id and e.organization_slug = any ($7::text[])
            ) then 0 else $3::integer end),
        case when p.endpoint_id is not null then coalesce(paced.room, 0) end) as room
    from walk w
    left join unnest($5::uuid[], $6::integer[]) as l (endpoint_id, room) on l.endpoint_id = w.endpoint_id
    left join webhooks.pace p on p.endpoint_id = w.endpoint_id
    left join paced on paced.endpoint_id = w.endpoint_id
    where w.turn not in (0, 1000000000)
), due_rows as materialized (
    select one.*
    from (select * from room where room.room > 0 order by turn) r cross join lateral (
        select d.delivery_id, d.event_id, d.endpoint_id, d.epoch, d.trigger
        from webhooks.due d
        where not d.waiting and d.endpoint_id = r.endpoint_id and d.claimable_at <= now()
        order by d.claimable_at
        limit r.room
        for update skip locked
    ) one
    limit $1
), joined as materialized (
    select p.delivery_id, e.id as endpoint, v.id as event,
           e.enabled and e.epoch = p.epoch and not (v.delivered and p.trigger = 'automatic') and not v.payload_deleted
               as live,
           case when v.payload_deleted then 'payload_deleted'
               when not e.enabled and e.disabled_since is not null then 'endpoint_failing' end as skip_reason,
           e.organization_slug, e.url, e.signing_secret,
           case when e.previous_secret_until > now() then e.previous_secret end as previous_secret,
           e.custom_headers, e.max_per_second, v.type, v.body, v.rendered_from, v.payload, v.traceparent
    from due_rows p
    left join webhooks.endpoint e on e.id = p.endpoint_id
    left join webhooks.event v on v.id = p.event_id
), settled as (
    delete from webhooks.due d using joined j
    where d.delivery_id = j.delivery_id and (j.endpoint is null or j.event is null or not j.live)
    returning d.*, j.endpoint, j.event, j.type, j.skip_reason
), dropped as (
    delete from webhooks.event where id = any (array(select event_id from settled where endpoint is null))
), skipped as (
    insert into webhooks.delivery (
        id, event_id, endpoint_id, event_type, status, attempt_number, trigger, error, project_ref
    )
    select delivery_id, event_id, endpoint_id, type, 'skipped', attempt_number, trigger, skip_reason, project_ref
    from settled where endpoint is not null and event is not null
), claimed as (
    update webhooks.due d
    set leased = true, waiting = true, claimable_at = now() + $2 * interval '1 second', fence = d.fence + 1,
        holder = $8::integer
    from joined j
    where d.delivery_id = j.delivery_id and j.live and j.event is not null
    returning d.*
), spent as (
    update webhooks.pace p
    set next_at = greatest(p.next_at, now() - interval '100 milliseconds') + c.number * interval '1 second' / c.rate
    from (
        select c.endpoint_id, count(*) as number, min(j.max_per_second) as rate
        from claimed c join joined j on j.delivery_id = c.delivery_id
        where j.max_per_second is not null group by c.endpoint_id
    ) c
    where p.endpoint_id = c.endpoint_id
)
select (select count(*) from settled), c.delivery_id::text, c.fence, c.event_id::text, c.endpoint_id::text,
       j.organization_slug, c.attempt_number, c.trigger, extract(epoch from now() - webhooks.uuid_time(c.delivery_id))::float8,
       j.url, j.signing_secret, j.previous_secret, j.custom_headers, j.type, j.body, j.rendered_from, j.payload::text,
       j.traceparent
from (select 1) as always
left join (claimed c join joined j on j.delivery_id = c.delivery_id) on true
order by c.due_at;

-- name: finish
-- Accepts an outcome only if its fence matches, so that only the holder of a claim can report it. If a daemon is paused
-- for longer than its lease and claims an attempt again, a batch can contain the attempt twice. A successful manual retry
-- ends automatic attempts: a waiting attempt is skipped, a claimed one that has not begun is released, and one in flight
-- is the last one. A response can contain a payload that has been deleted meanwhile. Deletions wait for the lock, so each
-- deletion either sees the records of this statement or is visible to it.
set local enable_seqscan = off;
select pg_catalog.pg_advisory_xact_lock_shared(7236148250117004);
with outcome as materialized (
    select o.*, case when o.wait is not null and not exists (
        select from webhooks.due d join webhooks.event v on v.id = d.event_id
        where d.delivery_id = o.delivery_id and (v.delivered or v.payload_deleted)
    ) then o.wait end as retry_in
    from json_to_recordset($1::json) as o (
        delivery_id uuid, fence bigint, wait float8, status text, response_code smallint,
        response_headers jsonb, response_body text, error text, duration_ms integer, signed_at timestamptz
    )
), ended as (
    delete from webhooks.due d using outcome o
    where d.delivery_id = o.delivery_id and d.fence = o.fence and d.leased and o.retry_in is null
    returning o.delivery_id, o.fence, d.event_id, d.endpoint_id, d.attempt_number, d.trigger,
              null::timestamptz as next_attempt_at, d.project_ref, o.status = 'success' as delivered
), delivered as (
    update webhooks.event v set delivered = true
    where v.id = any (array(select event_id from ended where trigger = 'manual' and delivered))
    returning v.id, case when exists (
        select from webhooks.due d
        where d.event_id = v.id and d.attempt_number > 1 and d.leased and d.claimable_at > now()
    ) then pg_notify('webhooks_changed', '') end
), superseded as (
    delete from webhooks.due d
    where d.delivery_id = any (array(
        select w.delivery_id from webhooks.due w
        where w.event_id = any (array(select id from delivered)) and w.attempt_number > 1
            and not (w.leased and w.claimable_at > now())
        for update skip locked
    ))
    returning d.*
), skipped as (
    insert into webhooks.delivery (id, event_id, endpoint_id, event_type, status, attempt_number, trigger, project_ref)
    select s.delivery_id, s.event_id, s.endpoint_id, v.type, 'skipped', s.attempt_number, s.trigger, s.project_ref
    from superseded s join webhooks.event v on v.id = s.event_id
), again as (
    update webhooks.due d
    set delivery_id = webhooks.uuid_v7(), attempt_number = d.attempt_number + 1,
        due_at = now() + o.retry_in * interval '1 second', claimable_at = now() + o.retry_in * interval '1 second',
        leased = false, waiting = true, fence = d.fence + 1
    from outcome o
    where d.delivery_id = any (array(select delivery_id from outcome where retry_in is not null))
        and d.delivery_id = o.delivery_id and d.fence = o.fence and d.leased and o.retry_in is not null
    returning o.delivery_id, o.fence, d.event_id, d.endpoint_id, (d.attempt_number - 1)::smallint, d.trigger,
              d.due_at, d.project_ref
), accepted as (
    select delivery_id, fence, event_id, endpoint_id, attempt_number, trigger, next_attempt_at, project_ref from ended
    union all
    select * from again
), recorded as (
    insert into webhooks.delivery (
        id, event_id, endpoint_id, event_type, status, attempt_number, trigger, response_code, response_headers,
        response_body, error, duration_ms, attempt_timestamp, next_attempt_at, project_ref
    )
    select t.delivery_id, t.event_id, t.endpoint_id, v.type, o.status, t.attempt_number, t.trigger,
           o.response_code, case when not v.payload_deleted then o.response_headers end,
           case when not v.payload_deleted then o.response_body end, o.error, o.duration_ms, o.signed_at,
           t.next_attempt_at, t.project_ref
    from accepted t
    join outcome o on o.delivery_id = t.delivery_id and o.fence = t.fence
    join webhooks.event v on v.id = t.event_id
), extended as (
    -- After a long outage, a later attempt must not outlive its event.
    update webhooks.event v set kept_until = now() + ($2 + 1) * interval '1 day'
    where v.id = any (array(select event_id from again))
        and v.id < webhooks.uuid_floor(now() - interval '12 hours')
), ended_by_endpoint as materialized (
    -- Deliveries of operational events do not cause operational events.
    select a.endpoint_id, min(o.signed_at) as since, bool_or(o.status = 'success') as answered,
           bool_or(a.next_attempt_at is null) as reported
    from accepted a
    join outcome o on o.delivery_id = a.delivery_id and o.fence = a.fence
    join webhooks.event v on v.id = a.event_id
    where (a.trigger = 'automatic' or o.status = 'success') and not webhooks.is_operational(v.type)
    group by a.endpoint_id
), recovered as (
    delete from webhooks.failing f
    where f.endpoint_id = any (array(select endpoint_id from ended_by_endpoint where answered))
    returning f.endpoint_id, f.since, f.reported
), failing as (
    insert into webhooks.failing as f (endpoint_id, since, reported)
    select endpoint_id, since, reported from ended_by_endpoint where not answered
    on conflict (endpoint_id) do update set reported = true where not f.reported and excluded.reported
    returning f.endpoint_id, f.since, f.reported
), disabled as (
    update webhooks.endpoint e set enabled = false, epoch = e.epoch + 1, disabled_since = now(), updated_at = now()
    from webhooks.failing f
    where f.endpoint_id = any (array(select endpoint_id from ended_by_endpoint where not answered)) and e.id = f.endpoint_id
        and e.enabled and f.since <= now() - $3::float8 * interval '1 day' and $3::float8 > 0
    returning e.id, f.since, pg_notify('webhooks_changed', '')
), raised as materialized (
    select webhooks.raise_endpoint_event(t.id, t.name, t.since)
    from (
        select id, 'disabled' as name, since from disabled
        union all
        select endpoint_id, 'failing', since from failing where reported
        union all
        select endpoint_id, 'recovered', since from recovered where reported
    ) t
)
select delivery_id::text from accepted where (select count(*) from raised) >= 0;

-- name: release
update webhooks.due d
set leased = false, claimable_at = greatest(d.due_at, now() + $3 * interval '1 second'), fence = d.fence + 1,
    waiting = greatest(d.due_at, now() + $3 * interval '1 second') > now()
from unnest($1::uuid[], $2::bigint[]) as held (delivery_id, fence)
where d.delivery_id = held.delivery_id and d.fence = held.fence and d.leased
returning d.delivery_id::text;

-- name: next_due
-- Runs several times per second in each process. Rows with waiting = true are considered even for excluded endpoints.
set local enable_seqscan = off;
with recursive walk (endpoint_id) as (
    select '00000000-0000-0000-0000-000000000000'::uuid
    union all
    select next.endpoint_id
    from walk cross join lateral (
        select d.endpoint_id from webhooks.due d
        where not d.waiting and d.endpoint_id > walk.endpoint_id order by d.endpoint_id limit 1
    ) next
)
select extract(epoch from least(
    (select d.claimable_at from webhooks.due d where d.waiting order by d.claimable_at limit 1),
    (
        select min(first.claimable_at)
        from walk cross join lateral (
            select greatest(d.claimable_at, (
                select p.next_at from webhooks.pace p where p.endpoint_id = walk.endpoint_id)) as claimable_at
            from webhooks.due d
            where not d.waiting and d.endpoint_id = walk.endpoint_id order by d.claimable_at limit 1
        ) first
        where walk.endpoint_id not in (select unnest($1::uuid[]))
            and ($2::text[] = '{}' or not exists (
                select from webhooks.endpoint e where e.id = walk.endpoint_id and e.organization_slug = any ($2::text[])
            ))
    )
) - now())::float8;

-- name: leave
-- Does nothing if another session has registered the dispatcher in the meantime.
delete from webhooks.dispatcher
where number = $1 and pg_catalog.pg_try_advisory_xact_lock(723614825, number);

-- name: take_over
-- A dispatcher is missing if its lock can be acquired. Reconnecting updates its row. If it does not reconnect in time, the
-- row is deleted and its claims become available.
with tried as materialized (
    select p.number, p.missing_since, pg_catalog.pg_try_advisory_xact_lock(723614825, p.number) as missing
    from webhooks.dispatcher p where p.number <> $1
), marked as (
    update webhooks.dispatcher p set missing_since = now()
    from tried t where p.number = t.number and t.missing and t.missing_since is null
), dead as (
    delete from webhooks.dispatcher p using tried t
    where p.number = t.number and t.missing and t.missing_since <= now() - $2 * interval '1 second'
    returning p.number
), released as (
    update webhooks.due d set claimable_at = now(), waiting = false
    where d.leased and d.claimable_at > now() and d.holder = any (array(select number from dead))
        and exists (select from dead)
    returning 1
)
select count(*) from released;

-- name: rendered
-- Does not replace a body that is already stored, so that all attempts send the same bytes.
update webhooks.event
set body = webhooks.envelope(id, type, happened_at, $2::jsonb::text), payload = null
where id = $1::uuid and body is null and not payload_deleted;
select body from webhooks.event where id = $1::uuid and not payload_deleted;

-- name: statistics
-- If the queue has more than $1 rows, estimates the counts from about $1 rows of random pages, so that the time does not
-- depend on the length of the queue.
with part as materialized (
    select least(1, $1 / greatest(reltuples, 1)::float8) as read
    from pg_catalog.pg_class where oid = 'webhooks.due'::pg_catalog.regclass
)
select (count(*) / (select read from part))::bigint,
       (count(*) filter (where claimable_at <= now()) / (select read from part))::bigint,
       (count(*) filter (where leased and claimable_at > now()) / (select read from part))::bigint,
       coalesce(extract(epoch from now() - min(due_at) filter (where due_at <= now())), 0)::float8,
       (select count(*) from webhooks.failing where reported)
from webhooks.due tablesample system ((select 100 * read from part));
