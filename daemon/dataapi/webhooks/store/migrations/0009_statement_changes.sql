-- Commits of watched tables do not wait for each other, and one statement's changes are published together.

-- As before, but of all transactions that are open at a time one notifies at most: NOTIFY makes commits wait for each
-- other.  The dispatchers find what nobody announced when they look again.
create or replace function webhooks.raise_event(
    given_type text, slug text, ref text, given_payload jsonb, given_key text, given_time timestamptz
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    happened constant timestamptz := date_trunc('milliseconds', coalesce(given_time, clock_timestamp()));
    ingress uuid := webhooks.uuid_v7();
    whole jsonb;
    raised uuid;
    allowed boolean;
    owner text;
    copies bigint;
begin
    if given_type is null or given_type !~ '^v[0-9]+([.][a-z0-9_]+){2,}$' or length(given_type) > 128 then
        raise exception 'an event type has the form v<N>.<area>.<name>' using errcode = '22023';
    end if;
    if jsonb_typeof(given_payload) not in ('object', 'null') then
        raise exception 'the payload of an event is a JSON object' using errcode = '22023';
    end if;
    -- A daemon holds hundreds of them at once.
    if octet_length(given_payload::text) > 262144 then
        raise exception 'the payload of an event has at most 256 KiB' using errcode = '22023';
    end if;
    if coalesce(given_key, '') = '' or length(given_key) > 255 then
        raise exception 'an event needs an idempotency key of 1 to 255 characters' using errcode = '22023';
    end if;
    select o.early_access into allowed from webhooks.organization o where o.slug = raise_event.slug;
    if not found then
        raise exception 'there is no organization %', slug using errcode = 'WH001';
    end if;
    if ref is not null then
        select p.organization_slug into owner from webhooks.project p where p.ref = raise_event.ref;
        if not found then
            raise exception 'there is no project %', ref using errcode = 'WH002';
        elsif owner <> slug then
            raise exception 'project % does not belong to organization %', ref, slug using errcode = 'WH003';
        end if;
    end if;
    if not allowed then
        raise exception 'organization % is not on the early access allowlist', slug using errcode = 'WH004';
    end if;

    -- Who comes second waits here for the first one's transaction to end, and then finds its identifier.
    insert into webhooks.idempotency as known (organization_slug, key, ingress_id)
    values (slug, given_key, ingress)
    on conflict (organization_slug, key) do update
        set ingress_id = excluded.ingress_id, created_at = excluded.created_at
        where known.created_at <= now() - interval '24 hours'
    returning known.ingress_id into raised;
    if not found then
        select known.ingress_id into strict raised
        from webhooks.idempotency known where known.organization_slug = slug and known.key = given_key;
        return raised;
    end if;

    whole := jsonb_build_object('actor', null)
        || case when jsonb_typeof(given_payload) = 'object' then given_payload else '{}' end
        || jsonb_build_object('organization_slug', slug, 'project_ref', ref);
    with version (type, rendered_from) as (
        select given_type, null
        union all
        select v.renders, given_type from webhooks.event_type_version v where v.type = given_type
    ), copy as materialized (
        select webhooks.uuid_v7() as id, e.id as endpoint_id, e.epoch, version.type, version.rendered_from
        from webhooks.endpoint e
        join version on e.event_types && array[version.type, '*']
        -- A project's endpoints are its own, even if it goes to another organization just now.
        where e.enabled and (e.organization_slug = slug and e.project_ref is null or e.project_ref = ref)
    ), event as (
        insert into webhooks.event (id, endpoint_id, type, rendered_from, happened_at, body, payload)
        select copy.id, copy.endpoint_id, copy.type, copy.rendered_from, happened,
               case when copy.rendered_from is null
                   then webhooks.envelope(copy.id, copy.type, happened, whole) end,
               case when copy.rendered_from is not null then whole end
        from copy
    )
    insert into webhooks.due (delivery_id, event_id, endpoint_id, epoch, event_type, trigger, due_at, claimable_at)
    select webhooks.uuid_v7(), copy.id, copy.endpoint_id, copy.epoch, copy.type, 'automatic', clock_timestamp(),
           clock_timestamp()
    from copy;
    get diagnostics copies = row_count;
    if copies > 0 and pg_try_advisory_xact_lock(7236148250117003) then
        perform pg_notify('webhooks', '');
    end if;
    return ingress;
end
$$;

-- What only functions of this schema write is not checked again: the checks of a row cost more than writing it.
alter table webhooks.due drop constraint due_trigger_check, drop constraint due_attempt_number_check;
alter table webhooks.event drop constraint event_check;

-- As uuid_v7, of a time in microseconds; becomes part of the query that calls it.
create function webhooks.uuid_at(microseconds bigint) returns uuid
language sql volatile
as $$
    select (pg_catalog.lpad(pg_catalog.to_hex(
                (microseconds / 1000 << 16) + 28672 + microseconds % 1000 * 4096 / 1000), 16, '0')
            || pg_catalog.substr(pg_catalog.gen_random_uuid()::text, 20))::uuid
$$;
revoke all on function webhooks.uuid_at from public;

-- As that of a payload in jsonb.
create function webhooks.envelope(id uuid, type text, happened_at timestamptz, payload text) returns text
language sql stable
as $$
    select pg_catalog.concat(
        '{"id":"', id, '","type":', pg_catalog.to_json(type), ',"timestamp":"',
        pg_catalog.to_char(happened_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        '","payload":', payload, '}')
$$;
revoke all on function webhooks.envelope(uuid, text, timestamptz, text) from public;

-- The payload of a row's change.
create function webhooks.row_change(
    slug text, ref text, operation text, schema text, relation text, before jsonb, after jsonb, truncated boolean
) returns text
language sql stable
as $$
    select pg_catalog.json_build_object(
        'actor', null, 'organization_slug', slug, 'project_ref', ref, 'operation', operation, 'schema', schema,
        'table', relation, 'old', before, 'new', after, 'truncated', truncated)::text
$$;
revoke all on function webhooks.row_change from public;

-- The same of a row that is too long: with its primary key, by which a receiver can read it, or with nothing if that
-- is too long as well.
create function webhooks.truncated_row_change(
    watched regclass, slug text, ref text, operation text, schema text, relation text, before jsonb, after jsonb
) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    payload text;
begin
    select jsonb_object_agg(key, before -> key) filter (where before ? key),
           jsonb_object_agg(key, after -> key) filter (where after ? key)
        into before, after
        from pg_index i
        join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
        cross join lateral (values (a.attname::text)) as named (key)
        where i.indrelid = watched and i.indisprimary;
    payload := webhooks.row_change(slug, ref, operation, schema, relation, before, after, true);
    if octet_length(payload) > 262144 then
        payload := webhooks.row_change(slug, ref, operation, schema, relation, null, null, true);
    end if;
    return payload;
end
$$;
revoke all on function webhooks.truncated_row_change from public;

-- Publishes changes of rows of a table, each for its project, or for its organization if it has no project.  What no
-- endpoint would get is passed over, so that an unknown project, or no access, never makes a write fail.  Nobody is
-- notified: that would make the writers' commits wait for each other, and a transaction could not be prepared.
create function webhooks.publish_row_changes(
    given_type text, relation regclass, schema text, "table" text, operations text[], before jsonb[], after jsonb[],
    organizations text[], projects text[]
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    happened constant timestamptz := clock_timestamp();
begin
    if given_type is null or given_type !~ '^v[0-9]+([.][a-z0-9_]+){2,}$' or length(given_type) > 128 then
        raise exception 'an event type has the form v<N>.<area>.<name>' using errcode = '22023';
    end if;
    if pg_partition_root(relation) <> relation then
        -- Rows of a partition belong to the partitioned table.
        select n.nspname, c.relname into schema, "table"
        from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = pg_partition_root(relation);
    end if;
    if array_remove(projects, null) <> '{}' then
        organizations := array(
            select case when c.project is null then c.organization else p.organization_slug end
            from unnest(organizations, projects) with ordinality as c (organization, project, number)
            left join webhooks.project p on p.ref = c.project
            order by c.number
        );
    end if;
    with copy as materialized (
        select webhooks.uuid_at(c.made_at) as id, c.endpoint_id, c.epoch, c.type, c.made_at,
               case when octet_length(c.payload) <= 262144 then c.payload else webhooks.truncated_row_change(
                   relation, c.slug, c.project, lower(c.operation), schema, "table", c.old, c.new
               ) end as payload
        from (
            select e.id as endpoint_id, e.epoch, v.type, o.slug, c.*,
                   (date_part('epoch', happened) * 1000000)::bigint + c.number as made_at,
                   webhooks.row_change(
                       o.slug, c.project, lower(c.operation), schema, "table", c.old, c.new, false) as payload
            from unnest(operations, before, after, organizations, projects) with ordinality
                as c (operation, old, new, organization, project, number)
            join webhooks.organization o on o.slug = c.organization and o.early_access
            -- A project's endpoints are its own, even if it goes to another organization just now.
            join webhooks.endpoint e on e.enabled
                and (e.organization_slug = o.slug and e.project_ref is null or e.project_ref = c.project)
            join unnest(given_type || array(
                select v.renders from webhooks.event_type_version v where v.type = given_type
            )) as v (type) on e.event_types && array[v.type, '*']
            order by c.number
            offset 0
        ) c
    ), event as (
        insert into webhooks.event (id, endpoint_id, type, rendered_from, happened_at, body, payload)
        select copy.id, copy.endpoint_id, copy.type, nullif(given_type, copy.type), happened,
               case when copy.type = given_type
                   then webhooks.envelope(copy.id, copy.type, happened, copy.payload) end,
               case when copy.type <> given_type then copy.payload::jsonb end
        from copy
    )
    insert into webhooks.due (delivery_id, event_id, endpoint_id, epoch, event_type, trigger, due_at, claimable_at)
    select webhooks.uuid_at(copy.made_at), copy.id, copy.endpoint_id, copy.epoch, copy.type, 'automatic', happened,
           happened
    from copy;
end
$$;

-- What watches of earlier versions call, for one row.
create or replace function webhooks.publish_row_change(
    given_type text, operation text, relation regclass, before jsonb, after jsonb, slug text, ref text
) returns void
language sql
security definer
set search_path = pg_catalog, pg_temp
as $$
    select webhooks.publish_row_changes(given_type, relation, n.nspname, c.relname, array[operation],
        array[before], array[after], array[slug], array[ref])
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = relation
$$;

-- Ends the watches of a table that publish events of a type (null: all).  The function of a former owner, which the
-- caller may not drop, stays without a trigger.
create or replace function webhooks.unwatch("table" regclass, type text default null) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    made regprocedure;
    triggers name[];
    trigger name;
begin
    for made, triggers in
        select p.oid, array_agg(t.tgname)
        from pg_trigger t join pg_proc p on p.oid = t.tgfoid
        -- The trigger of a partitioned table is none of a partition's own.
        where t.tgrelid = "table" and not t.tgisinternal and t.tgparentid = 0
            and p.proname ~ '^webhooks_watch_[0-9a-f]{32}$'
        group by p.oid
        having type is null or bool_or(starts_with(t.tgname, type || ' '))
    loop
        foreach trigger in array triggers loop
            execute format('drop trigger %I on %s', trigger, "table");
        end loop;
        begin
            execute format('drop function %s', made);
        exception when insufficient_privilege or dependent_objects_still_exist then
            null;
        end;
    end loop;
end
$$;

do $move$
declare
    -- Who may watch may do all that it takes.
    watchers constant regrole[] := array(
        select distinct a.grantee::regrole from pg_catalog.pg_proc p, pg_catalog.aclexplode(p.proacl) a
        where p.oid = 'webhooks.watch(regclass,text,text[],text,text[],text,text,text,text)'::regprocedure
            and a.grantee <> p.proowner and a.grantee <> 0);
    publishers constant regrole[] := array(
        select distinct a.grantee::regrole from pg_catalog.pg_proc p, pg_catalog.aclexplode(p.proacl) a
        where p.oid = 'webhooks.publish_row_change(text,text,regclass,jsonb,jsonb,text,text)'::regprocedure
            and a.grantee <> p.proowner and a.grantee <> 0);
    role regrole;
begin
    drop function webhooks.watch(regclass, text, text[], text, text[], text, text, text, text);
    create function webhooks.watch(
        "table" regclass,
        type text,
        columns text[] default null,
        "when" text default null,
        operations text[] default '{insert,update,delete}',
        organization text default null,
        project text default null,
        organization_column text default null,
        project_column text default null,
        always boolean default false
    ) returns void language sql as '';
    revoke all on function webhooks.watch, webhooks.publish_row_changes, webhooks.check_watch, webhooks.unwatch from public;
    foreach role in array watchers loop
        execute pg_catalog.format(
            'grant execute on function webhooks.watch, webhooks.unwatch, webhooks.check_watch to %s', role);
    end loop;
    foreach role in array publishers loop
        execute pg_catalog.format('grant execute on function webhooks.publish_row_changes to %s', role);
    end loop;
end
$move$;

-- The statements by which the function of a watch puts a row's change on its lists; all of the lists, if the rows are of
-- several organizations or projects.  Anybody may call it: it makes text alone.
create function webhooks.watched_row(kind text, before text, after text, scope text[], by_column boolean) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select case when by_column then format(
        'n := n + 1; kinds[n] := %L; olds[n] := %s; news[n] := %s; organizations[n] := %s; projects[n] := %s; ',
        kind, coalesce(before, 'null'), coalesce(after, 'null'), scope[1], scope[2]
    ) else concat('n := n + 1; ', 'olds[n] := ' || before || '; ', 'news[n] := ' || after || '; ') end
$$;

-- The trigger's function is made for each watch and belongs to the table's owner: casts of the table's types,
-- which anybody may have written, and "when" run with that role's rights, never with those of this schema's owner.
-- DDL runs with the rights of the caller.
create or replace function webhooks.watch(
    "table" regclass,
    type text,
    columns text[] default null,
    "when" text default null,
    operations text[] default '{insert,update,delete}',
    organization text default null,
    project text default null,
    organization_column text default null,
    project_column text default null,
    always boolean default false
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    watched record;
    wrong text;
    checked refcursor;
    made text;
    by_statement boolean;
    by_column constant boolean := num_nonnulls(organization_column, project_column) > 0;
    condition constant text := format('(%s%s%1$s)', chr(10), coalesce("when", 'true'));
    before text := 'to_jsonb(old)';
    after text := 'to_jsonb(new)';
    changed text := 'old.* operator(pg_catalog.*<>) new.*';
    former text[];
    latter text[];
    moved text := 'false';
    fired text[] := operations;
    lists text;
    branch text;
    body text := '';
    needed constant text := 'grant usage on schema webhooks to %1$s; grant execute on function webhooks.watch, '
        'webhooks.unwatch, webhooks.check_watch, webhooks.publish_row_changes to %1$s;';
    operation text;
begin
    select c.relnamespace::regnamespace as namespace, c.relowner::regrole as owner, c.relkind as kind into watched
    from pg_class c where c.oid = "table";
    if not pg_has_role(watched.owner, 'usage') or watched.namespace = 'webhooks'::regnamespace then
        raise exception 'only its owner may watch %, and nobody the tables of webhooks', "table" using errcode = '42501';
    elsif not has_schema_privilege(watched.owner, 'webhooks', 'usage') or not has_function_privilege(watched.owner,
        'webhooks.publish_row_changes(text,regclass,text,text,text[],jsonb[],jsonb[],text[],text[])', 'execute')
    then
        raise exception 'role % may not publish row changes', watched.owner
            using errcode = '42501', hint = format(needed, watched.owner);
    elsif not has_function_privilege('webhooks.check_watch(text,text,text)', 'execute')
        or not has_function_privilege('webhooks.unwatch(regclass,text)', 'execute')
    then
        raise exception 'role % may not watch tables', current_user
            using errcode = '42501', hint = format(needed, quote_ident(current_user));
    end if;
    if coalesce(organization, organization_column, project, project_column) is null
        or num_nonnulls(organization, organization_column) > 1 or num_nonnulls(project, project_column) > 1
    then
        raise exception 'name an organization, a project or both, each itself or by a column' using errcode = '22023';
    elsif coalesce(operations, '{}') = '{}' or not array_remove(operations, null) <@ array['insert', 'update', 'delete']
        or columns = '{}'
    then
        raise exception 'operations are insert, update and delete, and columns are not empty' using errcode = '22023';
    elsif octet_length(type) > 56 then
        raise exception 'the type of a watch has at most 56 characters' using errcode = '22023';
    end if;
    select format(case when name is null then '%s have NULL' else '%s name %s twice' end, list, name) into wrong
    from (select 'operations' as list, unnest(operations) as name union all select 'columns', unnest(columns)) as named
    group by list, name having name is null or count(*) > 1 limit 1;
    if found then
        raise exception '%', wrong using errcode = '22023';
    end if;
    perform webhooks.check_watch(type, organization, project);
    select name into wrong from unnest(columns || organization_column || project_column) as named (name)
    where name is not null and not exists (
        select from pg_attribute where attrelid = "table" and attname = name and attnum > 0 and not attisdropped);
    if found then
        raise exception 'table % has no column %', "table", wrong using errcode = '42703';
    end if;
    -- Statements of other tables reach the rows of a partition or a child, or bring rows of children along, and the
    -- subscriber of a publication runs none.
    by_statement := not always and watched.kind = 'r'
        and not exists (select from pg_inherits where "table" in (inhrelid, inhparent));
    if "when" is not null then
        -- A cursor takes one query alone.  What is right both with parentheses around it and without is one expression.
        open checked for execute format('select from only %1$s as old, only %1$s as new where %2$s limit 0',
            "table", condition);
        close checked;
        open checked for execute format('select from only %1$s as old, only %1$s as new where %2$s%3$s%2$s limit 0',
            "table", chr(10), "when");
        close checked;
        -- Rows of a statement are none of the table's type, as which "when" may take them as a whole; words in simple
        -- strings are not them.
        by_statement := by_statement and case when "when" ~ '--|/[*]|[$]|\\' then "when" else
                regexp_replace("when", '''[^'']*''', '''''', 'g') end
            !~* '\m(old|new)\M(?!\s*[.]\s*["[:alpha:]_])';
    end if;

    if columns is not null then
        -- A function has at most 100 arguments.
        select string_agg(format('jsonb_build_object(%s)', olds), ' || '),
               string_agg(format('jsonb_build_object(%s)', news), ' || ')
            into before, after
            from (
                select string_agg(format('%1$L, old.%1$I', name), ', ' order by number),
                       string_agg(format('%1$L, new.%1$I', name), ', ' order by number)
                from unnest(columns) with ordinality as named (name, number) group by number / 50
            ) as pieces (olds, news);
        select format('row(%s)::record operator(pg_catalog.*<>) row(%s)::record',
                string_agg(format('old.%I', name), ', '), string_agg(format('new.%I', name), ', '))
            into changed from unnest(columns) as named (name);
    end if;
    -- Of a row that has a project, the organization is the project's.
    former := array[coalesce('old.' || quote_ident(organization_column) || '::text', quote_nullable(organization)),
        coalesce('old.' || quote_ident(project_column) || '::text', quote_nullable(project))];
    latter := array[coalesce('new.' || quote_ident(organization_column) || '::text', quote_nullable(organization)),
        coalesce('new.' || quote_ident(project_column) || '::text', quote_nullable(project))];
    if by_column then
        moved := format(
            '(%2$s is distinct from %4$s or %2$s is null and %4$s is null and %1$s is distinct from %3$s)',
            former[1], former[2], latter[1], latter[2]);
    end if;

    -- A transaction spends microseconds on each expression that it comes by, so that each operation has its own few.
    lists := case when by_column then 'kinds, olds, news, organizations, projects' else format(
        'array_fill(tg_op, array[n]), olds, news, array_fill(%s::text, array[n]), array_fill(%s::text, array[n])',
        latter[1], latter[2]) end;
    if by_column and not 'update' = any (operations) then
        fired := operations || array['update'];
    end if;
    foreach operation in array fired loop
        branch := case
            when operation = 'insert' then format('if %s then %s end if;', condition,
                webhooks.watched_row('INSERT', null, after, latter, by_column))
            when operation = 'delete' then format('if %s then %s end if;', condition,
                webhooks.watched_row('DELETE', before, null, former, by_column))
            when not by_column then format('if %s and %s then %s end if;', changed, condition,
                webhooks.watched_row('UPDATE', before, after, latter, by_column))
            else format('if %s then if %s then %s%s elsif %s then %s end if; end if;', condition, moved,
                case when 'delete' = any (operations) then webhooks.watched_row('DELETE', before, null, former, true) end,
                case when 'insert' = any (operations) then webhooks.watched_row('INSERT', null, after, latter, true) end,
                changed,
                case when 'update' = any (operations) then webhooks.watched_row('UPDATE', before, after, latter, true) end)
            end;
        body := body || format($branch$
    if tg_op = %L then
        %s
        loop
            begin
                %s
            exception when undefined_column then
                raise exception using errcode = sqlstate, message = sqlerrm, hint = format(
                    'A watch names a column that was renamed or dropped; run: dataapi webhooks watch %%s %%s, or unwatch',
                    tg_relid::regclass, %L);
            end;
            if n > 0 then
                perform webhooks.publish_row_changes(%4$L, tg_relid, tg_table_schema, tg_table_name, %5$s);
            end if;
            exit when ended;
            n := 0; kinds := null; olds := null; news := null; organizations := null; projects := null;
        end loop;
        %6$s
        return null;
    end if;
$branch$, upper(operation),
            case when by_statement then concat(
                case when operation <> 'insert' then 'open olds_read for select * from old_rows; ' end,
                case when operation <> 'delete' then 'open news_read for select * from new_rows;' end) end,
            case when not by_statement then branch || ' ended := true;' else concat('loop ',
                case when operation <> 'insert' then 'fetch olds_read into old; ' end,
                case when operation <> 'delete' then 'fetch news_read into new; ' end,
                'exit when not found; ', branch,
                -- The lists of long rows are held in memory.
                format(' exit when n >= 100 or pg_column_size(%s[n]) > 100000; end loop; ended := not found;',
                    case when operation = 'delete' then 'olds' else 'news' end)) end,
            type, lists,
            case when by_statement then concat(
                case when operation <> 'insert' then 'close olds_read; ' end,
                case when operation <> 'delete' then 'close news_read;' end) end);
    end loop;

    perform webhooks.unwatch("table", type);
    made := format('%s.%I', watched.namespace, 'webhooks_watch_' || md5(gen_random_uuid()::text));
    execute format('create function %s() returns trigger language plpgsql security definer '
        'set search_path = pg_catalog, pg_temp as %L', made, format($body$
declare
    olds_read refcursor;
    news_read refcursor;
    ended boolean;
    n integer := 0;
    kinds text[];
    olds jsonb[];
    news jsonb[];
    organizations text[];
    projects text[];
begin
    if to_regproc('webhooks.publish_row_changes') is null then
        -- Webhooks were removed.
        return null;
    end if;%s
end
$body$, body));
    execute format('revoke all on function %s() from public', made);
    execute format('alter function %s() owner to %s', made, watched.owner);
    foreach operation in array fired loop
        -- The trigger of each row has the columns that the watch needs depend on it, and has PostgreSQL read "when", which
        -- the function evaluates.
        wrong := format('%s (true or %s)', case when operation = 'update' then format(
            '(%s or %s) and', changed, moved) else '' end, condition);
        if by_statement then
            -- It never fires, and as it names rows of the statement, the table can be made neither a partition nor a child,
            -- of which the other trigger would not learn.
            execute format('create trigger %I after %s on %s referencing %s for each row when (false and %s) '
                'execute function %s()', type || ':' || operation, operation, "table",
                case when operation = 'delete' then 'old table as old_rows' else 'new table as new_rows' end, wrong, made);
            execute format('create trigger %I after %s on %s referencing %s for each statement execute function %s()',
                type || ' ' || operation, operation, "table", case operation
                    when 'insert' then 'new table as new_rows'
                    when 'delete' then 'old table as old_rows'
                    else 'old table as old_rows new table as new_rows' end, made);
        else
            execute format('create trigger %I after %s on %s for each row when (%s) execute function %s()',
                type || ' ' || operation, operation, "table", wrong, made);
            if always then
                execute format('alter table %s enable always trigger %I', "table", type || ' ' || operation);
            end if;
        end if;
    end loop;
    execute format('comment on function %s() is %L', made, jsonb_strip_nulls(jsonb_build_object(
        'type', type, 'columns', columns, 'when', "when", 'operations', operations, 'organization', organization,
        'project', project, 'organization_column', organization_column, 'project_column', project_column,
        'always', nullif(always, false), 'by_statement', by_statement,
        -- The columns that it names, also in "when".
        'needs', array(
            select distinct a.attname
            from pg_trigger t
            join pg_depend d on d.classid = 'pg_trigger'::regclass and d.objid = t.oid and d.refobjid = t.tgrelid
            join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid and a.attnum > 0
            where t.tgrelid = "table" and t.tgfoid = to_regprocedure(made || '()')
            union select unnest(array_remove(columns || organization_column || project_column, null))
        ))));
end
$$;
comment on function webhooks.watch is
'Publishes an event in the writer''s transaction for each row of the table that is inserted, updated or deleted, with the
columns (null: all), where the condition "when" over OLD and NEW holds, for the project or else the organization; always:
also while session_replication_role is replica.';
