-- Policies that call a function for each row although its arguments do not depend on the row. Only user-defined functions
-- and current_setting are considered.
with call as (
    select distinct c.policy, c.part,
           case when f.pronamespace = 'pg_catalog'::regnamespace then quote_ident(f.proname)
               else format('%I.%I', s.nspname, f.proname) end as name
    from condition c
    cross join unnest(c.calls) as called(oid)
    join pg_proc f on f.oid = called.oid and f.provolatile <> 'i'
    join pg_namespace s on s.oid = f.pronamespace
    where f.pronamespace <> 'pg_catalog'::regnamespace or f.proname = 'current_setting'
),
changed as (
    select c.policy, string_agg(distinct call.names, ', ') as names,
           string_agg(
               format(case c.part when 'using' then ' using (%s)' else ' with check (%s)' end, regexp_replace(
                   c.text,
                   '(?<![[:alnum:]_."])((?:' || call.pattern || ')'
                   '\((?:[^()'']|''[^'']*''|\((?:[^()'']|''[^'']*''|\((?:[^()'']|''[^'']*'')*\))*\))*\))',
                   '(select \1)', 'g'
               )), '' order by c.part desc
           ) as clauses
    from condition c
    join (
        select policy, part, string_agg(name, ', ' order by name) as names,
               string_agg(regexp_replace(name, '([^[:alnum:]_])', '\\\1', 'g'), '|') as pattern
        from call
        group by policy, part
    ) as call on call.policy = c.policy and call.part = c.part
    group by c.policy
)
select
    p.object,
    format('it calls %s for each row', c.names) as why,
    format('alter policy %I on %s%s;', p.polname, p.table_name, c.clauses) as fix
from changed c
join policy p on p.oid = c.policy
