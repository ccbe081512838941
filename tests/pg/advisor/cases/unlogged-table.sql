-- Fault: table public.t
create unlogged table t (id int);
grant select on t to anon;

-- Similar: the table is logged
create table t (id int);
grant select on t to anon;

-- Similar: no role may use the table
create unlogged table t (id int);
