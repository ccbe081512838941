"""REST limits, ranges and counts (docs/reference/rest.md, Ranges)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server
    from support.service import Answer, Service

CROWD = """
create table crowd (id int primary key, half int);
insert into crowd select n, n % 2 from generate_series(1, 1000) n;
create table house (id int primary key);
create table room (id int primary key, house int references house);
insert into house values (1);
insert into room select n, 1 from generate_series(1, 30) n;
comment on table room is '@rest({"max_rows": 20})';
grant select on all tables in schema public to anon;
analyze;
"""


@pytest.fixture(scope="module")
def crowd(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve a table of 1,000 rows with a limit of 10 rows."""
    with serving(reactor, server.create_database(CROWD), db_max_rows=10) as service:
        yield service


def summary(response: Answer) -> tuple[int, str]:
    """Return the status and the ``Content-Range`` header."""
    return response.status, response.headers["content-range"]


async def ids(service: Service, target: str, **headers: str) -> list[int]:
    response = await service.rest("GET", target, headers=headers)
    assert response.status in (200, 206), response.text
    return [row["id"] for row in response.body]


@pytest.mark.parametrize(
    ("query", "range_", "expected", "content_range"),
    [
        ("", None, [1, 2, 3, 4, 5], "0-4/*"),
        ("&limit=2", None, [1, 2], "0-1/*"),
        ("&limit=2&offset=3", None, [4, 5], "3-4/*"),
        ("&offset=4", None, [5], "4-4/*"),
        ("&offset=5", None, [], "*/*"),
        ("&offset=50", None, [], "*/*"),
        ("&limit=0", None, [], "*/*"),
        ("&limit=x&offset=y", None, [1, 2, 3, 4, 5], "0-4/*"),
        ("", "0-1", [1, 2], "0-1/*"),
        ("", "3-", [4, 5], "3-4/*"),
        ("&limit=2", "1-3", [2], "1-1/*"),
        ("&limit=0", "0-0", [], "*/*"),
        ("&limit=0&offset=3", "9-2", [], "*/*"),
        ("&limit=4&offset=-2", None, [1, 2], "0-1/*"),
        ("&offset=-2", None, [1, 2, 3, 4, 5], "0-4/*"),
        ("", "bytes=0-1", [1, 2, 3, 4, 5], "0-4/*"),
    ],
)
async def test_limits_and_ranges_select_rows(
    features: Service, query: str, range_: str | None, expected: list[int], content_range: str
) -> None:
    """The status is 200 unless a count was requested."""
    headers = {"range": range_, "range-unit": "items"} if range_ else {}
    response = await features.rest("GET", f"film?select=id&order=id{query}", headers=headers)
    assert [row["id"] for row in response.body] == expected
    assert summary(response) == (200, content_range)


@pytest.mark.parametrize(
    ("query", "range_", "status", "content_range"),
    [
        ("", None, 200, "0-4/5"),
        ("limit=2", None, 206, "0-1/5"),
        ("limit=2&offset=4", None, 206, "4-4/5"),
        ("offset=5", None, 206, "*/5"),
        ("", "1-2", 206, "1-2/5"),
        ("year=eq.1995", None, 200, "0-1/2"),
        ("year=eq.1995&limit=1", None, 206, "0-0/2"),
        ("year=eq.1", None, 200, "*/0"),
        ("limit=0", None, 206, "*/5"),
        ("limit=0&offset=6", None, 206, "*/5"),
    ],
)
async def test_exact_count_covers_all_matching_rows(
    features: Service, query: str, range_: str | None, status: int, content_range: str
) -> None:
    """Status 206 means that more rows match than were returned."""
    headers = {"prefer": "count=exact", **({"range": range_} if range_ else {})}
    response = await features.rest("GET", f"film?{query}", headers=headers)
    assert summary(response) == (status, content_range)
    assert response.headers["preference-applied"] == "count=exact"


async def test_invalid_offsets_and_ranges_are_rejected_with_details(features: Service) -> None:
    for target, headers, details in [
        ("film?offset=6", {"prefer": "count=exact"},
         "An offset of 6 was requested, but there are only 5 rows."),
        ("film?year=eq.1&offset=1", {"prefer": "count=exact"},
         "An offset of 1 was requested, but there are only 0 rows."),
        ("film?limit=2&offset=-2", {}, "Limit should be greater than or equal to zero."),
        ("film?limit=-1", {}, "Limit should be greater than or equal to zero."),
        ("film?select=id,actor(id)&actor.limit=-1", {}, "Limit should be greater than or equal to zero."),
        ("film", {"range": "5-2"},
         "The lower boundary must be lower than or equal to the upper boundary in the Range header."),
    ]:  # fmt: skip
        response = await features.rest("GET", target, headers=headers)
        assert (response.status, response.body) == (
            416,
            {
                "code": "PGRST103",
                "message": "Requested range not satisfiable",
                "details": details,
                "hint": None,
            },
        )


async def test_range_header_is_ignored_for_head(features: Service) -> None:
    """RFC 9110, section 14.2, defines range requests only for GET."""
    response = await features.rest("HEAD", "film", headers={"range": "0-0", "prefer": "count=exact"})
    assert summary(response) == (200, "0-4/5")


async def test_planned_count_is_the_planners_estimate(crowd: Service) -> None:
    headers = {"prefer": "count=planned"}
    response = await crowd.rest("GET", "crowd?limit=3", headers=headers)
    assert summary(response) == (206, "0-2/1000")
    assert response.headers["preference-applied"] == "count=planned"
    response = await crowd.rest("GET", "crowd?half=eq.1&id=gt.0", headers=headers)
    assert summary(response) == (206, "0-9/500")


async def test_estimated_count_is_exact_up_to_the_row_limit(crowd: Service) -> None:
    """Above ``db-max-rows`` rows, the planner's estimate is used."""
    headers = {"prefer": "count=estimated"}
    response = await crowd.rest("GET", "crowd?id=lte.4&half=eq.1", headers=headers)
    assert summary(response) == (200, "0-1/2")
    response = await crowd.rest("GET", "crowd?limit=2", headers=headers)
    assert summary(response) == (206, "0-1/1000")
    assert response.headers["preference-applied"] == "count=estimated"


async def test_estimated_count_is_at_least_the_counted_rows(crowd: Service) -> None:
    await crowd.execute("""
        create table surprise (id int) with (autovacuum_enabled = off);
        insert into surprise select generate_series(1, 200);
        grant select on surprise to anon; select 1""")
    crowd.database.execute("analyze surprise; update surprise set id = id + 1000 where id > 100")
    response = await crowd.rest("GET", "surprise?id=gt.1000", headers={"prefer": "count=planned"})
    assert summary(response) == (200, "0-9/1"), "the planner's statistics contain no such row"
    response = await crowd.rest("GET", "surprise?id=gt.1000", headers={"prefer": "count=estimated"})
    assert summary(response) == (206, "0-9/11")


async def test_estimated_count_is_exact_without_a_row_limit(features: Service) -> None:
    response = await features.rest("GET", "film?limit=1", headers={"prefer": "count=estimated"})
    assert summary(response) == (206, "0-0/5")


async def test_row_limit_applies_to_every_resource(crowd: Service) -> None:
    """``db-max-rows`` limits tables and embedded rows. A table's directive takes precedence."""
    assert await ids(crowd, "crowd?order=id") == list(range(1, 11))
    assert await ids(crowd, "crowd?order=id&limit=50") == list(range(1, 11))
    assert await ids(crowd, "crowd?order=id&limit=3") == [1, 2, 3]
    assert await ids(crowd, "crowd?order=id", range="5-100") == list(range(6, 16))
    assert len(await ids(crowd, "room?limit=100")) == 20
    [house] = (await crowd.rest("GET", "house?select=room(id)&room.limit=100")).body
    assert len(house["room"]) == 20


async def test_directive_limits_the_rows_of_a_table(features: Service) -> None:
    """``@rest({"max_rows": 2})`` applies even if the project has no limit."""
    assert await ids(features, "capped?order=id") == [1, 2]
    assert await ids(features, "capped?order=id&limit=1") == [1]
    [film] = (await features.rest("GET", "film?select=capped(id)&id=eq.1&capped.order=id.desc")).body
    assert film["capped"] == [{"id": 5}, {"id": 4}]
    response = await features.rest("GET", "capped", headers={"prefer": "count=exact"})
    assert summary(response) == (206, "0-1/5")
