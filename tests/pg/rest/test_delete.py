"""REST deletes: selected rows, limits, responses and errors."""

from __future__ import annotations

import pytest
from support import writing
from support.service import Service

SCHEMA, RESET = writing.SCHEMA, writing.RESET

SHOWN = {"prefer": "return=representation"}


async def test_matching_rows_are_deleted_without_a_response_body(api: Service) -> None:
    """The body of a request is ignored."""
    response = await api.rest("DELETE", "book?id=gte.2", "no json")
    assert (response.status, response.text) == (204, "")
    assert response.headers["content-range"] == "*/*"
    assert "content-type" not in response.headers
    assert api.database.execute("select id from book") == [(1,)]
    response = await api.rest("DELETE", "book?id=eq.99", headers={"prefer": "return=minimal, count=exact"})
    assert (response.status, response.headers["content-range"]) == (204, "*/0")
    assert response.headers["preference-applied"] == "return=minimal, count=exact"


async def test_deleted_rows_are_returned_on_request(api: Service) -> None:
    target = "book?author=eq.1&select=title,author(name)&order=id.desc"
    headers = {"prefer": "return=representation, count=exact"}
    response = await api.rest("DELETE", target, headers=headers)
    assert (response.status, response.headers["content-range"]) == (200, "*/2")
    assert response.body == [
        {"title": "two", "author": {"name": "Ada"}},
        {"title": "one", "author": {"name": "Ada"}},
    ]
    response = await api.rest("DELETE", target, headers=headers)
    assert (response.status, response.body, response.headers["content-range"]) == (200, [], "*/0")


async def test_delete_without_a_filter_deletes_all_rows(api: Service) -> None:
    """A limit does not restrict the deleted rows, as in PostgREST 13 and later."""
    response = await api.rest("DELETE", "book?limit=1&select=id&order=id", headers=SHOWN)
    assert response.body == [{"id": 1}, {"id": 2}, {"id": 3}]
    response = await api.rest("DELETE", "key_only", headers={**SHOWN, "accept": "text/csv"})
    assert response.text == "id\n1"


async def test_single_object_response_requires_exactly_one_row(api: Service) -> None:
    accept = {"accept": "application/vnd.pgrst.object+json"}
    response = await api.rest("DELETE", "book?id=eq.3&select=id", headers={**SHOWN, **accept})
    assert (response.status, response.body) == (200, {"id": 3})
    response = await api.rest("DELETE", "book", headers=accept)
    assert (response.status, response.body["details"]) == (406, "The result contains 2 rows")
    assert api.database.execute("select count(*) from book") == [(2,)]


async def test_max_affected_limits_deleted_rows(api: Service) -> None:
    headers = {"prefer": "handling=strict, max-affected=2, return=representation"}
    response = await api.rest("DELETE", "book", headers=headers)
    assert (response.status, response.body["code"]) == (400, "PGRST124")
    assert response.body["details"] == "The query affects 3 rows"
    response = await api.rest("DELETE", "book?author=eq.1&select=id", headers=headers)
    assert (response.status, response.body) == (200, [{"id": 1}, {"id": 2}])
    applied = "return=representation, handling=strict, max-affected=2"
    assert response.headers["preference-applied"] == applied


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("author?id=eq.1", 409, "23503"),
        ("total", 500, "55000"),
        ("secret?id=eq.1", 401, "42501"),
        ("write_only?id=eq.1", 401, "42501"),
        ("nowhere", 404, "PGRST205"),
        ("book?id=eq.x", 400, "22P02"),
    ],
)
async def test_invalid_deletes_are_rejected(api: Service, target: str, status: int, code: str) -> None:
    response = await api.rest("DELETE", target)
    assert (response.status, response.body["code"]) == (status, code)


async def test_delete_respects_policies_and_works_on_views_and_partitions(api: Service) -> None:
    response = await api.rest("DELETE", "owned?select=id", headers=SHOWN, role="authenticated")
    assert response.body == [{"id": 1}]
    assert (await api.rest("DELETE", "cheap?id=eq.1&select=id", headers=SHOWN)).body == [{"id": 1}]
    assert (await api.rest("DELETE", "shout?id=eq.2&select=title", headers=SHOWN)).body == [{"title": "TWO"}]
    assert (await api.rest("DELETE", "event?id=eq.1&select=id", headers=SHOWN)).body == [{"id": 1}]
    assert api.database.execute("select id from book union all select id from event order by 1") == [
        (2,),
        (3,),
    ]


@pytest.mark.parametrize("method", ["TRACE", "PURGE"])
async def test_unknown_method_is_rejected(api: Service, method: str) -> None:
    response = await api.rest(method, "book")
    assert (response.status, response.body["code"]) == (405, "PGRST117")
    assert response.body["message"] == f"Unsupported HTTP method: {method}"
