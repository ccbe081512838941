-- Columns that a policy compares for equality, if no index begins with any of the columns that the policy compares.
-- Booleans are excluded, because an index on them rarely helps.
with compared as (
    select c.policy, c.polrelid, n.position, a.attname, exists (
        select from pg_index i where i.indrelid = c.polrelid and i.indisvalid and i.indkey[0] = a.attnum
    ) as indexed
    from condition c
    cross join generate_subscripts(c.comparisons, 1) as n(position)
    join pg_operator o on o.oid = c.comparisons[n.position][1] and o.oprname = '='
    join pg_attribute a on a.attrelid = c.polrelid and a.attnum = c.comparisons[n.position][2]
        and a.atttypid <> 'boolean'::regtype
    where c.part = 'using'
),
first as (
    select policy, (array_agg(attname order by position))[1] as attname
    from compared
    group by policy
    having not bool_or(indexed)
)
select
    format('column %s.%I', p.table_name, f.attname) as object,
    format('no index begins with it, and each query compares it for policy %s', string_agg(quote_ident(p.polname), ', '
        order by p.polname)) as why,
    format('create index on %s (%I);', p.table_name, f.attname) as fix
from first f
join policy p on p.oid = f.policy
join reached r on r.oid = p.polrelid and r.relkind in ('r', 'p')
group by p.table_name, f.attname
