-- Permissive policies whose condition is always true, for a command that a caller may use. A policy is excluded if a
-- restrictive policy applies to the same command and the same caller.
select
    p.object,
    format('it lets %s', string_agg(distinct format('%s %s any row', g.rolname, g.name), '; ')) as why,
    format('drop policy %I on %s;', p.polname, p.table_name) as fix
from policy p
join privilege g on g.relation = p.polrelid and g.role = any(p.callers) and p.polcmd in ('*', g.command)
where p.polpermissive
  and exists (
      select from condition c
      where c.policy = p.oid and c.always_true
        and case g.command when 'a' then c.part = 'check' or p.checked is null
                           when 'w' then true else c.part = 'using' end
  )
  and not exists (
      select from policy q
      join condition c on c.policy = q.oid and not c.always_true
      where q.polrelid = p.polrelid and not q.polpermissive and q.polcmd in ('*', g.command)
        and g.role = any(q.callers)
  )
group by p.object, p.polname, p.table_name
