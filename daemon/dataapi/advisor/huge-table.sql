-- Tables with at least 100 million rows that have no partitions and use the default vacuum settings.
select
    format('table %s', r.name) as object,
    format('it has about %s rows and no partitions, and is vacuumed only after a fifth of them has changed', r.reltuples::bigint) as why,
    format('alter table %s set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);', r.name) as fix
from reached r
where r.relkind = 'r' and not r.relispartition and r.reltuples >= 1e8
  and not exists (
      select from pg_options_to_table(r.reloptions) as option
      where option.option_name = 'autovacuum_vacuum_scale_factor'
  )
