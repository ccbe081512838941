-- The policies of row level security in the schemas of $1, a JSON array of their names.
select
    schemaname::text,
    tablename::text,
    policyname::text,
    cmd,
    permissive = 'PERMISSIVE',
    to_json(roles)::text,
    qual,
    with_check
from pg_catalog.pg_policies
where schemaname in (select json_array_elements_text($1::json))
order by schemaname, tablename, policyname
