-- Row-level security policies in the schemas $1, a JSON array of names.
select
    schemaname::text,
    tablename::text,
    policyname::text,
    cmd,
    permissive operator(pg_catalog.=) 'PERMISSIVE',
    pg_catalog.to_json(roles)::text,
    qual,
    with_check
from pg_catalog.pg_policies
where schemaname operator(pg_catalog.=) any (array(select pg_catalog.json_array_elements_text($1::json)))
order by schemaname, tablename, policyname
