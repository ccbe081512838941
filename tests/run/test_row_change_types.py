"""Types of row changes that are added while daemons run: every process learns of them within seconds."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from dataapi.database.script import complete, opened
from dataapi.webhooks.model import Permission
from dataapi.webhooks.secrets import Cipher
from dataapi.webhooks.store import make_store
from dataapi.webhooks.store.directory import new_token
from support.daemon import DATAAPI, SCHEMA, Daemon, environment, wait_for
from support.webhooks import ACME, KEY, SECRET, allow_migrations

if TYPE_CHECKING:
    from pathlib import Path

    from support.postgres import Database

ORDER = "v1.shop.order"
SCOPE = f"/v2/organizations/{ACME.organization}/webhooks"
ENVIRON = {"DATAAPI_WEBHOOKS_ENCRYPTION_KEY": KEY}
ASKED = 12
"""Requests, each on a connection of its own, so that both workers get some."""


def test_each_worker_learns_of_a_type_and_of_its_end(database: Database, tmp_path: Path) -> None:
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
            for _ in range(ASKED):
                listed = daemon.request("GET", f"{SCOPE}/event-types", None, headers).json["data"]
                described = daemon.request("GET", "/v2/openapi.json").json["webhooks"]
                found += [ORDER in [one["id"] for one in listed], ORDER in described]
            return found

        def types(*words: str) -> None:
            command = [*DATAAPI, "webhooks", "types", *words, "--config", str(daemon.config)]
            subprocess.run(command, env=environment(ENVIRON), check=True)

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
        wait_for(lambda: not any(known()), "both workers to forget the type")
        daemon.stop()
