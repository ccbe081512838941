"""Entity tags and conditional requests (docs/reference/rest.md, Conditional requests)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from dataapi.rest.respond import LARGEST_TAGGED
from dataapi.settings import NESTED_INSERTS, TransactionEnd
from support.service import Answer, Service, serving
from twisted.internet import defer, task

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from support.postgres import Database

SCHEMA = """
create table item (id int primary key, name text unique, stock int not null default 0);
create table part (id int primary key, item int references item, word text);
create table cached (id int primary key);
comment on table cached is '@rest({"cache_control": "private, max-age=60", "max_rows": 2})';
create table audit (method text);
create table long_text (word text);
insert into cached values (1), (2), (3);
insert into part values (1, null, 'p');
create function item_count() returns bigint stable language sql as 'select count(*) from item';
create function items() returns setof item stable language sql as 'select * from item order by id';
create function own_tag() returns int stable language plpgsql as $$ begin
    perform set_config('response.headers', '[{"ETag": "\\"mine\\""}]', true); return 1; end $$;
create function own_status() returns int stable language plpgsql as $$ begin
    perform set_config('response.status', '404', true); return 1; end $$;
create function before_request() returns void language plpgsql as $$ begin
    if current_setting('request.method') <> 'GET' then
        insert into audit select current_setting('request.method');
    end if;
    perform set_config('response.headers', '[{"X-Before": "yes"}]', true); end $$;
create table write_only (id int primary key);
grant update on write_only to anon;
create table dated (word text, made timestamptz);
insert into dated values ('d', '2020-01-01 00:00:00+00');
create table note (id int primary key, owner text, word text);
insert into note values (1, 'a user of anon', 'theirs'), (2, 'a user of authenticated', 'own');
alter table note enable row level security;
create policy own on note using (owner = current_setting('request.jwt.claims')::json ->> 'sub');
create view stocked as select * from item where stock > 0;
grant all on dated, note, item, part, cached, audit, stocked, long_text to anon, authenticated;
"""
RESET = """
truncate item, part, audit, long_text;
insert into item values (1, 'bolt', 5), (2, 'nut', 7);
insert into part values (1, 1, 'head'), (2, 1, 'thread');
"""
BATCH = {"content-type": "application/vnd.dataapi.batch+json"}
OBJECT = "application/vnd.pgrst.object+json"
UPSERT = {"prefer": "resolution=merge-duplicates"}
FAILED = (412, "PRECONDITION_FAILED")
UNSUPPORTED = (412, "PGRST127")


async def tag_of(api: Service, target: str, method: str = "GET", **headers: str) -> str:
    response = await api.rest(method, target, headers=headers)
    assert response.status in (200, 206), response.text
    return response.headers["etag"]


def outcome(response: Answer) -> tuple[int, str]:
    return response.status, response.body["code"] if response.status >= 400 else ""


def stocks(api: Service) -> list[Any]:
    return [row[0] for row in api.database.execute("select stock from item order by id")]


# ---------------------------------------------------------------- reads


async def test_equal_responses_have_equal_strong_tags(api: Service) -> None:
    first = await tag_of(api, "item?order=id")
    assert first.startswith('"')
    assert await tag_of(api, "item?order=id") == first
    assert await tag_of(api, "item?order=id&id=gte.0") == first
    others = ["item?order=id.desc", "item?order=id&select=id", "item?order=id&limit=1", "item?id=eq.9"]
    assert len({first, *[await tag_of(api, other) for other in others]}) == 5
    api.database.execute("update item set stock = 6 where id = 1")
    assert await tag_of(api, "item?order=id") != first
    assert "Authorization" in (await api.rest("GET", "item")).headers["vary"]


async def test_tag_depends_on_the_media_type_the_range_and_the_count(api: Service) -> None:
    variants: list[dict[str, str]] = [
        {}, {"accept": OBJECT}, {"accept": "text/csv"}, {"prefer": "count=exact"}, {"range": "0-0"},
    ]  # fmt: skip
    tags = {await tag_of(api, "item?id=eq.1&limit=1", **variant) for variant in variants}
    assert len(tags) == 4, "only the request with a range has the same representation"
    partial = await api.rest("GET", "item?limit=1", headers={"prefer": "count=exact"})
    assert partial.status == 206
    api.database.execute("insert into item values (3, 'nail', 0)")
    headers = {"prefer": "count=exact", "if-none-match": partial.headers["etag"]}
    changed = await api.rest("GET", "item?limit=1", headers=headers)
    assert (changed.status, changed.body) == (206, partial.body)
    assert changed.headers["content-range"] == "0-0/3"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("target", ["item?order=id", "item?id=eq.9", "rpc/item_count", "rpc/items?id=eq.1"])
async def test_unchanged_response_is_not_sent_again(api: Service, method: str, target: str) -> None:
    full = await api.rest("GET", target)
    tag = full.headers["etag"]
    for value in (tag, f'"other", W/{tag}'):
        response = await api.rest(method, target, headers={"if-none-match": value})
        assert (response.status, response.content) == (304, b"")
        assert response.headers["etag"] == tag
        assert response.headers.get("content-location") == full.headers.get("content-location")
        assert response.headers["vary"] == full.headers["vary"]
        assert not {"content-type", "content-length", "content-range"} & response.headers.keys()
    response = await api.rest(method, target, headers={"if-none-match": '"other"'})
    assert (response.status, response.headers["etag"]) == (200, tag)
    assert response.text == (full.text if method == "GET" else "")


async def test_head_has_the_headers_of_get(api: Service) -> None:
    for target in ("item?order=id", "rpc/items", "rpc/item_count"):
        full = await api.rest("GET", target)
        head = await api.rest("HEAD", target)
        assert head.text == ""
        for name in ("etag", "content-type", "content-range"):
            assert head.headers[name] == full.headers[name]


async def test_head_that_counts_builds_a_body_only_if_it_is_conditional(api: Service) -> None:
    counting = {"prefer": "count=exact"}
    response = await api.rest("HEAD", "item", headers=counting)
    assert "etag" not in response.headers
    assert "json" not in response.statements[-1]
    tag = await tag_of(api, "item", prefer="count=exact")
    response = await api.rest("HEAD", "item", headers={**counting, "if-none-match": tag})
    assert (response.status, response.headers["etag"]) == (304, tag)
    response = await api.rest("HEAD", "item?id=eq.9", headers={"if-match": "*"})
    assert response.status == 412
    assert "json" not in response.statements[-1]


async def test_reads_with_if_match_require_the_current_tag(api: Service) -> None:
    tag = await tag_of(api, "item")
    assert (await api.rest("GET", "item", headers={"if-match": tag})).status == 200
    assert outcome(await api.rest("GET", "item", headers={"if-match": '"old"'})) == FAILED
    assert outcome(await api.rest("GET", "item", headers={"if-match": f"W/{tag}"})) == FAILED
    assert outcome(await api.rest("GET", "item?id=eq.9", headers={"if-match": "*"})) == FAILED
    assert (await api.rest("GET", "item", headers={"if-match": "*"})).status == 200
    assert (await api.rest("GET", "item", headers={"if-none-match": "*"})).status == 304
    assert (await api.rest("GET", "item?id=eq.9", headers={"if-none-match": "*"})).status == 200


async def test_invalid_conditions_are_rejected(api: Service) -> None:
    for name, method in (("if-match", "PATCH"), ("if-none-match", "GET")):
        response = await api.rest(method, "item", {} if method == "PATCH" else None, headers={name: "abc"})
        assert outcome(response) == (400, "PGRST100")
        assert response.body["message"].lower() == f'invalid value for "{name}": "abc"'


async def test_streams_and_large_responses_have_no_tag(api: Service) -> None:
    lines = {"accept": "application/x-ndjson"}
    for accept in ("application/x-ndjson", "text/csv"):
        response = await api.rest("GET", "item", headers={"accept": accept, "if-none-match": '"a"'})
        assert response.status == 200
        assert "etag" not in response.headers
        assert outcome(await api.rest("GET", "item", headers={"accept": accept, "if-match": '"a"'})) == FAILED
    assert (await api.rest("GET", "item", headers={**lines, "if-none-match": "*"})).status == 304
    part = {"method": "GET", "path": "/item", "headers": {**lines, "If-None-Match": "*"}}
    response = await api.rest("POST", "", {"requests": [part]}, headers=BATCH)
    assert response.body[0]["status"] == 304
    api.database.execute(f"insert into long_text select repeat('x', {LARGEST_TAGGED})")
    response = await api.rest("GET", "long_text")
    assert response.status == 200
    assert "etag" not in response.headers
    headers = {"if-match": '"a"'}
    assert outcome(await api.rest("PATCH", "long_text", {"word": ""}, headers=headers)) == FAILED


async def test_range_is_ignored_if_its_condition_cannot_be_checked(api: Service) -> None:
    headers = {"range": "0-0"}
    assert len(await api.read("item", headers=headers)) == 1
    assert len(await api.read("item", headers={**headers, "if-range": '"a"'})) == 2


async def test_functions_may_set_their_own_tag(api: Service) -> None:
    response = await api.rest("GET", "rpc/own_tag")
    assert response.headers["etag"] == '"mine"'
    assert (await api.rest("GET", "rpc/own_tag", headers={"if-none-match": '"mine"'})).status == 304
    response = await api.rest("GET", "rpc/own_status", headers={"if-none-match": "*"})
    assert response.status == 404, "conditions apply to successful responses only"
    assert "etag" not in (await api.rest("POST", "rpc/item_count", {})).headers


async def test_description_has_no_tag(api: Service) -> None:
    assert outcome(await api.rest("GET", "", headers={"if-match": '"a"'})) == FAILED
    assert (await api.rest("GET", "", headers={"if-none-match": '"a"'})).status == 200


async def test_graphql_and_options_ignore_conditions(api: Service) -> None:
    headers = {"if-match": '"a"', "if-none-match": "*"}
    response = await api.ask("{ itemCollection { edges { node { id } } } }", headers=headers)
    assert response.status == 200
    response = await api.rest("OPTIONS", "item", headers=headers)
    assert response.status == 200


# ---------------------------------------------------------------- Cache-Control


async def test_directive_sets_cache_control_of_reads(api: Service) -> None:
    expected = "private, max-age=60"
    for accept in ("application/json", "application/x-ndjson", "text/csv"):
        response = await api.rest("GET", "cached?order=id", headers={"accept": accept})
        assert response.headers["cache-control"] == expected
    response = await api.rest("GET", "cached")
    assert len(response.body) == 2
    headers = {"if-none-match": response.headers["etag"]}
    assert (await api.rest("HEAD", "cached", headers=headers)).headers["cache-control"] == expected
    writing = await api.rest("PATCH", "cached", {}, headers={"prefer": "return=representation"})
    for other in (await api.rest("GET", "item"), await api.rest("GET", "cached?x=eq.1"), writing):
        assert "cache-control" not in other.headers


# ---------------------------------------------------------------- writes


@pytest.fixture
def nesting(api: Service, reactor: Any) -> Iterator[Service]:
    """Serve the database with nested inserts enabled."""
    with serving(reactor, api.database, rest_features=frozenset({NESTED_INSERTS})) as service:
        yield service


WRITES: list[tuple[str, str, Any]] = [
    ("PATCH", "item?id=eq.1", {"stock": 50}),
    ("PUT", "item?id=eq.1", {"id": 1, "name": "bolt", "stock": 50}),
    ("DELETE", "item?id=eq.2", None),
    ("POST", "item?id=eq.1", {"id": 1, "name": "bolt", "stock": 50}),
    ("POST", "item?name=eq.nut&on_conflict=name", {"id": 2, "name": "nut", "stock": 50}),
    ("PATCH", "stocked?id=eq.1", {"stock": 50}),
]


@pytest.mark.parametrize(("method", "target", "body"), WRITES)
async def test_write_needs_the_current_tag(api: Service, method: str, target: str, body: Any) -> None:
    extra = UPSERT if method == "POST" else {}
    tag = await tag_of(api, target.partition("&on_conflict")[0])
    for headers in (
        {"if-match": '"old"'}, {"if-match": f"W/{tag}"}, {"if-none-match": tag}, {"if-none-match": "*"},
    ):  # fmt: skip
        response = await api.rest(method, target, body, headers={**extra, **headers})
        assert outcome(response) == FAILED
        assert stocks(api) == [5, 7]
    response = await api.rest(method, target, body, headers={**extra, "if-match": f'"old", {tag}'})
    assert response.status in (200, 201, 204), response.text
    assert stocks(api) in ([50, 7], [5], [5, 50])
    response = await api.rest(method, target, body, headers={**extra, "if-match": tag})
    assert outcome(response) == FAILED


@pytest.mark.parametrize(("method", "target", "body"), WRITES)
async def test_stars_are_about_existence(api: Service, method: str, target: str, body: Any) -> None:
    extra = UPSERT if method == "POST" else {}
    api.database.execute("delete from part; delete from item")
    assert outcome(await api.rest(method, target, body, headers={**extra, "if-match": "*"})) == FAILED
    assert stocks(api) == []
    response = await api.rest(method, target, body, headers={**extra, "if-none-match": "*"})
    assert response.status in (201, 204)
    assert stocks(api) == ([50] if method in ("PUT", "POST") else [])
    api.database.execute(RESET)
    assert (await api.rest(method, target, body, headers={**extra, "if-match": "*"})).status < 300
    assert stocks(api) != [5, 7]


async def test_condition_is_about_the_read_with_the_same_query(api: Service) -> None:
    target = "item?stock=gt.0&select=id,stock,part(word)&order=id.desc&part.order=word"
    tag = await tag_of(api, target)
    counted = await tag_of(api, target, prefer="count=exact")
    assert counted != tag
    change = {"name": None}
    for other in ("item?stock=gt.0", target.replace("id.desc", "id"), "item?id=eq.1&select=id"):
        assert outcome(await api.rest("PATCH", other, change, headers={"if-match": tag})) == FAILED
    headers = {"if-match": counted, "prefer": "count=exact, return=representation"}
    response = await api.rest("PATCH", target, {"name": None}, headers=headers)
    assert (response.status, len(response.body)) == (200, 2)
    api.database.execute("update part set word = 'new' where id = 1")
    assert outcome(await api.rest("PATCH", target, change, headers={"if-match": tag})) == FAILED
    headers = {"if-match": await tag_of(api, "item?id=eq.1", accept=OBJECT)}
    assert outcome(await api.rest("DELETE", "item?id=eq.2", headers=headers)) == FAILED
    headers |= {"accept": OBJECT}
    assert (await api.rest("PATCH", "item?id=eq.1", {"stock": 1}, headers=headers)).status == 204
    headers = {"if-none-match": '"a"', "accept": OBJECT}
    response = await api.rest("PATCH", "item?id=eq.9", {"stock": 1}, headers=headers)
    assert outcome(response) == (406, "PGRST116")


async def test_tag_and_condition_are_about_the_rows_that_the_caller_sees(api: Service) -> None:
    role, change = "authenticated", {"word": "new"}
    read = await api.rest("GET", "note", role=role)
    assert [row["id"] for row in read.body] == [2]
    headers = {"if-match": read.headers["etag"]}
    assert outcome(await api.rest("PATCH", "note", change, headers=headers)) == FAILED
    api.database.execute("update note set word = 'changed' where id = 1")
    assert (await api.rest("PATCH", "note", change, role=role, headers=headers)).status == 204
    assert api.database.execute("select word from note order by id") == [("changed",), ("new",)]


async def test_rows_with_their_own_values_can_be_conditional(api: Service) -> None:
    tag = await tag_of(api, "item?order=id")
    body = [{"id": 2, "stock": 1}, {"id": 1, "stock": 2}]
    headers = {"prefer": "resolution=match", "if-match": tag}
    assert (await api.rest("PATCH", "item?order=id", body, headers=headers)).status == 204
    assert outcome(await api.rest("PATCH", "item?order=id", body, headers=headers)) == FAILED
    assert stocks(api) == [2, 1]


async def test_caller_must_be_able_to_read(api: Service) -> None:
    headers = {"if-match": "*"}
    response = await api.rest("PATCH", "write_only?id=eq.1", {"id": 1}, headers=headers)
    assert outcome(response) == (401, "42501")


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("PATCH", "item?limit=1", {"stock": 0}),
        ("DELETE", "item?offset=1", None),
        ("PATCH", "item?select=id,part!inner(id)", {"stock": 0}),
        ("PATCH", "cached?select=id", {"id": 9}),  # more rows than max_rows
        ("POST", "item?id=eq.3", {"id": 3, "name": "x"}),  # no upsert
        ("POST", "rpc/items", {}),
    ],
)
async def test_conditions_that_cannot_be_checked_are_rejected(
    api: Service, method: str, target: str, body: Any
) -> None:
    response = await api.rest(method, target, body, headers={"if-match": '"a"'})
    assert outcome(response) == UNSUPPORTED
    assert response.body["details"].endswith("Nothing was changed.")
    assert stocks(api) == [5, 7]


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("PUT", "item?id=eq.1&select=id,part!inner(id)", UNSUPPORTED),
        ("POST", "item?id=eq.1&limit=0", FAILED),
        ("POST", "item?id=eq.1&offset=1", FAILED),
        ("PATCH", "item?id=eq.1&limit=0", FAILED),
    ],
)
async def test_row_that_the_read_leaves_out_exists(
    api: Service, method: str, target: str, status: tuple[int, str]
) -> None:
    headers = {**(UPSERT if method == "POST" else {}), "if-none-match": "*"}
    body = {"stock": 0} if method == "PATCH" else {"id": 1, "name": "new", "stock": 0}
    assert outcome(await api.rest(method, target, body, headers=headers)) == status
    assert stocks(api) == [5, 7]


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("item", {"id": 3, "name": "x"}),
        ("item?name=eq.bolt", {"id": 1, "name": "bolt"}),
        ("item?id=gt.0", {"id": 1, "name": "bolt"}),
        ("item?id=eq.1", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]),
    ],
)
async def test_conditional_upserts_name_their_row(api: Service, target: str, body: Any) -> None:
    response = await api.rest("POST", target, body, headers={**UPSERT, "if-none-match": "*"})
    assert outcome(response) == UNSUPPORTED
    assert stocks(api) == [5, 7]


async def test_conditional_upsert_must_write_the_row_that_it_names(api: Service) -> None:
    for body in ({"id": 2, "name": "x"}, {"name": "x"}):
        headers = {**UPSERT, "if-match": "*"}
        assert outcome(await api.rest("POST", "item?id=eq.1", body, headers=headers)) == (400, "PGRST115")
    assert stocks(api) == [5, 7]


async def test_conditional_upserts_have_no_related_rows(api: Service, nesting: Service) -> None:
    headers, target = {**UPSERT, "if-match": "*"}, "item?id=eq.1"
    body = {"id": 1, "name": "bolt", "stock": 1, "part": [{"id": 9, "word": "w"}]}
    assert outcome(await nesting.rest("POST", target, body, headers=headers)) == UNSUPPORTED
    assert stocks(api) == [5, 7]
    del body["part"]
    assert (await nesting.rest("POST", target, body, headers=headers)).status == 200
    assert stocks(api) == [1, 7]


async def test_modification_times_cannot_be_checked(api: Service) -> None:
    date = {"if-unmodified-since": "Sat, 01 Jan 2000 00:00:00 GMT"}
    for method, body in (("PATCH", {"stock": 0}), ("DELETE", None), ("PUT", {"id": 1})):
        assert outcome(await api.rest(method, "item?id=eq.1", body, headers=date)) == UNSUPPORTED
    assert (await api.rest("GET", "item", headers=date)).status == 200
    headers = {**date, "if-match": await tag_of(api, "item?id=eq.1")}
    assert (await api.rest("PATCH", "item?id=eq.1", {"stock": 0}, headers=headers)).status == 204


async def test_conditions_work_within_a_batch(api: Service) -> None:
    tag = await tag_of(api, "item?id=eq.1")
    unchanged = {"method": "GET", "path": "/item?id=eq.1", "headers": {"If-None-Match": tag}}
    change = {
        "method": "PATCH", "path": "/item?id=eq.1", "headers": {"If-Match": tag}, "body": {"stock": 1},
    }  # fmt: skip
    response = await api.rest("POST", "", {"requests": [unchanged, change]}, headers=BATCH)
    assert [part["status"] for part in response.body] == [304, 204]
    first = {"method": "PATCH", "path": "/item?id=eq.2", "body": {"stock": 1}}
    response = await api.rest("POST", "", {"requests": [first, change]}, headers=BATCH)
    assert outcome(response) == FAILED
    assert response.body["index"] == 1
    assert stocks(api) == [1, 7]
    response = await api.rest("POST", "", {"requests": [first]}, headers={**BATCH, "if-match": "*"})
    assert outcome(response) == UNSUPPORTED
    assert stocks(api) == [1, 7]


# ---------------------------------------------------------------- concurrency


@pytest.fixture
def busy(api: Service, reactor: Any) -> Iterator[Service]:
    """Serve the database with several connections."""
    with serving(reactor, api.database, db_pool=8) as service:
        yield service


@contextmanager
def locked(database: Database) -> Iterator[psycopg.Connection[Any]]:
    """Lock the row of an item in an open transaction."""
    with psycopg.connect(database.admin_uri) as connection:
        connection.execute("select from item where id = 1 for update")
        yield connection


async def waiting(api: Service, reactor: Any, number: int) -> None:
    """Wait until a number of statements wait for a lock."""
    query = "select count(*) from pg_stat_activity where datname = current_database()"
    while api.database.execute(f"{query} and wait_event_type = 'Lock'") != [(number,)]:
        await task.deferLater(reactor, 0.005)


def started(work: Coroutine[Any, Any, Answer]) -> defer.Deferred[Answer]:
    return defer.Deferred.fromCoroutine(work)


async def test_one_of_two_concurrent_writes_wins(busy: Service, reactor: Any) -> None:
    """Both clients have read the row before they write it."""
    headers = {"if-match": await tag_of(busy, "item?id=eq.1")}
    with locked(busy.database) as lock:
        writes = [
            started(busy.rest("PATCH", "item?id=eq.1", {"stock": stock}, headers=headers)) for stock in (1, 2)
        ]
        await waiting(busy, reactor, 2)
        lock.rollback()
        responses = await defer.gatherResults(writes)
    assert sorted(response.status for response in responses) == [204, 412]
    winner = [response.status for response in responses].index(204)
    assert stocks(busy) == [winner + 1, 7]


@pytest.mark.parametrize(
    ("change", "status"), [("stock = 6", 412), ("stock = 5", 204)], ids=["changed", "unchanged"]
)
async def test_write_that_commits_after_the_check_is_noticed(
    busy: Service, reactor: Any, change: str, status: int
) -> None:
    headers = {"if-match": await tag_of(busy, "item?id=eq.1")}
    with locked(busy.database) as lock:
        write = started(busy.rest("PATCH", "item?id=eq.1", {"stock": 1}, headers=headers))
        await waiting(busy, reactor, 1)
        lock.execute(f"update item set {change} where id = 1")
        lock.commit()
        assert (await write).status == status
    assert stocks(busy) == [6 if status == 412 else 1, 7]


async def test_one_of_two_concurrent_inserts_wins(busy: Service, reactor: Any) -> None:
    headers = {"if-none-match": "*"}
    with psycopg.connect(busy.database.admin_uri) as lock:
        lock.execute("insert into item values (3, 'locked', 0)")
        target = "item?id=eq.3"
        bodies = [{"id": 3, "name": name} for name in "ab"]
        writes = [started(busy.rest("PUT", target, body, headers=headers)) for body in bodies]
        await waiting(busy, reactor, 2)
        lock.rollback()
        responses = await defer.gatherResults(writes)
    assert sorted(response.status for response in responses) == [204, 412]
    winner = [response.status for response in responses].index(204)
    assert busy.database.execute("select name from item where id = 3") == [("ab"[winner],)]


async def test_no_update_is_lost(busy: Service) -> None:
    """Clients increment a number that they have read and repeat the update if their condition fails."""
    increments, target = 5, "item?id=eq.1&select=stock"

    async def client() -> int:
        conflicts = 0
        for _ in range(increments):
            status = 412
            while status == 412:
                read = await busy.rest("GET", target)
                change = {"stock": read.body[0]["stock"] + 1}
                response = await busy.rest(
                    "PATCH", target, change, headers={"if-match": read.headers["etag"]}
                )
                status = response.status
                conflicts += status == 412
            assert status == 204, response.text
        return conflicts

    clients = [defer.Deferred.fromCoroutine(client()) for _ in range(6)]
    conflicts = await defer.gatherResults(clients)
    assert stocks(busy) == [5 + 6 * increments, 7]
    assert sum(conflicts) > 0


async def test_concurrent_writes_of_existing_rows_all_succeed(busy: Service) -> None:
    headers = {"if-match": "*"}
    writes = [
        started(busy.rest("PATCH", "item?id=eq.1", {"stock": number}, headers=headers))
        for number in range(12)
    ]
    assert {response.status for response in await defer.gatherResults(writes)} == {204}


@pytest.fixture
def configured(api: Service, reactor: Any) -> Iterator[Service]:
    """Serve the database with a pre-request function and allow clients to roll back."""
    settings = {"db_pre_request": "public.before_request", "db_tx_end": TransactionEnd.COMMIT_ALLOW_OVERRIDE}
    with serving(reactor, api.database, **settings) as service:
        yield service


async def test_pre_request_function_runs_once_and_may_write(api: Service, configured: Service) -> None:
    headers = {"if-match": await tag_of(api, "item?id=eq.1")}
    response = await configured.rest("PATCH", "item?id=eq.1", {"stock": 1}, headers=headers)
    assert (response.status, response.headers["x-before"]) == (204, "yes")
    assert api.database.execute("select method from audit") == [("PATCH",)]
    response = await configured.rest("PATCH", "item?id=eq.1", {"stock": 2}, headers=headers)
    assert outcome(response) == FAILED
    assert api.database.execute("select method from audit") == [("PATCH",)]
    assert stocks(api) == [1, 7]


async def test_preferences_apply_to_the_check(configured: Service) -> None:
    tag = await tag_of(configured, "dated", prefer="timezone=Asia/Tokyo")
    assert tag != await tag_of(configured, "dated", prefer="timezone=UTC")
    headers = {"if-match": tag}
    assert outcome(await configured.rest("PATCH", "dated", {"word": "x"}, headers=headers)) == FAILED
    headers["prefer"] = "timezone=Asia/Tokyo, tx=rollback"
    response = await configured.rest("PATCH", "dated", {"word": "x"}, headers=headers)
    assert response.status == 204
    assert response.headers["preference-applied"] == "tx=rollback, timezone=Asia/Tokyo"
    assert configured.database.execute("select word from dated") == [("d",)]


async def test_conditional_write_is_one_transaction(api: Service) -> None:
    tag = await tag_of(api, "item?id=eq.1")
    response = await api.rest("PATCH", "item?id=eq.1", {"stock": 1}, headers={"if-match": tag})
    [message] = response.messages
    assert message.isolation == "REPEATABLE READ"
    assert not message.read_only
    response = await api.rest("PATCH", "item?id=eq.1", {"stock": 1})
    assert [message.isolation for message in response.messages] == [None]
