-- Common table expressions for all checks: the objects that the roles of the APIs can access.
--
-- Parameter: a JSON object with the members "schemas" (exposed schemas), "roles" (roles that requests run as),
-- "anon" (role of anonymous requests, or null) and "path" (search path of requests).
-- Objects of extensions are excluded, because only the extension's scripts should change them.
-- It runs on PostgreSQL 13 or later, as any role, with pg_catalog as the search path.
with recursive
input as (select $1::json as value),
exposed as materialized (
    select n.oid, n.nspname
    from pg_namespace n
    where n.nspname in (select json_array_elements_text(value -> 'schemas') from input)
),
role as materialized (
    select r.oid, r.rolname, r.rolbypassrls, r.rolname = (input.value ->> 'anon') is true as anonymous
    from pg_roles r
    cross join input
    -- A login role that is a superuser could also switch to PostgreSQL's own roles.
    where not r.rolsuper and r.rolname !~ '^pg_' and r.rolname in (select json_array_elements_text(input.value -> 'roles'))
),
-- Roles that are subject to row level security.
caller as materialized (select * from role where not rolbypassrls),
own as materialized (select classid, objid from pg_depend where deptype = 'e'),
relation as materialized (
    select c.*, e.nspname, format('%I.%I', e.nspname, c.relname) as name
    from pg_class c
    join exposed e on e.oid = c.relnamespace
    where c.relkind in ('r', 'p', 'v', 'm', 'f') and c.relpersistence <> 't'
      and not exists (select from own where own.classid = 'pg_class'::regclass and own.objid = c.oid)
),
-- Privileges of each role on each relation, in the order of pg_policy.polcmd: select, insert, update, delete.
privilege as materialized (
    select r.oid as relation, role.oid as role, role.rolname, role.rolbypassrls, word.command, word.name
    from relation r
    join role on has_schema_privilege(role.oid, r.relnamespace, 'USAGE')
    cross join (values (1, 'r', 'select'), (2, 'a', 'insert'), (3, 'w', 'update'), (4, 'd', 'delete'))
        as word(position, command, name)
    where case word.command
        when 'd' then has_table_privilege(role.oid, r.oid, 'DELETE')
        else has_any_column_privilege(role.oid, r.oid, word.name)
    end
    order by role.rolname, word.position
),
-- Tables that requests of any role can read or change.
reached as materialized (
    select * from relation r where exists (select from privilege p where p.relation = r.oid)
),
-- Policies that apply to a caller.
policy as materialized (
    select p.*, format('policy %I of table %s', p.polname, r.name) as object, r.name as table_name,
           pg_get_expr(p.polqual, p.polrelid) as condition, pg_get_expr(p.polwithcheck, p.polrelid) as checked,
           array(
               select c.oid from caller c
               where exists (
                   select from unnest(p.polroles) as target
                   where case when target = 0 then true else pg_has_role(c.oid, target, 'USAGE') end
               )
           ) as callers
    from pg_policy p
    join reached r on r.oid = p.polrelid and r.relrowsecurity
),
-- The conditions of policies as SQL, with the functions they call and the columns they compare for each row. Calls and
-- comparisons are read from the expression tree that PostgreSQL stores.
condition as materialized (
    select p.oid as policy, p.polrelid, part.name as part, part.text,
           part.text = 'true' or part.text ~ '^\((.+) = \1\)$'
               or part.tree ~ '^\{BOOLEXPR :boolop or ' and part.text ~ '^\(true OR | OR true\)$' as always_true,
           found.calls, found.comparisons
    from policy p
    cross join lateral (
        values ('using', p.condition, p.polqual::text), ('check', p.checked, p.polwithcheck::text)
    ) as part(name, text, tree)
    cross join lateral (
        with recursive
        -- Each brace of the tree, with the text up to the next one and the nesting depth after it.
        brace as materialized (
            select t.n, t.found[1] as text, sum(case when t.found[1] like '{%' then 1 else -1 end) over (order by t.n) as depth
            from regexp_matches(part.tree, '[{}](?:\\.|[^{}\\])*', 'g') with ordinality as t(found, n)
        ),
        node as materialized (
            select b.n, b.depth, b.text, substring(b.text, '^\{(\w+)') as kind,
                   (select min(e.n) from brace e where e.n > b.n and e.depth < b.depth) as last
            from brace b
            where b.text ~ '^\{(FUNCEXPR|OPEXPR|SCALARARRAYOPEXPR|RELABELTYPE|VAR|QUERY) '
        )
        select
            -- Functions whose arguments do not depend on the row. Calls in a subquery without FROM are excluded, because
            -- PostgreSQL evaluates it once.
            array(
                select substring(c.text, ':funcid (\d+)')::oid from node c
                where c.kind = 'FUNCEXPR' and c.text ~ ':funcformat 0'
                  and not exists (select from node v where v.kind = 'VAR' and v.n between c.n and c.last)
                  and (
                      select q.text ~ ':rtable <>' from node q
                      where q.kind = 'QUERY' and c.n between q.n and q.last
                      order by q.n desc
                      limit 1
                  ) is not true
            ) as calls,
            -- Comparisons, outside subqueries, of a column with a value that is the same for all rows: operator and
            -- column number, in the order of the condition.
            array(
                select array[substring(o.text, ':opno (\d+)')::bigint, min(substring(v.text, ':varattno (\d+)')::bigint)]
                from node o
                join node v on v.kind = 'VAR' and v.n between o.n and o.last
                where o.kind in ('OPEXPR', 'SCALARARRAYOPEXPR')
                  and not exists (select from node q where q.kind = 'QUERY' and v.n between q.n and q.last)
                group by o.n, o.text
                having count(*) = 1 and bool_and(v.depth - o.depth = 1 or v.depth - o.depth = 2 and exists (
                    select from node r where r.kind = 'RELABELTYPE' and r.n = v.n - 1
                ))
                order by o.n
            ) as comparisons
    ) as found
    where part.text is not null and p.callers <> '{}'
)
