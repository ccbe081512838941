-- Changes of rows are published as events by triggers on the tables.

create table webhooks.event_type (type text primary key);
comment on table webhooks.event_type is 'The types in the catalogues of the daemon that started last.';

-- Raises an error if events of this type and scope cannot be published.
create function webhooks.check_watch(given_type text, slug text, ref text) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from webhooks.event_type t where t.type = given_type) then
        raise exception 'no event catalogue has the type %', given_type using errcode = '22023',
            hint = 'Add it to row-change-types in [webhooks] and reload the daemon, or declare it in a catalogue plugin.';
    elsif slug is not null and not exists (select from webhooks.organization o where o.slug = check_watch.slug) then
        raise exception 'there is no organization %', slug using errcode = 'WH001';
    elsif ref is not null and not exists (select from webhooks.project p where p.ref = check_watch.ref) then
        raise exception 'there is no project %', ref using errcode = 'WH002';
    end if;
end
$$;

-- Publishes the change of a row for a project, or for an organization if there is no project.  Where no endpoint
-- would get it there is nothing to do, so that an unknown project, or no access, never makes a write fail.
create function webhooks.publish_row_change(
    given_type text, operation text, relation regclass, before jsonb, after jsonb, slug text, ref text
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    payload jsonb;
begin
    if ref is not null then
        slug := (select p.organization_slug from webhooks.project p where p.ref = publish_row_change.ref);
    end if;
    if not exists (
        select from webhooks.endpoint e join webhooks.organization o on o.slug = e.organization_slug
        where o.slug = publish_row_change.slug and o.early_access and e.enabled
            and (e.project_ref is null or e.project_ref = ref) and e.event_types && (array[given_type, '*']
                || array(select v.renders from webhooks.event_type_version v where v.type = given_type))
    ) then
        return;
    end if;
    -- Rows of a partition belong to the partitioned table.
    select jsonb_build_object('operation', lower(operation), 'schema', n.nspname, 'table', c.relname,
            'old', before, 'new', after, 'truncated', false)
        into payload
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where c.oid = coalesce(pg_partition_root(relation), relation);
    if octet_length(payload::text) > 262144 then
        -- A receiver can read the row by its key.
        select payload || jsonb_build_object('truncated', true, 'old', jsonb_object_agg(key, before -> key)
                filter (where before ? key), 'new', jsonb_object_agg(key, after -> key) filter (where after ? key))
            into payload
            from pg_index i
            join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
            cross join lateral (values (a.attname::text)) as named (key)
            where i.indrelid = relation and i.indisprimary;
    end if;
    perform webhooks.publish(given_type, slug, ref, payload, 'row change ' || gen_random_uuid());
end
$$;

-- The trigger's function is made for each watch and belongs to the table's owner: casts of the table's types,
-- which anybody may have written, run with that role's rights and never with those of this schema's owner.
-- DDL and the text of "when" run with the rights of the caller.
create function webhooks.watch(
    "table" regclass,
    type text,
    columns text[] default null,
    "when" text default null,
    operations text[] default '{insert,update,delete}',
    organization text default null,
    project text default null,
    organization_column text default null,
    project_column text default null
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    watched record;
    missing text;
    checked refcursor;
    made text;
    before text := 'to_jsonb(old)';
    after text := 'to_jsonb(new)';
    changed text := 'old.* operator(pg_catalog.*<>) new.*';
    field constant text := 'case when tg_op = ''DELETE'' then old.%1$I else new.%1$I end::text';
    operation text;
begin
    select c.relnamespace::regnamespace as namespace, c.relowner::regrole as owner into watched
    from pg_class c where c.oid = "table";
    if not pg_has_role(watched.owner, 'usage') or watched.namespace = 'webhooks'::regnamespace then
        raise exception 'only its owner may watch %, and nobody the tables of webhooks', "table" using errcode = '42501';
    elsif not has_schema_privilege(watched.owner, 'webhooks', 'usage')
        or not has_function_privilege(watched.owner, 'webhooks.publish_row_change(text,text,regclass,jsonb,jsonb,text,text)', 'execute')
    then
        raise exception 'role % may not publish row changes', watched.owner using errcode = '42501', hint = format(
            'grant usage on schema webhooks to %1$s; grant execute on function webhooks.publish_row_change to %1$s;',
            watched.owner);
    end if;
    if coalesce(organization, organization_column, project, project_column) is null
        or num_nonnulls(organization, organization_column) > 1 or num_nonnulls(project, project_column) > 1
    then
        raise exception 'name an organization, a project or both, each itself or by a column' using errcode = '22023';
    elsif not operations <@ array['insert', 'update', 'delete'] or operations = '{}' or columns = '{}' then
        raise exception 'operations are insert, update and delete, and columns are not empty' using errcode = '22023';
    elsif octet_length(type) > 56 then
        raise exception 'the type of a watch has at most 56 characters' using errcode = '22023';
    end if;
    perform webhooks.check_watch(type, organization, project);
    select name into missing from unnest(columns || organization_column || project_column) as named (name)
    where name is not null and not exists (
        select from pg_attribute where attrelid = "table" and attname = name and attnum > 0 and not attisdropped);
    if found then
        raise exception 'table % has no column %', "table", missing using errcode = '42703';
    end if;
    if "when" is not null then
        -- A cursor takes one query alone, so that the text is one expression in the statements below, too.
        open checked for execute format('select from only %1$s as old, only %1$s as new where (%2$s%3$s%2$s) limit 0',
            "table", chr(10), "when");
        close checked;
    end if;
    if columns is not null then
        select string_agg(format('old.%I', name), ', '), string_agg(format('new.%I', name), ', ')
            into before, after from unnest(columns) as named (name);
        changed := format('row(%s)::record operator(pg_catalog.*<>) row(%s)::record', before, after);
        before := format('(select to_jsonb(r) from (select %s) as r)', before);
        after := format('(select to_jsonb(r) from (select %s) as r)', after);
    end if;

    perform webhooks.unwatch("table", type);
    made := format('%s.%I', watched.namespace, 'webhooks_watch_' || md5(gen_random_uuid()::text));
    execute format('create function %s() returns trigger language plpgsql security definer '
        'set search_path = pg_catalog, pg_temp as %L', made, format($body$
begin
    perform webhooks.publish_row_change(%L, tg_op, tg_relid,
        case when tg_op <> 'INSERT' then %s end, case when tg_op <> 'DELETE' then %s end, %s, %s);
    return null;
end
$body$, type, before, after,
        case when organization_column is null then quote_nullable(organization) else format(field, organization_column) end,
        case when project_column is null then quote_nullable(project) else format(field, project_column) end));
    execute format('revoke all on function %s() from public', made);
    execute format('alter function %s() owner to %s', made, watched.owner);
    foreach operation in array operations loop
        execute format('create trigger %I after %s on %s for each row when (%s%s%s) execute function %s()',
            type || ' ' || operation, operation, "table",
            case when operation = 'update' then changed || ' and ' else '' end,
            chr(10), '(' || coalesce("when", 'true') || chr(10) || ')', made);
    end loop;
end
$$;
comment on function webhooks.watch is
'Publishes an event in the writer''s transaction for each row of the table that is inserted, updated or deleted, with the
columns (null: all), where the condition "when" over OLD and NEW holds, for the project or else the organization.';

create function webhooks.unwatch("table" regclass, type text default null) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    made regprocedure;
begin
    for made in
        select distinct p.oid from pg_trigger t join pg_proc p on p.oid = t.tgfoid
        where t.tgrelid = "table" and p.proname like 'webhooks\_watch\_%'
            and (type is null or starts_with(t.tgname, type || ' '))
    loop
        execute format('drop function %s cascade', made);
    end loop;
end
$$;
comment on function webhooks.unwatch is 'Ends the watches of a table that publish events of a type (null: all).';

revoke all on function webhooks.publish_row_change, webhooks.watch from public;
