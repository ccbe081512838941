"""REST logic trees: ``and``, ``or`` and their negations, on tables and on embedded resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.films import ids, ids_where

if TYPE_CHECKING:
    from support.service import Service


@pytest.mark.parametrize(
    ("query", "condition"),
    [
        ("or=(id.eq.1,id.eq.3)", "id = 1 or id = 3"),
        ("and=(id.gt.1,id.lt.4)", "id > 1 and id < 4"),
        ("not.or=(year.eq.1990,year.eq.2001)", "not (year = 1990 or year = 2001)"),
        ("not.and=(year.eq.1995,director.eq.1)", "not (year = 1995 and director = 1)"),
        ("or=(year.lt.1991,not.and(year.eq.1995,director.eq.2))",
         "year < 1991 or not (year = 1995 and director = 2)"),
        ("or=(and(id.eq.1,year.eq.1990),and(id.eq.4,or(mood.eq.calm,mood.eq.wild)))",
         "(id = 1 and year = 1990) or (id = 4 and mood in ('calm', 'wild'))"),
        ("or=(id.eq.1)&or=(year.eq.1990,id.eq.2)", "id = 1 and (year = 1990 or id = 2)"),
        ("or=(id.eq.1,id.eq.2)&year=gt.1990", "id in (1, 2) and year > 1990"),
        ("or=(id.not.eq.1,year.is.null)", "id <> 1 or year is null"),
        ("or=(id.not.in.(1,2,3),title.eq.Alpha)", "id not in (1, 2, 3) or title = 'Alpha'"),
        ("or=(year.is.null,seen.is.true)", "year is null or seen is true"),
        ('or=(title.eq."Gamma, the \\"last\\"",title.like.A*)', "title like 'Gamma%' or title like 'A%'"),
        ("or=(tags.cs.{old,short},tags.eq.{})", "tags @> '{old,short}' or tags = '{}'"),
        ("or=(id.eq(any).{1,2},year.gte(all).{2000,2001})", "id in (1, 2) or year >= 2001"),
        ("or=(data->>lang.eq.fr,data->cast->size.eq.3)",
         "data->>'lang' = 'fr' or data->'cast'->>'size' = '3'"),
        ("or=(script.fts(english).cat,plot.plfts.journey)",
         "script @@ to_tsquery('english', 'cat') or to_tsvector(plot) @@ plainto_tsquery('journey')"),
        ("or=(headline.eq.ALPHA,id.eq.3)", "id in (1, 3)"),
        ("and=(or(id.eq.1,id.eq.2),or(id.eq.2,id.eq.3))", "id = 2"),
    ],
)  # fmt: skip
async def test_logic_trees_select_the_same_rows_as_sql(features: Service, query: str, condition: str) -> None:
    assert await ids(features, query) == ids_where(features, condition)


LEAVES = st.sampled_from(
    [
        ("id.eq.1", "id = 1"), ("id.gt.2", "id > 2"), ("year.is.null", "year is null"),
        ("seen.is.true", "seen is true"),
        ("year.not.eq.1995", "not year = 1995"), ("id.in.(1,4,5)", "id in (1, 4, 5)"),
        ('title.in.("Gamma, the \\"last\\"",Beta)', "title in ('Gamma, the \"last\"', 'Beta')"),
        ("tags.ov.{old,long}", "tags && '{old,long}'"), ("data->>lang.eq.en", "data->>'lang' = 'en'"),
    ]
)  # fmt: skip


def _branch(negated: bool, word: str, parts: list[tuple[str, str]]) -> tuple[str, str]:
    text = f"{'not.' * negated}{word}({','.join(part for part, _ in parts)})"
    condition = "(" + f" {word} ".join(part for _, part in parts) + ")"
    return text, f"not {condition}" if negated else condition


TREES = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        _branch, st.booleans(), st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


@given(tree=TREES)
async def test_generated_trees_select_the_same_rows_as_sql(features: Service, tree: tuple[str, str]) -> None:
    text, condition = tree
    assert await ids(features, f"and=({text})") == ids_where(features, condition)


async def test_logic_filters_embedded_resources(features: Service) -> None:
    """The tree filters the related rows. With ``!inner``, it also filters the parent's rows."""
    target = "director?select=id,film{}(id)&order=id&film.order=id&film.{}"
    response = await features.rest("GET", target.format("", "or=(id.eq.1,year.eq.1995)"))
    assert [[film["id"] for film in row["film"]] for row in response.body] == [[1, 2], [3], [], []]
    response = await features.rest("GET", target.format("!inner", "not.or=(id.eq.1,year.eq.1995)"))
    assert response.body == []
    response = await features.rest(
        "GET", target.format("!inner", "and=(id.gt.1,not.or(year.eq.1990,id.gt.4))")
    )
    assert [(row["id"], [film["id"] for film in row["film"]]) for row in response.body] == [
        (1, [2]),
        (2, [3]),
    ]


async def test_null_filters_on_resources_can_be_used_in_trees(features: Service) -> None:
    target = "film?select=id,poster(),part()&order=id&or=(poster.not.is.null,{})"
    response = await features.rest("GET", target.format("part.not.is.null"))
    assert response.body == [{"id": 1}, {"id": 2}, {"id": 4}]
    response = await features.rest("GET", target.format("and(part.is.null,id.gt.3)"))
    assert response.body == [{"id": 1}, {"id": 4}, {"id": 5}]


@pytest.mark.parametrize(
    ("query", "column", "details"),
    [
        ("or=()", 4, 'unexpected ")" expecting field name (* or [a..z0..9_$]), negation operator (not)'
                     " or logic operator (and, or)"),
        ("or=)(", 3, 'unexpected ")" expecting "("'),
        ("or=(id.in.1,2,id.eq.3)", 10, 'unexpected "1" expecting "("'),
        ("and=(ord(id.eq.1,id.eq.1),id.eq.2)", 7, 'unexpected "d" expecting "("'),
        ("or=(id.eq.1,not.xor(id.eq.2,id.eq.3))", 16, 'unexpected "x" expecting logic operator (and, or)'),
        ("or=(id.eq.1,id.eq.2", 19, 'unexpected end of input expecting "," or ")"'),
        ("or=(id.foo.1)", 7, 'unexpected "f" expecting "not" or operator (eq, gt, ...)'),
    ],
)  # fmt: skip
async def test_invalid_trees_are_rejected_with_their_position(
    features: Service, query: str, column: int, details: str
) -> None:
    """Columns are counted from the first letter of the operator, as in PostgREST."""
    response = await features.rest("GET", f"film?{query}")
    body: dict[str, Any] = {"code": "PGRST100", "details": details, "hint": None}
    text = query.partition("=")[2]
    body["message"] = f'"failed to parse logic tree ({text})" (line 1, column {column})'
    assert (response.status, response.body) == (400, body)


async def test_unknown_columns_and_resources_in_trees_are_rejected(features: Service) -> None:
    response = await features.rest("GET", "film?or=(id.eq.1,nope.eq.2)")
    assert (response.status, response.body["code"]) == (400, "42703")
    response = await features.rest("GET", "film?director.or=(id.eq.1)")
    assert (response.status, response.body["code"]) == (400, "PGRST108")
    response = await features.rest("GET", "film?or=" + "(and" * 60 + "(id.eq.1)" + ")" * 60)
    assert (response.status, response.body["code"]) == (400, "PGRST100")
