-- Citus tables with their distribution columns and colocation groups. Reference tables are on every server and have
-- group 0. The column and the group are null for tables that are only on the coordinator.
-- Runs only if the extension is installed.
select 'distribution', json_agg(json_build_array(
    logicalrelid::oid,
    case when partkey is not null then column_to_column_name(logicalrelid, partkey) end,
    case
        when partkey is not null then nullif(colocationid, 0)
        when partmethod = 'n' and repmodel = 't' then 0
    end
) order by logicalrelid::oid)::text
from pg_catalog.pg_dist_partition
