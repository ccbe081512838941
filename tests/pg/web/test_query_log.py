"""What PostgreSQL and the log see of a request's SQL: comments, statements without values, the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.telemetry.logs import LineObserver, Redactor
from twisted.logger import ILogObserver, globalLogPublisher
from zope.interface import implementer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.service import Service
    from twisted.logger import LogEvent

SCHEMA = """
create table note (id int primary key, text text);
insert into note values (1, 'one');
create function message_text() returns text language sql as 'select current_query()';
create function prepared() returns bigint language sql as 'select count(*) from pg_prepared_statements';
grant select on note to anon;
"""
PROJECT = {"sql_comments": True, "log_query": "all"}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def logged() -> Iterator[list[dict[str, Any]]]:
    """Collect the fields of the lines that the SQL of requests makes."""
    found: list[dict[str, Any]] = []

    def keep(record: Any) -> str:
        if record.logger == "dataapi.queries":
            found.append({**record.fields, "level": record.level, "request_id": record.request_id})
        return ""

    lines = LineObserver(lambda _line: None, keep, Redactor())

    @implementer(ILogObserver)
    def observer(event: LogEvent) -> None:
        lines(event)

    globalLogPublisher.addObserver(observer)
    yield found
    globalLogPublisher.removeObserver(observer)


async def test_a_message_says_what_it_is_for(api: Service) -> None:
    """A comment as sqlcommenter writes it stands before everything else."""
    headers = {"X-Request-Id": "r-1", "traceparent": TRACEPARENT}
    text = (await api.rest("GET", "rpc/message_text", headers=headers)).body
    assert text.startswith(
        "/*application='dataapi',request_id='r-1',route='%2Frest%2Fv1%2Frpc%2F%7Bfunction%7D',"
        f"traceparent='{TRACEPARENT}'*/"
    )


async def test_comments_leave_prepared_statements_alone(api: Service) -> None:
    first = (await api.rest("GET", "rpc/prepared", headers={"X-Request-Id": "first"})).body
    again = (await api.rest("GET", "rpc/prepared", headers={"X-Request-Id": "second"})).body
    third = (await api.rest("GET", "rpc/prepared", headers={"X-Request-Id": "third"})).body
    assert first <= again == third


async def test_the_sql_of_a_stream_is_logged_once(api: Service, logged: list[dict[str, Any]]) -> None:
    answer = await api.rest("GET", "note?select=id", headers={"Accept": "application/x-ndjson"})
    assert answer.status == 200
    assert len(logged) == 1


async def test_sql_is_logged_without_values_and_with_the_requests_id(
    api: Service, logged: list[dict[str, Any]]
) -> None:
    headers = {"X-Request-Id": "r-1", "traceparent": TRACEPARENT}
    assert (await api.rest("GET", "note?text=eq.secret-value", headers=headers)).status == 200
    [line] = logged
    assert (line["request_id"], line["trace_id"], line["level"]) == ("r-1", TRACE, "info")
    assert "$1" in line["sql"]
    assert "secret-value" not in line["sql"]
    assert line["milliseconds"] > 0


async def test_sql_that_fails_is_a_warning_with_its_sqlstate(
    api: Service, logged: list[dict[str, Any]]
) -> None:
    """GraphQL's statements are logged as REST's are."""
    assert (await api.rest("GET", "note?id=eq.x")).status == 400
    assert (await api.ask("{ noteCollection { edges { node { id } } } }")).data
    assert [(line["level"], line.get("code")) for line in logged] == [("warn", "22P02"), ("info", None)]
