"""Event types of watches that are created at run time reach every process within seconds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dataapi.database.script import complete, opened
from dataapi.webhooks.model import Permission
from dataapi.webhooks.secrets import Cipher
from dataapi.webhooks.store import make_store
from dataapi.webhooks.store.directory import new_token
from support.daemon import DATAAPI, SCHEMA, Daemon, environment, execute, wait_for
from support.webhooks import ACME, KEY, SECRET, allow_migrations

if TYPE_CHECKING:
    from pathlib import Path

    from support.postgres import Database

ORDER = "v1.shop.order"
SCOPE = f"/v2/organizations/{ACME.organization}/webhooks"
ENVIRON = {"DATAAPI_WEBHOOKS_ENCRYPTION_KEY": KEY}
REQUESTS = 12
"""Number of requests on separate connections. Both workers receive some of the requests."""


def test_workers_learn_of_added_and_removed_types(database: Database, tmp_path: Path) -> None:
    database.execute(SCHEMA)
    allow_migrations(database)
    token = new_token()
    with Daemon(tmp_path, database.uri, settings={"workers": "2"}, environ=ENVIRON) as daemon:
        daemon.wait_ready()
        wait_for(lambda: daemon.admin("GET", "/ready").json["webhooks"]["ready"], "webhooks")

        async def made(runner: Any) -> None:
            directory = make_store(runner, Cipher([KEY]), 14).directory
            await directory.create_organization(ACME.organization, early_access=True)
            await directory.create_token(token, ACME.organization, Permission, None)

        with opened(database.uri) as runner:
            complete(made(runner))
        headers = {"Authorization": f"Bearer {token}"}

        def known() -> list[bool]:
            found = []
            for _ in range(REQUESTS):
                listed = daemon.request("GET", f"{SCOPE}/event-types", None, headers).json["data"]
                described = daemon.request("GET", "/v2/openapi.json").json["webhooks"]
                found += [ORDER in [one["id"] for one in listed], ORDER in described]
            return found

        def types(*words: str) -> None:
            command = [*DATAAPI, "webhooks", "types", *words, "--config", str(daemon.config)]
            assert execute(command, tmp_path, environment(ENVIRON)).returncode == 0

        assert not any(known())
        types("add", ORDER)
        wait_for(lambda: all(known()), "both workers to know the type")
        attributes = {
            "url": "https://receiver.example/", "event_types": [{"type": ORDER}], "signing_secret": SECRET,
        }  # fmt: skip
        body = json.dumps({"data": {"type": "endpoint", "attributes": attributes}})
        created = daemon.request("POST", f"{SCOPE}/endpoints", body, headers)
        assert created.json.get("error", {}).get("code") != "bad_request.validation"
        types("remove", ORDER)
        wait_for(lambda: not any(known()), "both workers to drop the type")
        daemon.stop()
