"""``totalCount`` and ``aggregate`` over HTTP (docs/reference/graphql.md, Aggregates)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, nodes, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

SCHEMA = """
create type mood as enum ('sad', 'happy');
create table plain (id int primary key);
create table counted (id int primary key);
comment on table counted is '@graphql({"totalCount": {"enabled": true}})';
insert into counted select generate_series(1, 50);
create table team (id int primary key);
create table score (
    id int primary key, team_id int references team, small smallint, big bigint, real real, double float8,
    exact numeric, name text, code varchar(3), letters char(3), ok boolean, on_day date,
    at_time time, at timestamptz, local timestamp, mood mood, uuid uuid, j jsonb, list int[], span int4range,
    positive int, "weird name" int
);
comment on table score is '@graphql({"totalCount": {"enabled": true}, "aggregate": {"enabled": true}})';
insert into team values (1), (2), (3);
insert into score (id, team_id, small, big, real, double, exact, name, code, letters, ok, on_day, at_time,
        at, local, mood) values
    (1, 1, 30000, 9223372036854775807, 1.5, 0.1, 0.10, 'b', 'x', 'q', true, '2024-01-02', '10:00',
        '2024-01-02 00:00+00', '2024-01-02', 'sad'),
    (2, 1, 30000, 9223372036854775807, 2.5, 0.2, 99999999999999999999.9, 'a', 'y', 'r', false,
        '2024-01-01', '09:00', '2024-01-01 00:00+00', '2024-01-01', 'happy'),
    (3, 2, null, null, null, null, null, null, null, null, null, null, null, null, null, null);
create table json_only (id uuid primary key, j jsonb);
comment on table json_only is '@graphql({"aggregate": {"enabled": true}})';
grant select on all tables in schema public to anon;
do $$ begin create role clerk nologin; exception when duplicate_object then end $$;
grant clerk to authenticator;
grant select (id, team_id, small) on score to clerk;
grant select (id) on team to clerk;
"""


@pytest.fixture(scope="module")
def api(server: Server, reactor: Any) -> Iterator[Service]:
    with serving(reactor, server.create_database(SCHEMA)) as service:
        yield service
    server.admin.execute("drop owned by clerk")


async def aggregate(api: Service, selection: str, arguments: str = "", role: str = "anon") -> Any:
    query = f"{{ scoreCollection{arguments} {{ aggregate {{ {selection} }} }} }}"
    return (await api.data(query, role=role))["scoreCollection"]["aggregate"]


def test_counts_and_aggregates_are_off_by_default(api: Service) -> None:
    schema = api.schema()
    assert set(schema.object_type("plainConnection").fields) == {"edges", "pageInfo"}
    assert set(schema.object_type("countedConnection").fields) == {"edges", "pageInfo", "totalCount"}
    fields = schema.object_type("scoreConnection").fields
    assert str(fields["totalCount"].type) == "Int!"
    assert str(fields["aggregate"].type) == "scoreAggregate"
    assert "plainAggregate" not in schema.schema.type_map


async def test_disabled_aggregates_are_rejected(api: Service) -> None:
    for name in ("totalCount", "aggregate { count }"):
        response = await api.ask(f"{{ plainCollection {{ {name} }} }}")
        assert "Cannot query field" in response.error
        assert response.messages == ()


async def test_total_count_ignores_paging(api: Service) -> None:
    for arguments, expected in (
        ("", 50),
        ("(first: 1)", 50),
        ('(first: 5, after: "WzEwXQ==", orderBy: {id: AscNullsLast})', 50),
        ("(last: 2)", 50),
        ("(first: 1, offset: 49)", 50),
        ("(filter: {id: {gt: 40}})", 10),
        ("(first: 3, filter: {id: {lt: 0}})", 0),
    ):
        data = await api.data(
            f"{{ countedCollection{arguments} {{ totalCount edges {{ node {{ id }} }} }} }}"
        )
        assert data["countedCollection"]["totalCount"] == expected


async def test_count_is_computed_only_when_selected(api: Service) -> None:
    query = (
        "query($c: Boolean!) { countedCollection(first: 1) { totalCount @include(if: $c) edges { cursor } } }"
    )
    assert "count(*)" not in (await api.ask(query, {"c": False})).statements[0]
    response = await api.ask(query, {"c": True})
    assert "count(*)" in response.statements[0]
    assert response.data["countedCollection"]["totalCount"] == 50


async def test_sums_and_averages(api: Service) -> None:
    names = ("id", "small", "big", "real", "double", "exact")
    found = await aggregate(api, f"sum {{ {' '.join(names)} }} avg {{ {' '.join(names)} }}")
    for function in ("sum", "avg"):
        columns = ", ".join(f"{function}({name})::text" for name in names)
        [expected] = api.database.execute(f"select {columns} from score")
        assert found[function] == dict(zip(names, expected, strict=True))
    assert found["sum"]["big"] == "18446744073709551614", "beyond 64 bits"
    assert found["avg"]["small"] == "30000.000000000000"
    fields = api.schema().object_type("scoreSumAggregateResult").fields
    assert [str(fields[name].type) for name in names] == ["BigInt"] * 3 + ["BigFloat"] * 3
    fields = api.schema().object_type("scoreAvgAggregateResult").fields
    assert [str(fields[name].type) for name in names] == ["BigFloat"] * 6


async def test_min_and_max_have_the_type_of_the_column(api: Service) -> None:
    names = "id small big real double exact name code letters ok onDay atTime at local".replace(
        "onDay", "on_day"
    )
    names = names.replace("atTime", "at_time")
    found = await aggregate(api, f"min {{ {names} }} max {{ {names} }}")
    assert found["min"] == {
        "id": 1, "small": 30000, "big": "9223372036854775807", "real": 1.5, "double": 0.1, "exact": "0.10",
        "name": "a", "code": "x", "letters": "q  ", "ok": False, "on_day": "2024-01-01",
        "at_time": "09:00:00", "at": "2024-01-01T00:00:00+00:00", "local": "2024-01-01T00:00:00",
    }  # fmt: skip
    assert found["max"] == {
        "id": 3, "small": 30000, "big": "9223372036854775807", "real": 2.5, "double": 0.2,
        "exact": "99999999999999999999.9", "name": "b", "code": "y", "letters": "r  ", "ok": True,
        "on_day": "2024-01-02", "at_time": "10:00:00", "at": "2024-01-02T00:00:00+00:00",
        "local": "2024-01-02T00:00:00",
    }  # fmt: skip


def test_aggregate_types_contain_the_eligible_columns(api: Service) -> None:
    schema = api.schema()
    assert {name: str(field.type) for name, field in schema.object_type("scoreAggregate").fields.items()} == {
        "count": "Int!",
        "sum": "scoreSumAggregateResult",
        "avg": "scoreAvgAggregateResult",
        "min": "scoreMinAggregateResult",
        "max": "scoreMaxAggregateResult",
    }
    numbers = {"id", "team_id", "small", "big", "real", "double", "exact", "positive"}
    others = {"name", "code", "letters", "ok", "on_day", "at_time", "at", "local"}
    for function, columns in (
        ("Sum", numbers),
        ("Avg", numbers),
        ("Min", numbers | others),
        ("Max", numbers | others),
    ):
        assert set(schema.object_type(f"score{function}AggregateResult").fields) == columns
    # A GraphQL object type needs at least one field, so there are no types for sum, min and the like.
    assert set(schema.object_type("json_onlyAggregate").fields) == {"count"}


async def test_aggregates_apply_the_filter_but_not_paging(api: Service) -> None:
    arguments = "(first: 1, offset: 1, filter: {team_id: {eq: 1}})"
    assert await aggregate(api, "count sum { id } min { id }", arguments) == {
        "count": 2,
        "sum": {"id": "3"},
        "min": {"id": 1},
    }
    assert await aggregate(
        api, "count sum { id } avg { small } max { name ok }", "(filter: {id: {lt: 0}})"
    ) == {
        "count": 0,
        "sum": {"id": None},
        "avg": {"small": None},
        "max": {"name": None, "ok": None},
    }


async def test_aggregates_may_select_only_typename(api: Service) -> None:
    response = await api.ask(
        """{ some: scoreCollection { aggregate { __typename count @include(if: false) } }
             none: scoreCollection(filter: {id: {lt: 0}}) { aggregate { sum { __typename } } } }"""
    )
    assert response.data == {
        "some": {"aggregate": {"__typename": "scoreAggregate"}},
        "none": {"aggregate": {"sum": {"__typename": "scoreSumAggregateResult"}}},
    }


async def test_nested_collections_have_their_own_aggregates(api: Service) -> None:
    response = await api.ask(
        """{ teamCollection { edges { node { scoreCollection(filter: {id: {lt: 9}}) {
            totalCount n: totalCount
            aggregate { __typename rows: count count sum { __typename total: big } } } } } } }"""
    )
    assert len(response.messages) == 1
    found = [node["scoreCollection"] for node in nodes(response.data["teamCollection"])]
    assert [one["totalCount"] for one in found] == [one["n"] for one in found] == [2, 1, 0]
    assert [one["aggregate"]["sum"]["total"] for one in found] == ["18446744073709551614", None, None]
    assert [one["aggregate"]["rows"] for one in found] == [2, 1, 0]
    assert found[0]["aggregate"]["__typename"] == "scoreAggregate"
    assert found[0]["aggregate"]["sum"]["__typename"] == "scoreSumAggregateResult"


async def test_unreadable_columns_are_not_aggregated(api: Service) -> None:
    schema = api.schema("clerk")
    for function in ("Sum", "Avg", "Min", "Max"):
        assert set(schema.object_type(f"score{function}AggregateResult").fields) == {"id", "team_id", "small"}
    assert await aggregate(api, "count sum { small }", role="clerk") == {
        "count": 3,
        "sum": {"small": "60000"},
    }
    response = await api.ask("{ scoreCollection { aggregate { sum { big } } } }", role="clerk")
    hidden = await api.ask("{ scoreCollection { aggregate { sum { bog } } } }", role="clerk")
    assert response.error == hidden.error.replace("bog", "big")
