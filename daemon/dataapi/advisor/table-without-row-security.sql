-- Tables without row level security that a caller may read or write.
select
    format('table %s', t.name) as object,
    string_agg(format('%s may %s any row', g.rolname, g.words), '; ' order by g.rolname) as why,
    format('alter table %s enable row level security;', t.name) as fix
from relation t
join lateral (
    select p.rolname, string_agg(p.name, ', ') as words
    from privilege p
    where p.relation = t.oid and not p.rolbypassrls
    group by p.rolname
) g on true
where t.relkind in ('r', 'p') and not t.relrowsecurity
group by t.name
