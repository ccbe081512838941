-- Reads the parts of a database's catalog that the APIs need.
--
-- Parameters: the exposed schemas (db-schemas) in order; whether to list time zones. Time zones are files on the
-- server and do not change while it runs.
-- Returns rows (part, body). body is a JSON array of at most 50 objects, so that parsing one does not block for
-- long. Each object is an array in the order that build.py expects. Each distinct access control list is sent
-- once, with its text as the key.
--
-- The query joins complete catalog tables instead of querying object by object, to stay fast with thousands of
-- tables. It runs on PostgreSQL 13 or later, as any role.

-- JIT compilation would take longer than a hundred runs of this query. The search path determines which names
-- are qualified. Both settings are local to the transaction.
select pg_catalog.set_config('jit','off',true), pg_catalog.set_config('search_path','pg_catalog',true);

with recursive
path as materialized (
    select n.oid, n.nspname, n.nspowner, s.position,
           coalesce(n.nspacl, acldefault('n', n.nspowner)) as acl
    from unnest($1::text[]) with ordinality as s(name, position)
    join pg_namespace n on n.nspname = s.name
),
cost as (
    select current_setting('seq_page_cost')::float8 as page,
           current_setting('random_page_cost')::float8 as random_page,
           current_setting('cpu_tuple_cost')::float8 + current_setting('cpu_operator_cost')::float8 as row
),
relation as materialized (
    select c.oid, c.relname, c.relkind, c.relnamespace, c.reltype, c.relowner, c.relrowsecurity,
           c.relispartition, path.position,
           coalesce(c.relacl, acldefault('r', c.relowner)) as acl,
           case when c.relkind in ('v', 'f') then pg_relation_is_updatable(c.oid, true) end as events,
           c.relkind = 'r' and c.relhassubclass as inherited,
           -- Whether a sequential scan costs more than an index lookup.
           c.relkind = 'p' or c.reltuples > 0
               and c.relpages * cost.page + c.reltuples * cost.row > 2 * cost.random_page as large
    from pg_class c
    cross join cost
    join path on path.oid = c.relnamespace
    where c.relkind in ('r', 'p', 'v', 'm', 'f')
),
-- Relations that a query of a table scans: the table, its partitions and the tables that inherit from it.
holder(root, oid) as (
    select r.oid, r.oid from relation r where r.relkind in ('r', 'p', 'm')
    union
    select h.root, i.inhrelid from holder h join pg_inherits i on i.inhparent = h.oid
),
-- The planner's row estimate for each table. If a relation was never analyzed (-1, or 0 before PostgreSQL 14), its
-- size is an upper bound, with at least 32 bytes per row. Foreign tables are not counted.
estimate as (
    select h.root, sum(
               case when c.reltuples > 0 or c.reltuples = 0 and current_setting('server_version_num')::int >= 140000
                   then c.reltuples else pg_relation_size(c.oid) / 32 end
           )::bigint as rows
    from holder h
    join pg_class c on c.oid = h.oid and c.relkind in ('r', 'm')
    group by h.root
),
attribute as materialized (
    select a.attrelid, a.attname, a.attnum, a.atttypid, a.atttypmod, a.attnotnull, a.atthasdef,
           a.attgenerated, a.attidentity, a.attacl, r.events
    from pg_attribute a
    join relation r on r.oid = a.attrelid
    where a.attnum > 0 and not a.attisdropped
),
-- Since PostgreSQL 18, existing rows may violate NOT NULL constraints that are not validated.
unproven as (
    select conrelid, conkey[1] as attnum from pg_constraint where contype = 'n' and not convalidated
),
columns as (
    select a.attrelid,
           json_agg(json_build_array(
               a.attname, a.attnum, a.atttypid, a.atttypmod,
               a.attnotnull and u.attnum is null,
               pg_get_expr(d.adbin, d.adrelid),
               a.attgenerated <> '', a.attidentity, c.description, a.attacl::text,
               case when a.events > 0 then pg_column_is_updatable(a.attrelid, a.attnum, true) end,
               -- OIDs from 16384 on are not built in.
               case when a.atttypmod >= 0 and a.atttypid::bigint >= 16384
                   then format_type(a.atttypid, a.atttypmod) end
           ) order by a.attnum) as body
    from attribute a
    left join pg_attrdef d
        on d.adrelid = a.attrelid and d.adnum = a.attnum and a.atthasdef and a.attgenerated = ''
    left join pg_description c
        on c.classoid = 'pg_class'::regclass and c.objoid = a.attrelid and c.objsubid = a.attnum
    left join unproven u on u.conrelid = a.attrelid and u.attnum = a.attnum
    group by a.attrelid
),
keys as (
    select i.indrelid,
           json_agg(json_build_array(
               coalesce(k.conname, c.relname), i.indkey::text, i.indnkeyatts,
               -- ON CONFLICT accepts neither deferrable nor temporal constraints (WITHOUT OVERLAPS, PostgreSQL 18).
               k.conname is not null and i.indimmediate and not i.indisexclusion,
               i.indisprimary
           ) order by i.indisprimary desc, coalesce(k.conname, c.relname)) as body
    from pg_index i
    join relation r on r.oid = i.indrelid
    join pg_class c on c.oid = i.indexrelid
    left join pg_constraint k
        on k.conindid = i.indexrelid and k.conrelid = i.indrelid and k.contype in ('p', 'u')
    where i.indisunique and i.indisvalid and i.indislive and i.indpred is null and i.indexprs is null
    group by i.indrelid
),
tables as (
    select json_build_array(
               r.oid, r.relnamespace, r.relname, r.relkind, r.reltype, r.relrowsecurity, r.events,
               coalesce(h.inhparent, 0), d.description, r.relowner, r.acl::text,
               coalesce(columns.body, '[]'), coalesce(keys.body, '[]'),
               r.inherited, r.large, e.rows
           ) as item,
           row_number() over (order by r.position, r.relname) as number
    from relation r
    left join columns on columns.attrelid = r.oid
    left join keys on keys.indrelid = r.oid
    left join estimate e on e.root = r.oid
    left join pg_inherits h on h.inhrelid = r.oid and r.relispartition
    left join pg_description d
        on d.classoid = 'pg_class'::regclass and d.objoid = r.oid and d.objsubid = 0
),
-- Partitions inherit their parent's foreign keys. Include these copies only if the parent is not exposed, and
-- never include copies that reference the partitions of a referenced table.
reference as (
    select json_build_array(
               k.conname, k.conrelid, k.conkey, k.confrelid, k.confkey, d.description, k.convalidated
           ) as item,
           row_number() over (order by l.position, l.relname, k.conname) as number
    from pg_constraint k
    join relation l on l.oid = k.conrelid
    join relation f on f.oid = k.confrelid
    left join pg_constraint p on p.oid = k.conparentid
    left join pg_description d
        on d.classoid = 'pg_constraint'::regclass and d.objoid = k.oid and d.objsubid = 0
    where k.contype = 'f'
      and (p.oid is null
           or p.confrelid = k.confrelid and not exists (select from relation where relation.oid = p.conrelid))
      -- A temporal key (PERIOD, PostgreSQL 18) does not match by equality.
      and coalesce(to_jsonb(k) ->> 'conperiod', 'false') = 'false'
),
-- Relations underlying the exposed views, recursively and in any schema.
beneath(oid, relkind) as (
    select r.oid, r.relkind from relation r where r.relkind in ('v', 'm')
    union
    select c.oid, c.relkind
    from beneath b
    join pg_rewrite w on w.ev_class = b.oid and w.rulename = '_RETURN'
    join pg_depend d
        on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid
        and d.refclassid = 'pg_class'::regclass and d.refobjid <> b.oid
    join pg_class c on c.oid = d.refobjid and c.relkind in ('r', 'p', 'v', 'm')
),
-- A view's rule contains the query tree, with nodes in braces. In its target list, the entry of a plain column
-- contains the column's origin. Braces escaped with a backslash are part of a name.
entry as (
    select w.ev_class, part.text, part.number,
           sum(octet_length(replace(part.text, '}', '')) - octet_length(replace(part.text, '{', '')))
               over (partition by w.ev_class order by part.number) as depth
    from beneath b
    join pg_rewrite w on w.ev_class = b.oid and w.rulename = '_RETURN'
    cross join lateral unnest(string_to_array(
        replace(replace(replace(
            w.ev_action::text, chr(92) || chr(92), ''), chr(92) || '{', ''), chr(92) || '}', ''),
        '{TARGETENTRY :expr ')
    ) with ordinality as part(text, number)
    where b.relkind in ('v', 'm')
),
direct as materialized (
    select e.ev_class as view,
           split_part(e.tail, ' ', 3)::int2 as number,
           split_part(split_part(e.tail, ' :resorigtbl ', 2), ' ', 1)::oid as origin,
           split_part(split_part(e.tail, ' :resorigcol ', 2), ' ', 1)::int2 as origin_number
    from (
        -- Nesting depth at the start of the entry: the braces that the preceding parts left open, plus the brace
        -- that splitting removed from each entry. The node of a plain column contains no other node. The members
        -- of its entry follow: " :resno 1 :resname … :resorigtbl 16385 :resorigcol 1 :resjunk false".
        select ev_class, text, split_part(text, '}', 2) as tail,
               lag(depth) over (partition by ev_class order by number) + number - 2 as open
        from entry
    ) as e
    where e.open = 1 and left(e.text, 5) = '{VAR ' and strpos(e.tail, ' :resjunk false') > 0
),
surfacing(view, number, origin, origin_number) as (
    select d.view, d.number, d.origin, d.origin_number
    from direct d
    join relation r on r.oid = d.view
    where d.origin <> 0
    -- Not UNION ALL: views that were redefined to read each other would recurse forever.
    union
    select s.view, s.number, d.origin, d.origin_number
    from surfacing s
    join direct d on d.view = s.origin and d.number = s.origin_number
    where d.origin <> 0
),
view_reference as materialized (
    select k.oid, k.conname, k.conrelid, k.conkey, k.confrelid, k.confkey
    from pg_constraint k
    left join pg_constraint p on p.oid = k.conparentid
    where k.contype = 'f'
      and k.conrelid in (select oid from relation union all select oid from beneath)
      and k.confrelid in (select oid from relation union all select oid from beneath)
      and (k.conrelid in (select oid from beneath) or k.confrelid in (select oid from beneath))
      and (p.oid is null
           or p.confrelid = k.confrelid
              and p.conrelid not in (select oid from relation union all select oid from beneath))
      and coalesce(to_jsonb(k) ->> 'conperiod', 'false') = 'false'
),
view_references as (
    select json_build_array(
               k.conname, k.conrelid, k.conkey, k.confrelid, k.confkey, d.description,
               exists (
                   select from pg_index i
                   where i.indrelid = k.conrelid and i.indisunique and i.indisvalid and i.indislive
                     and i.indpred is null and i.indexprs is null
                     and (string_to_array(i.indkey::text, ' ')::int2[])[1:i.indnkeyatts] <@ k.conkey
               )
           ) as item,
           row_number() over (order by c.relname, k.conname, k.oid) as number
    from view_reference k
    join pg_class c on c.oid = k.conrelid
    left join pg_description d
        on d.classoid = 'pg_constraint'::regclass and d.objoid = k.oid and d.objsubid = 0
),
beneath_key as materialized (
    select k.conrelid, k.conkey
    from pg_constraint k
    where k.contype = 'p' and k.conrelid in (select oid from beneath)
),
key_column as (
    select conrelid, unnest(conkey) from beneath_key
    union
    select conrelid, unnest(conkey) from view_reference
    union
    select confrelid, unnest(confkey) from view_reference
),
surfaces as (
    select json_build_array(
               s.view, json_agg(json_build_array(s.number, s.origin, s.origin_number) order by s.number, s.origin)
           ) as item,
           row_number() over (order by s.view) as number
    from surfacing s
    -- This form makes the planner hash the key columns even if it expects only a few rows.
    where ((s.origin, s.origin_number) in (select * from key_column)) is true
    group by s.view
),
beneath_keys as (
    select json_build_array(conrelid, conkey) as item, row_number() over (order by conrelid) as number
    from beneath_key
),
routine as materialized (
    select p.oid, p.proname, p.pronamespace, p.provariadic, p.prorettype, p.proretset, p.prorows, p.provolatile,
           p.pronargs, p.pronargdefaults, p.proargmodes, p.proargnames, p.proconfig, path.position,
           coalesce(p.proallargtypes, p.proargtypes::oid[]) as types,
           coalesce(p.proacl, acldefault('f', p.proowner)) as acl
    from pg_proc p
    join path on path.oid = p.pronamespace
    where p.prokind = 'f'
      and p.prorettype <> all (array[
          'trigger', 'event_trigger', 'internal', 'language_handler', 'fdw_handler',
          'index_am_handler', 'table_am_handler', 'tsm_handler']::regtype[])
      and not (p.proargtypes::oid[] && array['internal'::regtype::oid])
),
functions as (
    select json_build_array(
               f.oid, f.pronamespace, f.proname, f.types, f.proargmodes, f.proargnames,
               case when f.pronargdefaults > 0 then array(
                   select pg_get_function_arg_default(f.oid, n) from generate_series(1, cardinality(f.types)) as n
               ) end,
               f.provariadic <> 0, f.prorettype, f.proretset, f.prorows, f.provolatile, f.proconfig,
               d.description, f.acl::text
           ) as item,
           row_number() over (order by f.position, f.proname, f.oid) as number
    from routine f
    left join pg_description d
        on d.classoid = 'pg_proc'::regclass and d.objoid = f.oid and d.objsubid = 0
),
handler as materialized (
    select p.oid, p.proname, n.nspname, path.position, t.oid as type, p.proargtypes[0] as argument,
           coalesce(p.proacl, acldefault('f', p.proowner)) as acl,
           t.typname
    from pg_proc p
    join path on path.oid = p.pronamespace
    join pg_namespace n on n.oid = p.pronamespace
    join pg_type t on t.oid = p.prorettype and t.typtype = 'd' and strpos(t.typname, '/') > 1
    join pg_aggregate a on a.aggfnoid = p.oid and a.aggkind = 'n'
    where p.prokind = 'a' and p.pronargs = 1
),
media_handlers as (
    select json_build_array(h.typname, h.nspname, h.proname, h.type, h.argument, h.acl::text) as item,
           row_number() over (order by h.position, h.proname, h.oid) as number
    from handler h
),
representations as (
    select json_build_array(c.castsource, c.casttarget, n.nspname, p.proname) as item,
           row_number() over (order by c.oid) as number
    from pg_cast c
    join pg_type s on s.oid = c.castsource
    join pg_type t on t.oid = c.casttarget
    join pg_proc p on p.oid = c.castfunc
    join pg_namespace n on n.oid = p.pronamespace
    where c.castcontext = 'i' and c.castmethod = 'f'
      and (s.typtype = 'd' and t.oid in ('json'::regtype, 'text'::regtype)
           or t.typtype = 'd' and s.oid in ('json'::regtype, 'text'::regtype))
),
used(oid) as (
    (
        select atttypid from attribute
        union
        select unnest(types) from routine
        union
        select prorettype from routine
        union
        select type from handler
        union
        select t.oid from pg_type t join path on path.oid = t.typnamespace where t.typtype = 'e'
    )
    union
    select part.oid
    from used
    join pg_type t on t.oid = used.oid
    cross join lateral (
        select t.typelem as oid where t.typtype = 'b' and t.typcategory = 'A'
        union all
        select t.typbasetype where t.typtype = 'd'
        union all
        select g.rngsubtype from pg_range g where g.rngtypid = t.oid and t.typtype = 'r'
        union all
        select m.atttypid from pg_attribute m
        where t.typtype = 'c' and m.attrelid = t.typrelid and m.attnum > 0 and not m.attisdropped
    ) as part
    where part.oid <> 0
),
type as materialized (
    select t.oid, t.typname, t.typnamespace, t.typtype, t.typcategory, t.typelem, t.typbasetype, t.typtypmod,
           t.typnotnull, t.typrelid, t.typdefaultbin, coalesce(t.typacl, acldefault('T', t.typowner)) as acl
    from pg_type t
    where t.oid in (select used.oid from used)
),
-- Operators and aggregates created together with an extension's type. Other users may have created more with the
-- same names.
own_operator as (
    select t.oid, json_agg(o.name) as names
    from pg_type t
    join (
        select oprleft as type, oprname as name, oprnamespace as namespace, oprowner as owner from pg_operator
        union
        select proargtypes[0], proname, pronamespace, proowner from pg_proc where prokind = 'a' and pronargs = 1
    ) as o on o.type = t.oid and o.namespace = t.typnamespace and o.owner = t.typowner
    -- OIDs from 16384 on are not built in.
    where t.typtype = 'b' and t.oid::bigint >= 16384
    group by t.oid
),
types as (
    select json_build_array(
               t.oid, n.nspname, t.typname,
               case when t.typtype = 'b' and t.typcategory = 'A' and t.typelem <> 0 then 'A' else t.typtype end,
               case when t.typtype = 'b' and t.typcategory = 'A' then t.typelem else 0 end,
               t.typbasetype, t.typtypmod, t.typnotnull, t.typrelid, t.typcategory,
               case when t.typtype = 'e' then array(
                   select e.enumlabel from pg_enum e where e.enumtypid = t.oid order by e.enumsortorder
               ) end,
               case when t.typtype = 'c' and not exists (select from relation where relation.oid = t.typrelid) then (
                   select json_agg(json_build_array(m.attname, m.atttypid) order by m.attnum)
                   from pg_attribute m where m.attrelid = t.typrelid and m.attnum > 0 and not m.attisdropped
               ) end,
               g.rngsubtype, d.description, t.acl::text,
               format_type(t.oid, null), case when t.typtype = 'd' then pg_get_expr(t.typdefaultbin, 0) end, o.names
           ) as item,
           row_number() over (order by t.oid) as number
    from type t
    join pg_namespace n on n.oid = t.typnamespace
    left join pg_range g on g.rngtypid = t.oid
    left join own_operator o on o.oid = t.oid
    left join pg_description d
        on d.classoid = 'pg_type'::regclass and d.objoid = t.oid and d.objsubid = 0
),
-- Before PostgreSQL 16, every membership allows SET ROLE, and pg_has_role does not support SET.
assumable as (
    select r.oid, r.rolname, r.rolsuper
    from pg_roles r
    where pg_has_role(session_user, r.oid,
        case when current_setting('server_version_num')::int >= 160000 then 'SET' else 'MEMBER' end)
),
-- Exclude settings that the role cannot set, because each of its requests would fail: settings for superusers, and
-- settings that pg_settings hides. Custom settings contain a period and may be unknown.
setting as (
    select s.setrole, s.setdatabase, pair.value, pair.position
    from pg_db_role_setting s
    cross join lateral unnest(s.setconfig) with ordinality as pair(value, position)
    left join pg_settings known on lower(known.name) = lower(split_part(pair.value, '=', 1))
    where s.setdatabase in (0, (select oid from pg_database where datname = current_database()))
      and (known.context is null and strpos(pair.value, '.') between 2 and strpos(pair.value, '=')
           or known.context = 'user'
           or known.context = 'superuser' and (select rolsuper from pg_roles where pg_roles.oid = s.setrole))
),
roles as (
    select json_build_array(
               r.oid, r.rolname, r.rolsuper,
               array(
                   select g.oid from pg_roles g
                   where not r.rolsuper and g.oid <> r.oid
                     and (g.rolname = 'pg_database_owner' or g.oid in (select roleid from pg_auth_members))
                     and pg_has_role(r.oid, g.oid, 'USAGE')
               ),
               array(
                   select setting.value from setting where setting.setrole = r.oid
                   order by setting.setdatabase, setting.position
               ),
               r.rolname = session_user
           ) as item,
           row_number() over (order by r.rolname) as number
    from assumable r
),
schemas as (
    select json_build_array(path.oid, path.nspname, d.description, path.acl::text) as item,
           path.position as number
    from path
    left join pg_description d
        on d.classoid = 'pg_namespace'::regclass and d.objoid = path.oid and d.objsubid = 0
),
acl as (
    select distinct on (list::text) list
    from (
        select acl from path
        union all select acl from relation
        union all select attacl from attribute where attacl is not null
        union all select acl from routine
        union all select acl from handler
        union all select acl from type
    ) as lists(list)
),
acls as (
    select json_build_array(
               acl.list::text,
               array(
                   select json_build_array(e.grantee, json_agg(distinct e.privilege_type))
                   from aclexplode(acl.list) as e group by e.grantee order by e.grantee
               )
           ) as item,
           row_number() over () as number
    from acl
)
select 'server', json_build_array(json_build_array(
    coalesce(to_regrole('pg_read_all_data')::oid, 0),
    coalesce(to_regrole('pg_write_all_data')::oid, 0),
    exists (select from pg_extension where extname = 'citus'),
    (select n.nspname from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'postgis'),
    exists (
        -- In other procedural languages, error handlers need not name the errors that they catch.
        select from pg_proc
        join pg_language l on l.oid = pg_proc.prolang
        where pg_proc.oid >= 16384
            and prosrc ~* (
                'statement_timeout|query_canceled|57014|operator_intervention|57000'
                || case when l.lanname in ('sql', 'plpgsql', 'c', 'internal') then '' else '|except|eval|catch|rescue' end
            )
            and not exists (
                select from pg_depend d
                where d.classid = 'pg_proc'::regclass and d.objid = pg_proc.oid and d.deptype = 'e'
            )
    ),
    exists (select from pg_trigger where tginitdeferred)
))::text
union all
(select 'schemas', json_agg(item order by number)::text from schemas group by (number - 1) / 50)
union all
(select 'acls', json_agg(item order by number)::text from acls group by (number - 1) / 50)
union all
(select 'types', json_agg(item order by number)::text from types group by (number - 1) / 50 order by (number - 1) / 50)
union all
(select 'tables', json_agg(item order by number)::text from tables group by (number - 1) / 50 order by (number - 1) / 50)
union all
(select 'foreign_keys', json_agg(item order by number)::text from reference group by (number - 1) / 50 order by (number - 1) / 50)
union all
(select 'functions', json_agg(item order by number)::text from functions group by (number - 1) / 50 order by (number - 1) / 50)
union all
(select 'roles', json_agg(item order by number)::text from roles group by (number - 1) / 50 order by (number - 1) / 50)
union all
(select 'surfaces', json_agg(item order by number)::text from surfaces group by (number - 1) / 50 order by (number - 1) / 50)
union all
(select 'view_references', json_agg(item order by number)::text from view_references group by (number - 1) / 50 order by (number - 1) / 50)
union all
(select 'beneath_keys', json_agg(item order by number)::text from beneath_keys group by (number - 1) / 50 order by (number - 1) / 50)
union all
(select 'media_handlers', json_agg(item order by number)::text from media_handlers group by (number - 1) / 50 order by (number - 1) / 50)
union all
(select 'representations', json_agg(item order by number)::text from representations group by (number - 1) / 50 order by (number - 1) / 50)
union all
(select 'timezones', json_agg(name)::text from pg_timezone_names where $2::boolean)
