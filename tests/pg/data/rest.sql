-- Schema for tests of the REST API: a small example of each feature.
-- Add new sections at the end, and do not change rows of other sections.

create schema private;
create schema other;
grant usage on schema other to anon, authenticated;

-- ---------------------------------------------------------------- reading: columns of many types

create type mood as enum ('calm', 'tense', 'wild');
create type frame as (width int, height int);

create table director (
    id int primary key,
    name text not null,
    born date,
    mentor int references director
);
create table film (
    id int primary key,
    title text not null,
    year int,
    director int references director,
    budget numeric(12, 2),
    rating double precision,
    mood mood,
    seen boolean,
    tags text[],
    data jsonb,
    raw json,
    frame frame,
    run daterange,
    script tsvector,
    plot text
);
create index film_plot on film using gin (to_tsvector('english', plot));

insert into director values
    (1, 'Ada', '1950-01-01', null), (2, 'Bert', '1960-02-02', 1), (3, 'Cleo', null, 1), (4, 'Dan', '1980-04-04', 2);
insert into film values
    (1, 'Alpha', 1990, 1, 1000.50, 7.5, 'calm', true, '{short,old}', '{"lang": "en", "cast": {"size": 3}, "years": [1990, 1991]}',
     '{"a": 1, "b": [10, 20]}', (16, 9), '[1990-01-01,1990-03-01)', to_tsvector('english', 'The cats are running'), 'Cats run in the garden'),
    (2, 'Beta', 1995, 1, 2000, 6.25, 'tense', false, '{long}', '{"lang": "fr", "cast": {"size": 12}, "years": []}',
     '{"a": 2}', (4, 3), '[1995-01-01,1995-02-01)', to_tsvector('english', 'A dog sleeps'), 'A dog sleeps all day'),
    (3, 'Gamma, the "last"', 1995, 2, null, null, null, null, '{}', null,
     null, null, null, null, null),
    (4, 'delta_100%', 2001, null, 500, 8, 'wild', true, null, '{"lang": "en", "cast": {"size": 1}}',
     '{"b": []}', (16, 10), '[1990-02-01,)', to_tsvector('english', 'cats and dogs'), 'Of cats and dogs'),
    (5, 'Epsilon*', null, 3, 0, 9.75, 'calm', null, '{old,"with, comma"}', '{"lang": null, "a.b": "dot"}',
     '{"a": null}', null, 'empty', to_tsvector('english', 'impossible journeys'), 'An impossible journey');

-- ---------------------------------------------------------------- reading: relationships of every kind

create table actor (id int primary key, name text not null);
create table part (
    film int references film, actor int references actor, played text, primary key (film, actor)
);
create table poster (film int primary key references film, url text not null);
create table city (id int primary key, name text not null);
create table premiere (
    id int primary key, film int references film, city int references city, host int references city
);
create table crew (film int references film, actor int references actor, job text, unique (film, actor));
create table unrelated (id int primary key);
create table premieres (word text);

insert into actor values (1, 'Xena'), (2, 'Yuri'), (3, 'Zoe'), (4, 'Walt');
insert into part values (1, 1, 'hero'), (1, 2, 'villain'), (2, 1, 'queen'), (4, 3, 'king'), (4, 2, null);
insert into poster values (1, 'alpha.png'), (4, 'delta.png');
insert into city values (1, 'Rome'), (2, 'Oslo'), (3, 'Lima');
insert into premiere values (1, 1, 1, 2), (2, 1, 2, 2), (3, 2, 3, null), (4, null, 1, 1);
insert into crew values (1, 4, 'light'), (2, 4, 'sound');

-- Keys of private tables that are only visible through views.
create table private.studio (id int primary key, name text, secret text);
create table private.lot (id int primary key, studio int references private.studio, area int);
insert into private.studio values (1, 'North', 'x'), (2, 'South', 'y');
insert into private.lot values (1, 1, 100), (2, 1, 200), (3, 2, 300);
create view studio as select id, name from private.studio;
create view lot as select id as number, studio as owner, area from private.lot;
create view lot_report as
    select l.id as number, l.studio as owner, s.name as owner_name from private.lot l join private.studio s on s.id = l.studio;
create view film_brief as select id, title, director from film;
create materialized view director_brief as select id, name from director;

-- ---------------------------------------------------------------- reading: computed fields and relationships

create function headline(film) returns text language sql stable as
    $$ select upper($1.title) $$;
create function words(film) returns tsvector language sql stable as
    $$ select to_tsvector('simple', coalesce($1.plot, '')) $$;
create function remakes(film) returns setof film language sql stable rows 10 as
    $$ select * from film where year = $1.year and id <> $1.id $$;
create function lead(film) returns setof actor language sql stable rows 1 as
    $$ select a.* from actor a join part p on p.actor = a.id where p.film = $1.id order by a.id limit 1 $$;
-- Overrides the relationship derived from the foreign key.
create function poster(film) returns setof poster language sql stable rows 1 as
    $$ select film, 'https://posters.example/' || url from poster where film = $1.id $$;
create function banner(film) returns poster language sql stable as
    'select * from poster where film = $1.id';
create function pupils(director) returns setof director language sql stable as
    $$ select * from director where mentor = $1.id $$;

-- ---------------------------------------------------------------- reading: domains with custom representations

create domain tint as int;
create function to_json(tint) returns json language sql immutable as
    $$ select pg_catalog.to_json('#' || lpad(to_hex($1::int), 6, '0')) $$;
create function tint(json) returns tint language sql immutable as
    $$ select tint($1 #>> '{}') $$;
create function tint(text) returns tint language sql immutable as
    $$ select (('x' || lpad(replace($1, '#', ''), 8, '0'))::bit(32)::int)::tint $$;
-- PostgreSQL warns that casts of domains are ignored.
set client_min_messages = error;
create cast (tint as json) with function to_json(tint) as implicit;
create cast (json as tint) with function tint(json) as implicit;
create cast (text as tint) with function tint(text) as implicit;
reset client_min_messages;
create table paint (id int primary key, name text, shade tint default 255, spare tint);
insert into paint values (1, 'red', 16711680, null), (2, 'green', 65280, 1), (3, 'blue', 255, 16777215);

create domain plate as text;
create function plate(text) returns plate language sql immutable as
    $$ select upper($1)::plate $$;
set client_min_messages = error;
create cast (text as plate) with function plate(text) as implicit;
reset client_min_messages;
create table car (id int primary key, plate plate);
insert into car values (1, 'AB 12'), (2, 'AC 12'), (3, 'ab 99');

create domain words as tsvector;
create domain few_words as words;
create table sign (id int primary key, long words, short few_words);
insert into sign values (1, 'exits:1 left:2', 'exits:1'), (2, 'no:1 entry:2', 'entry:1');

-- ---------------------------------------------------------------- reading: sales, for aggregates

create table sale (
    id int primary key, region text, film int references film, amount numeric, units int, note jsonb
);
insert into sale values
    (1, 'north', 1, 10.5, 1, '{"by": "a"}'), (2, 'north', 1, 20, 2, '{"by": "b"}'), (3, 'south', 2, 5, 3, '{"by": "a"}'),
    (4, 'south', 4, null, 4, null), (5, null, null, 7.5, 5, '{"by": "c"}');

-- ---------------------------------------------------------------- reading: awkward names, limits and privileges

create table "Odd Table" ("the key" int primary key, "a,b" text, "say ""hi""" text, "d.o.t" text, "x->y" text);
insert into "Odd Table" values (1, 'comma', 'quote', 'dot', 'arrow'), (2, null, null, null, null);
create table capped (id int primary key, film int references film);
comment on table capped is '@rest({"max_rows": 2})';
insert into capped select n, 1 from generate_series(1, 5) n;
create table forbidden (id int primary key, film int references film);
create table inbox (id int primary key, word text);
create table partly_read (id int primary key, shown text, covered text);
insert into partly_read values (1, 'yes', 'no');
create table keyless (word text);
create view fixed_words as select 'a'::text as word union all select 'b';
create table other.note (id int primary key, word text, film int references film);
insert into other.note values (1, 'elsewhere');

grant select, insert, update, delete on all tables in schema public, other to anon, authenticated;
revoke all on forbidden, inbox, partly_read from anon, authenticated;
grant insert on inbox to anon;
grant select (id, shown) on partly_read to anon;

-- The planner needs statistics.
analyze;
