-- Which tables Citus holds, and the column that each is distributed by; one that has none is a reference table,
-- or one that is only on the coordinator.  Asked for where the extension is, whose catalog this reads.
select 'distribution', json_agg(json_build_array(
    logicalrelid::oid, case when partkey is not null then column_to_column_name(logicalrelid, partkey) end
) order by logicalrelid::oid)::text
from pg_catalog.pg_dist_partition
