-- name: create
-- Endpoints of one organization are created one after the other, so that the limit holds.
select 1 from webhooks.organization where slug = $2 for no key update;
insert into webhooks.endpoint (
    id, organization_slug, project_ref, url, event_types, signing_secret, custom_headers, description, enabled,
    created_by
)
select $1::uuid, $2, $3, $4, $5::text[], $6, $7, $8, $9, $10
where (
    select count(*) from webhooks.endpoint
    where organization_slug = $2 and project_ref is not distinct from $3::text
) < $11
returning id::text, organization_slug, project_ref, url, event_types, custom_headers, description, enabled,
          created_by, created_at, updated_at;

-- name: list
select count(*) over () as total, id::text, organization_slug, project_ref, url, event_types, custom_headers,
       description, enabled, created_by, created_at, updated_at
from webhooks.endpoint
where organization_slug = $1 and project_ref is not distinct from $2::text
order by endpoint.id
limit $3 offset $4;

-- name: count
select count(*) from webhooks.endpoint
where organization_slug = $1 and project_ref is not distinct from $2::text;

-- name: read
select id::text, organization_slug, project_ref, url, event_types, custom_headers, description, enabled,
       created_by, created_at, updated_at
from webhooks.endpoint
where organization_slug = $1 and project_ref is not distinct from $2::text and id = $3::uuid;

-- name: change
-- Daemons release what they have claimed and not begun, and claim it again.
select pg_notify('webhooks_changed', '') from webhooks.endpoint
where organization_slug = $1 and project_ref is not distinct from $2::text and id = $3::uuid;
update webhooks.endpoint set
    url = coalesce($4, url),
    event_types = coalesce($5::text[], event_types),
    signing_secret = coalesce($6::bytea, signing_secret),
    custom_headers = coalesce($7::bytea, custom_headers),
    description = case when $8 then $9 else description end,
    enabled = coalesce($10::boolean, enabled),
    epoch = epoch + (enabled and not coalesce($10::boolean, true))::integer,
    updated_at = now()
where organization_slug = $1 and project_ref is not distinct from $2::text and id = $3::uuid
returning id::text, organization_slug, project_ref, url, event_types, custom_headers, description, enabled,
          created_by, created_at, updated_at;

-- name: delete
-- Without $3 all of the scope, and at most about $4 of their rows: upkeep removes the rest, which is neither shown nor
-- delivered without an endpoint.  Daemons release what they have claimed and not begun, and claim it again.
select pg_notify('webhooks_changed', '') from webhooks.endpoint
where organization_slug = $1 and project_ref is not distinct from $2::text and id = coalesce($3::uuid, id)
for update;
select webhooks.remove_rows(id, ceil($4::float8 / count(*) over ())::integer) from webhooks.endpoint
where organization_slug = $1 and project_ref is not distinct from $2::text and id = coalesce($3::uuid, id);
with gone as (
    delete from webhooks.endpoint
    where organization_slug = $1 and project_ref is not distinct from $2::text and id = coalesce($3::uuid, id)
    returning *
)
select id::text, organization_slug, project_ref, url, event_types, custom_headers, description, enabled,
       created_by, created_at, updated_at
from gone order by gone.id;

-- name: sealed_otherwise
-- What is sealed with the first key begins with $1.
select id::text, signing_secret, custom_headers
from webhooks.endpoint
where id > $2::uuid
    and (substr(signing_secret, 1, length($1::bytea)) <> $1::bytea
        or substr(custom_headers, 1, length($1::bytea)) <> $1::bytea)
order by id
limit $3;

-- name: replace
-- What was changed or deleted since it was read stays so.
update webhooks.endpoint set signing_secret = $4::bytea, custom_headers = $5::bytea
where id = $1::uuid and signing_secret = $2::bytea and custom_headers = $3::bytea
returning id::text;
