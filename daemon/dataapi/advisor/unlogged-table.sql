-- Unlogged tables. PostgreSQL empties them after a crash.
select
    format('table %s', r.name) as object,
    'it is empty after a crash, and on each replica' as why,
    format('alter table %s set logged;', r.name) as fix
from reached r
where r.relkind = 'r' and r.relpersistence = 'u'
