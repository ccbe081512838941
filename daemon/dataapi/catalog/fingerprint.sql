-- Returns a fingerprint, and whether the server is a standby. The fingerprint covers everything that reflection.sql
-- reads, except row estimates.
--
-- Each change to a catalog row sets its xmin, so the count and the sum of xmin detect changes to a system table.
-- Temporary objects and built-in objects (OIDs below 16384) are excluded.
with space as materialized (
    select n.oid, n.xmin::text::bigint as version
    from pg_catalog.pg_namespace n
    where n.nspname !~ '^pg_(toast_)?temp_'
),
relation as materialized (
    select c.oid, c.xmin::text::bigint as version
    from pg_catalog.pg_class c
    join space on space.oid = c.relnamespace
    where c.oid >= 16384
)
select pg_catalog.concat_ws(
    ' ',
    (select (sum(version), count(*))::text from space),
    (select (sum(version), count(*))::text from relation),
    (select (sum(a.xmin::text::bigint), count(*))::text
     from pg_catalog.pg_attribute a join relation r on r.oid = a.attrelid),
    (select (sum(d.xmin::text::bigint), count(*))::text
     from pg_catalog.pg_attrdef d join relation r on r.oid = d.adrelid),
    (select (sum(i.xmin::text::bigint), count(*))::text
     from pg_catalog.pg_index i join relation r on r.oid = i.indexrelid),
    (select (sum(w.xmin::text::bigint), count(*))::text
     from pg_catalog.pg_rewrite w join relation r on r.oid = w.ev_class),
    (select (sum(t.xmin::text::bigint), count(*))::text
     from pg_catalog.pg_type t join space s on s.oid = t.typnamespace where t.oid >= 16384),
    (select (sum(p.xmin::text::bigint), count(*))::text
     from pg_catalog.pg_proc p join space s on s.oid = p.pronamespace where p.oid >= 16384),
    (select (sum(c.xmin::text::bigint), count(*))::text
     from pg_catalog.pg_constraint c join space s on s.oid = c.connamespace where c.oid >= 16384),
    (select (sum(xmin::text::bigint), count(*))::text from pg_catalog.pg_inherits),
    (select (sum(xmin::text::bigint), count(*))::text from pg_catalog.pg_enum),
    (select (sum(xmin::text::bigint), count(*))::text from pg_catalog.pg_cast where oid >= 16384),
    (select (sum(xmin::text::bigint), count(*))::text
     from pg_catalog.pg_description
     where objoid >= 16384 or classoid = 'pg_catalog.pg_namespace'::pg_catalog.regclass),
    (select (sum(xmin::text::bigint), count(*))::text from pg_catalog.pg_auth_members),
    (select (sum(s.xmin::text::bigint), count(*))::text
     from pg_catalog.pg_db_role_setting s
     where s.setdatabase in (
         0, (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
     )),
    (select (sum(pg_catalog.hashtext(r::text)), count(*))::text from pg_catalog.pg_roles r)
), pg_catalog.pg_is_in_recovery()
