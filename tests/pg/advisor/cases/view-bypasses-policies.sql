-- Fault: view public.notes
create view notes as select * from note;
grant select on notes to anon;

-- Similar: no role may read the view
create view notes as select * from note;

-- Similar: only service_role may read the view
create view notes as select * from note;
grant select on notes to service_role;

-- Similar: the table has no row level security
create table t (id int);
create view ts as select * from t;
grant select on ts to anon;

-- Similar: the policies apply to the owner of the view
create view notes as select * from note;
alter view notes owner to authenticated;
grant select on notes to anon;

-- Fault: materialized view public.notes
create materialized view notes as select * from note;
grant select (id) on notes to anon;
grant select on notes to public;

-- Similar: no role may read the materialized view
create materialized view notes as select * from note;

-- Fault (PostgreSQL 15 or later): view private.notes
create view private.notes as select * from note;
create view shown as select * from private.notes;
grant select on shown to anon;

-- Similar (PostgreSQL 15 or later): the view uses the caller's privileges
create view notes with (security_invoker = on) as select * from note;
create view shown as select * from notes;
grant select on notes, shown to anon;

-- Similar (PostgreSQL 15 or later): the policies apply to the owner
alter table note force row level security;
alter table note owner to authenticated;
create view notes as select * from note;
alter view notes owner to authenticated;
grant select on notes to anon;

-- Fault (PostgreSQL 13 and 14): view public.shown
create view private.notes as select * from note;
create view shown as select * from private.notes;
grant select (id) on shown to anon;
