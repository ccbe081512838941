-- Multiple permissive policies for the same roles and command. They are equivalent to one policy that combines their
-- conditions with OR.
with member as (
    select p.oid, p.polname, p.table_name, c.name, c.position, t.targets,
           case when c.command <> 'a' then p.condition end as condition,
           case when c.command in ('a', 'w') then coalesce(p.checked, p.condition) end as checked,
           count(*) over (partition by p.table_name, t.targets, c.command) as number
    from policy p
    join (values (1, 'r', 'select'), (2, 'a', 'insert'), (3, 'w', 'update'), (4, 'd', 'delete'))
        as c(position, command, name) on p.polcmd in ('*', c.command)
    cross join lateral (
        select string_agg(case when role = 0 then 'public' else quote_ident(pg_get_userbyid(role)) end, ', ' order by role)
            as targets
        from unnest(p.polroles) as role
    ) t
    where p.polpermissive and p.callers <> '{}'
),
-- Policies that share a command with another policy, once for each of their commands.
joined as (
    select * from (select m.*, max(m.number) over (partition by m.oid) as largest from member m) as m where largest > 1
),
dropped as (
    select table_name, targets,
           string_agg(quote_ident(polname), ', ' order by polname) as names,
           string_agg(format(E'drop policy %I on %s;\n', polname, table_name), '' order by polname) as statements
    from (select distinct table_name, targets, polname from joined) as old
    group by table_name, targets
),
created as (
    select table_name, targets, position, name, max(number) as number,
           format(E'create policy %I on %s for %s to %s%s%s;\n',
                  left(min(polname::text), 54) || ' ' || name, table_name, name, targets,
                  ' using (' || string_agg('(' || condition || ')', ' or ' order by polname) || ')',
                  ' with check (' || string_agg('(' || checked || ')', ' or ' order by polname) || ')') as statement
    from joined
    group by table_name, targets, position, name
)
select
    format('table %s', d.table_name) as object,
    format('several policies apply to %s of %s: %s',
           string_agg(c.name, ', ' order by c.position) filter (where c.number > 1), d.targets, d.names) as why,
    format(E'begin;\n%s%scommit;', d.statements, string_agg(c.statement, '' order by c.position)) as fix
from dropped d
join created c on c.table_name = d.table_name and c.targets = d.targets
group by d.table_name, d.targets, d.names, d.statements
