"""Filters and orders on ``json`` columns, although the type has no operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.service import Service

PROJECT = {"db_aggregates_enabled": True}
SCHEMA = """
create domain document as json;
create table letter (id int primary key, doc json, kept document, tree jsonb);
create table stamp (id int primary key, letter int references letter);
create function doc_of(letter) returns json immutable language sql as 'select $1.doc';
insert into letter select n, doc, doc, doc from (values
    (1, json '{"a": 1, "b": [1, 2], "t": "x"}'), (2, '{"a": 10, "b": [2]}'), (3, '{"a": 9, "b": null}'),
    (4, null)) as given(n, doc);
insert into stamp select n, n from generate_series(1, 4) n;
grant select on letter, stamp to anon;
"""

FILTERS = [
    ("{}->a=eq.10", [2]),
    ("{}->a=gt.9", [2]),
    ("{}->a=in.(1,9)", [1, 3]),
    ("{}->a=neq.1", [2, 3]),
    ("{}->a=isdistinct.1", [2, 3, 4]),
    ("{}->a=eq(any).{{1,9}}", [1, 3]),
    ('{}->b=cs.[1]', [1]),
    ('{}->b->0=eq.2', [2]),
    ('{}->t=eq."x"', [1]),
    ('{}=eq.{{"b": [2], "a": 10}}', [2]),
    ('{}=cs.{{"a": 9}}', [3]),
    ("or=({0}->a.eq.1,{0}->b.eq.[2])", [1, 2]),
    ("{}->b=is.null", [4]),
    ("{}->>a=eq.10", [2]),
    ("order={}->a.desc.nullslast", [2, 3, 1, 4]),
    ("order={}->b.desc,id", [4, 1, 2, 3]),
    ("order={}.desc.nullslast,id", [1, 2, 3, 4]),
    ("order={}->>a.nullslast", [1, 2, 3, 4]),
]  # fmt: skip


@pytest.mark.parametrize("column", ["doc", "kept", "doc_of", "tree"])
@pytest.mark.parametrize(("parameter", "expected"), FILTERS)
async def test_json_is_compared_as_jsonb(
    service: Service, column: str, parameter: str, expected: list[int]
) -> None:
    response = await service.rest("GET", "letter?select=id&" + parameter.format(column))
    assert response.status == 200, response.text
    returned = [row["id"] for row in response.body]
    assert (returned if "order" in parameter else sorted(returned)) == expected


@pytest.mark.parametrize("parameters", [
    "select=id,letter(doc)&order=letter(doc->a).desc.nullslast",
    "select=id,letter(d:doc)&order=letter(d->a).desc.nullslast",
    "select=id,letter(a:doc->a)&order=letter(a).desc.nullslast",
])  # fmt: skip
async def test_related_rows_can_be_ordered_by_json(service: Service, parameters: str) -> None:
    response = await service.rest("GET", f"stamp?{parameters}")
    assert response.status == 200, response.text
    assert [row["id"] for row in response.body] == [2, 3, 1, 4]


async def test_groups_can_be_ordered_by_json(service: Service) -> None:
    response = await service.rest("GET", "letter?select=a:doc->a,count()&order=doc->a.nullslast")
    assert response.status == 200, response.text
    assert [row["a"] for row in response.body] == [1, 9, 10, None]


async def test_json_is_returned_unchanged(service: Service) -> None:
    response = await service.rest("GET", "letter?select=doc,b:doc->b&id=eq.1&doc->a=eq.1")
    assert response.text == '[{"doc":{"a": 1, "b": [1, 2], "t": "x"},"b":[1, 2]}]'
