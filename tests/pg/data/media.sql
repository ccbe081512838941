-- Custom media types: domains with their names, aggregates and functions.
create domain "text/html" as text;
create domain "image/png" as bytea;
create domain "application/vnd.sum" as bytea;
create domain "application/vnd.any+json" as json;
create domain "text/tab-separated-values" as text;
create domain "application/json" as json;
create domain "text/csv" as text;
create domain "*/*" as bytea;

create table entry (id int primary key, name text);
create table shape (id int primary key, name text);
create table own_json (id int primary key);
create table anything (id int primary key);
create table file (name text primary key, content bytea);
insert into entry values (1, 'a'), (2, null), (3, 'c,"d"');
insert into shape values (1, 'x');
insert into own_json values (1), (2);
insert into anything values (1), (2), (3);
insert into file values ('a.png', '\x89504e470d0a1a0a00ff');
grant select on all tables in schema public to anon, authenticated;
grant insert, delete on entry to anon;

-- aggregate over rows of one table, as bytea
create function sum_step(state bytea, one entry) returns bytea immutable language sql
    as $$ select state || decode(lpad(to_hex((one).id), 2, '0'), 'hex') $$;
create function sum_end(state bytea) returns "application/vnd.sum" immutable language sql as 'select state';
create aggregate sum_entries (entry) (sfunc = sum_step, stype = bytea, initcond = '', finalfunc = sum_end);

-- aggregates over rows of any table
create function tabs_step(state text, one anyelement) returns text immutable language sql
    as $$ select state || (select string_agg(value, E'\t') from json_each_text(row_to_json(one))) || E'\n' $$;
create function tabs_end(state text) returns "text/tab-separated-values" immutable language sql as 'select state';
create aggregate tabs (anyelement) (sfunc = tabs_step, stype = text, initcond = '', finalfunc = tabs_end);
create function any_step(state json, one anyelement) returns json immutable language sql
    as $$ select json_build_object('last', to_json(one)) $$;
create function any_end(state json) returns "application/vnd.any+json" immutable language sql as 'select state';
create aggregate any_rows (anyelement) (sfunc = any_step, stype = json, initcond = '{}', finalfunc = any_end);
create function any_shape_step(state json, one shape) returns json immutable language sql
    as $$ select '{"own": "shape"}'::json $$;
create aggregate any_shapes (shape) (sfunc = any_shape_step, stype = json, initcond = '{}', finalfunc = any_end);

-- aggregates that override built-in media types
create function own_step(state json, one own_json) returns json immutable language sql
    as $$ select '{"overridden": "true"}'::json $$;
create function own_end(state json) returns "application/json" immutable language sql as 'select state';
create aggregate own_json_rows (own_json) (sfunc = own_step, stype = json, initcond = '{}', finalfunc = own_end);
create function bom_step(state text, one entry) returns text immutable language sql
    as $$ select state || (one).id || ';' || coalesce((one).name, '') || E'\n' $$;
create function bom_end(state text) returns "text/csv" language plpgsql as $$ begin
    perform set_config('response.headers',
        '[{"Content-Disposition": "attachment; filename=\"lines.csv\""}]', true);
    return convert_from('\xEFBBBF', 'utf8') || state; end $$;
create aggregate bom_entries (entry) (sfunc = bom_step, stype = text, initcond = '', finalfunc = bom_end);

-- any media type, with a content type chosen by the function
create function anything_step(state bytea, one anything) returns bytea immutable language sql
    as $$ select state || convert_to((one).id::text, 'utf8') $$;
create function anything_end(state bytea) returns "*/*" language plpgsql as $$
    declare accept text := current_setting('request.headers')::json ->> 'accept'; begin
    if accept like 'magic/%' then
        perform set_config('response.headers', json_build_array(json_build_object('Content-Type', accept))::text, true);
    end if;
    return 'any:'::bytea || state; end $$;
create aggregate anything_rows (anything)
    (sfunc = anything_step, stype = bytea, initcond = '', finalfunc = anything_end);

-- functions
create function page() returns "text/html" stable language sql as $$ select '<p>é</p>' $$;
create function image(name text) returns "image/png" stable language sql
    as 'select content from file where file.name = image.name';
create function any_bytes() returns "*/*" stable language sql as $$ select 'any'::bytea $$;
create function entries() returns setof entry stable language sql as 'select * from entry order by id';
create function pages() returns setof "text/html" stable language sql as $$ values ('a'), ('b') $$;
create function plain_text() returns text stable language sql as $$ select 'a "plain" text' $$;
create function plain_number() returns int stable language sql as 'select 42';
-- PL/pgSQL, because a server without libxml would reject an SQL body when the function is created.
create function plain_xml() returns xml stable language plpgsql as $$ begin return '<a/>'::xml; end $$;
create function plain_bytes() returns bytea stable language sql as $$ select '\x00ff'::bytea $$;
create function no_bytes() returns bytea stable language sql as $$ select null::bytea $$;
create function nested() returns json stable language sql as $$ select '{"a": null, "b": 1}'::json $$;

-- stands in for the PostGIS function
create function st_asgeojson(feature record) returns text stable language plpgsql as $$ begin
    return json_build_object('type', 'Feature', 'properties', to_json(feature)); end $$;

-- privileges
create domain "application/vnd.secret" as text;
create function secret_end(state text) returns "application/vnd.secret" immutable language sql as 'select state';
create function secret_step(state text, one anyelement) returns text immutable language sql as $$ select 's' $$;
create aggregate secret_rows (anyelement)
    (sfunc = secret_step, stype = text, initcond = '', finalfunc = secret_end);
revoke execute on function secret_rows(anyelement) from public, anon;
grant execute on function secret_rows(anyelement) to authenticated;
