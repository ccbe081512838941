-- Additional read-only objects for tests of the REST reference.

create table reserved (
    id int primary key, "select" int, "order" text, "limit" int, "offset" int, "and" int, "or" int, "not" int,
    "columns" int, on_conflict int, "naïve ünï" text, "per%cent" text, "a(b)" text
);
insert into reserved values (1, 1, 'x', 5, 6, 1, 2, 3, 4, 7, 'u', 'p', 'q'), (2, 2, 'y', 6, 7, 2, 3, 4, 5, 8, 'v', 'r', 's');
create table several (
    id int primary key, written json, kept jsonb, found tsvector, said text, many int[], span int4range,
    at timestamptz
);
insert into several values
    (1, '{"a": "the cats run"}', '{"a": "dogs bark", "n": [1, 2]}', to_tsvector('english', 'cats'), 'running cats',
     '{1,2,3}', '[1,10)', '2020-01-01 12:00:00+00'),
    (2, null, null, null, '', null, '[10,20)', null);
grant all on all tables in schema public to anon, authenticated;
revoke all on forbidden from anon;

create function add(a int, b int default 2) returns int language sql immutable as 'select a + b';
create function ambiguous(a int) returns int language sql as 'select 1';
create function ambiguous(a text) returns int language sql as 'select 2';
create function write(a int) returns int language sql as 'insert into unrelated values (a) returning id';
create function films_of(who int) returns setof film language sql stable as 'select * from film where director = who';
create function paints() returns setof paint language sql stable as 'select * from paint';
create function nothing() returns void language sql as 'select';
create function bad_headers() returns int language sql as $$ select set_config('response.headers', 'x', true); select 1 $$;
create function bad_status() returns int language sql as $$ select set_config('response.status', 'x', true); select 1 $$;
create function bad_raise() returns int language plpgsql as $$ begin raise sqlstate 'PGRST' using message = 'x'; end $$;
create function refuse() returns int language plpgsql as $$ begin
    raise sqlstate 'PT402' using message = 'Pay', detail = 'Quota', hint = 'Upgrade'; end $$;
