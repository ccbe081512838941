"""What clients learn of failed changes: a message, the SQLSTATE, and nothing that they may not see."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from support.service import Service, serving
from twisted.internet import task, threads
from twisted.logger import globalLogPublisher

if TYPE_CHECKING:
    from collections.abc import Iterator


SCHEMA = """
create table author (
    id int primary key, name text not null unique, age int check (age >= 0), secret text,
    constraint no_spaces check (name !~ ' ')
);
create table book (id int primary key, author_id int not null references author, title text);
create table ranged (id int primary key, span int4range, exclude using gist (span with &&));
create table late (id int primary key, author_id int references author deferrable initially deferred);
create table note (id int primary key, owner text not null, body text);
alter table note enable row level security;
create policy own on note using (owner = current_setting('request.jwt.claims', true)::json ->> 'sub');
create policy short on note as restrictive for insert with check (length(body) < 10);
create table counter (id int primary key, value int not null);
create table tries (id serial primary key);
create sequence attempts;

create function raise_with(state text, text text) returns int language plpgsql as $$
begin raise exception '%', text using errcode = state, detail = 'hidden detail', hint = 'hidden hint'; end $$;
create function fail_until(wanted int, state text) returns int language plpgsql as $$
declare attempt int := nextval('attempts');
begin
    insert into tries default values;
    if attempt < wanted then raise exception 'try again' using errcode = state; end if;
    return attempt;
end $$;
create function dawdle() returns int language plpgsql as $$ begin perform pg_sleep(10); return 1; end $$;
create function transfer(giver int, taker int) returns int language plpgsql as $$
begin
    update counter set value = value - 1 where id = giver;
    perform pg_sleep(0.3);
    update counter set value = value + 1 where id = taker;
    return 1;
end $$;
grant all on all tables in schema public to anon, authenticated;
grant all on all sequences in schema public to anon, authenticated;
revoke select (secret) on author from anon;
"""
RESET = """
truncate author, book, ranged, late, note, counter, tries;
select setval('attempts', 1, false);
insert into author values (1, 'ann', 5, 'the secret of ann');
insert into note values (1, 'someone else', 'hidden');
insert into counter values (1, 0), (2, 0);
"""


@pytest.fixture
def own(api: Service, reactor: Any) -> Iterator[Service]:
    """Give a service of the test's own, for what changes how connections begin or makes them wait."""
    api.database.execute(f"alter database {api.database.name} set deadlock_timeout = '500ms'")
    with serving(reactor, api.database) as running:
        yield running
    api.database.execute(f"alter role authenticator in database {api.database.name} reset all")


@pytest.mark.parametrize(
    ("mutation", "code", "message"),
    [
        ('insertIntoauthorCollection(objects: {id: 1, name: "x"})', "23505",
         'duplicate key value violates unique constraint "author_pkey"'),
        ('insertIntoauthorCollection(objects: {id: 2, name: "ann"})', "23505",
         'duplicate key value violates unique constraint "author_name_key"'),
        ("insertIntobookCollection(objects: {id: 1, author_id: 9})", "23503",
         'insert or update on table "book" violates foreign key constraint "book_author_id_fkey"'),
        ("insertIntobookCollection(objects: {id: 1, author_id: null})", "23502",
         'null value in column "author_id" of relation "book" violates not-null constraint'),
        ("insertIntobookCollection(objects: {id: 1})", "23502",
         'null value in column "author_id" of relation "book" violates not-null constraint'),
        ('insertIntoauthorCollection(objects: {id: 2, name: "x", age: -1})', "23514",
         'new row for relation "author" violates check constraint "author_age_check"'),
        ('updateauthorCollection(set: {name: "a b"})', "23514",
         'new row for relation "author" violates check constraint "no_spaces"'),
        ('insertIntorangedCollection(objects: [{id: 1, span: "[1,5)"}, {id: 2, span: "[4,9)"}])', "23P01",
         'conflicting key value violates exclusion constraint "ranged_span_excl"'),
        ("insertIntolateCollection(objects: {id: 1, author_id: 9})", "23503",
         'insert or update on table "late" violates foreign key constraint "late_author_id_fkey"'),
        ('insertIntorangedCollection(objects: {id: 1, span: "[5,1)"})', "22000",
         "range lower bound must be less than or equal to range upper bound"),
        ('insertIntorangedCollection(objects: {id: 1, span: "nonsense"})', "22P02",
         'malformed range literal: "nonsense"'),
    ],
)  # fmt: skip
async def test_violations_have_their_sqlstate_and_message(
    api: Service, mutation: str, code: str, message: str
) -> None:
    """The raw message; details would show the row. Nothing is written."""
    before = api.database.execute("select count(*) from author, counter")
    answer = await api.ask(f"mutation {{ {mutation} {{ affectedCount }} }}")
    assert answer.status == 200
    field = mutation.partition("(")[0]
    assert answer.body == {
        "data": None,
        "errors": [{"message": message, "path": [field], "extensions": {"code": code}}],
    }
    assert api.database.execute("select count(*) from author, counter") == before
    assert api.database.execute("select (select count(*) from book) + (select count(*) from ranged)") == [
        (0,)
    ]


async def test_a_row_that_is_referenced_stays(api: Service) -> None:
    api.database.execute("insert into book values (1, 1, 'b')")
    answer = await api.ask("mutation { deleteFromauthorCollection { affectedCount } }")
    assert answer.errors[0]["extensions"] == {"code": "23503"}
    assert answer.error == (
        'update or delete on table "author" violates foreign key constraint "book_author_id_fkey" on '
        'table "book"'
    )


async def test_a_policys_check_refuses_rows(api: Service) -> None:
    """``with check`` refusals are errors, an invisible row is simply not there."""
    own = '{id: 2, owner: "a user of authenticated", body: "mine"}'
    made = await api.data(
        f"mutation {{ r: insertIntonoteCollection(objects: {own}) {{ affectedCount }} }}",
        role="authenticated",
    )
    assert made["r"] == {"affectedCount": 1}
    for objects in (
        '{id: 3, owner: "me", body: "x"}',
        '{id: 3, owner: "a user of authenticated", body: "longer than ten"}',
    ):
        answer = await api.ask(
            f"mutation {{ insertIntonoteCollection(objects: {objects}) {{ affectedCount }} }}",
            role="authenticated",
        )
        assert answer.errors[0]["extensions"] == {"code": "42501"}
        assert answer.error.startswith("new row violates row-level security policy")
    answer = await api.ask(
        'mutation { updatenoteCollection(set: {owner: "x"}) { affectedCount } }', role="authenticated"
    )
    assert answer.error == 'new row violates row-level security policy for table "note"'
    for change in (
        'updatenoteCollection(set: {body: "x"}, filter: {id: {eq: 1}})',
        "deleteFromnoteCollection(filter: {id: {eq: 1}})",
    ):
        data = await api.data(f"mutation {{ r: {change} {{ affectedCount }} }}", role="authenticated")
        assert data["r"] == {"affectedCount": 0}


async def test_nothing_of_hidden_rows_or_columns_is_in_an_error(api: Service) -> None:
    """PostgreSQL's details quote rows; neither they nor its hints reach the client."""
    for mutation in (
        'insertIntoauthorCollection(objects: {id: 1, name: "x"})',
        "updateauthorCollection(set: {age: -1})",
        'insertIntonoteCollection(objects: {id: 1, owner: "a user of authenticated", body: "x"})',
    ):
        for role in ("anon", "authenticated"):
            answer = await api.ask(f"mutation {{ {mutation} {{ affectedCount }} }}", role=role)
            assert set(answer.errors[0]) == {"message", "path", "extensions"}
            assert set(answer.errors[0]["extensions"]) == {"code"}
            for hidden in ("secret of", "someone else", "Failing row", "already exists", "Key ("):
                assert hidden not in answer.text


async def test_what_a_function_raises_is_for_the_client(api: Service) -> None:
    """RAISE chooses code and message; its detail and hint stay with the log."""
    for state in ("P0001", "AB123", "22023", "42501"):
        answer = await api.ask(f'mutation {{ raise_with(state: "{state}", text: "no, {state}") }}')
        assert answer.body == {
            "data": None,
            "errors": [{"message": f"no, {state}", "path": ["raise_with"], "extensions": {"code": state}}],
        }


@pytest.mark.parametrize("state", ["XX000", "XX001"])
async def test_internal_errors_of_postgresql_are_for_the_log_alone(api: Service, state: str) -> None:
    noted: list[Any] = []
    globalLogPublisher.addObserver(noted.append)  # type: ignore[arg-type]
    try:
        answer = await api.ask(
            f'mutation {{ raise_with(state: "{state}", text: "tuple 7 of relation hidden is broken") }}'
        )
    finally:
        globalLogPublisher.removeObserver(noted.append)  # type: ignore[arg-type]
    assert answer.status == 500
    assert answer.error == "Internal server error"
    assert "tuple 7" not in answer.text
    [event] = [event for event in noted if "log_failure" in event]
    assert "tuple 7" in event["log_failure"].getErrorMessage()
    assert answer.headers["x-request-id"] in answer.text, "by which the operator finds it"


@contextmanager
def holding(api: Service, statement: str) -> Iterator[Any]:
    """Hold the locks of a statement in a transaction of another connection."""
    connection = psycopg2.connect(api.database.admin_uri)
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
        yield connection
    finally:
        connection.close()


async def test_a_statement_that_takes_too_long_is_ended(api: Service) -> None:
    """The role's own limit, as ``alter role … set statement_timeout`` says it."""
    await api.execute(
        f"alter role authenticated in database {api.database.name} set statement_timeout = '100ms'"
    )
    answer = await api.ask("mutation { dawdle }", role="authenticated")
    assert answer.errors == [
        {
            "message": "canceling statement due to statement timeout",
            "path": ["dawdle"],
            "extensions": {"code": "57014"},
        }
    ]
    await api.execute(f"alter role authenticated in database {api.database.name} reset statement_timeout")


async def test_a_lock_that_takes_too_long_is_given_up(api: Service) -> None:
    await api.execute(f"alter role authenticated in database {api.database.name} set lock_timeout = '50ms'")
    with holding(api, "update counter set value = 9 where id = 1"):
        answer = await api.ask(
            "mutation { updatecounterCollection(set: {value: 1}, filter: {id: {eq: 1}}) { affectedCount } }",
            role="authenticated",
        )
    assert answer.errors == [
        {
            "message": "canceling statement due to lock timeout",
            "path": ["updatecounterCollection"],
            "extensions": {"code": "55P03"},
        }
    ]
    await api.execute(f"alter role authenticated in database {api.database.name} reset lock_timeout")


@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_a_transaction_that_lost_to_another_is_run_again(own: Service, state: str) -> None:
    answer = await own.ask(f"""mutation {{
        insertIntoauthorCollection(objects: {{id: 2, name: "bob"}}) {{ affectedCount }}
        fail_until(wanted: 3, state: "{state}") }}""")
    assert answer.data == {"insertIntoauthorCollection": {"affectedCount": 1}, "fail_until": 3}
    assert len(answer.messages) == 3
    assert own.database.execute("select count(*) from tries") == [(1,)]


async def test_trying_again_ends(own: Service) -> None:
    answer = await own.ask('mutation { fail_until(wanted: 1000, state: "40001") }')
    assert answer.errors == [
        {"message": "try again", "path": ["fail_until"], "extensions": {"code": "40001"}}
    ]
    assert len(answer.messages) == 4
    assert own.database.execute("select count(*) from tries") == [(0,)]


async def test_other_errors_are_not_tried_again(api: Service) -> None:
    answer = await api.ask('mutation { fail_until(wanted: 2, state: "23505") }')
    assert answer.errors[0]["extensions"] == {"code": "23505"}
    assert len(answer.messages) == 1


async def test_a_deadlock_ends_in_success(own: Service, reactor: Any) -> None:
    ready = threading.Event()

    def other() -> None:
        with psycopg2.connect(own.database.admin_uri) as connection, connection.cursor() as cursor:
            cursor.execute("set deadlock_timeout = '30s'")  # the service's transaction is the one to lose
            cursor.execute("update counter set value = value + 100 where id = 2")
            ready.set()
            while not blocked(own):
                cursor.execute("select pg_sleep(0.01)")
            cursor.execute("update counter set value = value + 100 where id = 1")
        connection.close()

    crossing = threads.deferToThread(other)
    while not ready.is_set():
        await task.deferLater(reactor, 0.005)
    answer = await own.ask("""mutation {
        a: updatecounterCollection(set: {value: 1}, filter: {id: {eq: 1}}) { affectedCount }
        b: updatecounterCollection(set: {value: 2}, filter: {id: {eq: 2}}) { affectedCount } }""")
    await crossing
    assert answer.data == {"a": {"affectedCount": 1}, "b": {"affectedCount": 1}}
    assert len(answer.messages) > 1, "the deadlock happened"
    assert own.database.execute("select value from counter order by id") == [(1,), (2,)]


def blocked(api: Service) -> bool:
    """Whether the service's transaction waits for a lock."""
    return bool(
        api.database.execute(
            "select 1 from pg_stat_activity where usename = 'authenticator' and wait_event_type = 'Lock'"
            " and datname = current_database()"
        )
    )


@pytest.mark.direct("a pooler's connections begin before the login role is changed")
async def test_a_serialization_failure_ends_in_success(api: Service, reactor: Any) -> None:
    setting = "default_transaction_isolation = 'repeatable read'"
    api.database.execute(f"alter role authenticator in database {api.database.name} set {setting}")
    own = Service(reactor, api.database)
    await own.start()
    with holding(api, "update counter set value = 7 where id = 1") as connection:

        def commit() -> None:
            while not blocked(api):
                time.sleep(0.01)
            connection.commit()

        committing = threads.deferToThread(commit)
        answer = await own.ask(
            "mutation { updatecounterCollection(set: {value: 8}, filter: {id: {eq: 1}}) { affectedCount } }"
        )
        await committing
    await own.stop()
    api.database.execute(f"alter role authenticator in database {api.database.name} reset all")
    assert answer.data == {"updatecounterCollection": {"affectedCount": 1}}
    assert len(answer.messages) == 2, "the first try failed"


async def test_text_that_postgresql_cannot_hold_is_refused(api: Service) -> None:
    text = "a\\u0000b"
    answer = await api.ask(
        f'mutation {{ insertIntoauthorCollection(objects: {{id: 2, name: "{text}"}}) {{ affectedCount }} }}'
    )
    assert "PostgreSQL cannot store" in answer.error
    assert answer.errors[0]["extensions"]["code"] == "22021"
    assert api.database.execute("select count(*) from author") == [(1,)]
