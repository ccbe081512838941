-- Nobody publishes is_test: the service marks test events with it.

-- Raises an event for whoever publishes it, as of a time of their choosing; see webhooks.publish.
create function webhooks.publish_at(
    given_type text, slug text, ref text, given_payload jsonb, given_key text, given_time timestamptz
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if given_payload -> 'is_test' is not null then
        raise exception 'the payload of an event cannot have is_test: the service marks test events with it'
            using errcode = 'WH005';
    end if;
    return webhooks.raise_event(given_type, slug, ref, given_payload, given_key, given_time);
end
$$;
revoke all on function webhooks.publish_at from public;

create or replace function webhooks.publish(
    type text, organization_slug text, project_ref text, payload jsonb, idempotency_key text
) returns uuid
language sql
security definer
set search_path = pg_catalog, pg_temp
as $$
    select webhooks.publish_at(type, organization_slug, project_ref, payload, idempotency_key, null)
$$;
comment on function webhooks.publish is
'Raises an event inside the caller''s own transaction: it is delivered if and only if that commits.
The same key within 24 hours returns the first identifier and raises nothing.  project_ref is null for an
event of the organization.  Nobody may call it until an operator lets them:
    grant usage on schema webhooks to app;
    grant execute on function webhooks.publish to app;
Errors: 22023 malformed type, payload or key; WH001 no such organization; WH002 no such project;
WH003 the project is another organization''s; WH004 the organization is not on the allowlist;
WH005 the payload has is_test, which the service alone writes.';
