"""Two daemons on one database, one of them with workers: what is said to one holds for all (scaling.md)."""

from __future__ import annotations

import json
from itertools import cycle
from typing import TYPE_CHECKING

import pytest
from support.daemon import KEY, SCHEMA, SECRET_KEY, wait_for
from support.installation import Installation
from support.management import event
from support.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.daemon import Daemon
    from support.postgres import Server

LOADS = 'dataapi_catalog_loads_total{outcome="loaded",project="abcdefghijklmnopqrst"}'
MANY = 12
"""Requests on connections of their own, of which each worker gets some."""


@pytest.fixture(scope="module")
def installation(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Give the database with webhooks and its daemons."""
    with Recorder() as recorder:
        folder = tmp_path_factory.mktemp("daemons")
        made = Installation(folder, server.create_database(SCHEMA), recorder)
        try:
            for workers in ("1", "2"):
                made.daemon("--workers", workers, environ={"DATAAPI_PROJECT_DB_CONFIG": "yes"})
            yield made
        finally:
            made.end()


def loads(installation: Installation) -> list[float]:
    """Return how often each daemon's processes have read the schema."""
    return [daemon.metric(LOADS) for daemon in installation.daemons]


def statuses(daemon: Daemon, path: str, key: str = KEY) -> set[int]:
    """Return the statuses of requests to all of a daemon's workers."""
    return {daemon.request("GET", path, headers={"apikey": key}).status for _ in range(MANY)}


def test_a_notification_of_a_new_schema_reaches_every_process(installation: Installation) -> None:
    one, two = loads(installation)
    installation.database.execute("create table fresh (id int); grant select on fresh to anon")
    installation.database.execute("notify pgrst, 'reload schema'")
    wait_for(lambda: loads(installation) == [one + 1, two + 2], "three new catalogs")
    assert [statuses(daemon, "/rest/v1/fresh") for daemon in installation.daemons] == [{200}, {200}]


@pytest.mark.direct("a pooler passes no notifications on")
def test_a_notification_of_new_settings_reaches_every_process(installation: Installation) -> None:
    path, name = "/rest/v1/note?select=id.sum()", installation.database.name
    assert [statuses(daemon, path) for daemon in installation.daemons] == [{400}, {400}]
    installation.database.execute(
        f"alter role authenticator in database {name} set pgrst.db_aggregates_enabled = 'true'"
    )
    installation.database.execute("notify pgrst, 'reload config'")
    for daemon in installation.daemons:
        wait_for(lambda: statuses(daemon, path) == {200}, "the new setting")  # noqa: B023 - at once


def test_keys_are_the_same_at_every_process(installation: Installation) -> None:
    for daemon in installation.daemons:
        for key, status in ((KEY, 200), (SECRET_KEY, 200), ("sb_publishable_of_nobody", 401)):
            assert statuses(daemon, "/rest/v1/?select=id", key) == {status}


def test_tests_of_an_endpoint_are_limited_over_all_daemons(installation: Installation) -> None:
    endpoint = installation.endpoint()
    path = f"/v2/organizations/acme/webhooks/endpoints/{endpoint}/test"
    asked = cycle(installation.daemons)
    answers = [installation.manage(next(asked), "POST", path, "{}") for _ in range(14)]
    assert [answer.status for answer in answers if answer] == [201] * 10 + [429] * 4


def test_an_event_is_published_once_whichever_daemon_is_asked_again(installation: Installation) -> None:
    body = json.dumps(event("once", payload={"reason": "inactivity"}))
    answers = [
        installation.manage(daemon, "POST", "/v1/webhooks/events", body)
        for daemon in installation.daemons
        for _ in range(2)
    ]
    published = {answer.json["data"]["id"] for answer in answers if answer and answer.status == 201}
    assert len(published) == 1
    assert len([answer for answer in answers if answer]) == 4
