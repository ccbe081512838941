-- name: watches
-- Requires no privileges. Works even if the schema "webhooks" does not exist.
with watch as (
    select t.tgrelid, p.oid, p.proowner, min(t.tgname) as name, bool_or(t.tgenabled = 'D') as disabled,
           case when c.description like '{%' then c.description::jsonb else '{}' end as definition
    from pg_catalog.pg_trigger t
    join pg_catalog.pg_proc p on p.oid = t.tgfoid
    cross join lateral (select pg_catalog.obj_description(p.oid, 'pg_proc') as description) c
    where not t.tgisinternal and t.tgparentid = 0 and p.proname ~ '^webhooks_watch_[0-9a-f]{32}$'
        and t.tgname ~ ' (insert|update|delete)$'
    group by t.tgrelid, p.oid, p.proowner, c.description
), missing as (
    select w.oid, pg_catalog.string_agg(n.name, ', ') as columns
    from watch w cross join lateral pg_catalog.jsonb_array_elements_text(w.definition -> 'needs') as n (name)
    where not exists (
        select from pg_catalog.pg_attribute a
        where a.attrelid = w.tgrelid and a.attname = n.name and a.attnum > 0 and not a.attisdropped)
    group by w.oid
), called as (
    select pg_catalog.to_regnamespace('webhooks') as schema,
           -- A lookup by name would require privileges of the current role.
           (select p.oid from pg_catalog.pg_proc p
            where p.pronamespace = pg_catalog.to_regnamespace('webhooks') and p.proname = 'publish_row_changes'
           ) as function
), failing as (
    select w.*, case
        when called.function is null then null
        when not pg_catalog.has_schema_privilege(w.proowner, called.schema, 'usage')
            then pg_catalog.format('role %s may not use the schema webhooks', w.proowner::regrole)
        when not pg_catalog.has_function_privilege(w.proowner, called.function, 'execute')
            then pg_catalog.format('role %s may not execute webhooks.publish_row_changes', w.proowner::regrole)
        when missing.columns is not null
            then pg_catalog.format('columns were renamed or dropped: %s; watch the table again', missing.columns)
    end as failure
    from called cross join watch w left join missing on missing.oid = w.oid
)
select f.tgrelid::regclass::text, coalesce(f.definition ->> 'type', pg_catalog.split_part(f.name, ' ', 1)), f.definition::text,
       f.failure is not null,
       coalesce(f.failure, case
           when called.function is null then 'publishes nothing: the schema webhooks is missing'
           when f.definition = '{}' then 'the comment that stores its definition was changed; watch the table again'
           when f.disabled then 'disabled by alter table'
           when (f.definition -> 'by_statement')::boolean
               and exists (select from pg_catalog.pg_inherits i where i.inhparent = f.tgrelid)
               then 'also publishes rows of child tables that were added later; watch the table again'
           when f.proowner <> c.relowner then pg_catalog.format('runs as the previous owner, %s', f.proowner::regrole)
           else 'ok'
       end)
from called cross join failing f join pg_catalog.pg_class c on c.oid = f.tgrelid
order by 1, 2;
