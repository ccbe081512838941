-- Indexes that another index on the same table can replace. If one of two duplicate indexes belongs to a constraint or
-- is unique, the other one is reported.
with index as (
    select i.*, x.relname, x.relam, r.name as table_name, r.nspname, k.oid as key, k.conname,
           exists (
               select from pg_constraint f where f.contype = 'f' and f.conindid = i.indexrelid
           ) as referenced,
           -- The columns with their operator classes, collations and sort orders.
           format('%s %s %s %s %s %s', i.indkey, i.indnkeyatts, i.indclass, i.indcollation, i.indoption,
                  concat_ws(' ', pg_get_expr(i.indexprs, i.indrelid), 'where', pg_get_expr(i.indpred, i.indrelid)))
               as definition,
           coalesce(to_jsonb(i) ->> 'indnullsnotdistinct', 'false') as nulls
    from pg_index i
    join pg_class x on x.oid = i.indexrelid and not x.relispartition
    join reached r on r.oid = i.indrelid
    left join pg_constraint k on k.conindid = i.indexrelid and k.contype in ('p', 'u', 'x')
),
ranked as (
    select i.*, row_number() over (
        order by i.referenced desc, i.indisprimary desc, i.key is not null desc, i.indisreplident desc,
                 i.indisunique desc, i.relname
    ) as rank
    from index i
)
select
    format('index %I.%I', i.nspname, i.relname) as object,
    format('index %I of table %s has the same columns', min(k.relname), i.table_name) as why,
    case when i.conname is null then format('drop index %I.%I;', i.nspname, i.relname)
        else format('alter table %s drop constraint %I;', i.table_name, i.conname) end as fix
from ranked i
join ranked k on k.indrelid = i.indrelid and k.rank < i.rank and k.relam = i.relam and k.definition = i.definition
where k.indisvalid and not k.indisexclusion and not i.indisexclusion and not i.referenced and not i.indisprimary
  and not i.indisreplident
  and (not i.indisunique
       or k.indisunique and k.indimmediate = i.indimmediate and k.nulls = i.nulls)
group by i.nspname, i.relname, i.table_name, i.conname
