"""Runs ``sql.algebra`` statements on a database of films. A parameter's ``source`` is its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg2
from dataapi.database.sql_text import substitute_literals
from psycopg2.extensions import BYTES
from support.catalog import load_catalog, table_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataapi.catalog.model import Catalog, Function, Table
    from dataapi.database.message import Statement
    from dataapi.sql.statement import Compiled
    from support.postgres import Database, Server

SCHEMA = """
create table director (id int primary key, name text not null, born int);
create table film (
    id int primary key,
    title text not null,
    year int,
    budget numeric,
    seen boolean,
    director_id int references director,
    extra jsonb,
    raw json,
    tags text[],
    spot point,
    words tsvector,
    color int4range
);
create table actor (id int primary key, name text not null);
create table part (
    film_id int references film,
    actor_id int references actor,
    played text,
    primary key (film_id, actor_id)
);
insert into director values (1, 'Agnès', 1928), (2, 'Buster', 1895), (3, 'Carol', null);
insert into film values
    (1, 'Alpha', 1960, 10.5, true, 1, '{"a": {"b": [1, "two"]}, "n": 1}', '{"k":  1}', '{x,y}', '(1,2)',
     to_tsvector('english', 'a running dog'), '[1,5)'),
    (2, 'Beta', 1960, 20, false, 1, '{"n": 2}', null, '{}', null, null, '[5,9)'),
    (3, 'Gamma', 1970, 30, null, 2, null, 'null', null, '(1,2)',
     to_tsvector('english', 'cats'), null),
    (4, 'A "quoted", one', null, null, true, null, '[1]', '{"k":  1}', '{"a b"}', null, null, null);
insert into actor values (1, 'Ann'), (2, 'Bob'), (3, 'Cyd');
insert into part values (1, 1, 'hero'), (1, 2, 'villain'), (2, 1, null), (3, 2, 'extra');

create table called (what text);
create function changing(more int) returns setof film language plpgsql as $$
begin
    insert into called values ('changing');
    perform set_config('response.status', '20' || more, true);
    return query select * from film where id <= more order by id;
end $$;
create function scalar(value int) returns int language plpgsql volatile as $$
begin
    insert into called values ('scalar');
    perform set_config('response.headers', '[{"X-Made": "yes"}]', true);
    return value;
end $$;
create function quiet(value int) returns void language plpgsql stable as $$
begin
    if value > 0 then
        raise exception 'refused %', value;
    end if;
end $$;
create function several(up_to int) returns setof int language sql immutable as
    'select generate_series(1, up_to)';
create function unnamed(json) returns json language sql immutable as 'select $1';
create function total_of(variadic numbers int[]) returns int language sql immutable as
    'select sum(n)::int from unnest(numbers) as n';
create function nothing() returns film language sql stable as 'select null::film';
create function label(film) returns text language sql stable as $$ select $1.title || '!' $$;
create function status_of_row(film) returns text language plpgsql as $$
begin
    perform set_config('response.status', '202', true);
    return $1.title;
end $$;
create function halved(text) returns int language sql immutable as 'select $1::int / 2';

create function st_asgeojson(feature record) returns text language plpgsql stable as $$
declare
    members jsonb := to_jsonb(feature);
begin
    return jsonb_build_object('type', 'Feature', 'geometry', null, 'properties', members);
end $$;

create function gather(text, film) returns text language sql immutable as
    $$ select concat($1, $2.title, ';') $$;
create aggregate titles(film) (sfunc = gather, stype = text, initcond = '');
create function gather_any(text, anyelement) returns text language sql immutable as
    $$ select $1 || to_json($2)::text || ';' $$;
create aggregate anything(anyelement) (sfunc = gather_any, stype = text, initcond = '');
"""


@dataclass(frozen=True)
class Films:
    """The database with its catalog."""

    database: Database
    catalog: Catalog

    def table(self, name: str) -> Table:
        return table_named(self.catalog, name)

    def function(self, name: str) -> Function:
        return next(each for each in self.catalog.functions if each.name == name)

    def run(self, compiled: Compiled, *, prepared: bool = True) -> list[tuple[Any, ...]]:
        """Run a statement, roll it back, and return its rows with JSON as bytes."""
        rows, _ = self.run_counting(compiled, prepared=prepared)
        return rows

    def run_counting(
        self, compiled: Compiled, *, prepared: bool = True
    ) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Return a statement's rows, and the instrumented functions that it called."""
        statement, values = compiled.statement, compiled.sources
        connection = psycopg2.connect(self.database.admin_uri)
        try:
            for oid in (114, 3802):
                connection.string_types[oid] = BYTES
            with connection.cursor() as cursor:
                if prepared:
                    types = f"({','.join(statement.types)})" if values else ""
                    cursor.execute(f"prepare tested{types} as {statement.text}")
                    parameters = f"({','.join(['%s'] * len(values))})" if values else ""
                    cursor.execute(f"execute tested{parameters}", values or None)
                else:
                    cursor.execute(with_literals(cursor, statement, values))
                rows = cursor.fetchall()
                cursor.execute("select what from called")
                return rows, [what for (what,) in cursor.fetchall()]
        finally:
            connection.close()


def with_literals(cursor: Any, statement: Statement, values: Sequence[object]) -> str:
    """Return a statement's text with values quoted by psycopg2."""
    literals = [cursor.mogrify("%s", (value,)).decode() for value in values]
    return substitute_literals(statement.text, statement.types, literals)


def make_films(server: Server) -> Films:
    database = server.create_database(SCHEMA)
    return Films(database, load_catalog(database.uri))
