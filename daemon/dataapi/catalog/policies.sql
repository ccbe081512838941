-- The policies of row level security in the schemas of $1, a JSON array of their names.
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
