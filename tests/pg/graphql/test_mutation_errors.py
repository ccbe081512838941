"""Errors of failed mutations: a message, the SQLSTATE and no hidden data."""

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
    """Serve the database with a separate pool. Its connections may block or change their settings."""
    api.database.execute(f"alter database {api.database.name} set deadlock_timeout = '500ms'")
    # Statements of the express lane would time out before PostgreSQL detects the deadlock.
    with serving(reactor, api.database, db_lane="off") as running:
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
    """Details would reveal the row."""
    before = api.database.execute("select count(*) from author, counter")
    response = await api.ask(f"mutation {{ {mutation} {{ affectedCount }} }}")
    assert response.status == 200
    field = mutation.partition("(")[0]
    assert response.body == {
        "data": None,
        "errors": [{"message": message, "path": [field], "extensions": {"code": code}}],
    }
    assert api.database.execute("select count(*) from author, counter") == before
    assert api.database.execute("select (select count(*) from book) + (select count(*) from ranged)") == [
        (0,)
    ]


async def test_referenced_row_cannot_be_deleted(api: Service) -> None:
    api.database.execute("insert into book values (1, 1, 'b')")
    response = await api.ask("mutation { deleteFromauthorCollection { affectedCount } }")
    assert response.errors[0]["extensions"] == {"code": "23503"}
    assert response.error == (
        'update or delete on table "author" violates foreign key constraint "book_author_id_fkey" on '
        'table "book"'
    )


async def test_policy_check_rejects_rows(api: Service) -> None:
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
        response = await api.ask(
            f"mutation {{ insertIntonoteCollection(objects: {objects}) {{ affectedCount }} }}",
            role="authenticated",
        )
        assert response.errors[0]["extensions"] == {"code": "42501"}
        assert response.error.startswith("new row violates row-level security policy")
    response = await api.ask(
        'mutation { updatenoteCollection(set: {owner: "x"}) { affectedCount } }', role="authenticated"
    )
    assert response.error == 'new row violates row-level security policy for table "note"'
    for change in (
        'updatenoteCollection(set: {body: "x"}, filter: {id: {eq: 1}})',
        "deleteFromnoteCollection(filter: {id: {eq: 1}})",
    ):
        data = await api.data(f"mutation {{ r: {change} {{ affectedCount }} }}", role="authenticated")
        assert data["r"] == {"affectedCount": 0}


async def test_errors_do_not_reveal_hidden_rows_or_columns(api: Service) -> None:
    """PostgreSQL's details quote rows, so the client receives neither details nor hints."""
    for mutation in (
        'insertIntoauthorCollection(objects: {id: 1, name: "x"})',
        "updateauthorCollection(set: {age: -1})",
        'insertIntonoteCollection(objects: {id: 1, owner: "a user of authenticated", body: "x"})',
    ):
        for role in ("anon", "authenticated"):
            response = await api.ask(f"mutation {{ {mutation} {{ affectedCount }} }}", role=role)
            assert set(response.errors[0]) == {"message", "path", "extensions"}
            assert set(response.errors[0]["extensions"]) == {"code"}
            for hidden in ("secret of", "someone else", "Failing row", "already exists", "Key ("):
                assert hidden not in response.text


async def test_errors_that_functions_raise_reach_the_client(api: Service) -> None:
    for state in ("P0001", "AB123", "22023", "42501"):
        response = await api.ask(f'mutation {{ raise_with(state: "{state}", text: "no, {state}") }}')
        assert response.body == {
            "data": None,
            "errors": [{"message": f"no, {state}", "path": ["raise_with"], "extensions": {"code": state}}],
        }


@pytest.mark.parametrize("state", ["XX000", "XX001"])
async def test_internal_errors_of_postgresql_are_only_logged(api: Service, state: str) -> None:
    noted: list[Any] = []
    globalLogPublisher.addObserver(noted.append)  # type: ignore[arg-type]
    try:
        response = await api.ask(
            f'mutation {{ raise_with(state: "{state}", text: "tuple 7 of relation hidden is broken") }}'
        )
    finally:
        globalLogPublisher.removeObserver(noted.append)  # type: ignore[arg-type]
    assert response.status == 500
    assert response.error == "Internal server error"
    assert "tuple 7" not in response.text
    [event] = [event for event in noted if "log_failure" in event]
    assert "tuple 7" in event["log_failure"].getErrorMessage()
    assert response.headers["x-request-id"] in response.text, "the operator finds the log entry by this ID"


@contextmanager
def holding(api: Service, statement: str) -> Iterator[Any]:
    connection = psycopg2.connect(api.database.admin_uri)
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
        yield connection
    finally:
        connection.close()


async def test_statement_timeout_of_the_role_applies(api: Service) -> None:
    await api.execute(
        f"alter role authenticated in database {api.database.name} set statement_timeout = '100ms'"
    )
    response = await api.ask("mutation { dawdle }", role="authenticated")
    assert response.errors == [
        {
            "message": "canceling statement due to statement timeout",
            "path": ["dawdle"],
            "extensions": {"code": "57014"},
        }
    ]
    await api.execute(f"alter role authenticated in database {api.database.name} reset statement_timeout")


async def test_lock_timeout_of_the_role_applies(api: Service) -> None:
    await api.execute(f"alter role authenticated in database {api.database.name} set lock_timeout = '50ms'")
    with holding(api, "update counter set value = 9 where id = 1"):
        response = await api.ask(
            "mutation { updatecounterCollection(set: {value: 1}, filter: {id: {eq: 1}}) { affectedCount } }",
            role="authenticated",
        )
    assert response.errors == [
        {
            "message": "canceling statement due to lock timeout",
            "path": ["updatecounterCollection"],
            "extensions": {"code": "55P03"},
        }
    ]
    await api.execute(f"alter role authenticated in database {api.database.name} reset lock_timeout")


@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_transaction_is_retried_after_a_conflict(own: Service, state: str) -> None:
    response = await own.ask(f"""mutation {{
        insertIntoauthorCollection(objects: {{id: 2, name: "bob"}}) {{ affectedCount }}
        fail_until(wanted: 3, state: "{state}") }}""")
    assert response.data == {"insertIntoauthorCollection": {"affectedCount": 1}, "fail_until": 3}
    assert len(response.messages) == 3
    assert own.database.execute("select count(*) from tries") == [(1,)]


async def test_retries_are_limited(own: Service) -> None:
    response = await own.ask('mutation { fail_until(wanted: 1000, state: "40001") }')
    assert response.errors == [
        {"message": "try again", "path": ["fail_until"], "extensions": {"code": "40001"}}
    ]
    assert len(response.messages) == 4
    assert own.database.execute("select count(*) from tries") == [(0,)]


async def test_other_errors_are_not_retried(api: Service) -> None:
    response = await api.ask('mutation { fail_until(wanted: 2, state: "23505") }')
    assert response.errors[0]["extensions"] == {"code": "23505"}
    assert len(response.messages) == 1


async def test_request_succeeds_after_deadlock(own: Service, reactor: Any) -> None:
    ready = threading.Event()

    def other() -> None:
        with psycopg2.connect(own.database.admin_uri) as connection, connection.cursor() as cursor:
            cursor.execute("set deadlock_timeout = '30s'")  # PostgreSQL aborts the service's transaction
            cursor.execute("update counter set value = value + 100 where id = 2")
            ready.set()
            while not blocked(own):
                cursor.execute("select pg_sleep(0.01)")
            cursor.execute("update counter set value = value + 100 where id = 1")
        connection.close()

    crossing = threads.deferToThread(other)
    while not ready.is_set():
        await task.deferLater(reactor, 0.005)
    response = await own.ask("""mutation {
        a: updatecounterCollection(set: {value: 1}, filter: {id: {eq: 1}}) { affectedCount }
        b: updatecounterCollection(set: {value: 2}, filter: {id: {eq: 2}}) { affectedCount } }""")
    await crossing
    assert response.data == {"a": {"affectedCount": 1}, "b": {"affectedCount": 1}}
    assert len(response.messages) > 1, "the request was repeated after a deadlock"
    assert own.database.execute("select value from counter order by id") == [(1,), (2,)]


def blocked(api: Service) -> bool:
    return bool(
        api.database.execute(
            "select 1 from pg_stat_activity where usename = 'authenticator' and wait_event_type = 'Lock'"
            " and datname = current_database()"
        )
    )


@pytest.mark.direct("a pooler's connections begin before the login role is changed")
async def test_request_succeeds_after_serialization_failure(api: Service, reactor: Any) -> None:
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
        response = await own.ask(
            "mutation { updatecounterCollection(set: {value: 8}, filter: {id: {eq: 1}}) { affectedCount } }"
        )
        await committing
    await own.stop()
    api.database.execute(f"alter role authenticator in database {api.database.name} reset all")
    assert response.data == {"updatecounterCollection": {"affectedCount": 1}}
    assert len(response.messages) == 2, "the first attempt failed"


async def test_text_that_postgresql_cannot_store_is_rejected(api: Service) -> None:
    text = "a\\u0000b"
    response = await api.ask(
        f'mutation {{ insertIntoauthorCollection(objects: {{id: 2, name: "{text}"}}) {{ affectedCount }} }}'
    )
    assert "PostgreSQL cannot store" in response.error
    assert response.errors[0]["extensions"]["code"] == "22021"
    assert api.database.execute("select count(*) from author") == [(1,)]
