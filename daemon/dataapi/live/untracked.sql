-- Returns the names of tables, views and functions whose results can change without a write: foreign tables, sequences,
-- and everything that depends on the current time or random values. Views and policies are checked by their dependencies,
-- functions by the text of their definitions.

select pg_catalog.set_config('jit','off',true), pg_catalog.set_config('search_path','pg_catalog',true);

with recursive
clock as (
    select '\{SQLVALUEFUNCTION :op [0-8] |:funcid (' || string_agg(p.oid::text, '|') || ') ' as calls
    from pg_catalog.pg_proc p
    where p.pronamespace = 'pg_catalog'::regnamespace
        and (p.proname in ('now', 'transaction_timestamp', 'statement_timestamp', 'clock_timestamp', 'timeofday',
                           'random', 'nextval', 'currval', 'lastval')
             or p.proname = 'age' and p.pronargs = 1 and p.proargtypes[0] <> 'xid'::regtype)
),
relation as (
    select c.oid, c.relname, c.relkind
    from pg_catalog.pg_class c
    where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
        and c.relnamespace not in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
),
function as materialized (
    select p.oid, p.proname, l.lanname, pg_catalog.pg_get_functiondef(p.oid) as definition
    from pg_catalog.pg_proc p
    join pg_catalog.pg_language l on l.oid = p.prolang
    where p.provolatile <> 'v' and p.prokind = 'f' and l.lanname not in ('c', 'internal')
        and p.pronamespace not in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
),
reads(class, oid, read_class, read) as (
    select 'pg_class'::regclass, r.ev_class, d.refclassid, d.refobjid
    from pg_catalog.pg_rewrite r
    join relation on relation.oid = r.ev_class and relation.relkind = 'v'
    join pg_catalog.pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
    where d.refclassid in ('pg_class'::regclass, 'pg_proc'::regclass)
        and (d.refclassid, d.refobjid) <> ('pg_class'::regclass::oid, r.ev_class)
    union all
    select 'pg_class'::regclass, p.polrelid, d.refclassid, d.refobjid
    from pg_catalog.pg_policy p
    join pg_catalog.pg_depend d on d.classid = 'pg_policy'::regclass and d.objid = p.oid
    where d.refclassid in ('pg_class'::regclass, 'pg_proc'::regclass)
        and (d.refclassid, d.refobjid) <> ('pg_class'::regclass::oid, p.polrelid)
),
untracked(class, oid) as (
    (
        select 'pg_class'::regclass, oid from relation where relkind in ('f', 'S')
        union
        select 'pg_class'::regclass, r.ev_class
        from pg_catalog.pg_rewrite r
        join relation on relation.oid = r.ev_class and relation.relkind = 'v'
        cross join clock
        where r.ev_action::text ~ clock.calls
        union
        select 'pg_class'::regclass, p.polrelid
        from pg_catalog.pg_policy p
        cross join clock
        where p.polqual::text ~ clock.calls
        union
        select 'pg_proc'::regclass, f.oid
        from function f
        where f.definition ~* '\m(now|random|age|nextval|currval|lastval|timeofday|(transaction|statement|clock)_timestamp)\s*\('
            or f.definition ~* '\m(current_(date|time|timestamp)|localtime|localtimestamp|last_value)\M'
            or exists (
                select from relation r
                where r.relkind = 'f' and (f.lanname <> 'sql' or position(r.relname in f.definition) > 0)
            )
    )
    union
    select reads.class, reads.oid
    from untracked
    join reads on reads.read_class = untracked.class and reads.read = untracked.oid
)
select relname from relation join untracked on untracked.class = 'pg_class'::regclass and untracked.oid = relation.oid
where relkind <> 'S'
union
select proname from function join untracked on untracked.class = 'pg_proc'::regclass and untracked.oid = function.oid
