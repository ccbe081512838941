-- Sequences of columns that have used 80 % of their values, counting only values that fit in the column.
with column_ as (
    -- Identity columns and serial columns own their sequences; other defaults depend on them.
    select d.objid as sequence, d.refobjid as relation, d.refobjsubid as number
    from pg_depend d
    where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass and d.deptype in ('a', 'i')
      and d.refobjsubid > 0
    union
    select d.refobjid, a.adrelid, a.adnum
    from pg_depend d
    join pg_attrdef a on a.oid = d.objid
    where d.classid = 'pg_attrdef'::regclass and d.refclassid = 'pg_class'::regclass
),
used as (
    select s.oid::regclass as name, r.name as table_name, r.oid as relation, a.attnum, a.attname, a.atttypid,
           q.seqcycle, q.seqincrement > 0 as ascending, seqmin, q.seqmax,
           case when q.seqincrement > 0 then least(q.seqmax, kind.largest) else greatest(q.seqmin, -kind.largest - 1) end
               as final,
           -- Reading a sequence requires a privilege, and an unlogged one cannot be read on a standby.
           case when has_sequence_privilege(s.oid, 'USAGE, SELECT') and (s.relpersistence = 'p' or not pg_is_in_recovery())
               then pg_sequence_last_value(s.oid) end as value
    from column_ c
    join reached r on r.oid = c.relation
    -- The type of an inherited column can only be changed in its parent.
    join pg_attribute a on a.attrelid = c.relation and a.attnum = c.number and a.attinhcount = 0
    join pg_class s on s.oid = c.sequence and s.relkind = 'S'
    join pg_sequence q on q.seqrelid = s.oid
    join (values ('smallint'::regtype, 32767), ('integer'::regtype, 2147483647), ('bigint'::regtype, 9223372036854775807))
        as kind(type, largest) on kind.type = a.atttypid
)
select
    format('sequence %s', u.name) as object,
    format('%s of %s values of column %s.%I are used', u.value, u.final, u.table_name, u.attname) as why,
    case when u.atttypid <> 'bigint'::regtype then (
        select string_agg(format('alter table %s alter column %I type bigint;', k.relation::regclass, a.attname), E'\n'
                          order by k.relation = u.relation desc, k.relation)
        from (
            select u.relation::oid as relation, u.attnum as number
            union
            -- Columns that reference the column contain its values.
            select conrelid, conkey[1] from pg_constraint
            where contype = 'f' and confrelid = u.relation and confkey = array[u.attnum] and conparentid = 0
        ) as k
        join pg_attribute a on a.attrelid = k.relation and a.attnum = k.number
            and a.attinhcount = 0 and a.atttypid in ('smallint'::regtype, 'integer'::regtype)
    ) || E'\n' else '' end
    || format('alter sequence %s as bigint %s;', u.name, case when u.ascending then 'no maxvalue' else 'no minvalue' end)
        as fix
from used u
where case when u.ascending then u.value::numeric - u.seqmin > 0.8 * (u.final::numeric - u.seqmin)
           else u.seqmax::numeric - u.value > 0.8 * (u.seqmax - u.final::numeric) end
  and not (u.seqcycle and u.final in (u.seqmin, u.seqmax))
  and abs(u.final::numeric) < 9223372036854775807
