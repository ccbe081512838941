-- name: create
-- Serializes the creation of endpoints of an organization, to enforce the limit.
select 1 from webhooks.organization where slug = $2 for no key update;
with created as (
    insert into webhooks.endpoint (
        id, organization_slug, project_ref, url, event_types, signing_secret, custom_headers, description, enabled,
        created_by, max_per_second
    )
    select $1::uuid, $2, $3, $4, $5::text[], $6, $7, $8, $9, $10, $12::integer
    where (
        select count(*) from webhooks.endpoint
        where organization_slug = $2 and project_ref is not distinct from $3::text
    ) < $11
    returning *
), paced as (
    insert into webhooks.pace (endpoint_id) select id from created where max_per_second is not null
)
select id::text, organization_slug, project_ref, url, event_types, custom_headers, description, enabled,
       created_by, created_at, updated_at,
       max_per_second, disabled_since, null, previous_secret_until
from created;

-- name: list
select count(*) over () as total, id::text, organization_slug, project_ref, url, event_types, custom_headers,
       description, enabled, created_by, created_at, updated_at,
       max_per_second, disabled_since, webhooks.failing_since(endpoint.id), previous_secret_until
from webhooks.endpoint
where organization_slug = $1 and project_ref is not distinct from $2::text
order by endpoint.id
limit $3 offset $4;

-- name: count
select count(*) from webhooks.endpoint
where organization_slug = $1 and project_ref is not distinct from $2::text;

-- name: read
select id::text, organization_slug, project_ref, url, event_types, custom_headers, description, enabled,
       created_by, created_at, updated_at,
       max_per_second, disabled_since, webhooks.failing_since(endpoint.id), previous_secret_until
from webhooks.endpoint
where organization_slug = $1 and project_ref is not distinct from $2::text and id = $3::uuid;

-- name: change
-- Daemons release claimed attempts that have not begun, and claim them again. Enabling an endpoint clears its failures.
select pg_notify('webhooks_changed', '') from webhooks.endpoint
where organization_slug = $1 and project_ref is not distinct from $2::text and id = $3::uuid
for no key update;
delete from webhooks.failing f using webhooks.endpoint e
where f.endpoint_id = $3::uuid and e.id = f.endpoint_id and not e.enabled and $10::boolean
    and e.organization_slug = $1 and e.project_ref is not distinct from $2::text;
delete from webhooks.pace p using webhooks.endpoint e
where p.endpoint_id = $3::uuid and e.id = p.endpoint_id and $11 and $12::integer is null
    and e.organization_slug = $1 and e.project_ref is not distinct from $2::text;
insert into webhooks.pace (endpoint_id)
select id from webhooks.endpoint
where organization_slug = $1 and project_ref is not distinct from $2::text and id = $3::uuid
    and $11 and $12::integer is not null
on conflict do nothing;
select webhooks.raise_endpoint_event(id, 'secret_rotated') from webhooks.endpoint
where organization_slug = $1 and project_ref is not distinct from $2::text and id = $3::uuid and $6::bytea is not null;
update webhooks.endpoint set
    url = coalesce($4, url),
    event_types = coalesce($5::text[], event_types),
    signing_secret = coalesce($6::bytea, signing_secret),
    previous_secret = case when $6::bytea is null then previous_secret when $13::integer > 0 then signing_secret end,
    previous_secret_until = case when $6::bytea is null then previous_secret_until
        when $13::integer > 0 then now() + $13::integer * interval '1 second' end,
    custom_headers = coalesce($7::bytea, custom_headers),
    description = case when $8 then $9 else description end,
    enabled = coalesce($10::boolean, enabled),
    epoch = epoch + (enabled and not coalesce($10::boolean, true))::integer,
    max_per_second = case when $11 then $12::integer else max_per_second end,
    disabled_since = case when $10::boolean is null then disabled_since end,
    updated_at = now()
where organization_slug = $1 and project_ref is not distinct from $2::text and id = $3::uuid
returning id::text, organization_slug, project_ref, url, event_types, custom_headers, description, enabled,
          created_by, created_at, updated_at,
          max_per_second, disabled_since, webhooks.failing_since(endpoint.id), previous_secret_until;

-- name: delete
-- Deletes the endpoint $3, or all endpoints of the scope if $3 is null. Also deletes their due rows and deliveries, up to
-- about $4 rows in total. Maintenance deletes the other rows. Rows without an endpoint are neither listed nor delivered.
-- Daemons release claimed attempts that have not begun.
select pg_notify('webhooks_changed', '') from webhooks.endpoint
where organization_slug = $1 and project_ref is not distinct from $2::text and id = coalesce($3::uuid, id)
for update;
select webhooks.remove_rows(id, ceil($4::float8 / count(*) over ())::integer) from webhooks.endpoint
where organization_slug = $1 and project_ref is not distinct from $2::text and id = coalesce($3::uuid, id);
with gone as (
    delete from webhooks.endpoint
    where organization_slug = $1 and project_ref is not distinct from $2::text and id = coalesce($3::uuid, id)
    returning *
), forgotten as (
    delete from webhooks.failing where endpoint_id = any (array(select id from gone))
), unpaced as (
    delete from webhooks.pace where endpoint_id = any (array(select id from gone))
)
select id::text, organization_slug, project_ref, url, event_types, custom_headers, description, enabled,
       created_by, created_at, updated_at,
       max_per_second, disabled_since, null, previous_secret_until
from gone order by gone.id;

-- name: sealed_otherwise
-- $1: prefix of secrets that are sealed with the first key.
select id::text, signing_secret, custom_headers, previous_secret
from webhooks.endpoint
where id > $2::uuid
    and (substr(signing_secret, 1, length($1::bytea)) <> $1::bytea
        or substr(custom_headers, 1, length($1::bytea)) <> $1::bytea
        or substr(previous_secret, 1, length($1::bytea)) <> $1::bytea)
order by id
limit $3;

-- name: replace
-- Does not overwrite concurrent changes.
update webhooks.endpoint set signing_secret = $5::bytea, custom_headers = $6::bytea, previous_secret = $7::bytea
where id = $1::uuid and signing_secret = $2::bytea and custom_headers = $3::bytea
    and previous_secret is not distinct from $4::bytea
returning id::text;

-- name: delete_payload
-- Waits for outcomes that are being recorded, and blocks later ones.
select pg_catalog.pg_advisory_xact_lock(7236148250117004);
select webhooks.delete_payload($1, $2::text, $3::uuid);
