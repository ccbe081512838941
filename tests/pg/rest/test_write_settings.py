"""REST writes with unprepared statements, aggregates, plans and many rows."""

from __future__ import annotations

from typing import Any

from support import writing
from support.service import Service

SCHEMA, RESET = writing.SCHEMA, writing.RESET
PROJECT = {"db_prepared_statements": False, "db_aggregates_enabled": True, "db_plan_enabled": True}

SHOWN = {"prefer": "return=representation"}


async def test_writes_work_without_prepared_statements(api: Service) -> None:
    prefer = "resolution=merge-duplicates, return=representation, missing=default"
    rows = [{"id": 1, "name": "n'%s\\"}, {"name": "$1"}]
    response = await api.rest("POST", "counter?columns=id,name", rows, headers={"prefer": prefer})
    assert response.status == 201
    assert [row["name"] for row in response.body] == ["n'%s\\", "$1"]
    response = await api.rest("PUT", "author?id=eq.1", {"id": 1, "name": "x"}, headers=SHOWN)
    assert (response.status, response.body) == (200, [{"id": 1, "name": "x"}])
    headers = {"prefer": "resolution=match, handling=strict, max-affected=1, return=representation"}
    response = await api.rest("PATCH", "author", [{"id": 1, "name": "y"}], headers=headers)
    assert response.body == [{"id": 1, "name": "y"}]
    response = await api.rest("DELETE", "author?id=in.(1,2)", headers={"prefer": headers["prefer"]})
    assert response.body["code"] == "PGRST124"


async def test_changed_rows_can_be_aggregated(api: Service) -> None:
    response = await api.rest("PATCH", "book?select=author,count(),id.sum()", {"price": 1}, headers=SHOWN)
    assert response.status == 200
    key = lambda row: row["author"] or 0  # noqa: E731 - short
    assert sorted(response.body, key=key) == [
        {"author": None, "count": 1, "sum": 3},
        {"author": 1, "count": 2, "sum": 3},
    ]
    headers = {"prefer": "return=representation, handling=strict, max-affected=2"}
    response = await api.rest("PATCH", "book?select=count()", {"price": 2}, headers=headers)
    assert (response.status, response.body["details"]) == (400, "The query affects 3 rows")


async def test_plan_of_a_change_does_not_execute_it(api: Service) -> None:
    """The change is executed only with ``analyze``."""
    accept = {"accept": "application/vnd.pgrst.plan+json"}
    response = await api.rest("DELETE", "key_only?id=eq.1", headers=accept)
    assert response.status == 200
    assert "ModifyTable" in response.text
    assert api.database.execute("select count(*) from key_only") == [(1,)]


async def test_head_with_a_plan_in_a_batch_has_no_body(api: Service) -> None:
    accept = {"Accept": "application/vnd.pgrst.plan+json"}
    requests = [{"method": method, "path": "/author", "headers": accept} for method in ("GET", "HEAD")]
    headers = {"content-type": "application/vnd.dataapi.batch+json"}
    response = await api.rest("POST", "", {"requests": requests}, headers=headers)
    got, head = response.body
    assert (head["status"], head["headers"]) == (got["status"], got["headers"])
    assert (got["body"] is None, head["body"]) == (False, None)


async def test_max_affected_does_not_limit_inserts(api: Service) -> None:
    rows = [{"id": number, "name": "x"} for number in (101, 102)]
    headers = {"prefer": "handling=strict, max-affected=1, count=exact"}
    response = await api.rest("POST", "author", rows, headers=headers)
    assert (response.status, response.headers["content-range"]) == (201, "*/2")
    assert response.headers["preference-applied"] == "count=exact, handling=strict"


async def test_thousand_rows_are_one_statement_with_one_value(api: Service) -> None:
    rows = [{"id": number, "name": f"name {number}"} for number in range(100, 1100)]
    response = await api.rest("POST", "author", rows, headers={"prefer": "count=exact"})
    assert (response.status, response.headers["content-range"]) == (201, "*/1000")
    [bound] = response.messages[0].statements
    assert len(bound.values) == 1
    again = await api.rest("POST", "author", [{"id": 5, "name": "x"}], headers={"prefer": "count=exact"})
    assert again.messages[0].statements[0].statement is bound.statement


async def test_each_change_in_a_batch_is_counted_separately(api: Service) -> None:
    prefer = {"Prefer": "resolution=merge-duplicates"}
    requests: list[dict[str, Any]] = [
        {"method": "POST", "path": "/author", "headers": prefer, "body": [{"id": 1, "name": "x"}]},
        {"method": "POST", "path": "/author", "headers": prefer, "body": [{"id": 9, "name": "x"}]},
        {"method": "PUT", "path": "/author?id=eq.9", "headers": {"Prefer": "return=representation"},
         "body": {"id": 9, "name": "y"}},
        {"method": "PATCH", "path": "/zone?select=at", "body": {"id": 1},
         "headers": {"Prefer": "timezone=Asia/Tokyo, return=representation"}},
        {"method": "GET", "path": "/zone?select=at"},
    ]  # fmt: skip
    headers = {"content-type": "application/vnd.dataapi.batch+json"}
    response = await api.rest("POST", "", {"requests": requests}, headers=headers)
    assert [each["status"] for each in response.body] == [200, 201, 200, 200, 200]
    assert response.body[3]["body"] == [{"at": "2020-06-01T21:00:00+09:00"}]
    assert response.body[4]["body"] != response.body[3]["body"]
    requests[2]["body"] = {"id": 8, "name": "z"}
    response = await api.rest("POST", "", {"requests": requests}, headers=headers)
    assert (response.status, response.body["code"], response.body["index"]) == (400, "PGRST115", 2)
