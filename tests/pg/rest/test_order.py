"""REST orders: directions, nulls, JSON members, computed fields and related rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.service import Service


@pytest.mark.parametrize(
    ("parameters", "ids"),
    [
        ("select=id,director(called:name)&order=director(called).desc.nullslast,id", [5, 3, 1, 2, 4]),
        ("select=id,d:director(id:born)&order=d(id).desc.nullslast,id", [3, 1, 2, 4, 5]),
        ("select=id,director(text:born::text)&order=director(text).desc.nullslast,id", [3, 1, 2, 4, 5]),
        ("select=id,...director(name)&order=director(name).desc.nullslast,id.desc", [5, 3, 2, 1, 4]),
        ("select=id,director(name,...mentor(by:name))&order=director(by).nullslast,id", [3, 5, 1, 2, 4]),
    ],
)
async def test_related_orders_can_use_aliases(features: Service, parameters: str, ids: list[int]) -> None:
    response = await features.rest("GET", f"film?{parameters}")
    assert response.status == 200, response.text
    assert [row["id"] for row in response.body] == ids


async def test_related_orders_can_use_json_members(features: Service) -> None:
    for shown, order in (("data->>lang", "lang"), ("l:data->>lang", "l"), ("d:data", "d->>lang")):
        response = await features.rest(
            "GET", f"sale?select=id,film({shown})&order=film({order}).nullslast,id"
        )
        assert [row["id"] for row in response.body] == [1, 2, 4, 3, 5], shown


@pytest.mark.parametrize(
    ("order", "sql"),
    [
        ("title", "title"),
        ("title.asc", "title"),
        ("title.desc", "title desc"),
        ("year.asc,id.desc", "year, id desc"),
        ("year.desc,id", "year desc, id"),
        ("year.nullsfirst,id", "year nulls first, id"),
        ("year.nullslast,id.desc", "year nulls last, id desc"),
        ("year.desc.nullslast,id", "year desc nulls last, id"),
        ("year.asc.nullsfirst,id", "year nulls first, id"),
        ("data->cast->size,id", "data->'cast'->'size', id"),
        ("data->>lang.desc.nullslast,id", "data->>'lang' desc nulls last, id"),
        ("data->years->0.desc,id", "data->'years'->0 desc, id"),
        ("frame->>width,id.desc", "(frame).width::text, id desc"),
        ("headline.desc", "headline(film) desc"),
        ('"title".desc', "title desc"),
        ("mood,id", "mood, id"),
        ("director(name),id", "(select name from director d where d.id = film.director), id"),
        ("director(born).desc.nullslast,id",
         "(select born from director d where d.id = film.director) desc nulls last, id"),
        ("director(name).desc,title", "(select name from director d where d.id = film.director) desc, title"),
        ("lead(name).nullsfirst,id", "(select name from lead(film)) nulls first, id"),
    ],
)  # fmt: skip
async def test_rows_have_the_same_order_as_in_sql(features: Service, order: str, sql: str) -> None:
    expected = [row[0] for row in features.database.execute(f"select id from film order by {sql}")]
    response = await features.rest("GET", f"film?select=id,director(),lead()&order={order}")
    assert response.status == 200, response.text
    assert [row["id"] for row in response.body] == expected


async def test_related_order_works_with_a_filtered_and_renamed_resource(features: Service) -> None:
    response = await features.rest(
        "GET", "film?select=id,by:director(name)&order=by(name),id&by.name=neq.Ada"
    )
    assert [row["id"] for row in response.body] == [3, 5, 1, 2, 4]


async def test_embedded_rows_can_be_ordered_by_related_rows(features: Service) -> None:
    target = "director?select=film(id,premiere(city!city(name)))&id=eq.1&film.order=id"
    response = await features.rest("GET", f"{target}&film.premiere.order=city(name).desc")
    [first, _] = response.body[0]["film"]
    assert [premiere["city"]["name"] for premiere in first["premiere"]] == ["Rome", "Oslo"]


REFUSALS: list[tuple[str, dict[str, Any]]] = [
    ("film?select=id,actor(name)&order=actor(name)", {
        "code": "PGRST118", "message": "A related order on 'actor' is not possible",
        "details": "'film' and 'actor' do not form a many-to-one or one-to-one relationship", "hint": None,
    }),
    ("film?select=id&order=director(name)", {
        "code": "PGRST108", "message": "'director' is not an embedded resource in this request",
        "details": None, "hint": "Verify that 'director' is included in the 'select' query parameter.",
    }),
    ("film?select=id&director.order=name", {
        "code": "PGRST108", "message": "'director' is not an embedded resource in this request",
        "details": None, "hint": "Verify that 'director' is included in the 'select' query parameter.",
    }),
    ("film?order=nope", {
        "code": "42703", "message": "column film.nope does not exist", "details": None, "hint": None,
    }),
    ("film?order=id.ac", {
        "code": "PGRST100", "message": '"failed to parse order (id.ac)" (line 1, column 4)',
        "details": 'unexpected "c" expecting "asc", "desc", "nullsfirst" or "nullslast"', "hint": None,
    }),
]  # fmt: skip


@pytest.mark.parametrize(("target", "body"), REFUSALS)
async def test_invalid_orders_are_rejected(features: Service, target: str, body: dict[str, Any]) -> None:
    response = await features.rest("GET", target)
    assert (response.status, response.body) == (400, body)
