"""Catalog reflection for REST: keys of views, casts of domains, media types."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dataapi.catalog.media_types import media_type_of
from dataapi.catalog.model import Catalog, QualifiedName, TypeKind
from dataapi.catalog.relationships import MAX_VIEW_KEYS
from support.catalog import column_named, load_catalog, table_named
from support.postgres import Database, Server

SCHEMA = r"""
create schema api;
create schema private;
create table private.person (id integer primary key, email text unique,
    boss_id integer references private.person);
create table private.book (
    id integer primary key, title text,
    author_id integer not null references private.person (id),
    editor_id integer references private.person (id)
);
create table private.passport (person_id integer primary key references private.person, number text);
create table private.region (country text, code text, name text, primary key (country, code));
create table private.shop (id integer primary key, country text, code text, note text,
    constraint shop_region foreign key (country, code) references private.region (country, code));
create table api.review (
    id integer primary key, "the ""{odd}\ name" integer references private.book (id), stars integer);

create view api.people as select id as number, email, boss_id from private.person;
create view api.books as
    select b.title, b.id, b.author_id, b.editor_id, (select p.id from private.person p limit 1) as someone
    from private.book b
    order by b.editor_id;
create view private.between as select id as inner_id, author_id as inner_author, title from private.book;
create view api.outer_books as
    with x as (select * from private.between)
    select y.outer_id, y.outer_author from (
        select inner_id as outer_id, inner_author as outer_author from x) y
    where exists (select 1 as outer_id from private.person);
create materialized view api.frozen_books as select id, author_id from private.book;
create view api.passports as select person_id, number from private.passport;
create view api.odd as
    select id + 0 as id, author_id::bigint as author_id, coalesce(editor_id) as editor_id from private.book;
create view api.both_books as
    select id, author_id from private.book union all select id, author_id from private.book;
create view api.doubled as select id, author_id as a, author_id as b from private.book;
create view api.regions as select name, code as region_code, country from private.region;
create view api.shops as select id, country, code from private.shop;
create view api.half_shops as select id, country from private.shop;
create view api.reviews as select r.id, r."the ""{odd}\ name" as "book {of\ it", r.stars from api.review r;
create view api.joined as
    select b.title, b.id as book_id, p.id as person_id, p.email
    from private.book b join private.person p on p.id = b.author_id;
create view api.nothing as select 1 as id, 2 as author_id;
"""

FORMATS = """
create schema api;
create domain public.color as integer;
create function public.color_json(public.color) returns json language sql immutable
    as $$ select to_json('#' || lpad(to_hex($1), 6, '0')) $$;
create function public.color(json) returns public.color language sql immutable as 'select 1::public.color';
create function public.color(text) returns public.color language sql immutable as 'select 1::public.color';
create function public.explicit(public.color) returns xml language sql immutable as 'select null::xml';
set client_min_messages = error;
create cast (public.color as json) with function public.color_json(public.color) as implicit;
create cast (json as public.color) with function public.color(json) as implicit;
create cast (text as public.color) with function public.color(text) as implicit;
create cast (public.color as xml) with function public.explicit(public.color);
create table api.thing (id integer primary key, color public.color);
create table public.unseen (id integer);

create domain "text/Html" as text;
create domain "application/vnd.twkb" as bytea;
create domain "*/*" as bytea;
create domain "no media/ type" as text;
create function api.page() returns "text/Html" language sql as $$ select '<p>'::"text/Html" $$;
create function api.twkb_step(state "application/vnd.twkb", next api.thing) returns "application/vnd.twkb"
    language sql as 'select state';
create aggregate api.twkb(api.thing) (
    initcond = '', stype = "application/vnd.twkb", sfunc = api.twkb_step);
create function api.any_step(state "*/*", next anyelement) returns "*/*" language sql as 'select state';
create aggregate api.any_handler(anyelement) (initcond = '', stype = "*/*", sfunc = api.any_step);
create function api.bad_step(state "no media/ type", next anyelement) returns "no media/ type"
    language sql as 'select state';
create aggregate api.bad(anyelement) (initcond = '', stype = "no media/ type", sfunc = api.bad_step);
create function api.unseen_step(state "text/Html", next public.unseen) returns "text/Html"
    language sql as 'select state';
create aggregate api.unseen(public.unseen) (initcond = '', stype = "text/Html", sfunc = api.unseen_step);
create aggregate public.elsewhere(anyelement) (initcond = '', stype = "*/*", sfunc = api.any_step);
revoke execute on function api.twkb(api.thing) from public;
grant execute on function api.twkb(api.thing) to anon;
"""


@pytest.fixture(scope="module")
def catalog(server: Server) -> Iterator[Catalog]:
    """Reflect views over hidden tables."""
    database = server.create_database(SCHEMA)
    yield load_catalog(database.uri, "api")
    server.drop_database(database)


@pytest.fixture(scope="module")
def formats(server: Server) -> Iterator[Catalog]:
    database = server.create_database(FORMATS)
    yield load_catalog(database.uri, "api")
    server.drop_database(database)


def keys(catalog: Catalog, name: str) -> set[str]:
    """Return the view keys derived from a constraint, as ``view(columns)>view(columns)``."""
    return {
        f"{catalog.tables[key.table].name}({','.join(key.columns)})"
        f">{catalog.tables[key.foreign_table].name}({','.join(key.foreign_columns)})"
        for key in catalog.view_keys
        if key.name == name
    }


def test_key_between_hidden_tables_relates_their_views(catalog: Catalog) -> None:
    """Nested views, subqueries and WITH are covered. Each column with the key adds a relationship."""
    assert keys(catalog, "book_author_id_fkey") == {
        f"{referencing}>{referenced}"
        for referencing in (
            "books(author_id)",
            "outer_books(outer_author)",
            "frozen_books(author_id)",
            "doubled(a)",
            "doubled(b)",
        )
        for referenced in ("people(number)", "joined(person_id)")
    }
    assert catalog.foreign_keys == ()


def test_self_referencing_key_relates_a_view_to_itself(catalog: Catalog) -> None:
    assert keys(catalog, "person_boss_id_fkey") == {
        "people(boss_id)>people(number)",
        "people(boss_id)>joined(person_id)",
    }


def test_key_relates_an_exposed_table_to_views(catalog: Catalog) -> None:
    (name,) = {key.name for key in catalog.view_keys if key.name.startswith("review")}
    odd = 'the "{odd}\\ name'
    assert keys(catalog, name) == {
        f"{referencing}>{referenced}"
        for referencing in (f"review({odd})", "reviews(book {of\\ it)")
        for referenced in (
            "books(id)",
            "outer_books(outer_id)",
            "frozen_books(id)",
            "doubled(id)",
            "joined(book_id)",
        )
    }


def test_composite_key_requires_all_its_columns(catalog: Catalog) -> None:
    assert keys(catalog, "shop_region") == {"shops(country,code)>regions(country,region_code)"}


def test_view_key_is_unique_if_the_tables_key_is(catalog: Catalog) -> None:
    assert keys(catalog, "passport_person_id_fkey") == {
        "passports(person_id)>people(number)",
        "passports(person_id)>joined(person_id)",
    }
    unique = {key.name for key in catalog.view_keys if key.unique}
    assert unique == {"passport_person_id_fkey"}


def test_computed_columns_have_no_relationships(catalog: Catalog) -> None:
    unrelated = {table_named(catalog, name, "api").oid for name in ("odd", "both_books", "nothing")}
    assert not unrelated & {oid for key in catalog.view_keys for oid in (key.table, key.foreign_table)}
    assert not unrelated & catalog.view_primary_keys.keys()


@pytest.mark.parametrize(
    ("view", "columns"),
    [
        ("people", ("number",)),
        ("books", ("id",)),
        ("outer_books", ("outer_id",)),
        ("frozen_books", ("id",)),
        ("doubled", ("id",)),
        ("regions", ("country", "region_code")),
        ("reviews", ("id",)),
        ("joined", ("book_id", "person_id")),
        ("half_shops", ("id",)),
        ("odd", ()),
        ("nothing", ()),
    ],
)
def test_view_has_the_primary_key_of_its_table(catalog: Catalog, view: str, columns: tuple[str, ...]) -> None:
    assert catalog.row_key(table_named(catalog, view, "api")) == columns


def test_declared_key_of_a_view_takes_precedence(database: Database) -> None:
    database.execute(
        """
        create table public.a (id integer primary key, code text);
        create view public.v as select id, code from public.a;
        comment on view public.v is '@graphql({"primary_key_columns": ["code"]})';
        """
    )
    catalog = load_catalog(database.uri)
    view = table_named(catalog, "v")
    assert catalog.view_primary_keys == {view.oid: ("id",)}
    assert catalog.row_key(view) == ("code",)


def test_views_of_partitions_do_not_repeat_the_parents_keys(database: Database) -> None:
    database.execute(
        """
        create schema private;
        create table private.owner (id integer primary key);
        create table private.log (id integer primary key, owner_id integer references private.owner)
            partition by hash (id);
        create table private.log_0 partition of private.log for values with (modulus 1, remainder 0);
        create view public.owners as select * from private.owner;
        create view public.part as select * from private.log_0;
        """
    )
    part = load_catalog(database.uri)
    assert keys(part, "log_owner_id_fkey") == {"part(owner_id)>owners(id)"}
    database.execute("create view public.whole as select * from private.log")
    whole = load_catalog(database.uri)
    assert keys(whole, "log_owner_id_fkey") == {"whole(owner_id)>owners(id)"}


def test_number_of_view_keys_is_limited(database: Database) -> None:
    """Each additional copy of a column multiplies the number of keys."""
    copies = ", ".join(f"{name} as {name}_{number}" for name in ("x", "y") for number in range(9))
    database.execute(
        f"""
        create table public.a (x integer, y integer, primary key (x, y));
        create table public.b (x integer, y integer, foreign key (x, y) references public.a);
        create view public.v as select {copies} from public.b
        """
    )
    catalog = load_catalog(database.uri)
    assert len(catalog.view_keys) == MAX_VIEW_KEYS == len(keys(catalog, "b_x_y_fkey"))


def test_mutually_recursive_views_do_not_loop(database: Database) -> None:
    """PostgreSQL allows such views, although selecting from them fails."""
    database.execute(
        """
        create table public.a (id integer primary key);
        create view public.first as select id from public.a;
        create view public.second as select id from public.first;
        create or replace view public.first as select id from public.second;
        """
    )
    assert load_catalog(database.uri).view_primary_keys == {}


def test_implicit_casts_of_a_domain_are_its_representations(formats: Catalog) -> None:
    oids = {type_.name: type_.oid for type_ in formats.types.values()}
    json, text, color = 114, 25, oids["color"]
    assert formats.representations == {
        (color, json): QualifiedName("public", "color_json"),
        (json, color): QualifiedName("public", "color"),
        (text, color): QualifiedName("public", "color"),
    }


def test_aggregates_that_return_media_types_are_handlers(formats: Catalog) -> None:
    thing = table_named(formats, "thing", "api")
    handlers = [(handler.media_type, handler.name, handler.table) for handler in formats.media_handlers]
    assert handlers == [("*/*", "any_handler", 0), ("application/vnd.twkb", "twkb", thing.oid)]
    anyone, twkb = formats.media_handlers
    assert formats.types[formats.types[twkb.type].base].name == "bytea"
    anon = formats.roles["anon"].oid
    assert any(grantee == anon and "EXECUTE" in words for grantee, words in twkb.acl)
    assert 0 in dict(anyone.acl)
    assert 0 not in dict(twkb.acl)


def test_media_type_is_derived_from_the_name_of_a_domain(formats: Catalog) -> None:
    (page,) = [function for function in formats.functions if function.name == "page"]
    assert media_type_of(formats.types[page.returns]) == "text/html"
    color = column_named(table_named(formats, "thing", "api"), "color")
    assert media_type_of(formats.types[color.type]) is None
    assert media_type_of(formats.types[25]) is None


def test_types_have_their_sql_names(database: Database) -> None:
    """Names include the schema unless it is PostgreSQL's own, whatever the search path."""
    database.execute(
        """
        create type public.mood as enum ('ok');
        create domain public.short as varchar(5) default 'x';
        create table public.t (a varchar(10)[], b public.mood, c public.mood[], d public.short, e timestamptz,
            "F" numeric(4, 2), g interval day);
        """
    )
    catalog = load_catalog(database.uri)
    table = table_named(catalog, "t")
    types = [catalog.types[column.type] for column in table.columns]
    assert [type_.sql_name for type_ in types] == [
        "character varying[]",
        "public.mood",
        "public.mood[]",
        "public.short",
        "timestamp with time zone",
        "numeric",
        "interval",
    ]
    assert [type_.default for type_ in types if type_.kind is TypeKind.DOMAIN] == ["'x'::character varying"]
    assert all(column.sql_name is None for column in table.columns)


def test_time_zones_are_reflected(catalog: Catalog) -> None:
    assert {"UTC", "America/New_York"} <= catalog.timezones
    assert "Mars/Olympus_Mons" not in catalog.timezones


def test_unnamed_function_arguments_are_reflected(database: Database) -> None:
    database.execute("create function public.f(json, b integer) returns json language sql as 'select $1'")
    (function,) = load_catalog(database.uri).functions
    assert [argument.name for argument in function.arguments] == ["", "b"]
