"""Deleting by REST: which rows go, and what is told of them."""

from __future__ import annotations

import pytest
from support import writing
from support.service import Service

SCHEMA, RESET = writing.SCHEMA, writing.RESET

SHOWN = {"prefer": "return=representation"}


async def test_matching_rows_are_deleted_and_the_answer_is_empty(api: Service) -> None:
    """It is 204 without a body; a body that was sent is not looked at."""
    answer = await api.rest("DELETE", "book?id=gte.2", "no json")
    assert (answer.status, answer.text) == (204, "")
    assert answer.headers["content-range"] == "*/*"
    assert "content-type" not in answer.headers
    assert api.database.execute("select id from book") == [(1,)]
    answer = await api.rest("DELETE", "book?id=eq.99", headers={"prefer": "return=minimal, count=exact"})
    assert (answer.status, answer.headers["content-range"]) == (204, "*/0")
    assert answer.headers["preference-applied"] == "return=minimal, count=exact"


async def test_what_was_deleted_is_shown_when_asked_for(api: Service) -> None:
    target = "book?author=eq.1&select=title,author(name)&order=id.desc"
    headers = {"prefer": "return=representation, count=exact"}
    answer = await api.rest("DELETE", target, headers=headers)
    assert (answer.status, answer.headers["content-range"]) == (200, "*/2")
    assert answer.body == [
        {"title": "two", "author": {"name": "Ada"}},
        {"title": "one", "author": {"name": "Ada"}},
    ]
    answer = await api.rest("DELETE", target, headers=headers)
    assert (answer.status, answer.body, answer.headers["content-range"]) == (200, [], "*/0")


async def test_all_rows_go_without_a_filter(api: Service) -> None:
    """Limits are not filters of changes, as since PostgREST 13."""
    answer = await api.rest("DELETE", "book?limit=1&select=id&order=id", headers=SHOWN)
    assert answer.body == [{"id": 1}, {"id": 2}, {"id": 3}]
    answer = await api.rest("DELETE", "key_only", headers={**SHOWN, "accept": "text/csv"})
    assert answer.text == "id\n1"


async def test_a_single_object_is_given_or_nothing_is_deleted(api: Service) -> None:
    """Any other number of rows is 406, whatever is to be shown."""
    accept = {"accept": "application/vnd.pgrst.object+json"}
    answer = await api.rest("DELETE", "book?id=eq.3&select=id", headers={**SHOWN, **accept})
    assert (answer.status, answer.body) == (200, {"id": 3})
    answer = await api.rest("DELETE", "book", headers=accept)
    assert (answer.status, answer.body["details"]) == (406, "The result contains 2 rows")
    assert api.database.execute("select count(*) from book") == [(2,)]


async def test_no_more_rows_are_deleted_than_a_strict_client_allows(api: Service) -> None:
    headers = {"prefer": "handling=strict, max-affected=2, return=representation"}
    answer = await api.rest("DELETE", "book", headers=headers)
    assert (answer.status, answer.body["code"]) == (400, "PGRST124")
    assert answer.body["details"] == "The query affects 3 rows"
    answer = await api.rest("DELETE", "book?author=eq.1&select=id", headers=headers)
    assert (answer.status, answer.body) == (200, [{"id": 1}, {"id": 2}])
    applied = "return=representation, handling=strict, max-affected=2"
    assert answer.headers["preference-applied"] == applied


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
async def test_what_is_refused(api: Service, target: str, status: int, code: str) -> None:
    answer = await api.rest("DELETE", target)
    assert (answer.status, answer.body["code"]) == (status, code)


async def test_policies_views_and_partitions(api: Service) -> None:
    answer = await api.rest("DELETE", "owned?select=id", headers=SHOWN, role="authenticated")
    assert answer.body == [{"id": 1}]
    assert (await api.rest("DELETE", "cheap?id=eq.1&select=id", headers=SHOWN)).body == [{"id": 1}]
    assert (await api.rest("DELETE", "shout?id=eq.2&select=title", headers=SHOWN)).body == [{"title": "TWO"}]
    assert (await api.rest("DELETE", "event?id=eq.1&select=id", headers=SHOWN)).body == [{"id": 1}]
    assert api.database.execute("select id from book union all select id from event order by 1") == [
        (2,),
        (3,),
    ]


@pytest.mark.parametrize("method", ["TRACE", "PURGE"])
async def test_an_unknown_method_is_refused(api: Service, method: str) -> None:
    """It is 405 with PGRST117."""
    answer = await api.rest(method, "book")
    assert (answer.status, answer.body["code"]) == (405, "PGRST117")
    assert answer.body["message"] == f"Unsupported HTTP method: {method}"
