"""``select`` in REST: columns, aliases, casts, JSON members and computed fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.service import Service


CASES: list[tuple[str, dict[str, Any]]] = [
    ("title", {"title": "Alpha"}),
    ("title,id", {"title": "Alpha", "id": 1}),
    ("name:title", {"name": "Alpha"}),
    ('"what a name":title', {"what a name": "Alpha"}),
    ("a:id,b:id", {"a": 1, "b": 1}),
    # Casts to types with names of PostgreSQL, of SQL and of the schema.
    ("id::text", {"id": "1"}),
    ("n:budget::int", {"n": 1001}),
    ("budget::double precision", {"budget": 1000.5}),
    ("mood::text", {"mood": "calm"}),
    ("raw->>a::integer", {"a": 1}),
    ("v:data->lang::text", {"v": '"en"'}),
    ("seen::INT4", {"seen": 1}),
    ("m:mood::mood", {"m": "calm"}),
    ("title::char", {"title": "A"}),
    # JSON members: the last name becomes the name in the response.
    ("data->>lang", {"lang": "en"}),
    ("data->cast", {"cast": {"size": 3}}),
    ("data->cast->size", {"size": 3}),
    ("data->cast->>size", {"size": "3"}),
    ("data->years->0", {"years": 1990}),
    ("data->years->>-1", {"years": "1991"}),
    ("raw->b->1", {"b": 20}),
    ("raw->0", {"raw": None}),
    ("x:data->nothing->there", {"x": None}),
    ('data->"lang"', {"lang": "en"}),
    # Attributes of composite values and elements of arrays are accessed like JSON members.
    ("frame->width", {"width": 16}),
    ("frame->>height", {"height": "9"}),
    ("tags->0", {"tags": "short"}),
    ("tags->>1", {"tags": "old"}),
    # Computed fields.
    ("headline", {"headline": "ALPHA"}),
    ("h:headline::char", {"h": "A"}),
    ("title,headline,id", {"title": "Alpha", "headline": "ALPHA", "id": 1}),
    # Array types by their names in PostgreSQL.
    ("tags::_varchar", {"tags": ["short", "old"]}),
    # A resource without columns, for filters only.
    ("director()", {}),
]


@pytest.mark.parametrize(("select", "shown"), CASES)
async def test_members_have_the_selected_order(features: Service, select: str, shown: dict[str, Any]) -> None:
    [row] = await features.read(f"film?id=eq.1&select={select}")
    assert list(row.items()) == list(shown.items())


async def test_star_can_be_combined_with_other_items(features: Service) -> None:
    """``*`` is every column, formatted as by ``to_json``."""
    [[expected]] = features.database.execute("select to_jsonb(f) from film f where id = 1")
    [whole] = await features.read("film?id=eq.1")
    assert whole == expected
    [more] = await features.read("film?id=eq.1&select=*,headline,again:id")
    assert more == {**expected, "headline": "ALPHA", "again": 1}


async def test_domains_use_their_own_representation(features: Service) -> None:
    assert await features.read("paint?select=shade,spare&order=id") == [
        {"shade": "#ff0000", "spare": None},
        {"shade": "#00ff00", "spare": "#000001"},
        {"shade": "#0000ff", "spare": "#ffffff"},
    ]
    assert await features.read("paint?id=eq.1") == [
        {"id": 1, "name": "red", "shade": "#ff0000", "spare": None}
    ]
    assert await features.read("paint?id=eq.1&select=tone:shade,t:shade::text") == [
        {"tone": "#ff0000", "t": '"#ff0000"'}
    ]


async def test_names_can_contain_any_character(features: Service) -> None:
    select = '"the key","a,b","say \\"hi\\"","d.o.t","x->y","é; $1 %25s \'":"a,b"'
    [row, _] = await features.read(f"Odd Table?order=the key&select={select}")
    assert row == {
        "the key": 1, "a,b": "comma", 'say "hi"': "quote", "d.o.t": "dot", "x->y": "arrow",
        "é; $1 %s '": "comma",
    }  # fmt: skip
    assert await features.read("Odd Table?the key=eq.1") == [
        {"the key": 1, "a,b": "comma", 'say "hi"': "quote", "d.o.t": "dot", "x->y": "arrow"}
    ]


@pytest.mark.parametrize(
    ("target", "status", "body"),
    [
        ("film?select=nope", 400, {
            "code": "42703", "message": "column film.nope does not exist", "details": None, "hint": None,
        }),
        ("film?select=id::nonsense", 400, {
            "code": "42704", "message": 'type "nonsense" does not exist', "details": None, "hint": None,
        }),
        ("film?select=id::pg_class", 400, {
            "code": "42704", "message": 'type "pg_class" does not exist', "details": None, "hint": None,
        }),
        ("film?select=title::int", 400, {
            "code": "22P02", "message": 'invalid input syntax for type integer: "Alpha"', "details": None,
            "hint": None,
        }),
        ("film?select=id,", 400, {
            "code": "PGRST100", "message": '"failed to parse select parameter (id,)" (line 1, column 4)',
            "details": 'unexpected end of input expecting "..." or field name (* or [a..z0..9_$])',
            "hint": None,
        }),
        ("films", 404, {
            "code": "PGRST205", "message": "Could not find the table 'public.films' in the schema cache",
            "details": None, "hint": "Perhaps you meant the table 'public.film'",
        }),
        ("forbidden?select=unknown", 401, {
            "code": "42501", "message": "permission denied for table forbidden", "details": None,
            "hint": None,
        }),
        ("forbiden", 404, {
            "code": "PGRST205", "message": "Could not find the table 'public.forbiden' in the schema cache",
            "details": None, "hint": None,
        }),
        ("inbox", 401, {
            "code": "42501", "message": "permission denied for table inbox", "details": None, "hint": None,
        }),
        ("partly_read", 401, {
            "code": "42501", "message": "permission denied for table partly_read", "details": None,
            "hint": None,
        }),
    ],
)  # fmt: skip
async def test_invalid_selections_are_rejected(
    features: Service, target: str, status: int, body: dict[str, Any]
) -> None:
    response = await features.rest("GET", target)
    assert (response.status, response.body) == (status, body)


@pytest.mark.parametrize("name", ["titel", "yeer", "i", "tag", "mod", "nothing", "ratin", "Id", "dta", "sen"])
async def test_unknown_columns_are_rejected_with_postgresqls_message(features: Service, name: str) -> None:
    expected = features.database.execute(
        "create or replace function pg_temp.told(statement text, out message text, out hint text)"
        " language plpgsql as $$ begin execute statement; exception when undefined_column then"
        " get stacked diagnostics message = message_text, hint = pg_exception_hint; end $$;"
        f"select message, nullif(hint, '') from pg_temp.told('select film.\"{name}\" from film')"
    )
    response = await features.rest("GET", f"film?select={name}")
    message, hint = expected[0]
    assert response.body == {
        "code": "42703",
        "message": message.replace('"', ""),
        "details": None,
        "hint": hint,
    }


async def test_responses_have_a_content_location(features: Service) -> None:
    """Parameters are sorted by name, and the API key is removed."""
    for target, location in [
        ("film", "/film"),
        ("film?year=eq.1995&id=gt.1", "/film?id=gt.1&year=eq.1995"),
        ("film?select=id,title&title=like.A*", "/film?select=id%2Ctitle&title=like.A%2A"),
        ("Odd Table?the key=eq.1", "/Odd%20Table?the%20key=eq.1"),
        ("film?id=eq.1&apikey=sb_publishable_for_tests", "/film?id=eq.1"),
    ]:
        response = await features.rest("GET", target)
        assert (response.status, response.headers["content-location"]) == (200, location)
    response = await features.rest("GET", "film?order=id", headers={"accept": "application/x-ndjson"})
    assert response.headers["content-location"] == "/film?order=id"


async def test_granted_columns_can_be_selected(features: Service) -> None:
    assert await features.read("partly_read?select=id,shown") == [{"id": 1, "shown": "yes"}]


async def test_accept_profile_selects_the_schema(features: Service) -> None:
    """Foreign keys into other schemas are not relationships."""
    response = await features.rest("GET", "note?select=word", headers={"accept-profile": "other"})
    assert (response.body, response.headers["content-profile"]) == ([{"word": "elsewhere"}], "other")
    for target, schema in (
        ("note?select=*,film(*)", "other"),
        ("film?select=*,note!note_film_fkey(*)", "public"),
    ):
        response = await features.rest("GET", target, headers={"accept-profile": schema})
        assert (response.status, response.body["code"]) == (400, "PGRST200")


async def test_schema_without_usage_does_not_reveal_its_functions(features: Service) -> None:
    await features.execute("create function other.shut() returns int language sql as 'select 1'; select 1")
    other = {"accept-profile": "other", "content-profile": "other"}
    for method in ("GET", "POST", "OPTIONS"):
        response = await features.rest(method, "rpc/shut", role="service_role", headers=other)
        assert (response.status, response.body["code"]) == (403, "42501")
        assert response.body["message"] == "permission denied for schema other"
    response = await features.rest("GET", "rpc/shutt", role="service_role", headers=other)
    assert (response.status, response.body["hint"]) == (404, None)
    response = await features.rest("GET", "rpc/shutt", headers=other)
    assert response.body["hint"] == "Perhaps you meant to call the function other.shut"


async def test_text_can_be_cast_to_arrays_of_user_defined_types(features: Service) -> None:
    await features.execute(
        "create table spoken (moods text); insert into spoken values ('{calm,wild}');"
        " grant select on spoken to anon; select 1"
    )
    assert await features.read("spoken?select=moods::_mood") == [{"moods": ["calm", "wild"]}]
    response = await features.rest("GET", "spoken?select=moods::_nothing")
    assert (response.status, response.body["message"]) == (400, 'type "_nothing" does not exist')


async def test_set_returning_function_of_a_row_is_not_a_column(features: Service) -> None:
    response = await features.rest("GET", "film?select=id,remakes")
    assert (response.status, response.body["code"]) == (400, "42703")
    assert response.body["message"] == "column film.remakes does not exist"
