"""Expressions and conditions of the query algebra."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from dataapi.rest.media_output import Form
from dataapi.rest.statements import compile_result
from dataapi.sql.algebra import (
    Cast,
    ColumnRef,
    Compare,
    Condition,
    Converted,
    Distinct,
    Expression,
    FunctionExpression,
    Is,
    JsonPath,
    Not,
    Operator,
    OrderTerm,
    Parameter,
    Quantifier,
    Rows,
    SearchSyntax,
    TextSearch,
    Truth,
)
from dataapi.sql.outputs import Text, Value
from dataapi.sql.row_output import Record
from support.slots import parameter
from support.statements import Films, make_films

if TYPE_CHECKING:
    from support.postgres import Server


@pytest.fixture(scope="module")
def films(server: Server) -> Films:
    """Return the films database. Changes are rolled back."""
    return make_films(server)


def slot(value: str, type_: str = "unknown") -> Parameter:
    return parameter(value, type_)


def path(column: str, *steps: str, as_text: bool = True, known: bool = True) -> JsonPath:
    kinds = ["integer" if step.lstrip("-").isdigit() else "text" for step in steps]
    parameters = tuple(slot(step, kind) for step, kind in zip(steps, kinds, strict=True))
    return JsonPath(ColumnRef(column), known, parameters, as_text)


TITLE, YEAR, TAGS = ColumnRef("title"), ColumnRef("year"), ColumnRef("tags")
NAMED_LIKE_ALPHA = parameter("{Al%,Be%}", "text[]")


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize(
    ("condition", "found"),
    [
        (Compare(YEAR, Operator.EQ, slot("1960")), [1, 2]),
        (Compare(YEAR, Operator.IN, slot("{1970,1980}")), [3]),
        (Compare(YEAR, Operator.EQ, slot("{1970,1980}", "int[]"), quantifier=Quantifier.ANY), [3]),
        (Compare(YEAR, Operator.GTE, slot("{1960,1970}"), quantifier=Quantifier.ALL), [3]),
        (Compare(TITLE, Operator.LIKE, NAMED_LIKE_ALPHA, quantifier=Quantifier.ANY), [1, 2]),
        (Compare(TITLE, Operator.ILIKE, slot("%A", "text")), [1, 2, 3]),
        (Compare(TITLE, Operator.IREGEX, slot("^(al|ga)", "text")), [1, 3]),
        (Not(Compare(YEAR, Operator.IN, slot("{1960}"))), [3]),
        (Compare(YEAR, Operator.EQ, Converted("public.halved", slot("3920", "text"))), [1, 2]),
        (
            Compare(YEAR, Operator.IN, Converted("public.halved", slot("{3920,3940}", "text[]"))),
            [1, 2, 3],
        ),
        (
            Compare(
                YEAR,
                Operator.LT,
                Converted("public.halved", slot("{3940,3942}", "text[]")),
                quantifier=Quantifier.ALL,
            ),
            [1, 2],
        ),
        (Distinct(YEAR, slot("1960")), [3, 4]),
        (Is(ColumnRef("seen"), Truth.TRUE), [1, 4]),
        (Is(ColumnRef("seen"), Truth.FALSE), [2]),
        (Is(ColumnRef("seen"), Truth.UNKNOWN), [3]),
        (Compare(TAGS, Operator.CONTAINS, slot("{x}")), [1]),
        (Compare(TAGS, Operator.OVERLAPS, slot("{y,a b}")), [1, 4]),
        (Compare(ColumnRef("color"), Operator.STRICTLY_LEFT, slot("[5,6)")), [1]),
        (Compare(ColumnRef("color"), Operator.ADJACENT, slot("[5,6)")), [1]),
        (Compare(path("extra", "a", "b", "1"), Operator.EQ, slot("two", "text")), [1]),
        (Compare(path("extra", "n", as_text=False), Operator.EQ, slot("2", "jsonb")), [2]),
        (Compare(path("extra", "0"), Operator.EQ, slot("1", "text")), [4]),
        (Compare(path("raw", "k"), Operator.EQ, slot("1", "text")), [1, 4]),
        (Compare(path("tags", "-1", known=False), Operator.EQ, slot("y", "text")), [1]),
        (Compare(Cast(path("extra", "n"), "int"), Operator.GT, slot("1")), [2]),
        (TextSearch(ColumnRef("words"), slot("cat", "text"), slot("english", "regconfig"), vector=True), [3]),
        (TextSearch(TITLE, slot("quoted & one", "text"), None, SearchSyntax.TSQUERY), [4]),
        (TextSearch(TITLE, slot("one quoted", "text"), None, SearchSyntax.PLAIN), [4]),
        (TextSearch(TITLE, slot("one quoted", "text"), None, SearchSyntax.PHRASE), []),
        (TextSearch(TITLE, slot("-alpha beta or gamma", "text"), None, SearchSyntax.WEB), [2, 3]),
        (TextSearch(ColumnRef("extra"), slot("two", "text")), [1]),
    ],
)
def test_conditions_find_the_rows(
    films: Films, condition: Condition, found: list[int], prepared: bool
) -> None:
    rows = Rows(films.table("film"), where=condition, order=(OrderTerm(ColumnRef("id")),))
    statement = compile_result(rows, Value(ColumnRef("id")), Form.VALUES)
    [row] = films.run(statement, prepared=prepared)
    assert json.loads(row[0]) == found


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        (path("extra", "a"), '{"b": [1, "two"]}'),
        (path("extra", "a", "b", as_text=False), [1, "two"]),
        (path("extra", "a", "b", "-1"), "two"),
        (path("extra", "none", "deeper"), None),
        (path("spot", "x", known=False), None),
        (FunctionExpression("pg_catalog.upper", TITLE), "ALPHA"),
        (Cast(ColumnRef("budget"), "int"), 11),
    ],
)
def test_expressions_have_the_expected_values(films: Films, expression: Expression, shown: object) -> None:
    where = Compare(ColumnRef("id"), Operator.EQ, slot("1"))
    output = Record(((Text("value"), Value(expression)),))
    [row] = films.run(compile_result(Rows(films.table("film"), where=where), output, Form.ARRAY))
    assert json.loads(row[0]) == [{"value": shown}]


def test_operators_are_qualified_with_pg_catalog(films: Films) -> None:
    for operator, quantifier in ((Operator.EQ, None), (Operator.IN, None), (Operator.LIKE, Quantifier.ALL)):
        condition = Compare(TITLE, operator, slot("x", "text"), quantifier=quantifier)
        rows = Rows(films.table("film"), where=condition)
        text = compile_result(rows, Value(TITLE), Form.VALUES).statement.text
        assert "operator(pg_catalog." in text
