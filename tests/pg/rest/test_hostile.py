"""Hostile REST requests: expensive queries, access to hidden data, malformed HTTP, large responses."""

from __future__ import annotations

import gc
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.auth.caller import Caller
from dataapi.database.sql_text import ERROR_MARKER
from dataapi.http.errors import ApiError
from dataapi.http.messages import Request
from dataapi.rest import batch, handler
from dataapi.rest.handler import LONG_BATCH, RestHandler
from dataapi.rest.parse.body import check_keys
from dataapi.rest.parse.filters import MAX_CONDITIONS
from dataapi.rest.parse.select import MAX_ITEMS, MAX_NAMES, MAX_RESOURCES, MAX_STEPS, MAX_TERMS
from dataapi.rest.plan import model, role
from dataapi.rest.plan.embed_tree import MAX_TOTAL_MEMBERS
from dataapi.settings import Project
from support.catalog import load_catalog
from support.clocks import FOR_EVER
from support.effort import Effort, in_units
from support.service import Service, serving
from twisted.internet import defer, task, threads

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from support.postgres import Server
    from support.service import Answer

NO_RUNNER: Any = None
"""Placeholder for the pool. The test sends no statements."""

SCHEMA = """
create schema private;
create table private.zebra (id int primary key, stripes text);
create table person (
    id int primary key, name text, boss int references person, data jsonb, quokka text
);
create table zorilla (id int primary key, person int references person);
create table doc (
    id int primary key, owner text, word text, parent int references doc, amount int
);
alter table doc enable row level security;
create policy own on doc using (owner = current_setting('request.jwt.claims', true)::json ->> 'sub');
create table note (id int primary key, doc int references doc);
create function boss_of(person) returns setof person rows 1 stable language sql
    as 'select * from person where id = $1.boss';
create function staff_of(person) returns setof person stable language sql
    as 'select * from person where boss = $1.id';
create function compiles() returns text stable language sql as $$ select current_setting('jit') $$;
create function zeppelin() returns int language sql as 'select 1';
create function says(what text, value text) returns int language sql
    as $$ select set_config('response.' || what, value, true); select 1 $$;
create function before() returns void language plpgsql as $$ begin
    if current_setting('request.headers')::json ->> 'x-refuse' = current_setting('request.path')
       or current_setting('request.headers')::json ->> 'x-refuse' = 'all' then
        raise sqlstate 'PT403' using message = 'Not you';
    end if; end $$;
insert into person select n, 'p' || n, 1, '{"a": 1}', 'secret' from generate_series(1, 3) n;
insert into doc values
    (1, 'a user of authenticated', 'mine', null, 1), (2, 'other', 'theirs', 1, 100),
    (3, 'other', 'more', 2, 1000);
insert into note values (1, 1), (2, 2), (3, 3);
grant all on all tables in schema public to authenticated;
grant select, insert, update, delete on doc, note to anon;
grant select (id, name, boss, data), insert (id, name) on person to anon;
revoke execute on function zeppelin() from public;
"""
PROJECT = {"db_aggregates_enabled": True}


# ---------------------------------------------------------------- complexity limits


def repeated(item: str, times: int, separator: str = ",") -> str:
    return separator.join([item] * times)


def casts(count: int) -> str:
    """Return a ``select`` parameter of items with casts."""
    return ",".join(f"a{n}:id::text" for n in range(count))


def beyond(maximum: int, subject: str) -> str:
    """Return the last words of the message about an exceeded limit."""
    return f"expecting at most {maximum} {subject}"


BEYOND = {
    "items": (f"select={repeated('id', MAX_ITEMS + 1)}", beyond(MAX_ITEMS, "items")),
    "stars": (f"select={repeated('*', 10_000)}", beyond(MAX_ITEMS, "items")),
    "resources": (f"select={repeated('boss(id)', MAX_RESOURCES + 1)}", beyond(MAX_RESOURCES, "resources")),
    "depth": (
        f"select={repeated('boss(', 21, '')}id{repeated(')', 21, '')}",
        beyond(20, "levels of resources"),
    ),
    "terms": (f"order={repeated('id', MAX_TERMS + 1)}", beyond(MAX_TERMS, "terms")),
    "steps": (f"select=data{repeated('->a', MAX_STEPS + 1, '')}", beyond(MAX_STEPS, "steps")),
    "wide logic": (
        f"or=({repeated('id.eq.1', MAX_CONDITIONS)})",
        beyond(MAX_CONDITIONS, "filters and logic operators"),
    ),
    "deep logic": (f"or=({repeated('or(', 3000, '')}", beyond(50, "levels of logic operators")),
    "names": (f"{repeated('a', 5000, '.')}=eq.1", beyond(25, "nested names")),
}


@pytest.mark.parametrize("case", list(BEYOND))
async def test_exceeded_limit_is_reported_with_its_position(api: Service, case: str) -> None:
    query, expected = BEYOND[case]
    effort = Effort()
    response = await api.rest("GET", f"person?{query}")
    assert effort.units < 50
    assert (response.status, response.body["code"]) == (400, "PGRST100")
    assert response.body["details"].endswith(expected), response.text
    assert response.body["message"].endswith(
        ')" (line 1, column ' + response.body["message"].rpartition(" ")[2]
    )
    assert response.messages == ()


@pytest.mark.parametrize(
    "query",
    [
        repeated("id=eq.1", MAX_CONDITIONS + 1, "&"),
        "&".join([f"or=({repeated('id.eq.1', 600)})"] * 2),
        f"select={repeated('*', MAX_TOTAL_MEMBERS // 6)}",
        "select=" + ",".join(f"b{n}:boss({repeated('*', 20)})" for n in range(60)),
        f"select={casts(501)}",
        # Each null filter on the boss repeats all filters of the boss.
        f"select=boss()&{repeated('boss=not.is.null', 300, '&')}&{repeated('boss.id=eq.1', 300, '&')}",
        f"select={repeated('staff_of(', 12, '')}{repeated(')', 12, '')}&"
        + "&".join(f"{repeated('staff_of', n, '.')}=not.is.null&" * 2 for n in range(1, 13)),
    ],
    ids=["filters", "trees", "members", "total members", "casts", "repeated filters", "repeated resources"],
)
async def test_requests_over_a_total_limit_are_rejected(api: Service, query: str) -> None:
    effort = Effort()
    response = await api.rest("GET", f"person?{query.replace('&&', '&')}")
    assert effort.units < 50
    assert (response.status, response.body["code"]) == (400, "PGRST100")
    assert response.body["message"] == "The request exceeds a limit"
    assert response.messages == ()


@pytest.mark.parametrize(
    "query",
    [
        f"select={repeated('id', MAX_ITEMS)}",
        f"select={repeated('*', 100)}",
        f"select={casts(500)}",
        f"id=in.({repeated('1', 10_000)})",
        repeated("id=eq.1", MAX_CONDITIONS, "&"),
        f"or=({repeated('id.eq.1', MAX_CONDITIONS - 2)})",
        f"or=({repeated('and(', 49, '')}id.eq.1{repeated(')', 50, '')}",
        f"order={repeated('id', MAX_TERMS)}",
        f"select=data{repeated('->a', MAX_STEPS, '')}",
        "select=" + ",".join(f"a{n}:boss(id)" for n in range(MAX_RESOURCES)),
        "select=" + ",".join(f"a{n}:boss!inner(id)" for n in range(50)),
        "select=" + ",".join(f"a{n}:person!boss!inner(id)" for n in range(50)),
        f"select={repeated('...boss(name)', 50)}",
    ],
)
async def test_requests_within_the_limits_are_fast(api: Service, query: str) -> None:
    """Measures the CPU time of the daemon and of PostgreSQL."""
    [[backend]] = await api.pool.fetch("select pg_backend_pid()")
    effort = Effort([backend])
    response = await api.rest("GET", f"person?{query}", role="authenticated")
    assert response.status == 200, response.text
    assert effort.units < 1000  # without limits, such requests took from 8 seconds to minutes


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        ([f"a{n}:id" for n in range(499)] + ["name", "boss_of(b:id)"], ["boss_of(c:id)"]),
        (["id", "boss_of(staff_of(id))"], [f"b{n}:boss_of(staff_of(id))" for n in range(50)]),
    ],
)
async def test_computed_items_of_select_are_limited(
    api: Service, within: list[str], beyond: list[str]
) -> None:
    target = f"person?id=eq.1&select={','.join(within)}"
    accepted = await api.rest("GET", target, role="authenticated")
    assert accepted.status == 200, accepted.text
    for method, body in (("GET", None), ("PATCH", {"name": "p1"})):
        headers = {"prefer": "return=representation"}
        refused = await api.rest(
            method, f"{target},{','.join(beyond)}", body=body, role="authenticated", headers=headers
        )
        assert (refused.status, refused.body["code"]) == (400, "PGRST100")
        assert "t most " in refused.body["details"]


def chain(depth: int, times: int) -> str:
    """Return a target with nested embedded resources, and several null filters on each resource."""
    paths = [repeated("staff_of", n, ".") for n in range(1, depth + 1)]
    filters = [f"{path}=not.is.null" for path in paths for _ in range(times)]
    return (
        f"person?select=id,{repeated('staff_of(', depth, '')}{repeated(')', depth, '')}&{'&'.join(filters)}"
    )


@pytest.mark.parametrize(
    "target",
    [
        chain(4, 2),
        chain(6, 2),
        chain(20, 1),
        f"person?select=id,{repeated('person!boss!inner(', 20, '')}id{repeated(')', 20, '')}",
        f"person?select=id,boss()&{repeated('boss=not.is.null', 300, '&')}",
    ],
)
async def test_planner_does_not_try_all_join_orders(api: Service, target: str) -> None:
    """Planning all orders would take minutes for four levels, and exhaust the memory for six."""
    response = await api.rest("GET", target, role="authenticated")
    assert response.status == 200, response.text
    assert response.body[0]["id"] == 1


@pytest.mark.direct("a pooler's connections begin before the login role is changed")
async def test_jit_is_off_by_default(api: Service, reactor: Any) -> None:
    assert (await api.rest("GET", "rpc/compiles")).body == "off"
    name = api.database.name
    api.database.execute(f"alter role authenticator in database {name} set jit = on")
    service = Service(reactor, api.database)
    await service.start()
    try:
        assert (await service.rest("GET", "rpc/compiles")).body == "on"
    finally:
        await service.stop()
        api.database.execute(f"alter role authenticator in database {name} reset jit")


async def test_null_filters_apply_beyond_the_join_limit(api: Service) -> None:
    conditions = ["staff_of=not.is.null"] * 12 + ["boss_of=not.is.null"] * 3
    query = f"select=id,staff_of(),boss_of()&{'&'.join(conditions)}"
    assert (await api.rest("GET", f"person?{query}", role="authenticated")).body == [{"id": 1}]
    response = await api.rest("GET", f"person?{query}&staff_of=is.null", role="authenticated")
    assert response.body == []


@pytest.mark.parametrize("parameter", ["columns", "on_conflict"])
async def test_number_of_names_is_limited(api: Service, parameter: str) -> None:
    response = await api.rest("POST", f"person?{parameter}={repeated('id', MAX_NAMES + 1)}", [{"id": 9}])
    assert (response.status, response.body["code"]) == (400, "PGRST100")
    assert response.body["details"].endswith(beyond(MAX_NAMES, "names"))


BODIES = {
    "lines": ("text/csv", b"id\n" + b"1\n" * 400_000),
    "cells": ("text/csv", b"id,name,boss\n" + b",,\n" * 300_000),
    "fields": ("application/x-www-form-urlencoded", b"&".join([b"a=1"] * 250_000)),
    "objects": ("application/json", b"[" + b",".join([b'{"id":1}'] * 100_000) + b"]"),
    "members": ("application/json", b"{" + b",".join(b'"a%d":1' % n for n in range(80_000)) + b"}"),
    "lists": ("application/json", b"[" + b",".join([b"[]"] * 300_000) + b"]"),
    "a batch": (
        "application/vnd.dataapi.batch+json",
        b'{"requests":[' + repeated("1", 400_000).encode() + b"]}",
    ),
}


@pytest.mark.parametrize("case", list(BODIES))
async def test_long_bodies_do_not_block_the_reactor(api: Service, reactor: Any, case: str) -> None:
    media_type, body = BODIES[case]
    target = "" if case == "a batch" else "person"
    pending = api.rest("POST", target, body, headers={"content-type": media_type})
    response, longest = await longest_turn(reactor, pending)
    assert 400 <= response.status < 500, response.text[:300]
    assert in_units(longest) < 40


async def test_long_query_strings_are_parsed_on_a_worker_thread(
    api: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads_used: list[threading.Thread] = []

    def recording(work: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*arguments: Any) -> Any:
            threads_used.append(threading.current_thread())
            return work(*arguments)

        return recorded

    for name in ("parse_request", "make_plan"):
        monkeypatch.setattr(handler, name, recording(getattr(handler, name)))
    for count, on_worker in ((500, True), (5, False)):
        threads_used.clear()
        response = await api.rest("GET", f"person?select={casts(count)}", role="authenticated")
        assert response.status == 200, response.text[:300]
        assert [thread is not threading.main_thread() for thread in threads_used] == [on_worker] * 2


async def test_keys_of_long_bodies_are_checked_on_a_worker_thread(
    api: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads_used: list[threading.Thread] = []

    def recording(*arguments: Any) -> None:
        threads_used.append(threading.current_thread())
        check_keys(*arguments)

    monkeypatch.setattr(model, "check_keys", recording)
    headers = {"content-type": "application/json", "prefer": "resolution=match"}
    for count, on_worker in ((1000, True), (2, False)):
        threads_used.clear()
        body = [{"id": 1, "name": "x" * 50}] * count
        response = await api.rest("PATCH", "person", body, headers=headers)
        assert (response.status, response.body["code"]) == (400, "PGRST102"), response.text[:300]
        assert [thread is not threading.main_thread() for thread in threads_used] == [on_worker]


async def longest_turn(reactor: Any, pending: Coroutine[Any, Any, Answer]) -> tuple[Answer, float]:
    """Return the response, and the CPU time in seconds of the longest reactor turn before it arrived."""
    gc.collect()
    gc.disable()  # collecting garbage of other tests is not work of the daemon
    try:
        result = defer.ensureDeferred(pending)
        longest, effort = 0.0, Effort()
        while not result.called:
            before = effort.seconds
            await task.deferLater(reactor, 0)
            longest = max(longest, effort.seconds - before)
    finally:
        gc.enable()
    return await result, longest


async def test_cancelled_request_keeps_its_slot_until_its_body_is_read(
    api: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = load_catalog(api.database.uri)
    handler = RestHandler(Project("a" * 20, "acme", ""), NO_RUNNER, lambda: catalog)
    started, proceed = threading.Event(), threading.Event()
    read: list[tuple[str, bool]] = []

    def read_slowly(request: Request) -> None:
        read.append((request.id, proceed.is_set()))
        started.set()
        assert proceed.wait(FOR_EVER)
        raise ApiError(400, request.id, "read")

    def submit(name: str) -> defer.Deferred[Any]:
        headers = {"content-type": batch.MEDIA_TYPE}
        request = Request(name, "POST", "/rest/v1/", "", headers, bytes(LONG_BATCH + 1))
        return defer.Deferred.fromCoroutine(handler.handle(request, Caller("anon", "{}")))

    monkeypatch.setattr(batch, "read", read_slowly)
    first = submit("first")
    assert await threads.deferToThread(started.wait, 10)
    second, third = submit("second"), submit("third")
    for cancelled in (first, second):
        cancelled.cancel()
        with pytest.raises(defer.CancelledError):
            await cancelled
    for _ in range(3):  # time for a thread to start
        await threads.deferToThread(lambda: None)
    proceed.set()
    with pytest.raises(ApiError) as caught:
        await third
    assert caught.value.code == "third"
    assert read == [("first", False), ("third", True)]


async def test_long_names_are_not_repeated_for_each_line(api: Service) -> None:
    """Otherwise, 100 kB of CSV would become 500 MB of JSON."""
    body = "a" * 5000 + "\n" + "1\n" * 50_000
    response = await api.rest("POST", "person", body, headers={"content-type": "text/csv"})
    assert (response.status, response.body["code"]) == (400, "PGRST102")
    assert (
        response.body["message"]
        == "The column names are too long: repeated for every line, they are much longer than the lines"
    )


async def test_path_length_is_limited_within_batches(api: Service) -> None:
    batch = {"requests": [{"method": "GET", "path": f"/person?select={'a' * 140_000}"}]}
    headers = {"content-type": "application/vnd.dataapi.batch+json"}
    response = await api.rest("POST", "", json.dumps(batch), headers=headers)
    assert (response.status, response.body["code"]) == (400, "PGRST102")
    assert response.body["message"] == "The path of a request must not exceed 131072 characters"


async def test_plan_cache_size_is_limited(api: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role, "PLAN_CHARACTERS", 20_000)
    monkeypatch.setattr(role, "LONGEST_CACHED_STATEMENTS", 2_000)
    # Change the catalog, so that no plans are cached.
    await api.execute("comment on table person is 'Of another catalog'")
    view = None
    for number in range(60):
        response = await api.rest("GET", f"person?select=a{number}:id,b:name&id=eq.1")
        assert response.body == [{f"a{number}": 1, "b": "p1"}]
        [view] = api.handler._roles.values()
    assert view is not None
    assert 0 < view._plans.weight <= 20_000
    cached = len(view._plans)
    assert 1 < cached < 60
    [message] = (await api.rest("GET", f"person?select={repeated('id', 300)}")).messages
    assert not message.statements[-1].statement.prepared
    assert len(view._plans) == cached


# ---------------------------------------------------------------- access to hidden data

HIDDEN = ("zebra", "stripes", "zorilla", "zeppelin", "quokka", "private", "secret")
"""Names and values that the anonymous role must not see."""


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", "zorila", None),
        ("GET", "zebr", None),
        ("GET", "rpc/zepelin", None),
        ("POST", "rpc/zepplin", {"a": 1}),
        ("GET", "person?select=id,zorila(id)", None),
        ("GET", "person?select=quoka", None),
        ("GET", "person?quoka=eq.1", None),
        ("GET", "person?order=quoka", None),
        ("GET", "person?select=id,boss(quoka)", None),
        ("POST", "person", {"quoka": 1}),
        ("POST", "person?on_conflict=quoka", {"id": 1}),
        ("PATCH", "person?quoka=eq.1", {"id": 1}),
        ("GET", "person", None),
        ("GET", "person?select=id::zebr", None),
        ("GET", "person?select=id&id=eq.x", None),
        ("GET", "person?select=id&data=cs.{", None),
        ("GET", "person?select=id&name=match.(", None),
        ("GET", "person?select=nam->>a", None),
        ("POST", "person?select=id", {"id": 1}),
        ("POST", "person", [{"id": 7}, {"name": 1}]),
        ("OPTIONS", "zorila", None),
        ("GET", "", None),
    ],
)
async def test_responses_do_not_reveal_hidden_names(
    api: Service, method: str, target: str, body: Any
) -> None:
    """Hints name only objects that the role may use, and messages contain no SQL."""
    response = await api.rest(method, target, body, headers={"prefer": "return=representation"})
    for hidden in HIDDEN:
        assert hidden not in response.text
    for piece in ("t~", "pg_catalog", "$1", "select ", "LINE "):
        assert piece not in response.text
    if target:
        assert response.status >= 400, response.text
        assert await hints_with_privileges(api, method, target, body)


async def hints_with_privileges(api: Service, method: str, target: str, body: Any) -> bool:
    """Return whether a role with all privileges gets a hint, or the target resembles no hidden name."""
    if not any(near in target for near in ("zorila", "select=quoka", "quoka=eq")) or method != "GET":
        return True
    response = await api.rest(method, target, body, role="authenticated")
    return "zorilla" in response.text or "quokka" in response.text


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("doc?select=id", [{"id": 1}]),
        ("doc?select=id,parent(id),doc(id)", [{"id": 1, "parent": None, "doc": []}]),
        (
            "note?select=id,doc(id)&order=id",
            [{"id": 1, "doc": {"id": 1}}, *({"id": n, "doc": None} for n in (2, 3))],
        ),
        ("note?select=id,doc!inner(id)", [{"id": 1}]),
        ("note?select=id,doc()&doc=is.null&order=id", [{"id": 2}, {"id": 3}]),
        ("note?select=id,doc!inner()&doc.amount=gt.5", []),
        ("note?select=id,...doc(word)&order=doc(amount).desc.nullslast", [{"id": 1, "word": "mine"}]),
        ("doc?select=amount.sum(),count()", [{"sum": 1, "count": 1}]),
        ("note?select=...doc(total:amount.sum())", [{"total": 1}]),
        ("doc?select=doc(count())", [{"doc": [{"count": 0}]}]),
    ],
)
async def test_policies_apply_to_embedded_and_aggregated_rows(
    api: Service, target: str, expected: Any
) -> None:
    response = await api.rest("GET", target, role="authenticated", headers={"prefer": "count=exact"})
    assert response.status in (200, 206), response.text
    rows = response.body
    if "doc!inner" in target:
        rows = [{"id": row["id"]} for row in rows]
    assert rows[: len(expected)] == expected
    assert all(word not in response.text for word in ("theirs", "more", "100"))


async def test_counts_include_only_the_callers_rows(api: Service) -> None:
    for preferred in ("exact", "estimated"):
        response = await api.rest(
            "HEAD", "doc", role="authenticated", headers={"prefer": f"count={preferred}"}
        )
        assert response.headers["content-range"] == "0-0/1"
        response = await api.rest("HEAD", "doc", headers={"prefer": f"count={preferred}"})
        assert response.headers["content-range"] == "*/0"


@pytest.mark.parametrize(
    ("method", "target", "body", "prefer", "status"),
    [
        ("PATCH", "doc?id=eq.2", {"word": "x"}, "", 200),
        ("PATCH", "doc", [{"id": 2, "word": "x"}], "resolution=match", 200),
        ("DELETE", "doc?id=gt.1", None, "", 200),
        ("POST", "doc", {"id": 2, "word": "x"}, "resolution=ignore-duplicates", 403),
        ("POST", "doc", {"id": 2, "owner": "a user of authenticated"}, "resolution=merge-duplicates", 403),
        ("PUT", "doc?id=eq.2", {"id": 2, "owner": "a user of authenticated"}, "", 403),
        ("POST", "doc", {"id": 9, "owner": "other"}, "", 403),
        ("PATCH", "doc?id=eq.1", {"owner": "other"}, "", 403),
    ],
)
async def test_changes_affect_only_the_callers_rows(
    api: Service, method: str, target: str, body: Any, prefer: str, status: int
) -> None:
    headers = {"prefer": f"return=representation,{prefer}", "content-type": "application/json"}
    before = api.database.execute("select * from doc order by id")
    response = await api.rest(method, target, body, role="authenticated", headers=headers)
    assert response.status == status, response.text
    assert status == 403 or response.body == []
    assert "theirs" not in response.text
    assert api.database.execute("select * from doc order by id") == before


async def test_error_leaves_no_trace_in_the_next_response(api: Service) -> None:
    await api.rest("GET", "person?select=id&name=eq.tapir&id=eq.okapi", headers={"x-own": "tapir"})
    response = await api.rest("GET", "person?select=id&id=eq.x", role="authenticated")
    assert "tapir" not in response.text
    assert "okapi" not in response.text
    response = await api.rest("GET", "doc")
    assert response.body == []


@pytest.fixture(scope="module")
def guarded(service: Service, reactor: Any) -> Iterator[Service]:
    """Serve the database with a pre-request function that can reject requests."""
    with serving(reactor, service.database, db_pre_request="public.before") as running:
        yield running


BATCH = {"content-type": "application/vnd.dataapi.batch+json"}


@pytest.mark.parametrize(
    ("method", "target", "body", "headers"),
    [
        ("GET", "", None, {}),
        ("HEAD", "note", None, {}),
        ("GET", "note", None, {}),
        ("GET", "note", None, {"accept": "text/csv"}),
        ("GET", "note", None, {"accept": "application/x-ndjson"}),
        ("GET", "note", None, {"prefer": "count=planned"}),
        ("POST", "note", {"id": 8}, {}),
        ("PATCH", "note?id=eq.1", {"id": 8}, {}),
        ("PUT", "note?id=eq.8", {"id": 8}, {}),
        ("DELETE", "note?id=eq.1", None, {}),
        ("POST", "rpc/staff_of", {}, {}),
        ("POST", "", {"requests": [{"method": "DELETE", "path": "/note?id=eq.1"}]}, BATCH),
    ],
)
async def test_requests_rejected_by_the_pre_request_function_change_nothing(
    guarded: Service, method: str, target: str, body: Any, headers: dict[str, str]
) -> None:
    response = await guarded.rest(method, target, body, headers={**headers, "x-refuse": "all"})
    assert response.status == (404 if "rpc" in target else 403), response.text
    assert guarded.database.execute("select id from note order by id") == [(1,), (2,), (3,)]


async def test_pre_request_function_runs_for_each_request_of_a_batch(guarded: Service) -> None:
    """The batch fails if the pre-request function rejects one of its requests."""
    requests = [{"method": "POST", "path": "/note", "body": {"id": 8}}, {"method": "GET", "path": "/doc"}]
    response = await guarded.rest("POST", "", {"requests": requests}, headers={**BATCH, "x-refuse": "/doc"})
    assert (response.status, response.body["index"]) == (403, 1)
    assert guarded.database.execute("select count(*) from note") == [(3,)]


# ---------------------------------------------------------------- malformed HTTP

JSON = b'{"id":1}'
REJECTED = {
    b"TRACE /rest/v1/note HTTP/1.1\r\n\r\n": 405,
    b"CONNECT /rest/v1/note HTTP/1.1\r\n\r\n": 405,
    b"BREW /rest/v1/rpc/staff_of HTTP/1.1\r\n\r\n": 405,
    b"PUT /rest/v1/rpc/staff_of HTTP/1.1\r\n\r\n": 405,
    b"DELETE /rest/v1/ HTTP/1.1\r\n\r\n": 405,
    b"F\xc3\xa9 /rest/v1/note HTTP/1.1\r\n\r\n": 400,
    b"GET /rest/v1//note HTTP/1.1\r\n\r\n": 404,
    b"GET //rest/v1/note HTTP/1.1\r\n\r\n": 404,
    b"GET /rest/v1/note/1 HTTP/1.1\r\n\r\n": 404,
    b"GET /rest/v1/note/ HTTP/1.1\r\n\r\n": 404,
    b"GET /rest/v1/rpc/staff_of/ HTTP/1.1\r\n\r\n": 404,
    b"GET /rest/v1/note%2f1 HTTP/1.1\r\n\r\n": 404,
    b"GET /rest/v1/../v1/note HTTP/1.1\r\n\r\n": 404,
    b"GET /rest/v1/%2e%2e/note HTTP/1.1\r\n\r\n": 404,
    b"GET /REST/v1/note HTTP/1.1\r\n\r\n": 404,
    b"GET /rest/v1/rpc/ HTTP/1.1\r\n\r\n": 404,
    b"GET /rest/v1/note%00 HTTP/1.1\r\n\r\n": 400,
    b"GET /rest/v1/note%ff HTTP/1.1\r\n\r\n": 400,
    b"GET /rest/v1/note%zz HTTP/1.1\r\n\r\n": 400,
    b"GET /rest/v1/note?id=eq.%00 HTTP/1.1\r\n\r\n": 400,
    b"GET /rest/v1/note?id=eq.%ff HTTP/1.1\r\n\r\n": 400,
    b"GET /rest/v1/note?=eq.1 HTTP/1.1\r\n\r\n": 400,
    b"GET /rest/v1/note? HTTP/1.1\r\nAccept-Profile: private\r\n\r\n": 406,
    b"GET /rest/v1/note?" + b"a" * 140_000 + b" HTTP/1.1\r\n\r\n": 414,
    b"GET /rest/v1/note HTTP/1.1\r\nX: " + b"a" * 40_000 + b"\r\n\r\n": 431,
    b"GET /rest/v1/note HTTP/1.1\r\n" + b"X: a\r\n" * 300 + b"\r\n": 431,
    b"POST /rest/v1/note HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\n" + JSON: 415,
    b"POST /rest/v1/note HTTP/1.1\r\nContent-Type: a/b\r\nContent-Length: 8\r\n\r\n" + JSON: 400,
    b"POST /rest/v1/note HTTP/1.1\r\nContent-Length: 10500000\r\n\r\n" + b" " * 10_500_000: 413,
    b"POST /rest/v1/note HTTP/1.1\r\nContent-Length: 8\r\nContent-Length: 9\r\n\r\n" + JSON: 400,
    b"POST /rest/v1/note HTTP/1.1\r\nContent-Length: -8\r\n\r\n" + JSON: 400,
    b"POST /rest/v1/note HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 8\r\n\r\n0\r\n\r\n": 400,
    b"POST /rest/v1/note HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n": 400,
    b"POST /rest/v1/note HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n0\r\n\r\n": 400,
    b'POST /rest/v1/note HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{"\r\n0\r\n\r\n': 400,
}


@pytest.mark.parametrize("data", list(REJECTED), ids=lambda data: data[:60].decode("latin-1"))
async def test_malformed_requests_are_rejected(api: Service, data: bytes) -> None:
    """Each response has the expected status and a JSON body, and no statement is sent."""
    response = await api.raw(data)
    assert response.status == REJECTED[data], response.text
    assert response.body["message"]
    assert response.messages == ()


ACCEPTED = {
    b"GET /rest/v1/note?&&select=id&&id=eq.1& HTTP/1.1\r\n\r\n": [{"id": 1}],
    b"GET /rest/v1/note?select=id&select=doc&id=eq.1 HTTP/1.1\r\n\r\n": [{"id": 1}],
    b"GET /rest/v1/note?select=id&id=gt.1&id=lt.3 HTTP/1.1\r\n\r\n": [{"id": 2}],
    b"GET /rest/v1/note?select=+id+,%20doc%20&id=eq.1 HTTP/1.1\r\n\r\n": [{"id": 1, "doc": 1}],
    b"GET /rest/v1/note?%73elect=id&%69d=eq.1 HTTP/1.1\r\n\r\n": [{"id": 1}],
    b"GET /rest/v1/%6eote?select=id&id=eq.1 HTTP/1.1\r\n\r\n": [{"id": 1}],
    b"GET /rest/v1/note?select=id&id=eq.1 HTTP/1.1\r\nPrefer: " + b"a," * 8000 + b"\r\n\r\n": [{"id": 1}],
    b"GET /rest/v1/note?select=id&id=eq.1 HTTP/1.1\r\nAccept: " + b"a/b," * 4000 + b"*/*\r\n\r\n": [
        {"id": 1}
    ],
    b"GET /rest/v1/note?select=id&id=eq.1 HTTP/1.1\r\naCCept: application/json\r\n\r\n": [{"id": 1}],
    b"GET /rest/v1/note?select=id&id=eq.1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc": [{"id": 1}],
    b"GET /rest/v1/note?select=id&id=eq.1 HTTP/1.0\r\n\r\n": [{"id": 1}],
}


@pytest.mark.parametrize("data", list(ACCEPTED), ids=lambda data: data[:60].decode("latin-1"))
async def test_unusual_but_valid_requests_succeed(api: Service, data: bytes) -> None:
    response = await api.raw(data)
    assert (response.status, response.body) == (200, ACCEPTED[data])


FORGED = [
    "~dataapi~PGRST116~dataapi~0~dataapi~0",
    "~dataapi~PGRST100~dataapi~0~dataapi~1",
    "~dataapi~PGRST9~dataapi~0~dataapi~1",
    f"~dataapi-{'0' * 16}~PGRST116~0~0",
    ERROR_MARKER.partition("-")[0] + "~PGRST116~0~0",
]


@pytest.mark.parametrize("value", FORGED)
async def test_values_cannot_forge_guard_errors(api: Service, value: str) -> None:
    """PostgreSQL's messages about invalid numbers quote values from requests and from rows."""
    api.database.execute("update doc set word = %s where id = 1", [value])
    sent = [
        ("GET", f"note?id=eq.{value}", None),
        ("GET", f"person?data->>a=eq.1&select=data->a&id=in.({value})", None),
        ("GET", "doc?select=word::int", None),
        ("POST", "note", {"id": value}),
        ("PATCH", "note?id=eq.1", {"doc": value}),
    ]
    try:
        for method, target, body in sent:
            response = await api.rest(method, target, body, role="authenticated")
            assert (response.status, response.body["code"]) == (400, "22P02"), target
    finally:
        api.database.execute("update doc set word = 'mine' where id = 1")


@pytest.mark.parametrize(
    ("subject", "value", "code"),
    [
        ("status", "02000", "PGRST112"),
        ("status", "200" + "0" * 5000, "PGRST112"),
        ("status", "600", "PGRST112"),
        ("status", "199", "PGRST112"),
        ("headers", "[" * 5000 + "]" * 5000, "PGRST111"),
        ("headers", f'[{{"X-Long": {"1" * 5000}}}]', "PGRST111"),
    ],
)
async def test_functions_cannot_set_invalid_statuses_or_headers(
    api: Service, subject: str, value: str, code: str
) -> None:
    response = await api.rest("POST", "rpc/says", {"what": subject, "value": value})
    assert (response.status, response.body["code"]) == (500, code)


HEADS = {
    "no type": b"Content-Length: 30\r\n\r\n",
    "capitals and a charset": b'Content-Type: Application/JSON; Charset="x"\r\nContent-Length: 30\r\n\r\n',
    "an expectation": b"Expect: 100-continue\r\nContent-Length: 30\r\n\r\n",
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n",
}


@pytest.mark.parametrize("case", list(HEADS))
async def test_bodies_with_unusual_headers_are_accepted(api: Service, case: str) -> None:
    row = b'{"id":50,"doc":1}'.ljust(30)
    pieces = [row[:4], row[4:]]
    if case == "chunks":
        pieces = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces] + [b"0\r\n\r\n"]
    try:
        response = await api.raw(b"POST /rest/v1/note HTTP/1.1\r\n" + HEADS[case], *pieces)
        assert b"201 Created" in response.content or response.status == 201
        assert api.database.execute("select doc from note where id = 50") == [(1,)]
    finally:
        api.database.execute("delete from note where id = 50")


@pytest.mark.parametrize("target", ["", "note", "doc?select=nothing", "nothing", "rpc/nothing", "a/b"])
async def test_head_returns_the_headers_of_get(api: Service, target: str) -> None:
    head, get = await api.rest("HEAD", target), await api.rest("GET", target)
    assert (head.status, head.text) == (get.status, "")
    for name in ("content-type", "content-range", "proxy-status"):
        assert head.headers.get(name) == get.headers.get(name)


@pytest.mark.parametrize(
    ("target", "status"), [("", 200), ("note", 200), ("nothing", 404), ("rpc/nothing", 404), ("a/b", 404)]
)
async def test_options_sends_no_statement(api: Service, target: str, status: int) -> None:
    response = await api.rest("OPTIONS", target)
    assert (response.status, response.messages) == (status, ())
    assert ("allow" in response.headers) == (status == 200)


# ---------------------------------------------------------------- response size limits

LARGE = """
create table leaf (id int primary key, tree int, word text);
create table tree (id int primary key, word text);
alter table leaf add foreign key (tree) references tree;
insert into tree select n, 'tree' from generate_series(1, 20) n;
insert into leaf select n, 1 + n % 2, repeat('x', 200) from generate_series(1, 150) n;
create function long(size int) returns text language sql as $$ select repeat('y', size) $$;
create function grown(size int) returns setof tree language sql as $$
    update tree set word = repeat('z', size) where id < 4 returning * $$;
grant all on tree, leaf to anon;
"""


@pytest.fixture(scope="module")
def narrow(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve trees and their leaves with responses of at most 20,000 bytes."""
    with serving(reactor, server.create_database(LARGE), max_answer=20_000) as service:
        yield service


REPRESENTATION = {"prefer": "return=representation"}
CSV = {"accept": "text/csv"}
LINES = {"accept": "application/x-ndjson"}


@pytest.mark.parametrize(
    ("method", "target", "body", "headers"),
    [
        ("GET", "leaf", None, {}),
        ("GET", "leaf?limit=140", None, CSV),
        ("GET", "leaf", None, {"accept": "application/vnd.pgrst.array+json;nulls=stripped"}),
        ("GET", "tree?select=leaf(tree(leaf(id)))&id=eq.1", None, {}),
        ("GET", "tree?select=id,leaf(word)&id=eq.1", None, LINES),
        ("GET", "tree?select=id,leaf(word)&id=eq.1", None, CSV),
        ("PATCH", "tree?select=leaf(tree(leaf(id)))&id=eq.1", {"word": "changed"}, REPRESENTATION),
        ("DELETE", "leaf", None, REPRESENTATION),
        ("POST", "tree", [{"id": n, "word": "w" * 500} for n in range(100, 150)], REPRESENTATION),
        ("POST", "rpc/long", {"size": 30_000}, {}),
        ("POST", "rpc/long", {"size": 30_000}, {"accept": "text/plain"}),
        ("POST", "rpc/grown", {"size": 10_000}, {}),
    ],
)
async def test_too_large_response_is_rejected_and_rolled_back(
    narrow: Service, method: str, target: str, body: Any, headers: dict[str, str]
) -> None:
    """PostgreSQL raises the error, so the daemon never receives the response."""
    state = "select (select jsonb_agg(t) from tree t), (select count(*) from leaf)"
    before = narrow.database.execute(state)
    response = await narrow.rest(method, target, body, headers=headers)
    assert (response.status, response.body["code"]) == (400, "PGRST100"), response.text[:300]
    assert response.body["message"] == "The request exceeds a limit"
    assert response.body["details"].startswith("The response, or a line of it, has ")
    assert narrow.database.execute(state) == before


@pytest.mark.parametrize("headers", [{}, CSV, LINES])
async def test_response_within_the_size_limit_is_returned(narrow: Service, headers: dict[str, str]) -> None:
    response = await narrow.rest("GET", "leaf?id=lte.75", headers=headers)
    assert response.status == 200
    assert response.text.count("x" * 200) == 75


async def test_streamed_responses_may_exceed_the_size_limit(narrow: Service) -> None:
    response = await narrow.rest("GET", "leaf", headers=LINES)
    assert (response.status, len(response.text.splitlines())) == (200, 150)
    assert len(response.content) > 20_000


async def test_size_limit_applies_to_the_whole_batch(narrow: Service) -> None:
    def batch_of(times: int) -> dict[str, Any]:
        read = {"method": "GET", "path": "/leaf?id=lte.30"}
        return {"requests": [{"method": "DELETE", "path": "/leaf?id=eq.150"}, *[read] * times]}

    headers = {"content-type": batch.MEDIA_TYPE}
    response = await narrow.rest("POST", "", json.dumps(batch_of(4)), headers=headers)
    assert (response.status, response.body["code"], response.body["index"]) == (400, "PGRST100", 3)
    assert narrow.database.execute("select count(*) from leaf") == [(150,)]
    response = await narrow.rest("POST", "", json.dumps(batch_of(2)), headers=headers)
    assert response.status == 200
