"""Streamed reads: JSON lines, and CSV without a limit."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

LINES = {"accept": "application/x-ndjson"}
CSV = {"accept": "text/csv"}
MANY = """
create table number (n integer primary key);
insert into number select generate_series(1, 1000);
create function numbers() returns setof number language sql stable as 'select * from number';
create function gaps() returns setof integer language sql stable as 'values (1), (null), (3)';
grant select on number to anon;
"""


@pytest.mark.parametrize(
    "query",
    [
        "order=id",
        "select=id,director(name),part(played)&order=id&part.order=actor",
        "select=id,...director(name)&id=gt.1&order=id.desc&limit=2&offset=1",
        "select=n:title,data->cast->size&or=(id.eq.1,title.like.B*)&order=id",
        "select=year,count()&order=year",
        "id=eq.0",
    ],
)
async def test_json_lines_are_the_rows_of_the_array(features: Service, query: str) -> None:
    response = await features.rest("GET", f"film?{query}", headers=LINES)
    assert response.headers["content-type"] == "application/x-ndjson"
    array = await features.rest("GET", f"film?{query}")
    assert [json.loads(line) for line in response.text.splitlines()] == array.body


async def test_csv_is_streamed_unless_limited(features: Service) -> None:
    """Short streams also have a ``Content-Range``."""
    streamed = await features.rest("GET", "film?select=id,title,tags&order=id", headers=CSV)
    whole = await features.rest("GET", "film?select=id,title,tags&order=id&limit=10", headers=CSV)
    assert whole.headers["content-range"] == "0-4/*"
    assert streamed.headers["content-range"] == "0-4/*"
    moved = await features.rest("GET", "film?select=id&order=id&offset=3", headers=CSV)
    assert (moved.text, moved.headers["content-range"]) == ("id\n4\n5", "3-4/*")
    header, *rows = csv.reader(io.StringIO(streamed.text))
    assert [header, *rows] == list(csv.reader(io.StringIO(whole.text)))
    assert header == ["id", "title", "tags"]
    assert rows[2] == ["3", 'Gamma, the "last"', "{}"]
    counted = await features.rest("GET", "film?select=id", headers={**CSV, "prefer": "count=exact"})
    assert counted.headers["content-range"] == "0-4/5"


async def test_csv_header_has_the_member_names(features: Service) -> None:
    response = await features.rest("GET", 'film?select="a,b":id,...director(by:name)&id=eq.1', headers=CSV)
    assert list(csv.reader(io.StringIO(response.text))) == [["a,b", "by"], ["1", "Ada"]]


async def test_errors_before_the_first_row_are_ordinary_responses(features: Service) -> None:
    for target, code in [("film?select=nope", "42703"), ("film?id=eq.x", "22P02"), ("inbox", "42501")]:
        response = await features.rest("GET", target, headers=LINES)
        assert (response.status, response.body["code"]) == (401 if target == "inbox" else 400, code)


async def test_head_of_a_stream_has_no_body(features: Service) -> None:
    """HEAD counts the rows, so errors are reported as for GET."""
    response = await features.rest("HEAD", "film", headers=LINES)
    assert (response.status, response.text, response.headers["content-range"]) == (200, "", "0-4/*")
    assert response.headers["content-type"] == "application/x-ndjson"
    assert (await features.rest("HEAD", "inbox", headers=LINES)).status == 401


@pytest.fixture(scope="module")
def many(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve functions that return more rows than the first fetch, and null values."""
    with serving(reactor, server.create_database(MANY)) as service:
        yield service


async def test_head_of_a_call_leaves_no_stream_open(many: Service) -> None:
    response = await many.rest("HEAD", "rpc/numbers", headers={**LINES, "prefer": "count=exact"})
    assert (response.status, response.text, response.headers["content-range"]) == (200, "", "0-999/1000")
    assert response.headers["content-type"] == "application/x-ndjson"
    open_transactions = (
        "select count(*) from pg_stat_activity where datname = current_database() and xact_start < now()"
    )
    assert many.database.execute(open_transactions) == [(0,)]
    again = await many.rest("GET", "rpc/numbers", headers=LINES)
    assert (again.status, len(again.text.splitlines())) == (200, 1000)


async def test_null_value_is_a_line(many: Service) -> None:
    response = await many.rest("GET", "rpc/gaps", headers=LINES)
    assert [json.loads(line) for line in response.text.splitlines()] == [1, None, 3]


async def test_preferences_unsupported_by_streams_are_not_applied(many: Service) -> None:
    for target in ("rpc/numbers", "number"):
        lenient = await many.rest("GET", target, headers={**LINES, "prefer": "count=exact, handling=lenient"})
        assert lenient.headers["preference-applied"] == "handling=lenient"
    strict = {**LINES, "prefer": "handling=strict, max-affected=1"}
    refused = await many.rest("GET", "rpc/numbers", headers=strict)
    assert (refused.status, refused.body["code"]) == (400, "PGRST122")
    assert refused.body["details"] == "Invalid preferences: max-affected=1"
