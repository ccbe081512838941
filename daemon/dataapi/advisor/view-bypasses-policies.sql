-- Accessible views whose owner bypasses the policies of a table that they read. Before PostgreSQL 15, views cannot use the
-- caller's privileges, so the fix is to revoke access.
with recursive
reads(root, view, relation) as (
    select r.oid, r.oid, d.refobjid
    from relation r
    join pg_rewrite w on w.ev_class = r.oid
    join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid
        and d.refclassid = 'pg_class'::regclass and d.refobjid <> r.oid
    where r.relkind in ('v', 'm')
      and exists (select from privilege p where p.relation = r.oid and not p.rolbypassrls)
    union
    select r.root, v.oid, d.refobjid
    from reads r
    join pg_class v on v.oid = r.relation and v.relkind = 'v'
    join pg_rewrite w on w.ev_class = v.oid
    join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid
        and d.refclassid = 'pg_class'::regclass and d.refobjid <> v.oid
),
bypass as (
    select r.root, v.oid as view, t.oid::regclass::text as read
    from reads r
    join pg_class v on v.oid = r.view
    join pg_class t on t.oid = r.relation and t.relrowsecurity
    join pg_roles o on o.oid = v.relowner
    where (o.rolsuper or o.rolbypassrls or pg_has_role(o.oid, t.relowner, 'USAGE') and not t.relforcerowsecurity)
      and not exists (
          select from pg_options_to_table(v.reloptions) as option
          where option.option_name = 'security_invoker' and option.option_value::boolean
      )
),
found as (
    select case when v.relkind = 'v' and current_setting('server_version_num')::int >= 150000
               then b.view else b.root end as oid,
           string_agg(distinct b.read, ', ') as tables
    from bypass b
    join pg_class v on v.oid = b.view
    group by 1
)
select
    format('%s %s', case v.relkind when 'm' then 'materialized view' else 'view' end, v.oid::regclass) as object,
    format('it reads %s as %s, to whom the policies of the table do not apply', f.tables, pg_get_userbyid(v.relowner))
        as why,
    case
        when v.relkind = 'v' and current_setting('server_version_num')::int >= 150000
            then format('alter view %s set (security_invoker = true);', v.oid::regclass)
        else format('revoke all on %s from %s;', v.oid::regclass, (
            select string_agg(distinct case when a.grantee = 0 then 'public' else quote_ident(g.rolname) end, ', ')
            from (
                select v.relacl as acl union all select attacl from pg_attribute where attrelid = v.oid
            ) as list
            cross join lateral aclexplode(list.acl) as a
            left join pg_roles g on g.oid = a.grantee
            where case when a.grantee = 0 then true
                else exists (select from caller where pg_has_role(caller.oid, a.grantee, 'USAGE')) end
        ))
    end as fix
from found f
join pg_class v on v.oid = f.oid
