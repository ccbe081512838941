-- name: make_partitions
select webhooks.make_partitions($1);

-- name: drop_partition
select webhooks.drop_partition($1 * interval '1 day');

-- name: purge_events
-- A day more than retention: the last attempt of an event may be planned some time after it was raised.
delete from webhooks.event
where id in (
    select v.id from webhooks.event v
    where v.id < webhooks.uuid_floor(now() - ($1 + 1) * interval '1 day')
        and coalesce(v.kept_until, '-infinity') < now()
        and not exists (select from webhooks.due d where d.event_id = v.id)
    order by v.id
    limit $2
)
returning 1;

-- name: purge_keys
delete from webhooks.idempotency
where (organization_slug, key) in (
    select organization_slug, key from webhooks.idempotency
    where created_at <= now() - interval '24 hours' order by created_at limit $1
)
returning 1;

-- name: purge_requests
delete from webhooks.request where at < now() - interval '60 seconds' returning 1;
