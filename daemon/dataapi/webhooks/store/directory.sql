-- name: create_organization
insert into webhooks.organization (slug, early_access) values ($1, $2) on conflict do nothing
returning slug, early_access, created_at;

-- name: allow
update webhooks.organization set early_access = $2 where slug = $1 returning slug, early_access, created_at;

-- name: organization
select slug, early_access, created_at from webhooks.organization where slug = $1;

-- name: organizations
-- $1: limit, or null. $2: offset.
select slug, early_access, created_at from webhooks.organization order by slug limit $1::bigint offset $2;

-- name: count_organizations
select count(*) from webhooks.organization;

-- name: forget_keys
-- $2: maximum number of idempotency keys to delete.
delete from webhooks.idempotency
where organization_slug = $1 and key in (select key from webhooks.idempotency where organization_slug = $1 limit $2)
returning 1;

-- name: delete_organization
-- Deletes the organization, and about $2 rows of its endpoints. Maintenance deletes the other rows. Daemons release claimed
-- attempts that have not begun.
select 1 from webhooks.organization where slug = $1 for update;
select pg_notify('webhooks_changed', '') from webhooks.endpoint where organization_slug = $1 for update;
select webhooks.remove_rows(id, ceil($2::float8 / count(*) over ())::integer) from webhooks.endpoint
where organization_slug = $1;
delete from webhooks.idempotency where organization_slug = $1;
delete from webhooks.organization where slug = $1 returning slug, early_access, created_at;

-- name: create_project
insert into webhooks.project (ref, organization_slug)
select $1, slug from webhooks.organization where slug = $2
on conflict do nothing
returning ref, organization_slug, created_at;

-- name: transfer_project
-- Revokes the project's portal links, so that they stay invalid if the project is transferred back.
select 1 from webhooks.project where ref = $1 for update;
update webhooks.token t set revoked_at = now() from webhooks.project p
where p.ref = $1 and p.organization_slug <> $2 and t.project_ref = p.ref and t.revoked_at is null;
select webhooks.transfer_project($1, $2, $3);

-- name: projects
select ref, organization_slug, created_at from webhooks.project order by ref;

-- name: projects_of
-- $2: limit, or null. $3: offset.
select ref, organization_slug, created_at from webhooks.project
where organization_slug = $1 order by ref limit $2::bigint offset $3;

-- name: count_projects_of
select count(*) from webhooks.project where organization_slug = $1;

-- name: project
select ref, organization_slug, created_at from webhooks.project where organization_slug = $1 and ref = $2;

-- name: delete_project
-- See delete_organization. $3: number of rows.
select 1 from webhooks.project where organization_slug = $1 and ref = $2 for update;
select pg_notify('webhooks_changed', '') from webhooks.endpoint where organization_slug = $1 and project_ref = $2 for update;
select webhooks.remove_rows(id, ceil($3::float8 / count(*) over ())::integer) from webhooks.endpoint
where organization_slug = $1 and project_ref = $2;
delete from webhooks.project where organization_slug = $1 and ref = $2 returning ref, organization_slug, created_at;

-- name: create_token
-- A token without an organization is an operator's token.
insert into webhooks.token (id, organization_slug, hash, permissions, expires_at)
select webhooks.uuid_v7(), $1, $2, $3::text[], $4::timestamptz
where $1::text is null or exists (select from webhooks.organization where slug = $1)
returning id::text, organization_slug, permissions, created_at, expires_at, revoked_at, project_ref, portal::text;

-- name: create_link
-- Returns no row if the organization has no early access. The lock serializes this with transfers of the project.
with project as materialized (
    select ref from webhooks.project where ref = $5 and organization_slug = $1 for key share
)
insert into webhooks.token (id, organization_slug, hash, permissions, expires_at, project_ref, portal)
select webhooks.uuid_v7(), slug, $2, $3::text[], now() + $4 * interval '1 second', $5, $6::jsonb
from webhooks.organization where slug = $1 and early_access and ($5::text is null or exists (select from project))
returning id::text, organization_slug, permissions, created_at, expires_at, revoked_at, project_ref, portal::text;

-- name: access
-- An operator's token has access to all organizations and projects, other tokens only to their own.
select coalesce(o.early_access, true), exists (select from webhooks.organization where slug = $2),
       array(select ref from webhooks.project
             where ref = any ($3) and organization_slug = coalesce(o.slug, organization_slug) order by ref),
       array(select organization_slug from webhooks.project
             where ref = any ($3) and organization_slug = coalesce(o.slug, organization_slug) order by ref),
       id::text, organization_slug, permissions, t.created_at, expires_at, revoked_at, project_ref, portal::text
from webhooks.token t left join webhooks.organization o on o.slug = t.organization_slug
where hash = $1 and revoked_at is null and (expires_at is null or expires_at > now())
    and (project_ref is null or exists (
        select from webhooks.project p where p.ref = t.project_ref and p.organization_slug = t.organization_slug));

-- name: revoke
-- $2: organization, or null for any.
update webhooks.token set revoked_at = now()
where id = $1::uuid and revoked_at is null and organization_slug is not distinct from coalesce($2, organization_slug)
returning id::text, organization_slug, permissions, created_at, expires_at, revoked_at, project_ref, portal::text;

-- name: rotate
-- The replaced token remains valid for $4 seconds, but not beyond its expiry.
with former as (
    select * from webhooks.token
    where id = $2::uuid and organization_slug = $1 and portal is null and revoked_at is null
        and (expires_at is null or expires_at > now())
    for update
), ended as (
    update webhooks.token t
    set expires_at = least(t.expires_at, now() + $4 * interval '1 second'), revoked_at = case when $4 = 0 then now() end
    from former where t.id = former.id
)
insert into webhooks.token (id, organization_slug, hash, permissions, expires_at)
select webhooks.uuid_v7(), organization_slug, $3, permissions, expires_at from former
returning id::text, organization_slug, permissions, created_at, expires_at, revoked_at, project_ref, portal::text;

-- name: tokens
select id::text, organization_slug, permissions, created_at, expires_at, revoked_at, project_ref, portal::text
from webhooks.token where portal is null order by id;

-- name: token
select id::text, organization_slug, permissions, created_at, expires_at, revoked_at, project_ref, portal::text
from webhooks.token where organization_slug = $1 and id = $2::uuid and revoked_at is null and portal is null;

-- name: tokens_of
select id::text, organization_slug, permissions, created_at, expires_at, revoked_at, project_ref, portal::text
from webhooks.token where organization_slug = $1 and revoked_at is null and portal is null order by id limit $2 offset $3;

-- name: count_tokens_of
select count(*) from webhooks.token where organization_slug = $1 and revoked_at is null and portal is null;
