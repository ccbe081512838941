"""Reads that are sent while the rows come: JSON lines, and CSV that nothing bounds."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.service import Service

LINES = {"accept": "application/x-ndjson"}
CSV = {"accept": "text/csv"}


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
async def test_lines_are_the_rows_of_the_array(features: Service, query: str) -> None:
    """One JSON value a line, whatever the request asks."""
    answer = await features.rest("GET", f"film?{query}", headers=LINES)
    assert answer.headers["content-type"] == "application/x-ndjson"
    array = await features.rest("GET", f"film?{query}")
    assert [json.loads(line) for line in answer.text.splitlines()] == array.body


async def test_csv_is_streamed_unless_something_bounds_it(features: Service) -> None:
    """The lines are the same, and of few rows ``Content-Range`` is known anyway."""
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


async def test_names_of_members_head_the_columns(features: Service) -> None:
    """Aliases and spread members too."""
    answer = await features.rest("GET", 'film?select="a,b":id,...director(by:name)&id=eq.1', headers=CSV)
    assert list(csv.reader(io.StringIO(answer.text))) == [["a,b", "by"], ["1", "Ada"]]


async def test_refusals_before_the_first_row_are_ordinary(features: Service) -> None:
    """Whatever was wrong is told with its status."""
    for target, code in [("film?select=nope", "42703"), ("film?id=eq.x", "22P02"), ("inbox", "42501")]:
        answer = await features.rest("GET", target, headers=LINES)
        assert (answer.status, answer.body["code"]) == (401 if target == "inbox" else 400, code)


async def test_head_of_a_stream_has_no_body(features: Service) -> None:
    """The rows are counted, so that what would be refused is."""
    answer = await features.rest("HEAD", "film", headers=LINES)
    assert (answer.status, answer.text, answer.headers["content-range"]) == (200, "", "0-4/*")
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert (await features.rest("HEAD", "inbox", headers=LINES)).status == 401
