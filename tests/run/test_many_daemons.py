"""Changes reach all processes of two daemons on one database (docs/guides/scaling.md)."""

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
"""Number of requests on separate connections. Every worker receives some of the requests."""


@pytest.fixture(scope="module")
def installation(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Yield a database with webhooks and two daemons, one of them with two workers."""
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
    """Return the number of schema loads of each daemon."""
    return [daemon.metric(LOADS) for daemon in installation.daemons]


def statuses(daemon: Daemon, path: str, key: str = KEY) -> set[int]:
    """Return the response statuses of all workers of a daemon."""
    return {daemon.request("GET", path, headers={"apikey": key}).status for _ in range(MANY)}


def test_schema_notification_reaches_every_process(installation: Installation) -> None:
    one, two = loads(installation)
    installation.database.execute("create table fresh (id int); grant select on fresh to anon")
    installation.database.execute("notify pgrst, 'reload schema'")
    wait_for(lambda: loads(installation) == [one + 1, two + 2], "three new catalogs")
    assert [statuses(daemon, "/rest/v1/fresh") for daemon in installation.daemons] == [{200}, {200}]


@pytest.mark.direct("a pooler forwards no notifications")
def test_settings_notification_reaches_every_process(installation: Installation) -> None:
    path, name = "/rest/v1/note?select=id.sum()", installation.database.name
    assert [statuses(daemon, path) for daemon in installation.daemons] == [{400}, {400}]
    installation.database.execute(
        f"alter role authenticator in database {name} set pgrst.db_aggregates_enabled = 'true'"
    )
    installation.database.execute("notify pgrst, 'reload config'")
    for daemon in installation.daemons:
        wait_for(lambda: statuses(daemon, path) == {200}, "the new setting")  # noqa: B023 - called immediately


def test_every_process_accepts_the_same_keys(installation: Installation) -> None:
    for daemon in installation.daemons:
        for key, status in ((KEY, 200), (SECRET_KEY, 200), ("sb_publishable_of_nobody", 401)):
            assert statuses(daemon, "/rest/v1/?select=id", key) == {status}


def test_rate_limit_of_endpoint_tests_spans_all_daemons(installation: Installation) -> None:
    endpoint = installation.endpoint()
    path = f"/v2/organizations/acme/webhooks/endpoints/{endpoint}/test"
    daemons = cycle(installation.daemons)
    responses = [installation.manage(next(daemons), "POST", path, "{}") for _ in range(14)]
    assert [response.status for response in responses if response] == [201] * 10 + [429] * 4


def test_repeated_publish_to_any_daemon_creates_one_event(installation: Installation) -> None:
    body = json.dumps(event("once", payload={"reason": "inactivity"}))
    responses = [
        installation.manage(daemon, "POST", "/v1/webhooks/events", body)
        for daemon in installation.daemons
        for _ in range(2)
    ]
    published = {response.json["data"]["id"] for response in responses if response and response.status == 201}
    assert len(published) == 1
    assert len([response for response in responses if response]) == 4
