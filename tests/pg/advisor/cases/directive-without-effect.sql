-- Fault: table public.t
create table t (id int primary key);
comment on table t is 'Things @graphql({"name": "Thing", "nam": 1, "totalCount": {"enabled": true, "x": 1}})';

-- Similar: both directives are valid
create table t (id int primary key);
comment on table t is 'Things @graphql({"name": "Thing"}) @rest({"max_rows": 9})';

-- Similar: the comment contains no directive
create table t (id int primary key);
comment on table t is 'see @graphql()';

-- Similar: the schema is not exposed
create table private.t (id int primary key);
comment on table private.t is '@graphql({"nam": 1})';

-- Similar: the directives of a view and its column are valid
create view v as select 1 as id;
comment on view v is '@graphql({"primary_key_columns": ["id"]})';
comment on column v.id is '@graphql({"name": "key"})';

-- Similar: the directives of other objects are valid
create function f(int) returns int language sql as 'select 1';
comment on function f is '@graphql({"name": "g"})';
comment on schema public is '@graphql({"inflect_names": true})';
create type mood as enum ('a');
comment on type mood is '@graphql({"name": "Mood"})';
create table t (id int primary key, t int references t, mood mood);
comment on constraint t_t_fkey on t is '@graphql({"local_name": "parents"})';

-- Fault: index public.t_pkey
create table t (id int primary key);
comment on index t_pkey is '@graphql({"name": "x"})';

-- Fault: table constraint t_pkey on public.t
create table t (id int primary key);
comment on constraint t_pkey on t is 'The key @graphql({"name": "x"})';

-- Fault: table public.v
create view v as select 1 as id;
comment on view v is 'It''s @graphql({"totalCount": {"enabled": true}}) @rest({"max_rows": 5})';

-- Fault: column public.t.b
create table t (a int primary key, b int);
comment on column t.b is 'A\B @graphql(name: b)';

-- Fault: function public.f
create function f(a int) returns int language sql as 'select 1';
create function f(a text) returns int language sql as 'select 1';
comment on function f(text) is '@graphql({"name": "1"})';

-- Fault: schema public
comment on schema public is '@graphql({"inflect_names": true, "max_rows": 0})';

-- Fault: table public.v
create table t (id int primary key);
create view v as select 1 as id, 2 as t;
comment on view v is '@graphql({"primary_key_columns": ["id"], "foreign_keys": [{"local_columns": ["t"], "foreign_schema": "public", "foreign_table": "t", "foreign_columns": ["id"]}, {"local_columns": ["t"], "foreign_schema": "public", "foreign_table": "u", "foreign_columns": ["id"]}]}) @graphql({})';
