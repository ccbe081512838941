"""The REST API of a running daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.daemon import JWT_SECRET, KEY, SECRET_KEY, Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres import Database, Server

SCHEMA = """
create table leaderboard (
    id serial primary key, player text not null, score integer not null default 0,
    created_at timestamptz default now()
);
insert into leaderboard (player, score) values ('Ada', 30), ('Bob', 20), ('Cy', 40);
grant select on leaderboard to anon;
create table secret (id int primary key);
grant select on secret to service_role;
"""
WITH_KEY = {"apikey": KEY}


@pytest.fixture(scope="module")
def database(server: Server) -> Database:
    return server.create_database(SCHEMA)


@pytest.fixture(scope="module")
def daemon(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("rest"), database.uri) as running:
        running.wait_ready()
        yield running


def test_select_and_order_choose_columns_and_order(daemon: Daemon) -> None:
    response = daemon.request(
        "GET", "/rest/v1/leaderboard?select=player,score&order=score.desc", None, WITH_KEY
    )
    assert response.status == 200
    assert response.headers["Content-Type"] == "application/json; charset=utf-8"
    assert response.headers["Content-Range"] == "0-2/*"
    assert [tuple(row.items()) for row in response.json] == [
        (("player", "Cy"), ("score", 40)),
        (("player", "Ada"), ("score", 30)),
        (("player", "Bob"), ("score", 20)),
    ]
    rows = daemon.request("GET", "/rest/v1/leaderboard?select=*&order=id.asc", None, WITH_KEY).json
    assert [set(row) for row in rows] == [{"id", "player", "score", "created_at"}] * 3


def test_api_key_is_accepted_in_the_url(daemon: Daemon) -> None:
    assert len(daemon.request("GET", f"/rest/v1/leaderboard?apikey={KEY}&limit=2").json) == 2
    assert daemon.request("GET", "/rest/v1/leaderboard").status == 401


def test_each_key_can_read_only_the_tables_of_its_role(daemon: Daemon) -> None:
    refused = daemon.request("GET", "/rest/v1/secret", None, WITH_KEY)
    assert refused.status == 401
    assert refused.json == {
        "code": "42501",
        "details": None,
        "hint": None,
        "message": "permission denied for table secret",
    }
    assert daemon.request("GET", "/rest/v1/secret", None, {"apikey": SECRET_KEY}).json == []
    assert JWT_SECRET not in daemon.text


def test_head_has_no_body_and_options_lists_methods(daemon: Daemon) -> None:
    head = daemon.request("HEAD", "/rest/v1/leaderboard?limit=1", None, WITH_KEY)
    assert (head.status, head.body, head.headers["Content-Range"]) == (200, b"", "0-0/*")
    options = daemon.request("OPTIONS", "/rest/v1/leaderboard", None, WITH_KEY)
    assert (options.status, options.headers["Allow"]) == (200, "OPTIONS,GET,HEAD,POST,PUT,PATCH,DELETE")


def test_new_column_is_available_after_a_reload(daemon: Daemon, database: Database) -> None:
    path = "/rest/v1/leaderboard?limit=1&order=id"
    assert "level" not in daemon.request("GET", path, None, WITH_KEY).json[0]
    database.execute("alter table leaderboard add level int default 7")
    assert daemon.admin("POST", "/reload").status == 200
    assert daemon.request("GET", path, None, WITH_KEY).json[0]["level"] == 7
    database.execute("alter table leaderboard drop level")
    assert daemon.admin("POST", "/reload").status == 200
    assert "level" not in daemon.request("GET", path, None, WITH_KEY).json[0]
