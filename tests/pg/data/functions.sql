-- Functions of every kind that REST can call, and their tables.
create schema hidden;
create schema other;
grant usage on schema other to anon, authenticated;

create table client (id int primary key, name text not null);
create table project (id int primary key, name text not null, client_id int references client);
create table task (id int primary key, name text not null, project_id int not null references project);
insert into client values (1, 'Ada'), (2, 'Bob');
insert into project values (1, 'Windows', 1), (2, 'IOS', 2), (3, 'OSX', 2), (4, 'Orphan', null), (5, 'BeOS', 1);
insert into task values (1, 'Design', 1), (2, 'Code', 1), (3, 'Ship', 2);
create table visit (id serial primary key, place text not null);
create sequence called;
grant select on client, project, task to anon, authenticated;
grant select, insert, update, delete on visit to anon, authenticated;
grant usage, select on sequence called, visit_id_seq to anon, authenticated;

create type mood as enum ('sad', 'happy');
create domain positive as int check (value > 0);
create type point2 as (x int, y int);
create domain project_domain as project;
create domain point_domain as point2;

-- values
create function add_them(a int, b int) returns int immutable language sql as 'select a + b';
create function say_hello(name text) returns text stable language sql as $$ select 'Hello, ' || name $$;
create function nothing_given() returns text stable language sql as $$ select 'nothing' $$;
create function give_null() returns int stable language sql as 'select null::int';
create function give_array() returns int[] stable language sql as $$ select '{1,2,3}'::int[] $$;
create function give_json() returns json stable language sql as $$ select '{"a": [1, null]}'::json $$;
create function give_mood(val mood) returns mood stable language sql as 'select val';
create function give_positive(val positive) returns positive stable language sql as 'select val';
create function give_range(low int, up int) returns int4range stable language sql as 'select int4range(low, up)';
create function give_void() returns void stable language sql as 'select null::void';
create function numbers(up int default 3) returns setof int stable language sql
    as 'select n from generate_series(1, up) n';

-- rows
create function give_point() returns point2 stable language sql as 'select (10, 5)::point2';
create function give_point_domain() returns point_domain stable language sql as 'select (10, 5)::point_domain';
create function null_point() returns point2 stable language sql as 'select null::point2';
create function all_projects() returns setof project stable language sql as 'select * from project order by id';
create function projects_as_domain() returns setof project_domain stable language sql
    as 'select project::project_domain from project order by id';
create function title(project) returns text stable language sql as $$ select upper($1.name) $$;
create function one_project(id int) returns project stable language sql
    as 'select * from project where project.id = one_project.id';
create function projects_below(id int) returns setof project stable language sql
    as 'select * from project where project.id < projects_below.id order by id';
create function split(num int, out half int, out rest int) stable language sql as 'select num / 2, num % 2';
create function plus_one(num int, out num_plus_one int) stable language sql as 'select num + 1';
create function twice(inout num int) stable language sql as 'select num * 2';
create function pairs() returns table (a text, b int) stable language sql
    as $$ values ('x', 1), ('y', null), ('z', 3) $$;
create function single_column() returns table (a text) stable language sql as $$ values ('A'), ('B') $$;
create function any_record() returns record stable language sql as $$ select 1 as id, 'Ada'::text as name $$;
create function any_records() returns setof record stable language sql
    as 'select id, name from client order by id';
create function point3() returns table (x int, "y z" int) stable language sql as 'select 1, 2';

-- arguments
create function all_kinds(
    number8 double precision, words character varying, flag boolean, day date, enum mood,
    arr text[], number int, data json default '{}', datab jsonb default '{}', pt point2 default null
) returns json stable language sql as $$
    select json_build_object('number8', number8, 'words', words, 'flag', flag, 'day', day, 'enum', enum,
        'arr', arr, 'number', number, 'data', data, 'datab', datab, 'pt', pt) $$;
create function defaults(a int default 1, b int default 2, c int default 3) returns int immutable language sql
    as 'select a * 100 + b * 10 + c';
create function variadic_texts(variadic v text[] default '{}') returns text[] immutable language sql
    as 'select v';
create function variadic_ints(name text, variadic v int[] default '{}') returns text immutable language sql
    as $$ select name || (select coalesce(sum(n), 0) from unnest(v) n) $$;
create function short_texts(char_ char(5), bits bit(3)) returns text immutable language sql
    as $$ select char_ || '/' || bits::text $$;
create function json_kind(arg json) returns text immutable language sql as 'select json_typeof(arg)';
create function "Quoted Function"("user" text, "fullName" text) returns json immutable language sql
    as $$ select json_build_object('user', "user", 'fullName', "fullName") $$;
create function same_json(arg json) returns json immutable language sql as 'select arg';
create function search(q text) returns text immutable language sql as 'select q';

-- a single unnamed argument
create function take_json(json) returns json immutable language sql as 'select $1';
create function take_jsonb(jsonb) returns jsonb immutable language sql as 'select $1';
create function take_text(text) returns text immutable language sql as 'select $1';
create function take_xml(xml) returns xml immutable language sql as 'select $1';
create function take_bytes(bytea) returns bytea immutable language sql as 'select $1';
create function take_int(int) returns int immutable language sql as 'select $1';
create function take(x int, y int) returns int immutable language sql as 'select x + y';
create function take() returns int immutable language sql as 'select 1';
create function take(json) returns json immutable language sql as 'select $1';
create function take(text) returns text immutable language sql as 'select $1';
create function take(bytea) returns bytea immutable language sql as 'select $1';
create function take_either(json) returns json immutable language sql as 'select $1';
create function take_either(jsonb) returns jsonb immutable language sql as 'select $1';

-- overloads
create function over() returns setof int immutable language sql as 'values (1), (2), (3)';
create function over(a int, b int) returns int immutable language sql as 'select a + b';
create function over(a text, b text, c text) returns text immutable language sql as 'select a || b || c';
create function same(arg int) returns int immutable language sql as 'select arg';
create function same(arg text, num int default 0) returns text immutable language sql as 'select arg';

-- functions with side effects
create function count_calls() returns bigint volatile language sql as $$ select nextval('called') $$;
create function visit_places(variadic places text[]) returns setof visit volatile language sql
    as 'insert into visit (place) select unnest(places) returning *';
create function visit_place(place text) returns visit volatile language sql
    as 'insert into visit (place) values (place) returning *';
create function visit_quietly(place text) returns void volatile language sql
    as 'insert into visit (place) values (place)';
create function calls_and_rows(times int) returns table (number bigint) volatile language sql
    as $$ select nextval('called') from generate_series(1, times) $$;

-- functions that set response headers or transaction settings
create function with_headers(num int) returns int language plpgsql as $$ begin
    perform set_config('response.headers', '[{"X-Test": "key1=val1"}, {"X-Test-2": "two"}]', true);
    return num; end $$;
create function projects_with_headers() returns setof project stable language plpgsql as $$ begin
    perform set_config('response.headers', '[{"X-Test": "rows"}]', true);
    return query select * from project; end $$;
create function bad_headers() returns int language plpgsql as $$ begin
    perform set_config('response.headers', '{"X-Test": "no array"}', true); return 1; end $$;
create function own_status() returns json language plpgsql as $$ begin
    perform set_config('response.status', '403', true);
    return '{"message": "invalid user or password"}'::json; end $$;
create function bad_status() returns int language plpgsql as $$ begin
    perform set_config('response.status', 'bad', true); return 1; end $$;
create function own_content_type() returns text language plpgsql as $$ begin
    perform set_config('response.headers', '[{"content-type": "text/x-own"}]', true); return 'mine'; end $$;
create function status_of(told text) returns int language plpgsql as $$ begin
    perform set_config('response.status', told, true); return 1; end $$;
create function raise_payment() returns int language plpgsql as $$ begin
    raise sqlstate 'PT402' using message = 'Payment Required', detail = 'Quota exceeded', hint = 'Upgrade';
    end $$;
create function raise_own() returns int language plpgsql as $$ begin
    raise sqlstate 'PGRST' using
        message = '{"code": "123", "message": "ABC", "details": "DEF", "hint": "XYZ"}',
        detail = '{"status": 332, "status_text": "My Own", "headers": {"X-Header": "str"}}';
    end $$;
create function raise_plainly() returns int language plpgsql as $$ begin raise 'no'; end $$;
create function current_settings() returns json stable
    set statement_timeout = '7s' set work_mem = '5MB' language sql as $$
    select json_build_object('timeout', current_setting('statement_timeout'),
        'zone', current_setting('TimeZone'), 'isolation', current_setting('transaction_isolation'),
        'read_only', current_setting('transaction_read_only'), 'method', current_setting('request.method'),
        'path', current_setting('request.path')) $$;
create function serializably() returns text stable set default_transaction_isolation = 'serializable'
    language sql as $$ select current_setting('transaction_isolation') $$;
create function timeout_now() returns text volatile language sql as $$ select current_setting('statement_timeout') $$;
create function sleep_long() returns void volatile set statement_timeout = '50ms' language sql
    as 'select pg_sleep(5)';

-- privileges
create function not_for_anon() returns int immutable language sql as 'select 1';
revoke execute on function not_for_anon from public, anon;
grant execute on function not_for_anon to authenticated;
create function hidden.unseen() returns int immutable language sql as 'select 1';
create function other.elsewhere() returns text immutable language sql as $$ select 'elsewhere' $$;
