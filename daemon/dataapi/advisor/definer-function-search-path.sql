-- SECURITY DEFINER functions without a search_path setting, so that names in their bodies are resolved with the caller's
-- search path. Only functions that callers may run, and trigger functions of accessible tables. Names in a standard SQL
-- body are resolved at creation.
select
    format('function %s', p.oid::regprocedure) as object,
    format('it runs as %s with the search path of the caller', pg_get_userbyid(p.proowner)) as why,
    format('alter function %s set search_path = %s;', p.oid::regprocedure, (
        select string_agg(quote_ident(name), ', ' order by position)
        from (
            select name, min(position) as position
            from (
                select schema.name, schema.position
                from input, json_array_elements_text(value -> 'path') with ordinality as schema(name, position)
                union all values ('pg_temp', 1000)
            ) as path
            group by name
        ) as path
    )) as fix
from pg_proc p
join pg_namespace n on n.oid = p.pronamespace
where p.prosecdef and p.prokind = 'f'
  and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
  and to_jsonb(p) ->> 'prosqlbody' is null
  and not exists (select from unnest(p.proconfig) as setting where setting ilike 'search_path=%')
  and not exists (select from own where own.classid = 'pg_proc'::regclass and own.objid = p.oid)
  and (
      exists (
          select from caller c
          where p.prorettype not in ('trigger'::regtype, 'event_trigger'::regtype)
            and has_schema_privilege(c.oid, n.oid, 'USAGE') and has_function_privilege(c.oid, p.oid, 'EXECUTE')
      )
      or exists (select from pg_trigger t join reached r on r.oid = t.tgrelid where t.tgfoid = p.oid)
  )
