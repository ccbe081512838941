"""The headers ``Prefer`` and ``Preference-Applied``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dataapi.settings import TransactionEnd
from support.service import Service, serving
from support.writing import RESET, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database, Server


@pytest.fixture(scope="module")
def database(server: Server) -> Database:
    """Return a database that tests can write to."""
    return server.create_database(SCHEMA)


@pytest.fixture(scope="module")
def service(database: Database, reactor: Any) -> Iterator[Service]:
    """Serve the database and allow clients to choose how transactions end."""
    end = TransactionEnd.COMMIT_ALLOW_OVERRIDE
    with serving(reactor, database, db_tx_end=end) as running:
        yield running


@pytest.fixture
def ended(database: Database, reactor: Any, request: pytest.FixtureRequest) -> Iterator[Service]:
    """Serve the database with the transaction end from the test's parameters."""
    database.execute(RESET)
    with serving(reactor, database, db_tx_end=TransactionEnd(request.param)) as running:
        yield running


ROW = {"id": 9, "name": "n"}
WRITES: list[tuple[str, str, Any]] = [
    ("POST", "author", ROW),
    ("PATCH", "author?id=eq.1", {"name": "n"}),
    ("PUT", "author?id=eq.9", ROW),
    ("DELETE", "author?id=eq.2", None),
]


async def test_rolled_back_change_gets_a_normal_response(api: Service) -> None:
    """``tx=rollback`` is applied, and reported in ``Preference-Applied``, if it is allowed."""
    for method, target, body in WRITES:
        headers = {"prefer": "tx=rollback, return=representation, count=exact"}
        response = await api.rest(method, target, body, headers=headers)
        assert response.status in (200, 201)
        assert len(response.body) == 1
        applied = "return=representation, count=exact, tx=rollback"
        assert response.headers["preference-applied"] == applied
    assert api.database.execute("select id, name from author order by id") == [(1, "Ada"), (2, "Bob")]
    response = await api.rest("POST", "author", ROW, headers={"prefer": "tx=commit"})
    assert response.headers["preference-applied"] == "tx=commit"
    assert api.database.execute("select name from author where id = 9") == [("n",)]


@pytest.mark.parametrize(
    ("ended", "prefer", "is_committed", "applied"),
    [
        ("commit", "tx=rollback", True, None),
        ("commit", "tx=rollback, handling=strict", True, "handling=strict"),
        ("rollback", "tx=commit", False, None),
        ("rollback-allow-override", "tx=commit", True, "tx=commit"),
        ("rollback-allow-override", "tx=commit, tx=rollback", True, "tx=commit"),
        ("rollback-allow-override", "", False, None),
    ],
    indirect=["ended"],
)
async def test_client_can_choose_the_transaction_end_only_if_allowed(
    ended: Service, prefer: str, is_committed: bool, applied: str | None
) -> None:
    response = await ended.rest("POST", "author", ROW, headers={"prefer": prefer})
    assert response.status == 201
    assert response.headers.get("preference-applied") == applied
    assert ended.database.execute("select count(*)::int from author where id = 9") == [(int(is_committed),)]


@pytest.mark.parametrize(
    ("timezone", "shown"),
    [
        ("America/Los_Angeles", "2020-06-01T05:00:00-07:00"),
        ("Asia/Kolkata", "2020-06-01T17:30:00+05:30"),
        ("+05:30", "2020-06-01T17:30:00+05:30"),
        ("-3", "2020-06-01T09:00:00-03:00"),
        ("UTC", "2020-06-01T12:00:00+00:00"),
    ],
)
async def test_client_time_zone_applies_to_input_and_output(api: Service, timezone: str, shown: str) -> None:
    headers = {"prefer": f"timezone={timezone}, return=representation"}
    applied = f"return=representation, timezone={timezone}"
    response = await api.rest("GET", "zone?select=at", headers=headers)
    assert (response.body, response.headers["preference-applied"]) == (
        [{"at": shown}],
        f"timezone={timezone}",
    )
    local = shown[:19].replace("T", " ")
    actions: list[tuple[str, str, Any]] = [
        ("POST", "zone?select=at", {"id": 2, "at": local}),
        ("PATCH", "zone?id=eq.2&select=at", {"at": local}),
        ("PUT", "zone?id=eq.2&select=at", {"id": 2, "at": local}),
        ("DELETE", "zone?id=eq.2&select=at", None),
    ]
    for method, target, body in actions:
        response = await api.rest(method, target, body, headers=headers)
        assert (response.body, response.headers["preference-applied"]) == ([{"at": shown}], applied), method
    response = await api.rest("GET", "zone?select=at")
    assert "preference-applied" not in response.headers


async def test_unknown_preferences_are_rejected_only_by_strict_handling(api: Service) -> None:
    for method, target, body in [("GET", "author", None), *WRITES]:
        prefer = "handling=strict, timezone=Mars/Olympus, anything"
        response = await api.rest(method, target, body, headers={"prefer": prefer})
        assert response.status == 400
        assert response.body == {
            "code": "PGRST122",
            "message": "Invalid preferences given with handling=strict",
            "details": "Invalid preferences: timezone=Mars/Olympus, anything",
            "hint": None,
        }
    assert api.database.execute("select id, name from author order by id") == [(1, "Ada"), (2, "Bob")]
    for method, target, body in WRITES:
        lenient = {"prefer": prefer.replace("strict", "lenient")}
        response = await api.rest(method, target, body, headers=lenient)
        assert response.status in (201, 204)
        assert response.headers["preference-applied"] == "handling=lenient"


@pytest.mark.parametrize(
    ("method", "target", "accept", "code"),
    [
        ("GET", "autor", "*/*", "PGRST205"),
        ("GET", "author?select=id,author(id)&odd.id=eq.1", "*/*", "PGRST200"),
        ("GET", "author", "image/png", "PGRST107"),
        ("POST", "author", "*/*", "PGRST204"),
        ("POST", "rpc/nowhere", "*/*", "PGRST202"),
    ],
)
async def test_other_errors_are_reported_before_unknown_preferences(
    api: Service, method: str, target: str, accept: str, code: str
) -> None:
    """PostgREST also checks preferences last."""
    headers = {"prefer": "handling=strict, anything", "accept": accept}
    response = await api.rest(method, target, {"odd": 1} if method == "POST" else None, headers=headers)
    assert response.body["code"] == code


async def test_root_and_options_ignore_unknown_preferences(api: Service) -> None:
    headers = {"prefer": "handling=strict, anything"}
    assert (await api.rest("GET", "", headers=headers)).status == 200
    assert (await api.rest("OPTIONS", "author", headers=headers)).status == 200


async def test_read_reports_only_applied_preferences(api: Service) -> None:
    prefer = (
        "return=representation, count=exact, missing=default, resolution=merge-duplicates, handling=strict"
    )
    response = await api.rest("GET", "author", headers={"prefer": prefer})
    assert response.headers["preference-applied"] == "count=exact, handling=strict"


async def test_every_count_preference_is_reported_as_applied(api: Service) -> None:
    for count, content_range in (("exact", "0-1/2"), ("estimated", "0-1/2"), ("planned", "0-1/*")):
        response = await api.rest("PATCH", "author", {"name": "n"}, headers={"prefer": f"count={count}"})
        assert response.headers["content-range"] == content_range
        assert response.headers["preference-applied"] == f"count={count}"
