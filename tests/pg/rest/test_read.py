"""REST reads from the request handler to PostgreSQL and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from dataapi.auth.caller import Caller
from dataapi.http.errors import ApiError
from dataapi.http.messages import Reply, Request
from dataapi.rest.handler import RestHandler
from dataapi.settings import Project
from support.catalog import load_catalog

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataapi.database.pool import Pool
    from support.postgres import Database, Server

    Fetch = Callable[..., Any]

SCHEMA = """
create schema hidden;
create schema other;
grant usage on schema other to anon;
create table player (
    id serial primary key, name text not null, captain int references player, "odd name" text
);
create table leaderboard (
    id serial primary key,
    player int not null references player,
    score integer not null default 0,
    rating numeric(6, 2),
    best bigint,
    tags text[],
    extra jsonb,
    created_at timestamptz
);
create table note (word text, number int);
create table secret (id int primary key);
create table partly (id int primary key, shown text, covered text);
create table other.note (word text);
create view top_score as select player, score from leaderboard where score > 10;
create table friend (one int references player, two int references player, primary key (one, two));
create table team (id int primary key);
create table member (team int references team, player int references player, primary key (team, player));
create table guarded (id int primary key, owner text);
alter table guarded enable row level security;
create policy own on guarded using (owner = current_setting('request.jwt.claims')::json ->> 'sub');
grant select on player, leaderboard, note, top_score, friend, team, member, other.note, guarded to anon;
grant select (id, shown) on partly to anon;
insert into player (name, captain, "odd name") values ('Ada', null, 'a'), ('Bob', 1, 'b'), ('Cy', 1, null);
insert into leaderboard (player, score, rating, best, tags, extra, created_at) values
    (1, 30, 12.50, 9007199254740993, '{a,"b c"}', '{"x": [1, null]}', '2024-05-06 07:08:09+00'),
    (2, 5, null, null, null, null, null),
    (1, 20, 'NaN', 1, '{}', 'null', 'infinity');
insert into note values ('b', 1), ('a', null), ('c', 3), (null, 2);
insert into other.note values ('elsewhere');
insert into partly values (1, 'yes', 'no');
insert into friend values (1, 2);
insert into guarded values (1, 'ada'), (2, 'bob');
"""


@pytest.fixture(scope="module")
def board(server: Server) -> Database:
    """Return a database with values of many types. Tests must not change it."""
    return server.create_database(SCHEMA)


@pytest.fixture
def fetch(board: Database, make_pool: Callable[..., Pool]) -> Fetch:
    """Return a function that sends a request and returns the reply."""
    pool = make_pool(uri=board.uri, size=2)
    handlers: dict[Any, RestHandler] = {}

    async def send(
        target: str, *, method: str = "GET", claims: str = "{}", maximum: int | None = None,
        schemas: Any = None, **headers: str,
    ) -> Reply:  # fmt: skip
        path, _, query = target.partition("?")
        exposed = schemas or ("public",)
        if (maximum, exposed) not in handlers:
            if not handlers:
                await pool.start()
            project = Project("a" * 20, "acme", board.uri, db_schemas=exposed, db_max_rows=maximum)
            catalog = load_catalog(board.uri, *exposed)
            handlers[maximum, exposed] = RestHandler(project, pool, lambda: catalog)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = Request("1", method, f"/rest/v1/{path}", query, named, b"")
        return await handlers[maximum, exposed].handle(request, Caller("anon", claims))

    return send


async def rows(fetch: Fetch, target: str, **named: Any) -> Any:
    return json.loads((await fetch(target, **named)).body)


async def error_of(fetch: Fetch, target: str, **named: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await fetch(target, **named)
    return caught.value


def header(reply: Reply, name: str) -> str | None:
    return dict(reply.headers).get(name)


# ---------------------------------------------------------------- select


async def test_all_columns_are_returned_by_default(fetch: Fetch) -> None:
    """Values are formatted as by ``to_json``. Numbers of any size remain numbers."""
    reply = await fetch("leaderboard?order=id")
    assert reply.status == 200
    assert header(reply, "Content-Type") == "application/json; charset=utf-8"
    first, second, third = json.loads(reply.body)
    assert first == {
        "id": 1, "player": 1, "score": 30, "rating": 12.5, "best": 9007199254740993, "tags": ["a", "b c"],
        "extra": {"x": [1, None]}, "created_at": "2024-05-06T07:08:09+00:00",
    }  # fmt: skip
    assert [second[name] for name in ("rating", "best", "tags", "extra", "created_at")] == [None] * 5
    assert (third["rating"], third["tags"], third["created_at"]) == ("NaN", [], "infinity")


async def test_select_lists_columns_and_aliases_in_order(fetch: Fetch) -> None:
    text = (await fetch("leaderboard?select=score,points:best,id&order=id&limit=1")).body.decode()
    assert list(json.loads(text)[0].items()) == [("score", 30), ("points", 9007199254740993), ("id", 1)]
    assert await rows(fetch, "note?select=*&order=number&limit=1") == [{"word": "b", "number": 1}]
    assert (await rows(fetch, "note?select=n:number,*&order=number&limit=1"))[0] == {
        "n": 1, "word": "b", "number": 1,
    }  # fmt: skip
    assert await rows(fetch, "note?select=word,+number&order=number&limit=1") == [{"word": "b", "number": 1}]
    assert await rows(fetch, "note?select=&order=number&limit=1") == [{"word": "b", "number": 1}]


async def test_names_can_be_quoted_and_aliases_can_be_any_text(fetch: Fetch) -> None:
    target = "player?order=id&limit=1&select="
    assert await rows(fetch, target + quote('"odd name"')) == [{"odd name": "a"}]
    assert await rows(fetch, target + "odd%20name") == [{"odd name": "a"}]
    alias = "a'); drop table player; -- $1 %s é"
    assert await rows(fetch, target + quote(f'"{alias}":id')) == [{alias: 1}]


async def test_views_and_tables_without_a_key_can_be_read(fetch: Fetch) -> None:
    """GraphQL requires a primary key; REST does not."""
    assert len(await rows(fetch, "note")) == 4
    assert await rows(fetch, "top_score?select=score&order=score") == [{"score": 20}, {"score": 30}]


async def test_unknown_column_is_rejected_like_in_postgresql(fetch: Fetch) -> None:
    for target in ("note?select=nope", "note?order=nope"):
        error = await error_of(fetch, target)
        assert (error.status, error.code, error.message) == (400, "42703", "column note.nope does not exist")


async def test_unknown_and_forbidden_tables_are_rejected(fetch: Fetch) -> None:
    """Hints name only tables that the role may read."""
    unknown = await error_of(fetch, "nothing_like_it")
    assert (unknown.status, unknown.code, unknown.hint) == (404, "PGRST205", None)
    assert unknown.message == "Could not find the table 'public.nothing_like_it' in the schema cache"
    forbidden = await error_of(fetch, "secret")
    assert (forbidden.status, forbidden.code, forbidden.hint) == (401, "42501", None)
    assert forbidden.message == "permission denied for table secret"
    assert (await error_of(fetch, "leaderbord")).hint == "Perhaps you meant the table 'public.leaderboard'"
    assert (await error_of(fetch, "secrets")).hint is None


async def test_all_columns_can_be_read_only_if_all_are_granted(fetch: Fetch) -> None:
    """``*`` means every column."""
    assert await rows(fetch, "partly?select=id,shown") == [{"id": 1, "shown": "yes"}]
    for target in ("partly", "partly?select=covered", "partly?select=id&order=covered"):
        error = await error_of(fetch, target)
        assert (error.status, error.code) == (401, "42501")


async def test_row_security_uses_the_callers_claims(fetch: Fetch) -> None:
    assert await rows(fetch, "guarded?select=id", claims='{"sub": "ada"}') == [{"id": 1}]
    assert await rows(fetch, "guarded?select=id", claims='{"sub": "bob"}') == [{"id": 2}]


# ---------------------------------------------------------------- order and limits


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ("word", ["a", "b", "c", None]),
        ("word.asc", ["a", "b", "c", None]),
        ("word.desc", [None, "c", "b", "a"]),
        ("word.asc.nullsfirst", [None, "a", "b", "c"]),
        ("word.desc.nullslast", ["c", "b", "a", None]),
        ("word.nullsfirst", [None, "a", "b", "c"]),
        ("number.desc.nullslast,word", ["c", None, "b", "a"]),
    ],
)
async def test_rows_have_the_requested_order(fetch: Fetch, order: str, words: list[str | None]) -> None:
    """Nulls sort as the largest values by default."""
    assert [row["word"] for row in await rows(fetch, f"note?select=word&order={order}")] == words


async def test_rows_can_be_ordered_by_an_unselected_column(fetch: Fetch) -> None:
    assert await rows(fetch, "leaderboard?select=id&order=player.desc,score") == [
        {"id": 2}, {"id": 3}, {"id": 1},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("window", "headers", "numbers", "content_range"),
    [
        ("", {}, [1, 2, 3, None], "0-3/*"),
        ("&limit=2", {}, [1, 2], "0-1/*"),
        ("&limit=2&offset=1", {}, [2, 3], "1-2/*"),
        ("&offset=3", {}, [None], "3-3/*"),
        ("&limit=0", {}, [], "*/*"),
        ("&offset=9", {}, [], "*/*"),
        ("&offset=-1", {}, [1, 2, 3, None], "0-3/*"),
        ("&limit=3&offset=-1", {}, [1, 2], "0-1/*"),
        ("&limit=99999999999999999999", {}, [1, 2, 3, None], "0-3/*"),
        ("", {"range": "1-2"}, [2, 3], "1-2/*"),
        ("", {"range": "2-", "range_unit": "items"}, [3, None], "2-3/*"),
        ("&limit=3", {"range": "1-9"}, [2, 3], "1-2/*"),
        ("", {"range": "bytes=0-1"}, [1, 2, 3, None], "0-3/*"),
    ],
)
async def test_limits_offsets_and_ranges_select_rows(
    fetch: Fetch, window: str, headers: dict[str, str], numbers: list[int | None], content_range: str
) -> None:
    """The status is 200 unless a count was requested."""
    reply = await fetch(f"note?select=number&order=number{window}", **headers)
    assert reply.status == 200
    assert [row["number"] for row in json.loads(reply.body)] == numbers
    assert header(reply, "Content-Range") == content_range


async def test_db_max_rows_is_never_exceeded(fetch: Fetch) -> None:
    assert len(await rows(fetch, "note", maximum=2)) == 2
    assert len(await rows(fetch, "note?limit=3", maximum=2)) == 2
    assert len(await rows(fetch, "note?limit=1", maximum=2)) == 1
    [ada] = await rows(fetch, "player?select=leaderboard(score)&limit=1&order=id", maximum=1)
    assert len(ada["leaderboard"]) == 1


async def test_exact_count_is_returned_on_request(fetch: Fetch) -> None:
    """The status is 206 for a partial result and 416 for an offset beyond the end."""
    part = await fetch("note?limit=3", prefer="count=exact")
    assert (part.status, header(part, "Content-Range")) == (206, "0-2/4")
    assert header(part, "Preference-Applied") == "count=exact"
    whole = await fetch("note", prefer="count=exact")
    assert (whole.status, header(whole, "Content-Range")) == (200, "0-3/4")
    beyond = await error_of(fetch, "note?offset=5", prefer="count=exact")
    assert (beyond.status, beyond.code) == (416, "PGRST103")
    assert beyond.details == "An offset of 5 was requested, but there are only 4 rows."


# ---------------------------------------------------------------- embedding


async def test_referenced_row_is_embedded(fetch: Fetch) -> None:
    target = "leaderboard?select=id,{}&order=id&limit=1"
    assert await rows(fetch, target.format("player(name)")) == [{"id": 1, "player": {"name": "Ada"}}]
    assert await rows(fetch, target.format("who:player(name)")) == [{"id": 1, "who": {"name": "Ada"}}]
    assert await rows(fetch, target.format("leaderboard_player_fkey(id)")) == [
        {"id": 1, "leaderboard_player_fkey": {"id": 1}}
    ]
    captains = await rows(fetch, "player?select=name,captain(name)&order=id")
    assert [player["captain"] for player in captains] == [None, {"name": "Ada"}, {"name": "Ada"}]


async def test_referencing_rows_are_embedded_with_order_and_limit(fetch: Fetch) -> None:
    players = await rows(fetch, "player?select=name,leaderboard(score)&order=id&leaderboard.order=score")
    assert [player["leaderboard"] for player in players] == [
        [{"score": 20}, {"score": 30}],
        [{"score": 5}],
        [],
    ]
    target = "player?select=best:leaderboard(score)&order=id&best.order=score.desc&best.limit=1"
    assert (await rows(fetch, target))[0] == {"best": [{"score": 30}]}
    assert (await rows(fetch, target + "&best.offset=1"))[0] == {"best": [{"score": 20}]}


async def test_embedded_resources_can_be_nested(fetch: Fetch) -> None:
    target = "leaderboard?select=player(name,captain(name),leaderboard(score))&order=id&limit=1"
    assert await rows(fetch, target + "&player.leaderboard.order=score") == [
        {"player": {"name": "Ada", "captain": None, "leaderboard": [{"score": 20}, {"score": 30}]}}
    ]
    crew = await rows(fetch, "player?select=crew:player!captain(name)&order=id&limit=1&crew.order=name")
    assert crew == [{"crew": [{"name": "Bob"}, {"name": "Cy"}]}]


async def test_unknown_and_ambiguous_resources_are_rejected(fetch: Fetch) -> None:
    unknown = await error_of(fetch, "leaderboard?select=note(*)")
    assert (unknown.status, unknown.code) == (400, "PGRST200")
    assert "'leaderboard' and 'note'" in unknown.message
    ambiguous = await error_of(fetch, "player?select=friend(*)")
    assert (ambiguous.status, ambiguous.code) == (300, "PGRST201")
    assert ambiguous.hint is not None
    assert "'friend!friend_one_fkey', 'friend!friend_two_fkey'" in ambiguous.hint
    assert await rows(fetch, "player?select=friend!friend_one_fkey(two)&order=id&limit=1") == [
        {"friend": [{"two": 2}]}
    ]
    missing = await error_of(fetch, "player?select=name&leaderboard.order=score")
    assert (missing.status, missing.code) == (400, "PGRST108")


# ---------------------------------------------------------------- formats and methods


async def test_single_object_is_returned_if_accepted(fetch: Fetch) -> None:
    """Any other number of rows is a 406 error."""
    accept = "application/vnd.pgrst.object+json"
    reply = await fetch("player?select=name&order=id&limit=1", accept=accept)
    assert json.loads(reply.body) == {"name": "Ada"}
    assert header(reply, "Content-Type") == "application/vnd.pgrst.object+json; charset=utf-8"
    several = await error_of(fetch, "player?select=name", accept=accept)
    assert (several.status, several.code, several.details) == (406, "PGRST116", "The result contains 3 rows")


async def test_accept_profile_selects_the_schema(fetch: Fetch) -> None:
    schemas = ("public", "other")
    reply = await fetch("note", schemas=schemas, accept_profile="other")
    assert json.loads(reply.body) == [{"word": "elsewhere"}]
    assert header(reply, "Content-Profile") == "other"
    assert len(await rows(fetch, "note", schemas=schemas)) == 4
    error = await error_of(fetch, "note", schemas=schemas, accept_profile="hidden")
    assert (error.status, error.code, error.message) == (406, "PGRST106", "Invalid schema: hidden")
    assert error.hint == "Only the following schemas are exposed: public, other"


async def test_head_has_the_headers_of_get(fetch: Fetch) -> None:
    assert (await fetch("note?limit=2", method="HEAD")).headers == (await fetch("note?limit=2")).headers


async def test_options_lists_the_methods(fetch: Fetch) -> None:
    reply = await fetch("note", method="OPTIONS")
    assert (reply.status, header(reply, "Allow")) == (
        200,
        "OPTIONS,GET,HEAD,POST,PATCH,DELETE",
    )
    assert (await error_of(fetch, "secret", method="OPTIONS")).code == "42501"


async def test_reads_run_in_a_read_only_transaction(fetch: Fetch, board: Database) -> None:
    board.execute(
        "create function scribble() returns int language sql"
        " as 'insert into note values (null, 9) returning number';"
        "create view sneaky as select scribble() as number;"
        "grant select on sneaky to anon; grant insert on note to anon"
    )
    error = await error_of(fetch, "sneaky")
    assert (error.status, error.code) == (405, "25006")
