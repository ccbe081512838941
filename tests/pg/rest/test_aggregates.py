"""REST aggregates: implicit grouping, casts, and embedded and spread resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server
    from support.service import Service

    Rows = list[dict[str, Any]]

CASES: list[tuple[str, Rows]] = [
    ("sale?select=count()", [{"count": 5}]),
    ("sale?select=amount.sum()", [{"sum": 43}]),
    ("sale?select=amount.avg()", [{"avg": 10.75}]),
    ("sale?select=units.min(),units.max()", [{"min": 1, "max": 5}]),
    ("sale?select=amount.count()", [{"count": 4}]),
    ("sale?select=count(),count()", [{"count": 5}]),
    ("sale?select=total:amount.sum(),n:count()", [{"total": 43, "n": 5}]),
    ("sale?select=amount.avg()::int", [{"avg": 11}]),
    ("sale?select=amount::int.sum()::text", [{"sum": "44"}]),
    ("sale?select=count()::text", [{"count": "5"}]),
    ("sale?select=region.max()", [{"max": "south"}]),
    ("sale?select=amount.sum()&region=eq.north", [{"sum": 30.5}]),
    ("sale?select=amount.sum()&id=eq.0", [{"sum": None}]),
    ("sale?select=region,amount.sum()&order=region", [
        {"region": "north", "sum": 30.5}, {"region": "south", "sum": 5}, {"region": None, "sum": 7.5}]),
    ("sale?select=region,film,count()&order=region,film", [
        {"region": "north", "film": 1, "count": 2}, {"region": "south", "film": 2, "count": 1},
        {"region": "south", "film": 4, "count": 1}, {"region": None, "film": None, "count": 1}]),
    ("sale?select=where:region,units.sum()&order=region&limit=1", [{"where": "north", "sum": 3}]),
    ("sale?select=region,units.sum()&order=region&limit=1&offset=1", [{"region": "south", "sum": 7}]),
    ("sale?select=note->>by,units.sum()&order=note->>by", [
        {"by": "a", "sum": 4}, {"by": "b", "sum": 2}, {"by": "c", "sum": 5}, {"by": None, "sum": 4}]),
    ("sale?select=note->by,count()&note=not.is.null&order=note->by", [
        {"by": "a", "count": 2}, {"by": "b", "count": 1}, {"by": "c", "count": 1}]),
    ("film?select=year,headline.max()&order=year&year=not.is.null", [
        {"year": 1990, "max": "ALPHA"}, {"year": 1995, "max": 'GAMMA, THE "LAST"'},
        {"year": 2001, "max": "DELTA_100%"}]),
    # Aggregates within embedded resources.
    ("film?select=id,sale(amount.sum())&order=id&limit=3", [
        {"id": 1, "sale": [{"sum": 30.5}]}, {"id": 2, "sale": [{"sum": 5}]},
        {"id": 3, "sale": [{"sum": None}]}]),
    ("film?select=id,sale(region,count())&id=in.(1,3)&order=id", [
        {"id": 1, "sale": [{"region": "north", "count": 2}]}, {"id": 3, "sale": []}]),
    ("director?select=name,film(year,count())&id=eq.1&film.order=year", [
        {"name": "Ada", "film": [{"year": 1990, "count": 1}, {"year": 1995, "count": 1}]}]),
    # Grouping by embedded resources.
    ("sale?select=film(title),amount.sum()&film=not.is.null&order=film(title)", [
        {"film": {"title": "Alpha"}, "sum": 30.5}, {"film": {"title": "Beta"}, "sum": 5},
        {"film": {"title": "delta_100%"}, "sum": None}]),
    # Spread columns are grouping columns; spread aggregates are computed over the parent's rows.
    ("sale?select=...film(title),amount.sum()&film=in.(1,2)&order=film(title)", [
        {"title": "Alpha", "sum": 30.5}, {"title": "Beta", "sum": 5}]),
    ("sale?select=region,...film(year.max())&region=not.is.null&order=region", [
        {"region": "north", "max": 1990}, {"region": "south", "max": 2001}]),
    ("film?select=...director(name),count()&director=not.is.null&order=director(name)", [
        {"name": "Ada", "count": 2}, {"name": "Bert", "count": 1}, {"name": "Cleo", "count": 1}]),
]  # fmt: skip


@pytest.mark.parametrize(("target", "expected"), CASES)
async def test_aggregates_are_computed_per_group(features: Service, target: str, expected: Rows) -> None:
    response = await features.rest("GET", target)
    assert response.status == 200, response.text
    key = repr if "order" not in target else (lambda _: 0)
    assert sorted(response.body, key=key) == sorted(expected, key=key)


async def test_exact_count_is_the_number_of_groups(features: Service) -> None:
    response = await features.rest(
        "GET", "sale?select=region,count()&order=region&limit=1", headers={"prefer": "count=exact"}
    )
    assert response.body == [{"region": "north", "count": 2}]
    assert response.headers["content-range"].startswith("0-0/")


async def test_sum_of_text_is_reported_as_an_undefined_function(features: Service) -> None:
    response = await features.rest("GET", "film?select=title.sum()")
    assert (response.status, response.body["code"]) == (404, "42883")
    assert response.body["message"] == "function sum(text) does not exist"


async def test_unknown_aggregate_functions_are_rejected(features: Service) -> None:
    response = await features.rest("GET", "sale?select=amount.median()")
    assert (response.status, response.body["code"]) == (400, "PGRST100")
    assert response.body["details"] == 'unexpected "m" expecting "sum", "avg", "count", "max" or "min"'


@pytest.fixture(scope="module")
def plain(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve a table with default settings."""
    schema = "create table t (id int primary key, of int references t); grant select on t to anon"
    with serving(reactor, server.create_database(schema)) as service:
        yield service


async def test_bare_count_works_without_enabled_aggregates(plain: Service, features: Service) -> None:
    """``count`` without parentheses counts rows unless there is a column ``count``."""
    await plain.execute("insert into t values (1, null), (2, 1), (3, 1); select 1")
    response = await plain.rest("GET", "t?select=id,t(count)&order=id&t.id=gt.2")
    assert response.body == [{"id": n, "t": [{"count": int(n == 1)}]} for n in (1, 2, 3)]
    assert (await plain.rest("GET", "t?select=count")).body == [{"count": 3}]
    assert (await plain.rest("GET", "t?select=n:count::text&id=gt.1")).body == [{"n": "2"}]
    response = await features.rest("GET", "actor?select=name,film(count)&order=id&limit=2")
    assert response.body == [
        {"name": "Xena", "film": [{"count": 2}]},
        {"name": "Yuri", "film": [{"count": 2}]},
    ]
    await features.execute("create table tally (count int); insert into tally values (7), (8); "
                           "grant select on tally to anon; select 1")  # fmt: skip
    assert (await features.rest("GET", "tally?select=count&order=count")).body == [{"count": 7}, {"count": 8}]


@pytest.mark.parametrize("select", ["count()", "id.sum()", "id,t(id.max())", "...of(id.max())"])
async def test_aggregates_are_rejected_unless_enabled(plain: Service, select: str) -> None:
    response = await plain.rest("GET", f"t?select={select}")
    body = {
        "code": "PGRST123",
        "message": "Use of aggregate functions is not allowed",
        "details": None,
        "hint": None,
    }
    assert (response.status, response.body) == (400, body)


@pytest.mark.parametrize(
    "select",
    ["id,...sale(amount.sum())", "id,...sale(region,count())", "name,...film(title,...director(id.max()))"],
)
async def test_to_many_spreads_reject_aggregates(features: Service, select: str) -> None:
    """Aggregates within nested spreads are also rejected, but not those of resources embedded in a spread."""
    table = "film" if select.startswith("id") else "actor"
    response = await features.rest("GET", f"{table}?select={select}")
    assert (response.status, response.body) == (400, {
        "code": "PGRST127", "message": "Feature not implemented", "hint": None,
        "details": "Aggregates are not implemented for one-to-many or many-to-many spreads.",
    })  # fmt: skip
    response = await features.rest("GET", "director?select=name,...film(title,sale(units.sum()))&id=eq.2")
    assert response.body == [{"name": "Bert", "title": ['Gamma, the "last"'], "sale": [[{"sum": None}]]}]


async def test_groups_can_be_ordered_by_the_alias_of_a_spread_column(features: Service) -> None:
    response = await features.rest("GET", "sale?select=...film(called:title),count()&order=film(called).desc")
    assert [row["called"] for row in response.body if row["called"]] == ["delta_100%", "Beta", "Alpha"]
