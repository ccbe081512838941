-- Fault: foreign key child_a_b_fkey of table public.child
create table t (a int, b int, primary key (a, b));
grant select on t to anon;
create table child (a int, b int, c int, foreign key (a, b) references t);
grant select on child to anon;
create index on child (a, c, b);
create index on child (a, b) where c > 1;

-- Similar: an index begins with the columns in another order
create table t (a int, b int, primary key (a, b));
grant select on t to anon;
create table child (a int, b int, c int, foreign key (a, b) references t);
grant select on child to anon;
create index on child (b, a, c);

-- Similar: the partial index excludes only NULL
create table t (a int primary key);
create table child (a int references t);
grant select on child to anon;
create index on child (a) where a is not null;

-- Similar: no role may use the table
create table t (a int primary key);
create table child (a int references t);

-- Similar: the column is the primary key
create table t (a int primary key);
create table child (a int primary key references t);
grant select on child to anon;

-- Similar: the partitioned table has the index
create table t (a int primary key);
create table part (a int references t) partition by range (a);
create table part_1 partition of part for values from (1) to (9);
create index on part (a);
grant select on part, part_1 to anon;
