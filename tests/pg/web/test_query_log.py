"""SQL comments, logged statements without their values, and trace IDs."""

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
    lines: list[dict[str, Any]] = []

    def collect(record: Any) -> str:
        if record.logger == "dataapi.queries":
            lines.append({**record.fields, "level": record.level, "request_id": record.request_id})
        return ""

    observe = LineObserver(lambda _line: None, collect, Redactor())

    @implementer(ILogObserver)
    def observer(event: LogEvent) -> None:
        observe(event)

    globalLogPublisher.addObserver(observer)
    yield lines
    globalLogPublisher.removeObserver(observer)


async def test_sql_comment_identifies_the_request(api: Service) -> None:
    """The comment has sqlcommenter's format and precedes the statement."""
    headers = {"X-Request-Id": "r-1", "traceparent": TRACEPARENT}
    text = (await api.rest("GET", "rpc/message_text", headers=headers)).body
    assert text.startswith(
        "/*application='dataapi',request_id='r-1',route='%2Frest%2Fv1%2Frpc%2F%7Bfunction%7D',"
        f"traceparent='{TRACEPARENT}'*/"
    )


async def test_comments_do_not_prevent_prepared_statements(api: Service) -> None:
    first = (await api.rest("GET", "rpc/prepared", headers={"X-Request-Id": "first"})).body
    second = (await api.rest("GET", "rpc/prepared", headers={"X-Request-Id": "second"})).body
    third = (await api.rest("GET", "rpc/prepared", headers={"X-Request-Id": "third"})).body
    assert first <= second == third


async def test_sql_of_a_stream_is_logged_once(api: Service, logged: list[dict[str, Any]]) -> None:
    response = await api.rest("GET", "note?select=id", headers={"Accept": "application/x-ndjson"})
    assert response.status == 200
    assert len(logged) == 1


async def test_sql_is_logged_with_the_request_id_and_without_values(
    api: Service, logged: list[dict[str, Any]]
) -> None:
    headers = {"X-Request-Id": "r-1", "traceparent": TRACEPARENT}
    assert (await api.rest("GET", "note?text=eq.secret-value", headers=headers)).status == 200
    [line] = logged
    assert (line["request_id"], line["trace_id"], line["level"]) == ("r-1", TRACE, "info")
    assert "$1" in line["sql"]
    assert "secret-value" not in line["sql"]
    assert line["milliseconds"] > 0


async def test_failed_sql_is_logged_as_a_warning_with_its_sqlstate(
    api: Service, logged: list[dict[str, Any]]
) -> None:
    assert (await api.rest("GET", "note?id=eq.x")).status == 400
    assert (await api.ask("{ noteCollection { edges { node { id } } } }")).data
    assert [(line["level"], line.get("code")) for line in logged] == [("warn", "22P02"), ("info", None)]
