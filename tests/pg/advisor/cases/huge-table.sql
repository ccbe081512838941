-- Fault: table public.t
create table t (id int);
grant select on t to anon;
update pg_class set reltuples = 2e8 where oid = 't'::regclass;

-- Similar: the table is smaller
create table t (id int);
grant select on t to anon;
update pg_class set reltuples = 9e7 where oid = 't'::regclass;

-- Similar: no role may use the table
create table t (id int);
update pg_class set reltuples = 2e8 where oid = 't'::regclass;

-- Similar: the table is partitioned
create table t (id int) partition by range (id);
create table t_1 partition of t default;
grant select on t, t_1 to anon;
update pg_class set reltuples = 2e8 where oid in ('t'::regclass, 't_1'::regclass);
