"""Webhooks of a running daemon with worker processes."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.database.script import complete, opened
from dataapi.webhooks.secrets import Cipher
from dataapi.webhooks.store import make_store
from standardwebhooks import Webhook
from support.daemon import KEY as API_KEY
from support.daemon import SCHEMA, SLOW, Daemon, wait_for
from support.webhooks import ACME, KEY, PAUSED, REF, SECRET, add_endpoint, allow_migrations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.postgres import Database

ENVIRON = {"DATAAPI_WEBHOOKS_ENCRYPTION_KEY": KEY, "DATAAPI_WEBHOOKS_ALLOW_ADDRESSES": "127.0.0.1"}

HEADERS = {"Content-Type": "application/json", "apikey": API_KEY}
OPENED = """
select count(*) from pg_stat_activity where usename = 'authenticator' and datname = current_database()
"""


@pytest.fixture
def receiver() -> Iterator[Any]:
    """Yield a receiver whose list ``received`` contains headers and bodies."""

    class Handler(BaseHTTPRequestHandler):
        """Accepts every webhook request."""

        def do_POST(self) -> None:
            """Record the request and respond with 204."""
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            listening.received.append((headers, body))  # type: ignore[attr-defined]
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.received = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield listening
    listening.shutdown()
    thread.join()
    listening.server_close()


def prepare(database: Database, url: str) -> None:
    """Create an organization, its project and an endpoint."""

    async def made(fetches: Any) -> None:
        store = make_store(fetches, Cipher([KEY]), 14)
        await store.directory.create_organization(ACME.organization, early_access=True)
        await store.directory.create_project(REF, ACME.organization)
        await add_endpoint(store, url=url)

    with opened(database.uri) as fetches:
        complete(made(fetches))


def test_workers_share_deliveries_and_add_up_their_metrics(
    tmp_path: Path, database: Database, receiver: Any
) -> None:
    allow_migrations(database)
    with Daemon(tmp_path, database.uri, settings={"workers": "2"}, environ=ENVIRON) as daemon:
        daemon.wait_ready()
        assert daemon.admin("GET", "/ready").json["webhooks"]["ready"] is True
        prepare(database, f"http://127.0.0.1:{receiver.server_port}/hook")
        for number in range(20):
            sql = "select webhooks.publish(%s, 'acme', %s, '{\"reason\": \"inactivity\"}', %s)"
            database.execute(sql, (PAUSED, REF, f"key {number}"))
        wait_for(lambda: len(receiver.received) == 20, "twenty deliveries")
        done = 'dataapi_webhooks_attempts_total{outcome="success"}'
        wait_for(lambda: daemon.metric(done) == 20, "the count of attempts")
        assert daemon.metric("dataapi_webhooks_first_attempt_seconds_count") == 20
        assert daemon.metric('dataapi_webhooks_attempt_seconds_count{outcome="success"}') == 20
        assert daemon.stop() == 0
        lines = [line for line in daemon.lines if "delivery" in line]
    assert len({headers["webhook-id"] for headers, _ in receiver.received}) == 20
    for headers, body in receiver.received:
        Webhook(SECRET).verify(body, headers)
    assert {line["event"] for line in lines} == {headers["webhook-id"] for headers, _ in receiver.received}
    assert {line["outcome"] for line in lines} == {"success"}
    assert SECRET not in daemon.text
    assert "inactivity" not in daemon.text


def test_apis_work_if_webhooks_cannot_create_their_schema(tmp_path: Path, database: Database) -> None:
    """The login role may not create the schema ``webhooks``."""
    with Daemon(tmp_path, database.uri, settings={"workers": "2"}, environ=ENVIRON) as daemon:
        daemon.wait_ready()

        def webhooks() -> dict[str, Any]:
            found: dict[str, Any] = daemon.admin("GET", "/ready").json["webhooks"]
            return found

        assert (webhooks()["ready"], webhooks()["migrated"], webhooks()["database_available"]) == (
            False,
            False,
            True,
        )
        statement = "create schema webhooks authorization authenticator"
        warned = [line["message"] for line in daemon.lines if line["level"] == "warn"]
        assert len([text for text in warned if statement in text]) == 1, "one process logs it"
        database.execute(statement)
        wait_for(lambda: webhooks()["ready"], "webhooks in both workers")
        assert daemon.stop() == 0


def test_webhooks_are_off_without_their_section(tmp_path: Path, database: Database) -> None:
    """The schema ``webhooks`` is not created, although the login role may create it."""
    database.execute(f"grant create on database {database.name} to authenticator")
    with Daemon(tmp_path, database.uri) as daemon:
        daemon.wait_ready()
        assert daemon.admin("GET", "/ready").json["webhooks"] is None
        response = daemon.request("GET", "/v2/access")
        off = "Webhooks are off: the configuration has no section [webhooks]"
        assert (response.status, response.json["error"]["message"]) == (404, off)
        assert database.execute("select to_regnamespace('webhooks')") == [(None,)]
        written = daemon.config.read_text()
        daemon.config.write_text(f"{written}[webhooks]\nencryption-key = {KEY}\n")
        assert daemon.admin("POST", "/reload").status == 200
        wait_for(lambda: daemon.admin("GET", "/ready").json["webhooks"]["ready"], "webhooks")
        assert daemon.request("GET", "/v2/access").status == 401
        daemon.config.write_text(written)
        assert daemon.admin("POST", "/reload").status == 200
        assert daemon.request("GET", "/v2/access").status == 404
        assert daemon.admin("GET", "/ready").json["webhooks"] is None
        assert daemon.stop() == 0


@pytest.mark.direct("PostgreSQL sees the pooler's connections, not the daemon's")
def test_worker_opens_no_more_connections_than_documented(
    tmp_path: Path, database: Database, receiver: Any
) -> None:
    allow_migrations(database)
    database.execute(SCHEMA)
    with Daemon(
        tmp_path, database.uri, settings={"workers": "2"}, project={"db-pool": "3"}, environ=ENVIRON
    ) as daemon:
        daemon.wait_ready()
        prepare(database, f"http://127.0.0.1:{receiver.server_port}/hook")
        peaks = [0]

        def watch() -> int:
            peaks.append(database.execute(OPENED)[0][0])
            return peaks[-1]

        with ThreadPoolExecutor(20) as threads:
            responses = [threads.submit(daemon.graphql, SLOW) for _ in range(8)]
            wait_for(lambda: watch() >= 2 * 3, "full pools")
            database.execute(
                "select webhooks.publish(%s, 'acme', %s, '{\"reason\": \"inactivity\"}', 'key ' || n) "
                "from generate_series(1, 400) n",
                (PAUSED, REF),
            )
            for _ in range(4):
                canceled = HTTPConnection("127.0.0.1", daemon.port)
                canceled.request("POST", "/graphql/v1", json.dumps({"query": SLOW}), HEADERS)
                canceled.close()
            wait_for(lambda: watch() and len(receiver.received) >= 400, "the deliveries")
            wait_for(lambda: watch() and all(response.done() for response in responses), "the answers")
    # Up to eight connections are outside the pool: two listen all the time, up to four are for webhooks.
    assert 2 * (3 + 2 + 1) <= max(peaks) <= 2 * (3 + 8)
