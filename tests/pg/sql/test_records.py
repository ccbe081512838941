"""Rows with spread relationships, junction tables and groups."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from dataapi.rest.media_output import Form
from dataapi.rest.statements import Total, compile_result
from dataapi.sql.algebra import (
    Aggregate,
    AggregateFunction,
    Cast,
    ColumnRef,
    Compare,
    ComputedValue,
    Expression,
    Join,
    JsonPath,
    Operator,
    OrderTerm,
    RelatedValue,
    Rows,
    Through,
)
from dataapi.sql.outputs import Output, Text, Value
from dataapi.sql.row_output import Many, One, Record, Spread
from support.slots import parameter
from support.statements import Films, make_films

if TYPE_CHECKING:
    from support.postgres import Server

ID, TITLE, YEAR, NAME, BUDGET = map(ColumnRef, ("id", "title", "year", "name", "budget"))
BY_ID = (OrderTerm(ID),)
COUNT = Aggregate(AggregateFunction.COUNT)


@pytest.fixture(scope="module")
def films(server: Server) -> Films:
    """Return the films database. Tests do not change it."""
    return make_films(server)


def record(*members: tuple[str, Output | Expression] | Spread, grouped: bool = False) -> Record:
    """Return a record. Expressions become values. Names after ``>`` are aliases from the client."""
    return Record(tuple(map(_member, members)), grouped)


def _member(member: tuple[str, Output | Expression] | Spread) -> Any:
    if isinstance(member, Spread):
        return member
    name, output = member
    key = parameter(name[1:], "text") if name.startswith(">") else Text(name)
    return key, output if isinstance(output, Record | One | Many) else Value(output)  # type: ignore[arg-type]


def total(column: str) -> Aggregate:
    return Aggregate(AggregateFunction.SUM, ColumnRef(column))


def director(films: Films, **named: Any) -> Rows:
    return Rows(films.table("director"), join=Join((("id", "director_id"),)), unique=True, **named)


def films_of(films: Films, **named: Any) -> Rows:
    named = {"order": BY_ID, **named}
    return Rows(films.table("film"), join=Join((("director_id", "id"),)), **named)


def actors(films: Films, **named: Any) -> Rows:
    through = Through(films.table("part"), near=Join((("film_id", "id"),)), far=Join((("actor_id", "id"),)))
    return Rows(films.table("actor"), through=through, **{"order": BY_ID, **named})


def shown(films: Films, table: str, output: Record, **named: Any) -> Any:
    rows = Rows(films.table(table), **{"order": BY_ID, **named})
    [row] = films.run(compile_result(rows, output, Form.ARRAY))
    found = json.loads(row[0])
    assert row[1] == len(found)
    return found


def test_one_related_row_is_spread(films: Films) -> None:
    spread = Spread(director(films), record(("name", NAME), (">birth", ColumnRef("born"))))
    assert shown(films, "film", record(("id", ID), spread, ("year", YEAR))) == [
        {"id": 1, "name": "Agnès", "birth": 1928, "year": 1960},
        {"id": 2, "name": "Agnès", "birth": 1928, "year": 1960},
        {"id": 3, "name": "Buster", "birth": 1895, "year": 1970},
        {"id": 4, "name": None, "birth": None, "year": None},
    ]


def test_many_related_rows_are_spread_as_arrays(films: Films) -> None:
    rows = films_of(films, order=(OrderTerm(YEAR, descending=True), OrderTerm(TITLE)), limit=2)
    spread = Spread(rows, record(("titles", TITLE), ("years", YEAR)), many=True)
    assert shown(films, "director", record(("name", NAME), spread)) == [
        {"name": "Agnès", "titles": ["Alpha", "Beta"], "years": [1960, 1960]},
        {"name": "Buster", "titles": ["Gamma"], "years": [1970]},
        {"name": "Carol", "titles": [], "years": []},
    ]


def test_spreads_within_spreads(films: Films) -> None:
    inner = Spread(actors(films), record(("actors", NAME)), many=True)
    outer = Spread(films_of(films), record(("titles", TITLE), inner), many=True)
    assert shown(films, "director", record(("name", NAME), outer)) == [
        {"name": "Agnès", "titles": ["Alpha", "Beta"], "actors": [["Ann", "Bob"], ["Ann"]]},
        {"name": "Buster", "titles": ["Gamma"], "actors": [["Bob"]]},
        {"name": "Carol", "titles": [], "actors": []},
    ]
    back = Spread(director(films), record(("by", NAME)))
    of_one = Spread(films_of(films), record(("titles", TITLE), back), many=True)
    assert shown(films, "director", record(of_one), limit=1) == [
        {"titles": ["Alpha", "Beta"], "by": ["Agnès", "Agnès"]}
    ]
    many_of_one = Spread(director(films), record(Spread(films_of(films), record(("all", ID)), many=True)))
    assert shown(films, "film", record(("id", ID), many_of_one)) == [
        {"id": 1, "all": [1, 2]},
        {"id": 2, "all": [1, 2]},
        {"id": 3, "all": [3]},
        {"id": 4, "all": None},
    ]


def test_spreads_within_embeds(films: Films) -> None:
    spread = Spread(actors(films), record(("actors", NAME)), many=True)
    embedded = Many(films_of(films, limit=1), record(("title", TITLE), spread))
    assert shown(films, "director", record(("films", embedded))) == [
        {"films": [{"title": "Alpha", "actors": ["Ann", "Bob"]}]},
        {"films": [{"title": "Gamma", "actors": ["Bob"]}]},
        {"films": []},
    ]
    of_director = Spread(films_of(films), record(("ids", ID)), many=True)
    one = One(director(films), record(("name", NAME), of_director))
    assert shown(films, "film", record(("director", one)), order=(OrderTerm(ID, descending=True),)) == [
        {"director": None},
        {"director": {"name": "Buster", "ids": [3]}},
        {"director": {"name": "Agnès", "ids": [1, 2]}},
        {"director": {"name": "Agnès", "ids": [1, 2]}},
    ]


def test_rows_through_a_table_in_between(films: Films) -> None:
    embedded = Many(actors(films, order=(OrderTerm(NAME, descending=True),), limit=1), record(("name", NAME)))
    found = shown(films, "film", record(("id", ID), (">who", embedded)))
    assert [row["who"] for row in found] == [[{"name": "Bob"}], [{"name": "Ann"}], [{"name": "Bob"}], []]


def test_relationship_declared_as_to_one_may_have_several_rows(films: Films) -> None:
    loose = Rows(films.table("part"), join=Join((("film_id", "id"),)), unique=True)
    rows = shown(films, "film", record(("id", ID), Spread(loose, record(("actor", ColumnRef("actor_id"))))))
    assert [row["id"] for row in rows] == [1, 2, 3, 4]


def test_one_related_row_is_joined(films: Films) -> None:
    for one, expected in (
        (record(("name", NAME)), {"name": "Buster"}),
        (record((">as", NAME)), {"as": "Buster"}),
        (Record(()), {}),
    ):
        output = record(("id", ID), ("director", One(director(films), one)))
        rows = shown(films, "film", output, order=(OrderTerm(YEAR, True, True), OrderTerm(ID)), limit=2)
        assert rows == [{"id": 4, "director": None}, {"id": 3, "director": expected}]
        text = compile_result(Rows(films.table("film")), output, Form.ARRAY).statement.text
        assert 'left join "public"."director"' in text


def test_spread_relationships_preserve_the_order_of_rows(films: Films) -> None:
    by_name = OrderTerm(RelatedValue(director(films), NAME), descending=True, nulls_first=False)
    rows = shown(films, "film", record(("id", ID), Spread(director(films), record(("name", NAME)))),
                 order=(by_name, OrderTerm(ID)))  # fmt: skip
    assert [row["id"] for row in rows] == [3, 1, 2, 4]


def test_empty_records_and_long_names(films: Films) -> None:
    assert shown(films, "director", Record(())) == [{}, {}, {}]
    assert shown(films, "director", record(Spread(films_of(films), Record(()), many=True))) == [{}, {}, {}]
    long = "é" * 40
    assert shown(films, "director", record((long, ID), ("", NAME)), limit=1) == [{long: 1, "": "Agnès"}]


# ---------------------------------------------------------------- groups


def test_rows_are_grouped_by_the_other_columns(films: Films) -> None:
    output = record(("year", YEAR), ("count", COUNT), (">sum", Cast(total("budget"), "int")), grouped=True)
    by_year = (OrderTerm(YEAR, descending=True, nulls_first=True),)
    assert shown(films, "film", output, order=by_year) == [
        {"year": None, "count": 1, "sum": None},
        {"year": 1970, "count": 1, "sum": 30},
        {"year": 1960, "count": 2, "sum": 31},
    ]
    assert shown(films, "film", output, order=by_year, limit=1, offset=parameter("2", "bigint")) == [
        {"year": 1960, "count": 2, "sum": 31}
    ]


def test_groups_are_ordered_by_related_rows(films: Films) -> None:
    by_name = OrderTerm(RelatedValue(director(films), NAME), descending=True)
    by_id = OrderTerm(RelatedValue(director(films), ID))
    spread = Spread(director(films), record(("name", NAME)))
    rows = shown(films, "film", record(spread, ("n", COUNT), grouped=True), order=(by_name,), limit=2)
    assert rows == [{"name": "Buster", "n": 1}, {"name": "Agnès", "n": 2}]
    one = One(director(films), record(("name", NAME)))
    rows = shown(films, "film", record(("by", one), ("n", COUNT), grouped=True), order=(by_id,))
    assert [(row["by"] and row["by"]["name"], row["n"]) for row in rows] == [
        ("Agnès", 2),
        ("Buster", 1),
        (None, 1),
    ]
    with pytest.raises(psycopg2.Error, match="must appear in the GROUP BY"):
        shown(films, "film", record(("year", YEAR), ("n", COUNT), grouped=True), order=BY_ID)


def test_without_other_values_there_is_one_group(films: Films) -> None:
    no_rows = Compare(ID, Operator.LT, parameter("0"))
    output = record(("count", COUNT), ("sum", total("budget")), grouped=True)
    assert shown(films, "film", output, order=()) == [{"count": 4, "sum": 60.5}]
    assert shown(films, "film", output, order=(), where=no_rows) == [{"count": 0, "sum": None}]


@pytest.mark.parametrize(
    ("expression", "sizes"),
    [
        (ColumnRef("raw"), [1, 1, 2]),
        (ColumnRef("spot"), [2, 2]),
        (ColumnRef("extra"), [1, 1, 1, 1]),
        (ColumnRef("tags"), [1, 1, 1, 1]),
        (JsonPath(ColumnRef("raw"), True, (parameter("k", "text"),), False), [2, 2]),
        (JsonPath(ColumnRef("extra"), True, (parameter("n", "text"),), True), [1, 1, 2]),
        (Cast(ColumnRef("extra"), "json"), [1, 1, 1, 1]),
    ],
)
def test_values_without_equality_can_be_grouped(
    films: Films, expression: Expression, sizes: list[int]
) -> None:
    rows = shown(films, "film", record(("key", expression), ("count", COUNT), grouped=True), order=())
    assert sorted(row["count"] for row in rows) == sizes


def test_computed_fields_are_grouped_by(films: Films) -> None:
    output = record(("label", ComputedValue(films.function("label"))), ("count", COUNT), grouped=True)
    rows = shown(films, "film", output, order=())
    assert {"label": "Alpha!", "count": 1} in rows


def test_embeds_are_grouped_by_value(films: Films) -> None:
    one = One(director(films), record(("name", NAME)))
    rows = shown(films, "film", record(("director", one), ("count", COUNT), grouped=True), order=())
    counted = {row["director"]["name"]: row["count"] for row in rows if row["director"]}
    assert (counted, len(rows)) == ({"Buster": 1, "Agnès": 2}, 3)
    many = Many(films_of(films), record(("year", YEAR)))
    spread = Spread(films_of(films), record(("years", YEAR)), many=True)
    grouped = shown(films, "director", record((">films", many), spread, ("n", COUNT), grouped=True), order=())
    assert len(grouped) == 3
    assert {"films": [{"year": 1970}], "years": [1970], "n": 1} in grouped


def test_aggregates_within_spreads_are_of_the_enclosing_rows(films: Films) -> None:
    output = record(("year", YEAR), Spread(director(films), record(("n", COUNT))), grouped=True)
    by_year = (OrderTerm(YEAR),)
    assert shown(films, "film", output, order=by_year) == [
        {"year": 1960, "n": 2},
        {"year": 1970, "n": 1},
        {"year": None, "n": 0},
    ]
    through = Rows(films.table("film"), join=Join((("id", "film_id"),)), unique=True)
    parts = record(
        ("played", Aggregate(AggregateFunction.COUNT, ColumnRef("played"))),
        Spread(
            through,
            record(
                ("sum", Cast(total("budget"), "int")),
                Spread(director(films), record(("name", NAME), ("born", Cast(total("born"), "text")))),
            ),
        ),
        grouped=True,
    )
    found = shown(films, "part", parts, order=())
    assert sorted(found, key=lambda row: row["name"]) == [
        {"played": 2, "sum": 41, "name": "Agnès", "born": "5784"},
        {"played": 1, "sum": 30, "name": "Buster", "born": "1895"},
    ]


def test_groups_within_embeds(films: Films) -> None:
    output = record(("year", YEAR), ("count", COUNT), grouped=True)
    embedded = Many(films_of(films, order=(OrderTerm(YEAR),), limit=5), output)
    everything = Many(films_of(films, order=()), record(("count", COUNT), grouped=True))
    assert shown(films, "director", record(("films", embedded), ("all", everything))) == [
        {"films": [{"year": 1960, "count": 2}], "all": [{"count": 2}]},
        {"films": [{"year": 1970, "count": 1}], "all": [{"count": 1}]},
        {"films": [], "all": [{"count": 0}]},
    ]
    one = One(director(films), record(("count", COUNT), grouped=True))
    found = shown(films, "film", record(("id", ID), ("director", one)))
    assert [row["director"]["count"] for row in found] == [1, 1, 1, 0]


def test_total_of_groups_counts_their_rows(films: Films) -> None:
    """PostgREST counts the rows before grouping."""
    output = record(("year", YEAR), ("count", COUNT), grouped=True)
    [row] = films.run(compile_result(Rows(films.table("film")), output, Form.ARRAY, Total.EXACT))
    assert row[1:3] == (3, 4)
