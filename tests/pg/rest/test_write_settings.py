"""Changes by REST under other settings: nothing prepared, aggregates, plans, and many at once."""

from __future__ import annotations

from typing import Any

from support import writing
from support.service import Service

SCHEMA, RESET = writing.SCHEMA, writing.RESET
PROJECT = {"db_prepared_statements": False, "db_aggregates_enabled": True, "db_plan_enabled": True}

SHOWN = {"prefer": "return=representation"}


async def test_no_statement_needs_to_be_prepared(api: Service) -> None:
    prefer = "resolution=merge-duplicates, return=representation, missing=default"
    rows = [{"id": 1, "name": "n'%s\\"}, {"name": "$1"}]
    answer = await api.rest("POST", "counter?columns=id,name", rows, headers={"prefer": prefer})
    assert answer.status == 201
    assert [row["name"] for row in answer.body] == ["n'%s\\", "$1"]
    answer = await api.rest("PUT", "author?id=eq.1", {"id": 1, "name": "x"}, headers=SHOWN)
    assert (answer.status, answer.body) == (200, [{"id": 1, "name": "x"}])
    headers = {"prefer": "resolution=match, handling=strict, max-affected=1, return=representation"}
    answer = await api.rest("PATCH", "author", [{"id": 1, "name": "y"}], headers=headers)
    assert answer.body == [{"id": 1, "name": "y"}]
    answer = await api.rest("DELETE", "author?id=in.(1,2)", headers={"prefer": headers["prefer"]})
    assert answer.body["code"] == "PGRST124"


async def test_changed_rows_are_summed_up(api: Service) -> None:
    answer = await api.rest("PATCH", "book?select=author,count(),id.sum()", {"price": 1}, headers=SHOWN)
    assert answer.status == 200
    key = lambda row: row["author"] or 0  # noqa: E731 - short
    assert sorted(answer.body, key=key) == [
        {"author": None, "count": 1, "sum": 3},
        {"author": 1, "count": 2, "sum": 3},
    ]
    headers = {"prefer": "return=representation, handling=strict, max-affected=2"}
    answer = await api.rest("PATCH", "book?select=count()", {"price": 2}, headers=headers)
    assert (answer.status, answer.body["details"]) == (400, "The query affects 3 rows")


async def test_the_plan_of_a_change(api: Service) -> None:
    """It is shown and nothing is changed, unless the statement is to be analyzed."""
    accept = {"accept": "application/vnd.pgrst.plan+json"}
    answer = await api.rest("DELETE", "key_only?id=eq.1", headers=accept)
    assert answer.status == 200
    assert "ModifyTable" in answer.text
    assert api.database.execute("select count(*) from key_only") == [(1,)]


async def test_a_plan_that_head_asks_for_in_a_batch_has_no_body(api: Service) -> None:
    """As an answer to HEAD never has."""
    accept = {"Accept": "application/vnd.pgrst.plan+json"}
    requests = [{"method": method, "path": "/author", "headers": accept} for method in ("GET", "HEAD")]
    headers = {"content-type": "application/vnd.dataapi.batch+json"}
    answer = await api.rest("POST", "", {"requests": requests}, headers=headers)
    got, head = answer.body
    assert (head["status"], head["headers"]) == (got["status"], got["headers"])
    assert (got["body"] is None, head["body"]) == (False, None)


async def test_a_most_of_affected_rows_is_for_changes_of_rows_that_are_there(api: Service) -> None:
    rows = [{"id": number, "name": "x"} for number in (101, 102)]
    headers = {"prefer": "handling=strict, max-affected=1, count=exact"}
    answer = await api.rest("POST", "author", rows, headers=headers)
    assert (answer.status, answer.headers["content-range"]) == (201, "*/2")
    assert answer.headers["preference-applied"] == "count=exact, handling=strict"


async def test_a_thousand_rows_are_one_statement_of_one_value(api: Service) -> None:
    rows = [{"id": number, "name": f"name {number}"} for number in range(100, 1100)]
    answer = await api.rest("POST", "author", rows, headers={"prefer": "count=exact"})
    assert (answer.status, answer.headers["content-range"]) == (201, "*/1000")
    [bound] = answer.messages[0].statements
    assert len(bound.values) == 1
    again = await api.rest("POST", "author", [{"id": 5, "name": "x"}], headers={"prefer": "count=exact"})
    assert again.messages[0].statements[0].statement is bound.statement


async def test_each_change_of_a_batch_counts_for_itself(api: Service) -> None:
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
    answer = await api.rest("POST", "", {"requests": requests}, headers=headers)
    assert [each["status"] for each in answer.body] == [200, 201, 200, 200, 200]
    assert answer.body[3]["body"] == [{"at": "2020-06-01T21:00:00+09:00"}]
    assert answer.body[4]["body"] != answer.body[3]["body"]
    requests[2]["body"] = {"id": 8, "name": "z"}
    answer = await api.rest("POST", "", {"requests": requests}, headers=headers)
    assert (answer.status, answer.body["code"], answer.body["index"]) == (400, "PGRST115", 2)
