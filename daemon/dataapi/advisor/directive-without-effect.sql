-- Comments with directives in the exposed schemas. why is null if the APIs read directives of this kind of object.
--
-- fix is a statement that lacks the new comment at its end, and comment is the current comment.
with described as (
    select d.*, i.type, i.identity,
           coalesce(c.relnamespace, p.pronamespace, t.typnamespace, kr.relnamespace, gr.relnamespace, lr.relnamespace) as schema,
           case
               when d.classoid = 'pg_namespace'::regclass then format('schema %s', s.nspname)
               when c.relkind in ('r', 'p', 'v', 'm', 'f') and d.objsubid = 0 then format('table %s.%s', cs.nspname, c.relname)
               when c.relkind in ('r', 'p', 'v', 'm', 'f') then format('column %s.%s.%s', cs.nspname, c.relname, a.attname)
               when k.contype = 'f' then format('foreign key %s of table %s.%s', k.conname, ks.nspname, kr.relname)
               when p.prokind = 'f' and p.prorettype not in ('trigger'::regtype, 'event_trigger'::regtype)
                   then format('function %s.%s', ps.nspname, p.proname)
               when t.typtype = 'e' then format('enum %s.%s', ts.nspname, t.typname)
           end as place
    from pg_description d
    left join exposed s on d.classoid = 'pg_namespace'::regclass and s.oid = d.objoid
    left join pg_class c on d.classoid = 'pg_class'::regclass and c.oid = d.objoid
    left join exposed cs on cs.oid = c.relnamespace
    left join pg_attribute a on a.attrelid = c.oid and a.attnum = d.objsubid
    left join pg_proc p on d.classoid = 'pg_proc'::regclass and p.oid = d.objoid
    left join exposed ps on ps.oid = p.pronamespace
    left join pg_type t on d.classoid = 'pg_type'::regclass and t.oid = d.objoid
    left join pg_namespace ts on ts.oid = t.typnamespace
    left join pg_constraint k on d.classoid = 'pg_constraint'::regclass and k.oid = d.objoid and k.conrelid <> 0
    left join pg_class kr on kr.oid = k.conrelid
    left join exposed ks on ks.oid = kr.relnamespace
    left join pg_trigger g on d.classoid = 'pg_trigger'::regclass and g.oid = d.objoid
    left join pg_class gr on gr.oid = g.tgrelid
    left join pg_policy l on d.classoid = 'pg_policy'::regclass and l.oid = d.objoid
    left join pg_class lr on lr.oid = l.polrelid
    cross join lateral pg_identify_object(d.classoid, d.objoid, d.objsubid) as i
    where d.description ~ '@(graphql|rest)\(.+\)'
      and not exists (select from own where own.classid = d.classoid and own.objid = d.objoid)
)
select
    coalesce(d.place, format('%s %s', d.type, d.identity)) as object,
    case when d.place is null then 'no API reads directives of this kind of object' end as why,
    format('comment on %s %s is ', case
        when d.type like '% column' then 'column'
        when d.type like '% constraint' then 'constraint'
        when d.type = 'composite type' then 'type'
        else d.type end, d.identity) as fix,
    d.description as comment
from described d
-- Columns of exposed tables can have enum types from other schemas.
where d.schema in (select oid from exposed) or d.place ~ '^(schema|enum) '
