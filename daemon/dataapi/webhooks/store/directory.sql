-- name: create_organization
insert into webhooks.organization (slug, early_access) values ($1, $2) on conflict do nothing returning slug;

-- name: allow
update webhooks.organization set early_access = $2 where slug = $1 returning slug;

-- name: organization
select slug, early_access, created_at from webhooks.organization where slug = $1;

-- name: organizations
select slug, early_access, created_at from webhooks.organization order by slug;

-- name: create_project
insert into webhooks.project (ref, organization_slug)
select $1, slug from webhooks.organization where slug = $2
on conflict do nothing
returning ref;

-- name: transfer_project
select webhooks.transfer_project($1, $2, $3);

-- name: projects
select ref, organization_slug from webhooks.project order by ref;

-- name: projects_of
select ref from webhooks.project where organization_slug = $1 order by ref;

-- name: create_token
insert into webhooks.token (id, organization_slug, hash, permissions, expires_at)
select webhooks.uuid_v7(), slug, $2, $3::text[], $4::timestamptz from webhooks.organization where slug = $1
returning id::text, organization_slug, permissions, created_at, expires_at, revoked_at;

-- name: access
select o.early_access, array(select ref from webhooks.project where ref = any ($2) and organization_slug = o.slug),
       id::text, organization_slug, permissions, t.created_at, expires_at, revoked_at
from webhooks.token t join webhooks.organization o on o.slug = t.organization_slug
where hash = $1 and revoked_at is null and (expires_at is null or expires_at > now());

-- name: revoke
update webhooks.token set revoked_at = coalesce(revoked_at, now()) where id = $1::uuid returning id;

-- name: tokens
select id::text, organization_slug, permissions, created_at, expires_at, revoked_at
from webhooks.token order by id;
