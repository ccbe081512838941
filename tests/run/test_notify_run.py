"""The example of docs/webhooks.md, Events from NOTIFY, on a daemon with two workers."""

from __future__ import annotations

import configparser
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.database.script import complete, opened
from dataapi.webhooks.secrets import Cipher
from dataapi.webhooks.store import make_store
from support import documents
from support.daemon import SCHEMA, Daemon, wait_for
from support.webhooks import ACME, KEY, REF, add_endpoint, allow_migrations

if TYPE_CHECKING:
    from pathlib import Path

    from support.postgres import Database, Server

pytestmark = pytest.mark.direct("a pooler forwards no notifications")

CHAPTER = documents.chapter(documents.read("docs/webhooks.md"), "Events from NOTIFY")
LISTENING = "notify:orders: listening"
BODIES = "select body::jsonb from webhooks.event where type = %s and body <> '' order by id"


def test_documented_notification_is_published_once_by_several_workers(
    server: Server, database: Database, tmp_path: Path
) -> None:
    database.execute(SCHEMA)
    allow_migrations(database)
    shop = server.create_database()
    [example, payload] = documents.indented(CHAPTER)
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(example)
    section = parser["notify:orders"]
    channel, event_type = section["channel"], section["event-type"]
    configured = example.replace(section["db-uri"], shop.direct_uri)
    [statement] = [block.text for block in documents.blocks(CHAPTER) if block.language == "sql"]

    async def made(runner: Any) -> None:
        store = make_store(runner, Cipher([KEY]), 14)
        await store.directory.create_organization(ACME.organization, early_access=True)
        await store.directory.create_project(REF, ACME.organization)
        await add_endpoint(store, event_types=(event_type, f"{event_type}2"))

    def sent(count: int, of_type: str = event_type) -> list[Any]:
        """Wait for a number of events and return the payloads of all events."""
        wait_for(lambda: len(database.execute(BODIES, (of_type,))) >= count, f"{count} events")
        return [body["payload"] for (body,) in database.execute(BODIES, (of_type,))]

    made_daemon = Daemon(tmp_path, database.uri, settings={"workers": "2", "log-format": "text"})
    with made_daemon.config.open("a") as file:
        file.write(f"\n[webhooks]\nencryption-key = {KEY}\n\n{configured}")
    with made_daemon as daemon:
        daemon.wait_ready()
        wait_for(lambda: daemon.text.count(LISTENING) == 2, "both workers to listen")
        with opened(database.uri) as runner:
            complete(made(runner))
        shop.execute(statement)
        assert sent(1) == [json.loads(payload)]
        # Both workers lose their connection and listen again.
        assert server.terminate_backends(shop) == 2
        wait_for(lambda: daemon.text.count(LISTENING) == 4, "both workers to listen again")
        assert daemon.text.count("notifications are being lost") == 2
        shop.execute(statement)
        shop.execute(f"notify {channel}, 'not JSON'")
        rejected = 'dataapi_webhooks_rejected_total{reason="not_json",source="notify:orders"}'
        wait_for(lambda: daemon.metric(rejected) == 2, "both workers to count the invalid notification")
        assert len(sent(2)) == 2

        stock = re.sub(r"orders|v1\.shop\.placed", lambda found: f"{found[0]}2", configured)
        with daemon.config.open("a") as file:
            file.write(f"\n{stock}")
        assert daemon.admin("POST", "/reload").status == 200
        wait_for(lambda: daemon.text.count("notify:orders2: listening") == 2, "the new channel")
        wait_for(lambda: daemon.text.count(LISTENING) == 6, "the other channel")
        shop.execute(statement)
        shop.execute(statement.replace("orders", "orders2"))
        assert len(sent(3)) == 3
        assert sent(1, f"{event_type}2") == [json.loads(payload)]
        assert daemon.stop() == 0
    assert "Traceback" not in daemon.text
