-- SECURITY DEFINER functions in exposed schemas that anonymous callers can run.
with function as (
    select p.oid, p.oid::regprocedure::text as name, p.proowner, coalesce(p.proacl, acldefault('f', p.proowner)) as acl
    from pg_proc p
    join exposed e on e.oid = p.pronamespace
    where p.prosecdef and p.prokind = 'f' and p.prorettype not in ('trigger'::regtype, 'event_trigger'::regtype)
      and not exists (select from own where own.classid = 'pg_proc'::regclass and own.objid = p.oid)
      and exists (
          select from caller c
          where c.anonymous and has_schema_privilege(c.oid, e.oid, 'USAGE')
            and has_function_privilege(c.oid, p.oid, 'EXECUTE')
      )
)
select
    format('function %s', f.name) as object,
    format('%s may call it, and it runs as %s',
           (select rolname from caller where anonymous), pg_get_userbyid(f.proowner)) as why,
    coalesce((
        select format(E'grant execute on function %s to %s;\n', f.name,
                      string_agg(quote_ident(r.rolname), ', ' order by r.rolname))
        from role r
        where not r.anonymous and has_function_privilege(r.oid, f.oid, 'EXECUTE')
        having count(*) > 0
    ), '') || format('revoke execute on function %s from %s;', f.name, (
        select string_agg(case when a.grantee = 0 then 'public' else quote_ident(g.rolname) end, ', ')
        from aclexplode(f.acl) as a
        left join pg_roles g on g.oid = a.grantee
        where case when a.grantee = 0 then true
            else exists (select from caller where anonymous and pg_has_role(caller.oid, a.grantee, 'USAGE')) end
    )) as fix
from function f
