"""Clients of a daemon during a failover."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from threading import Event
from typing import TYPE_CHECKING, Any

from support.daemon import KEY, SECRET_KEY, wait_for
from support.management import event
from support.recorder import HOOK

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.daemon import Answer, Daemon
    from support.installation import Installation
    from support.recorder import Recorder

SCHEMA = """
create table note (id int primary key, body text);
insert into note values (1, 'one');
grant select on note to anon;
grant all on note to service_role;
"""
NOTES = "{ noteCollection { edges { node { id } } } }"


def read(daemon: Daemon, target: str = "note?select=id") -> Answer:
    return daemon.request("GET", f"/rest/v1/{target}", headers={"apikey": KEY})


def write(daemon: Daemon, number: int) -> Answer:
    body = json.dumps({"id": number, "body": "x"})
    return daemon.request("POST", "/rest/v1/note", body, {"apikey": SECRET_KEY})


def request(daemon: Daemon, method: str, target: str, body: str | None = None, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return daemon.request(method, f"/rest/v1/{target}", body, {"apikey": SECRET_KEY, **named})


def project(daemon: Daemon) -> Any:
    """Return the state of the project according to ``/ready``."""
    response = daemon.try_admin("GET", "/ready")
    return response.json["projects"][0] if response else {}


class Clients:
    """Clients that continuously write rows and publish events, regardless of errors.

    :ivar rows: numbers of acknowledged rows.
    :ivar events: numbers of acknowledged events.
    """

    def __init__(self, installation: Installation, daemon: Daemon) -> None:
        self._installation = installation
        self._daemon = daemon
        self._over = Event()
        self._threads = ThreadPoolExecutor(2)
        self.rows: list[int] = []
        self.events: list[int] = []
        self._ends = [
            self._threads.submit(self._repeat, self._write, self.rows),
            self._threads.submit(self._repeat, self._publish, self.events),
        ]

    def _repeat(self, act: Callable[[int], int], acknowledged: list[int]) -> None:
        number = 1000
        while not self._over.wait(0.01):
            number += 1
            with suppress(OSError, HTTPException):
                if act(number) == 201:
                    acknowledged.append(number)

    def _write(self, number: int) -> int:
        return write(self._daemon, number).status

    def _publish(self, number: int) -> int:
        body = event(f"number {number}", payload={"number": number, "reason": "inactivity"})
        response = self._installation.manage(self._daemon, "POST", "/v1/webhooks/events", json.dumps(body))
        return 0 if response is None else response.status

    def wait_for_more(self) -> None:
        """Wait until more rows and events are acknowledged."""
        rows, events = len(self.rows), len(self.events)
        wait_for(lambda: len(self.rows) > rows + 3 and len(self.events) > events + 3, "acknowledged writes")

    def end(self) -> None:
        self._over.set()
        for each in self._ends:
            each.result()
        self._threads.shutdown()


def delivered(recorder: Recorder) -> set[int]:
    """Return the numbers of the delivered events."""
    return {one.event["payload"]["number"] for one in recorder.at(HOOK)}
