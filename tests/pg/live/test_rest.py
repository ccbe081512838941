"""Live queries over REST (docs/reference/rest.md, Live queries)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.live import LiveService, serving_live, signed
from twisted.internet import defer
from twisted.logger import capturedLogs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create table author (id int primary key, name text not null);
create table book (
    id int primary key, author_id int references author, title text not null, owner text, meta json
);
create index on book (author_id);
create view titles as select id, title from book;
create function newest() returns setof book
    language sql stable as 'select * from book order by id desc limit 1';
create function dice() returns float8 language sql volatile as 'select random()';
insert into author values (1, 'Ada'), (2, 'Grace');
insert into book values (1, 1, 'Notes', 'ada', E'{"a":\\n 1}'), (2, 2, 'Compilers', 'grace', null);
grant select on all tables in schema public to anon, authenticated;
alter table book enable row level security;
create policy everybody on book for select to anon using (true);
create policy own on book for select to authenticated
    using (owner = current_setting('request.jwt.claims', true)::json->>'sub');
"""


@pytest.fixture
def live(server: Server, reactor: Any) -> Iterator[LiveService]:
    with serving_live(reactor, server.create_database(SCHEMA)) as service:
        yield service


async def test_result_is_sent_first_and_after_each_change(live: LiveService) -> None:
    stream = await live.rest("author?select=name,book(title)&order=id&limit=1")
    assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert stream.headers["cache-control"] == "no-store"
    first = await live.next(stream)
    assert (first.name, first.json) == ("snapshot", [{"name": "Ada", "book": [{"title": "Notes"}]}])
    assert stream.retry
    live.database.execute("update book set title = 'Sketch' where id = 1")
    second = await live.next(stream)
    assert (second.name, second.json) == ("snapshot", [{"name": "Ada", "book": [{"title": "Sketch"}]}])
    assert first.identifier != second.identifier


async def test_unchanged_result_is_not_sent(live: LiveService) -> None:
    stream = await live.rest("author?id=eq.1&select=name")
    await live.next(stream)
    before = live.figures.unchanged
    live.database.execute("update author set name = 'Hopper' where id = 2")
    await live.until(lambda: live.figures.unchanged > before, "the poll")
    live.database.execute("update author set name = 'Lovelace' where id = 1")
    assert (await live.next(stream)).json == [{"name": "Lovelace"}]
    assert not stream.events


async def test_idle_database_causes_no_polls(live: LiveService) -> None:
    stream = await live.rest("author?id=eq.1")
    await live.next(stream)
    await live.until(lambda: live.figures.unchanged, "the poll after the first result")
    polls, checks = live.figures.unchanged, live.figures.checks
    await live.until(lambda: live.figures.checks > checks + 5, "more checks for changes")
    assert live.figures.unchanged == polls


async def test_newlines_within_json_reach_the_client(live: LiveService) -> None:
    stream = await live.rest("book?id=eq.1&select=meta")
    event = await live.next(stream)
    assert event.json == [{"meta": {"a": 1}}]
    assert "\n" in event.data


async def test_views_and_stable_functions_are_followed(live: LiveService) -> None:
    view, function = (
        await live.rest("titles?order=id.desc&limit=1"),
        await live.rest("rpc/newest?select=title"),
    )
    assert (await live.next(view)).json == [{"id": 2, "title": "Compilers"}]
    assert (await live.next(function)).json == [{"title": "Compilers"}]
    live.database.execute("insert into book values (3, 1, 'Engines')")
    assert (await live.next(view)).json == [{"id": 3, "title": "Engines"}]
    assert (await live.next(function)).json == [{"title": "Engines"}]


async def test_volatile_functions_and_other_media_types_are_rejected(live: LiveService) -> None:
    for target, headers in (
        ("rpc/dice", {}),
        ("author", {"Accept": "text/event-stream, text/csv"}),
        ("nothing", {}),
        ("author?id=eq.x", {}),
    ):
        stream = await live.rest(target, **headers)
        await stream.ended
        expected = {"rpc/dice": 406, "author": 406, "nothing": 404, "author?id=eq.x": 400}[target]
        assert stream.status == expected
        assert stream.headers["content-type"].startswith("application/json")


async def test_single_object_media_type_is_supported(live: LiveService) -> None:
    """The media type after ``text/event-stream`` applies to the data. A ``failed`` event ends the stream."""
    stream = await live.rest("author?id=eq.2", Accept="text/event-stream, application/vnd.pgrst.object+json")
    assert (await live.next(stream)).json == {"id": 2, "name": "Grace"}
    live.database.execute("delete from book; delete from author where id = 2")
    last = await live.next(stream)
    assert (last.name, last.json["code"]) == ("failed", "PGRST116")
    await stream.ended


async def test_last_event_id_suppresses_the_known_result(live: LiveService) -> None:
    stream = await live.rest("author?order=id")
    first = await live.next(stream)
    stream.close()
    again = await live.rest("author?order=id", Last_Event_ID=first.identifier)
    await live.until(lambda: again.comments, "the beginning")
    live.database.execute("update author set name = 'Lovelace' where id = 1")
    assert (await live.next(again)).json[0]["name"] == "Lovelace"
    stale = await live.rest("author?order=id", Last_Event_ID=first.identifier)
    assert (await live.next(stale)).json[0]["name"] == "Lovelace"


async def test_conditions_are_ignored(live: LiveService) -> None:
    for name in ("If_None_Match", "If_Match"):
        stream = await live.rest("author?id=eq.2", **{name: "*" if name == "If_None_Match" else '"old"'})
        assert (await live.next(stream)).json == [{"id": 2, "name": "Grace"}]


async def test_each_caller_sees_only_their_own_rows(live: LiveService) -> None:
    ada = await live.rest("book?select=title&order=id", token=signed(sub="ada"))
    grace = await live.rest("book?select=title&order=id", token=signed(sub="grace"))
    assert (await live.next(ada)).json == [{"title": "Notes"}]
    assert (await live.next(grace)).json == [{"title": "Compilers"}]
    live.database.execute("update book set owner = 'ada' where id = 2")
    assert (await live.next(ada)).json == [{"title": "Notes"}, {"title": "Compilers"}]
    assert (await live.next(grace)).json == []


async def test_equal_subscriptions_share_one_query(live: LiveService) -> None:
    """User-Agent is ignored. Headers that SQL may read distinguish subscriptions."""
    streams = [await live.rest("author?order=id", User_Agent=f"client {number}") for number in range(5)]
    streams.append(await live.rest("author?order=id", X_Tenant="acme"))
    for stream in streams:
        await live.next(stream)
    assert (live.figures.subscribers, live.figures.cohorts) == (6, 2)
    live.database.execute("update author set name = 'Lovelace' where id = 1")
    for stream in streams:
        assert (await live.next(stream)).json[0]["name"] == "Lovelace"
    for stream in streams:
        stream.close()
    await live.until(lambda: live.figures.cohorts == 0, "the end of the cohorts")
    assert live.figures.subscribers == 0


async def test_browser_can_send_the_key_in_the_url(live: LiveService) -> None:
    """The API key may be a JWT."""
    stream = await live.rest(f"book?select=title&apikey={signed(sub='ada')}", apikey="")
    assert (await live.next(stream)).json == [{"title": "Notes"}]


@pytest.fixture
def notified(server: Server, reactor: Any) -> Iterator[LiveService]:
    """Serve the schema, polling only once an hour."""
    with serving_live(reactor, server.create_database(SCHEMA), live_interval=3600.0) as service:
        yield service


@pytest.mark.direct("a pooler forwards no notifications")
async def test_notification_triggers_an_immediate_poll(notified: LiveService) -> None:
    table = await notified.rest("author?id=eq.1&select=name")
    view, other = await notified.rest("titles?id=eq.1"), await notified.rest("book?id=eq.1&select=title")
    for stream in (table, view, other):
        await notified.next(stream)
    notified.database.execute("""
        update author set name = 'Lovelace' where id = 1;
        update book set title = 'Sketch';
        notify "dataapi-live", 'public.author';
    """)
    assert (await notified.next(table)).json == [{"name": "Lovelace"}]
    assert (await notified.next(view)).json[0]["title"] == "Sketch"
    assert not other.events
    notified.database.execute('notify "dataapi-live"')
    assert (await notified.next(other)).json == [{"title": "Sketch"}]


@pytest.mark.direct("a pooler forwards no notifications")
async def test_check_for_changes_ends_with_the_service(
    notified: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await notified.next(await notified.rest("book?select=title"))
    assert notified.part.apis is not None
    live = notified.part.apis.live
    assert live is not None
    checks: list[defer.Deferred[None]] = []

    def check() -> defer.Deferred[None]:
        checks.append(defer.Deferred())
        return checks[-1]

    monkeypatch.setattr(live._changes, "check", check)
    notified.database.execute('notify "dataapi-live"')
    await notified.until(lambda: checks, "a check for changes")
    with capturedLogs() as events:
        live.stop()
    assert [event for event in events if "log_failure" in event] == []


UNTRACKED = """
create sequence ticket;
create table offer (id int primary key, ends timestamptz);
insert into offer values (1, now() + interval '1 second');
create table guarded (id int primary key, ends timestamptz);
insert into guarded values (1, now() + interval '1 second');
create table quiet (id int primary key);
create view tickets as select last_value from ticket;
create view seen_tickets as select last_value + 1 as next from tickets;
create view open_offer as select id from offer where ends > now();
create function current_second() returns float8 language plpgsql stable
    as 'begin return extract(epoch from clock_timestamp()); end';
create function offers() returns setof offer language sql stable
    as 'select * from offer where ends > CURRENT_TIMESTAMP';
alter table guarded enable row level security;
create policy in_time on guarded using (ends > statement_timestamp());
create foreign data wrapper elsewhere;
create server other foreign data wrapper elsewhere;
create schema hidden;
create foreign table hidden.far (id int) server other;
select nextval('ticket');
grant select on all tables in schema public to anon;
grant select on ticket to anon;
"""


@pytest.fixture
def untracked(server: Server, reactor: Any) -> Iterator[LiveService]:
    """Serve data that changes without transactions, such as sequences and the time."""
    with serving_live(reactor, server.create_database(UNTRACKED)) as service:
        yield service


async def test_data_that_changes_without_transactions_is_followed(untracked: LiveService) -> None:
    targets = ("tickets", "seen_tickets", "open_offer", "rpc/current_second", "rpc/offers", "guarded")
    streams = [await untracked.rest(target) for target in (*targets, "offer?ends=gt.now")]
    firsts = [await untracked.next(stream) for stream in streams]
    await untracked.until(lambda: untracked.figures.unchanged, "a poll")
    untracked.database.execute("select nextval('ticket')")
    for stream, first in zip(streams, firsts, strict=True):
        assert (await untracked.next(stream)).json != first.json


async def test_unrelated_foreign_tables_cause_no_polls(untracked: LiveService) -> None:
    await untracked.next(await untracked.rest("quiet"))
    await untracked.until(lambda: untracked.figures.unchanged, "the poll after the first result")
    polls, checks = untracked.figures.unchanged, untracked.figures.checks
    await untracked.until(lambda: untracked.figures.checks > checks + 5, "more checks for changes")
    assert untracked.figures.unchanged == polls
