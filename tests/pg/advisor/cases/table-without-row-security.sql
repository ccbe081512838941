-- Fault: table public.t
create table t (id int primary key);
grant insert on t to anon;

-- Similar: no role has a privilege
create table t (id int primary key);

-- Similar: only service_role has privileges, and policies do not apply to it
create table t (id int primary key);
grant all on t to service_role;

-- Similar: the schema is not exposed
create table private.t (id int primary key);
grant all on private.t to anon;

-- Similar: row level security is enabled
create table t (id int primary key);
grant select on t to anon;
alter table t enable row level security;

-- Similar: no role may use the schema
create table t (id int primary key);
grant all on t to anon;
revoke usage on schema public from public;

-- Similar: views have no row level security
create view t as select 1 as id;
grant select on t to anon;

-- Fault: table public."Odd Table"
create table "Odd Table" (id int);
grant select (id) on "Odd Table" to authenticated;

-- Fault: table public.part_1
create table part (day date) partition by range (day);
alter table part enable row level security;
create table part_1 partition of part for values from ('2026-01-01') to ('2027-01-01');
grant select on part, part_1 to anon;

-- Similar: privileges are granted only on the parent
create table part (day date) partition by range (day);
alter table part enable row level security;
create table part_1 partition of part for values from ('2026-01-01') to ('2027-01-01');
grant select on part to anon;
