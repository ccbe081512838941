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
create index token_project on webhooks.token (project_ref) where project_ref is not null;
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
comment on column webhooks.answer.request is 'A hash, by which another request with the same key is told.';
comment on column webhooks.answer.answer is
    'Encrypted with a key that is made from the token, as it may hold a secret; null while the request is under way.';
