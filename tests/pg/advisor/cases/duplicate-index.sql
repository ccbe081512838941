-- Fault: index public.t_a_idx1
create table t (a int, b int);
grant select on t to anon;
create index on t (a);
create index on t (a);

-- Similar: the longer index has another column
create table t (a int, b int);
grant select on t to anon;
create index on t (a);
create index on t (a, b);

-- Similar: sort orders, operator classes, expressions, conditions, access methods and collations differ
create table t (a text);
grant select on t to anon;
create index on t (a);
create index on t (a desc);
create index on t (a text_pattern_ops);
create index on t (lower(a));
create index on t (upper(a));
create index on t (a) where a > 'b';
create index on t using hash (a);
create index on t (a collate "C");

-- Similar: the included columns differ
create table t (a int, b int);
grant select on t to anon;
create index on t (a) include (b);
create index on t (a);

-- Similar: no role may use the table
create table t (a int);
create index on t (a);
create index on t (a);

-- Similar: the second index is partial
create table t (a int unique);
grant select on t to anon;
create unique index on t (a) where a > 1;

-- Fault: index public.t_a_idx
create table t (a int primary key);
grant select on t to anon;
create index on t (a);

-- Fault: index public.t_a_key1
create table t (a int unique);
alter table t add unique (a);
grant select on t to anon;
create table child (a int references t (a));

-- Fault: index public.t_a_idx1
create table t (a int) partition by range (a);
create table t_1 partition of t for values from (1) to (9);
grant select on t, t_1 to anon;
create index on t (a);
create index on t (a);

-- Similar: the index is the table's replica identity
create table t (a int not null unique);
create unique index t_identity on t (a);
alter table t replica identity using index t_identity;
grant select on t to anon;
