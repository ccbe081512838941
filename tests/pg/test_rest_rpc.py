"""Calls of functions over HTTP: how they are found, what they take, what they give."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Server

JSON = "application/json; charset=utf-8"


@pytest.fixture(scope="module")
def service(server: Server, reactor: Any) -> Iterator[Service]:
    """Serve a database of functions."""
    database = server.create_database(Path(__file__).with_name("data").joinpath("functions.sql").read_text())
    with serving(reactor, database, db_schemas=("public", "other")) as one:
        yield one


async def get(service: Service, target: str, **headers: str) -> Any:
    """Return the body of a call by GET."""
    answer = await service.rest("GET", f"rpc/{target}", headers=headers)
    assert answer.status == 200, answer.text
    return answer.body


async def post(service: Service, target: str, body: Any = None, **headers: str) -> Any:
    """Return the body of a call by POST."""
    answer = await service.rest("POST", f"rpc/{target}", {} if body is None else body, headers=headers)
    assert answer.status == 200, answer.text
    return answer.body


# ---------------------------------------------------------------- results


@pytest.mark.parametrize(
    ("target", "result"),
    [
        ("add_them?a=3&b=4", 7),
        ("say_hello?name=world", "Hello, world"),
        ("say_hello?name=￥", "Hello, ￥"),
        ("nothing_given", "nothing"),
        ("give_null", None),
        ("give_array", [1, 2, 3]),
        ("give_json", {"a": [1, None]}),
        ("give_mood?val=happy", "happy"),
        ("give_positive?val=8", 8),
        ("give_range?low=10&up=20", "[10,20)"),
        ("numbers", [1, 2, 3]),
        ("numbers?up=0", []),
        ("give_point", {"x": 10, "y": 5}),
        ("give_point_domain", {"x": 10, "y": 5}),
        ("null_point", {"x": None, "y": None}),
        ("one_project?id=2", {"id": 2, "name": "IOS", "client_id": 2}),
        ("split?num=7", {"half": 3, "rest": 1}),
        ("plus_one?num=5", {"num_plus_one": 6}),
        ("twice?num=4", {"num": 8}),
        ("pairs", [{"a": "x", "b": 1}, {"a": "y", "b": None}, {"a": "z", "b": 3}]),
        ("single_column", [{"a": "A"}, {"a": "B"}]),
        ("any_record", {"id": 1, "name": "Ada"}),
        ("any_records", [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}]),
        ("projects_below?id=1", []),
    ],
)
async def test_every_kind_of_result_has_its_json(service: Service, target: str, result: Any) -> None:
    """Values are bare, one row is an object, sets are arrays."""
    assert await get(service, target) == result


async def test_a_function_of_no_result_has_no_content(service: Service) -> None:
    """``void`` is 204 without a body and a content type."""
    for method in ("GET", "POST"):
        answer = await service.rest(method, "rpc/give_void")
        assert (answer.status, answer.text) == (204, "")
        assert "content-type" not in answer.headers
