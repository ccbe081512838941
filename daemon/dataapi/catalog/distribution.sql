-- Which tables Citus holds, the column that each is distributed by, and the number of the group of tables whose rows
-- of one value are on one server: 0 for a reference table, which every server has.  Neither is known of a table that is
-- only on the coordinator.  Asked for where the extension is, whose catalog this reads.
select 'distribution', json_agg(json_build_array(
    logicalrelid::oid,
    case when partkey is not null then column_to_column_name(logicalrelid, partkey) end,
    case
        when partkey is not null then nullif(colocationid, 0)
        when partmethod = 'n' and repmodel = 't' then 0
    end
) order by logicalrelid::oid)::text
from pg_catalog.pg_dist_partition
