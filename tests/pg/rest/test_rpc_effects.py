"""Effects of functions called over HTTP on data, transactions and responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.settings import TransactionEnd
from support import documents
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator


SINGLE = {"accept": "application/vnd.pgrst.object+json"}


SCHEMA = documents.read("tests/pg/data/functions.sql")
PROJECT = {"db_tx_end": TransactionEnd.COMMIT_ALLOW_OVERRIDE}


@pytest.fixture(scope="module")
def bounded(service: Service, reactor: Any) -> Iterator[Service]:
    with serving(reactor, service.database, db_max_rows=2) as one:
        yield one


@pytest.fixture(autouse=True)
def reset_data(service: Service) -> None:
    """Undo the changes of earlier tests."""
    service.database.execute("truncate visit restart identity; alter sequence called restart")


def visits(service: Service) -> list[str]:
    """Return the places in the rows that functions have inserted."""
    return [place for (place,) in service.database.execute("select place from visit order by id")]


def calls(service: Service) -> int:
    """Return the number of function calls, counted by a sequence."""
    [(number, called)] = service.database.execute("select last_value, is_called from called")
    return int(number) if called else 0


async def test_volatile_function_can_write_with_post(service: Service) -> None:
    response = await service.rest("POST", "rpc/visit_place", {"place": "a"})
    assert (response.status, response.body) == (200, {"id": 1, "place": "a"})
    response = await service.rest("POST", "rpc/visit_places?select=place", {"places": ["b", "c"]})
    assert response.body == [{"place": "b"}, {"place": "c"}]
    response = await service.rest("POST", "rpc/visit_quietly", {"place": "d"})
    assert (response.status, response.text) == (204, "")
    assert visits(service) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("", {}),
        ("", {"prefer": "count=exact"}),
        ("?limit=1", {"prefer": "count=exact"}),
        ("?limit=1&offset=1", {"prefer": "count=exact"}),
        ("?number=gt.1", {}),
        ("?number=gt.1&select=number,again:number&order=number.desc", {"prefer": "count=exact"}),
        ("?select=", {}),
        ("", {"accept": "text/csv"}),
        ("", {"accept": "application/vnd.pgrst.array+json;nulls=stripped"}),
    ],
)
async def test_volatile_function_is_called_exactly_once(
    service: Service, target: str, headers: dict[str, str]
) -> None:
    response = await service.rest("POST", f"rpc/calls_and_rows{target}", {"times": 3}, headers=headers)
    assert response.status in (200, 206)
    assert calls(service) == 3


async def test_volatile_value_is_computed_exactly_once(service: Service) -> None:
    for number, headers in enumerate(({}, {"prefer": "count=exact"}, SINGLE, {"accept": "text/plain"}), 1):
        response = await service.rest("POST", "rpc/count_calls", {}, headers=headers)
        assert (response.status, response.text) == (200, str(number))


async def test_stable_function_cannot_write_with_post(service: Service) -> None:
    response = await service.rest("POST", "rpc/current_settings", {})
    assert response.body["read_only"] == "on"


async def test_violated_single_object_format_rolls_back(service: Service) -> None:
    for places, rows in ((["a", "b"], 2), ([], 0)):
        response = await service.rest("POST", "rpc/visit_places", {"places": places}, headers=SINGLE)
        assert response.status == 406
        assert response.body == {
            "code": "PGRST116", "message": "Cannot coerce the result to a single JSON object",
            "details": f"The result contains {rows} rows", "hint": None,
        }  # fmt: skip
    assert visits(service) == []
    response = await service.rest("POST", "rpc/visit_places", {"places": ["a"]}, headers=SINGLE)
    assert (response.status, response.body) == (200, {"id": 3, "place": "a"})
    assert response.headers["content-type"] == "application/vnd.pgrst.object+json; charset=utf-8"


async def test_exceeded_max_affected_rolls_back(service: Service) -> None:
    """``max-affected`` requires ``handling=strict``."""
    strict = {"prefer": "handling=strict, max-affected=2"}
    response = await service.rest("POST", "rpc/visit_places", {"places": ["a", "b", "c"]}, headers=strict)
    assert response.status == 400
    assert response.body == {
        "code": "PGRST124", "message": "Query result exceeds max-affected preference constraint",
        "details": "The query affects 3 rows", "hint": None,
    }  # fmt: skip
    assert visits(service) == []
    response = await service.rest("POST", "rpc/visit_places", {"places": ["a", "b"]}, headers=strict)
    assert response.status == 200
    assert response.headers["preference-applied"] == "handling=strict, max-affected=2"
    lenient = {"prefer": "handling=lenient, max-affected=1"}
    response = await service.rest("POST", "rpc/visit_places", {"places": ["c", "d"]}, headers=lenient)
    assert (response.status, response.headers["preference-applied"]) == (200, "handling=lenient")


async def test_max_affected_is_rejected_for_functions_without_a_row_set(service: Service) -> None:
    """The function is not called."""
    strict = {"prefer": "handling=strict, max-affected=2"}
    for target in ("visit_place", "visit_quietly"):
        response = await service.rest("POST", f"rpc/{target}", {"place": "a"}, headers=strict)
        assert response.status == 400
        assert response.body == {
            "code": "PGRST128", "details": None, "hint": None,
            "message": "Function must return SETOF or TABLE when max-affected preference is used with "
            "handling=strict",
        }  # fmt: skip
    assert visits(service) == []


async def test_client_can_roll_back_a_call(service: Service) -> None:
    """``db-tx-end`` must permit ``tx=rollback``."""
    rollback = {"prefer": "tx=rollback"}
    response = await service.rest("POST", "rpc/visit_place", {"place": "a"}, headers=rollback)
    assert (response.status, response.body["place"]) == (200, "a")
    assert response.headers["preference-applied"] == "tx=rollback"
    assert visits(service) == []


async def test_row_limit_applies_to_function_results(bounded: Service) -> None:
    for target, rows in (
        ("all_projects?select=id&limit=5", [{"id": 1}, {"id": 2}]),
        ("numbers?up=9", [1, 2]),
    ):
        response = await bounded.rest("GET", f"rpc/{target}", headers={"prefer": "count=exact"})
        assert (response.status, response.body) == (206, rows)
        assert response.headers["content-range"].startswith("0-1/")
    response = await bounded.rest("POST", "rpc/visit_places", {"places": ["a", "b", "c"]})
    assert len(response.body) == 2
    assert visits(bounded) == ["a", "b", "c"]


# ---------------------------------------------------------------- the transaction


async def test_hoisted_function_settings_apply_to_the_transaction(service: Service) -> None:
    response = await service.rest("POST", "rpc/sleep_long", {})
    assert (response.status, response.body["code"]) == (500, "57014")
    response = await service.rest("GET", "rpc/current_settings")
    assert response.body["timeout"] == "7s"
    assert ("statement_timeout", "7s") in response.messages[0].settings
    assert "work_mem" not in dict(response.messages[0].settings)
    for method in ("GET", "POST"):
        response = await service.rest(method, "rpc/serializably")
        assert response.body == "serializable"
    response = await service.rest("POST", "rpc/timeout_now", {})
    assert response.body == "30s"


async def test_function_can_read_the_request_and_the_time_zone(service: Service) -> None:
    response = await service.rest("GET", "rpc/current_settings", headers={"prefer": "timezone=Asia/Tokyo"})
    assert response.body["zone"] == "Asia/Tokyo"
    assert (response.body["method"], response.body["path"]) == ("GET", "/rpc/current_settings")
    assert response.headers["preference-applied"] == "timezone=Asia/Tokyo"


# ---------------------------------------------------------------- the response


async def test_functions_can_set_headers_and_status(service: Service) -> None:
    """The functions return a value or rows."""
    for method, body in (("GET", None), ("POST", {"num": 1})):
        target = "with_headers?num=1" if method == "GET" else "with_headers"
        response = await service.rest(method, f"rpc/{target}", body)
        assert (response.status, response.body) == (200, 1)
        assert (response.headers["x-test"], response.headers["x-test-2"]) == ("key1=val1", "two")
    response = await service.rest("GET", "rpc/projects_with_headers?id=eq.2&select=id")
    assert (response.body, response.headers["x-test"]) == ([{"id": 2}], "rows")
    response = await service.rest("GET", "rpc/own_status")
    assert (response.status, response.body) == (403, {"message": "invalid user or password"})


async def test_header_set_by_a_function_replaces_the_default(service: Service) -> None:
    response = await service.rest("GET", "rpc/own_content_type")
    assert (response.text, response.headers["content-type"]) == ('"mine"', "text/x-own")


async def test_invalid_headers_and_statuses_are_errors(service: Service) -> None:
    response = await service.rest("GET", "rpc/bad_headers")
    assert (response.status, response.body["code"]) == (500, "PGRST111")
    response = await service.rest("GET", "rpc/bad_status")
    assert (response.status, response.body["code"]) == (500, "PGRST112")
    assert response.body["message"] == "response.status guc must be a valid status code"
    for value, status in (
        ("200", 200),
        ("599", 599),
        ("100", 500),
        ("199", 500),
        ("600", 500),
        ("2000", 500),
    ):
        response = await service.rest("GET", f"rpc/status_of?told={value}")
        assert response.status == status


async def test_functions_can_raise_custom_errors(service: Service) -> None:
    """``PT402`` is status 402, ``PGRST`` defines the whole response, and a plain RAISE is 400."""
    response = await service.rest("GET", "rpc/raise_payment")
    assert response.status == 402
    assert response.body == {
        "code": "PT402", "message": "Payment Required", "details": "Quota exceeded", "hint": "Upgrade",
    }  # fmt: skip
    response = await service.rest("POST", "rpc/raise_own", {})
    assert (response.status, response.headers["x-header"]) == (332, "str")
    assert response.body == {"code": "123", "message": "ABC", "details": "DEF", "hint": "XYZ"}
    response = await service.rest("GET", "rpc/raise_plainly")
    assert (response.status, response.body["code"], response.body["message"]) == (400, "P0001", "no")


async def test_calls_of_one_shape_share_a_statement(service: Service) -> None:
    first = await service.rest("POST", "rpc/add_them", {"a": 1, "b": 2})
    second = await service.rest("POST", "rpc/add_them", {"b": -7, "a": 8})
    assert (first.body, second.body) == (3, 1)
    assert first.messages[-1].statements[-1].statement is second.messages[-1].statements[-1].statement
    strict = "handling=strict, max-affected="
    first = await service.rest("POST", "rpc/numbers", {"up": 1}, headers={"prefer": f"{strict}3"})
    second = await service.rest("POST", "rpc/numbers", {"up": 2}, headers={"prefer": f"{strict}4"})
    assert first.messages[-1].statements[-1].statement is second.messages[-1].statements[-1].statement
    first = await service.rest("GET", "rpc/numbers?up=1&pgrst_scalar=gt.0&limit=2")
    second = await service.rest("GET", "rpc/numbers?up=2&pgrst_scalar=gt.1&limit=2")
    assert (first.body, second.body) == ([1], [2])
    assert first.messages[-1].statements[-1].statement is second.messages[-1].statements[-1].statement


@pytest.mark.parametrize(
    "setting",
    ["set client_encoding to latin1", "perform set_config('client_encoding', 'latin1', true)"],
)
async def test_function_that_changes_the_encoding_is_rejected(api: Service, setting: str) -> None:
    await api.execute(
        f"create function in_latin() returns text language plpgsql as $$ begin {setting}; return 'é'; end $$;"
        "select 1"
    )
    for _ in range(2):
        response = await api.rest("POST", "rpc/in_latin", {})
        assert (response.status, response.body["code"]) == (400, "0A000")
        assert (await api.rest("GET", "")).status == 200
    await api.execute("drop function in_latin(); select 1")
