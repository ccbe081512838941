"""What functions that are called over HTTP do: to the database, the transaction and the answer."""

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
    """Serve the same database with at most two rows of anything."""
    with serving(reactor, service.database, db_max_rows=2) as one:
        yield one


@pytest.fixture(autouse=True)
def afresh(service: Service) -> None:
    """Undo what earlier tests did."""
    service.database.execute("truncate visit restart identity; alter sequence called restart")


def visits(service: Service) -> list[str]:
    """Return what was written."""
    return [place for (place,) in service.database.execute("select place from visit order by id")]


def calls(service: Service) -> int:
    """Return how often a function took a number."""
    [(number, called)] = service.database.execute("select last_value, is_called from called")
    return int(number) if called else 0


async def test_a_volatile_function_writes_by_post(service: Service) -> None:
    answer = await service.rest("POST", "rpc/visit_place", {"place": "a"})
    assert (answer.status, answer.body) == (200, {"id": 1, "place": "a"})
    answer = await service.rest("POST", "rpc/visit_places?select=place", {"places": ["b", "c"]})
    assert answer.body == [{"place": "b"}, {"place": "c"}]
    answer = await service.rest("POST", "rpc/visit_quietly", {"place": "d"})
    assert (answer.status, answer.text) == (204, "")
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
async def test_a_volatile_function_is_called_exactly_once(
    service: Service, target: str, headers: dict[str, str]
) -> None:
    answer = await service.rest("POST", f"rpc/calls_and_rows{target}", {"times": 3}, headers=headers)
    assert answer.status in (200, 206)
    assert calls(service) == 3


async def test_a_volatile_value_is_made_exactly_once(service: Service) -> None:
    for number, headers in enumerate(({}, {"prefer": "count=exact"}, SINGLE, {"accept": "text/plain"}), 1):
        answer = await service.rest("POST", "rpc/count_calls", {}, headers=headers)
        assert (answer.status, answer.text) == (200, str(number))


async def test_a_stable_function_cannot_write_by_post(service: Service) -> None:
    answer = await service.rest("POST", "rpc/current_settings", {})
    assert answer.body["read_only"] == "on"


async def test_anything_but_a_single_object_undoes_the_change(service: Service) -> None:
    """406 with PGRST116 and the number of rows, for none and for several."""
    for places, rows in ((["a", "b"], 2), ([], 0)):
        answer = await service.rest("POST", "rpc/visit_places", {"places": places}, headers=SINGLE)
        assert answer.status == 406
        assert answer.body == {
            "code": "PGRST116", "message": "Cannot coerce the result to a single JSON object",
            "details": f"The result contains {rows} rows", "hint": None,
        }  # fmt: skip
    assert visits(service) == []
    answer = await service.rest("POST", "rpc/visit_places", {"places": ["a"]}, headers=SINGLE)
    assert (answer.status, answer.body) == (200, {"id": 3, "place": "a"})
    assert answer.headers["content-type"] == "application/vnd.pgrst.object+json; charset=utf-8"


async def test_more_rows_than_the_client_allows_undo_what_was_done(service: Service) -> None:
    """400 with PGRST124 under strict handling; the preference is named when it holds."""
    strict = {"prefer": "handling=strict, max-affected=2"}
    answer = await service.rest("POST", "rpc/visit_places", {"places": ["a", "b", "c"]}, headers=strict)
    assert answer.status == 400
    assert answer.body == {
        "code": "PGRST124", "message": "Query result exceeds max-affected preference constraint",
        "details": "The query affects 3 rows", "hint": None,
    }  # fmt: skip
    assert visits(service) == []
    answer = await service.rest("POST", "rpc/visit_places", {"places": ["a", "b"]}, headers=strict)
    assert answer.status == 200
    assert answer.headers["preference-applied"] == "handling=strict, max-affected=2"
    lenient = {"prefer": "handling=lenient, max-affected=1"}
    answer = await service.rest("POST", "rpc/visit_places", {"places": ["c", "d"]}, headers=lenient)
    assert (answer.status, answer.headers["preference-applied"]) == (200, "handling=lenient")


async def test_the_most_rows_of_a_function_that_gives_one_are_refused(service: Service) -> None:
    """400 with PGRST128, before the function is called."""
    strict = {"prefer": "handling=strict, max-affected=2"}
    for target in ("visit_place", "visit_quietly"):
        answer = await service.rest("POST", f"rpc/{target}", {"place": "a"}, headers=strict)
        assert answer.status == 400
        assert answer.body == {
            "code": "PGRST128", "details": None, "hint": None,
            "message": "Function must return SETOF or TABLE when max-affected preference is used with "
            "handling=strict",
        }  # fmt: skip
    assert visits(service) == []


async def test_the_client_may_have_it_undone(service: Service) -> None:
    """``tx=rollback``, where the settings allow it."""
    rollback = {"prefer": "tx=rollback"}
    answer = await service.rest("POST", "rpc/visit_place", {"place": "a"}, headers=rollback)
    assert (answer.status, answer.body["place"]) == (200, "a")
    assert answer.headers["preference-applied"] == "tx=rollback"
    assert visits(service) == []


async def test_functions_give_at_most_the_rows_that_the_settings_allow(bounded: Service) -> None:
    for target, rows in (
        ("all_projects?select=id&limit=5", [{"id": 1}, {"id": 2}]),
        ("numbers?up=9", [1, 2]),
    ):
        answer = await bounded.rest("GET", f"rpc/{target}", headers={"prefer": "count=exact"})
        assert (answer.status, answer.body) == (206, rows)
        assert answer.headers["content-range"].startswith("0-1/")
    answer = await bounded.rest("POST", "rpc/visit_places", {"places": ["a", "b", "c"]})
    assert len(answer.body) == 2
    assert visits(bounded) == ["a", "b", "c"]


# ---------------------------------------------------------------- the transaction


async def test_a_functions_settings_hold_for_the_transaction_where_they_are_hoisted(service: Service) -> None:
    answer = await service.rest("POST", "rpc/sleep_long", {})
    assert (answer.status, answer.body["code"]) == (500, "57014")
    answer = await service.rest("GET", "rpc/current_settings")
    assert answer.body["timeout"] == "7s"
    assert ("statement_timeout", "7s") in answer.messages[0].settings
    assert "work_mem" not in dict(answer.messages[0].settings)
    for method in ("GET", "POST"):
        answer = await service.rest(method, "rpc/serializably")
        assert answer.body == "serializable"
    answer = await service.rest("POST", "rpc/timeout_now", {})
    assert answer.body == "30s"


async def test_a_function_sees_the_request_and_the_clients_time_zone(service: Service) -> None:
    """Method, path without the prefix, and ``Prefer: timezone``."""
    answer = await service.rest("GET", "rpc/current_settings", headers={"prefer": "timezone=Asia/Tokyo"})
    assert answer.body["zone"] == "Asia/Tokyo"
    assert (answer.body["method"], answer.body["path"]) == ("GET", "/rpc/current_settings")
    assert answer.headers["preference-applied"] == "timezone=Asia/Tokyo"


# ---------------------------------------------------------------- the answer


async def test_functions_set_headers_and_status(service: Service) -> None:
    """By ``response.headers`` and ``response.status``, whether they give a value or rows."""
    for method, body in (("GET", None), ("POST", {"num": 1})):
        target = "with_headers?num=1" if method == "GET" else "with_headers"
        answer = await service.rest(method, f"rpc/{target}", body)
        assert (answer.status, answer.body) == (200, 1)
        assert (answer.headers["x-test"], answer.headers["x-test-2"]) == ("key1=val1", "two")
    answer = await service.rest("GET", "rpc/projects_with_headers?id=eq.2&select=id")
    assert (answer.body, answer.headers["x-test"]) == ([{"id": 2}], "rows")
    answer = await service.rest("GET", "rpc/own_status")
    assert (answer.status, answer.body) == (403, {"message": "invalid user or password"})


async def test_a_header_that_a_function_sets_takes_the_usual_ones_place(service: Service) -> None:
    answer = await service.rest("GET", "rpc/own_content_type")
    assert (answer.text, answer.headers["content-type"]) == ('"mine"', "text/x-own")


async def test_invalid_headers_and_statuses_are_an_error(service: Service) -> None:
    """500 with PGRST111 and PGRST112."""
    answer = await service.rest("GET", "rpc/bad_headers")
    assert (answer.status, answer.body["code"]) == (500, "PGRST111")
    answer = await service.rest("GET", "rpc/bad_status")
    assert (answer.status, answer.body["code"]) == (500, "PGRST112")
    assert answer.body["message"] == "response.status guc must be a valid status code"
    for told, status in (("200", 200), ("599", 599), ("100", 500), ("199", 500), ("600", 500), ("2000", 500)):
        answer = await service.rest("GET", f"rpc/status_of?told={told}")
        assert answer.status == status


async def test_functions_raise_errors_of_their_own(service: Service) -> None:
    """``PT402`` is status 402, ``PGRST`` says all itself, a plain RAISE is 400."""
    answer = await service.rest("GET", "rpc/raise_payment")
    assert answer.status == 402
    assert answer.body == {
        "code": "PT402", "message": "Payment Required", "details": "Quota exceeded", "hint": "Upgrade",
    }  # fmt: skip
    answer = await service.rest("POST", "rpc/raise_own", {})
    assert (answer.status, answer.headers["x-header"]) == (332, "str")
    assert answer.body == {"code": "123", "message": "ABC", "details": "DEF", "hint": "XYZ"}
    answer = await service.rest("GET", "rpc/raise_plainly")
    assert (answer.status, answer.body["code"], answer.body["message"]) == (400, "P0001", "no")


async def test_calls_of_one_shape_share_their_statement(service: Service) -> None:
    """Values are bound; a POST's body is one of them."""
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
async def test_a_function_that_changes_the_encoding_is_refused(api: Service, setting: str) -> None:
    await api.execute(
        f"create function in_latin() returns text language plpgsql as $$ begin {setting}; return 'é'; end $$;"
        "select 1"
    )
    for _ in range(2):
        answer = await api.rest("POST", "rpc/in_latin", {})
        assert (answer.status, answer.body["code"]) == (400, "0A000")
        assert (await api.rest("GET", "")).status == 200
    await api.execute("drop function in_latin(); select 1")
