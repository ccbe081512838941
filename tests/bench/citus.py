"""How long requests of one tenant take on a Citus cluster, beside the same requests on one server.

Run as ``PYTHONPATH=daemon:tests python tests/bench/citus.py [ROUNDS]`` with a PostgreSQL that has Citus
(``PG_BIN``); without it nothing is measured.  It starts a cluster of a coordinator and two workers, a server,
and a daemon for each, and sends every request to the one and to the other in turns, over a connection that is
kept.  The columns are milliseconds of a request, those that a twentieth of all rounds stays below, as others
use the machine, too, and how often the one server's time the cluster takes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

import jwt
from support.cluster import cluster, plain_tables
from support.daemon import JWT_SECRET, KEY, Daemon
from support.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_HEADERS = {
    "apikey": KEY,
    "Authorization": f"Bearer {jwt.encode({'role': 'authenticated', 'company_id': 3}, JWT_SECRET, 'HS256')}",
    "Content-Type": "application/json",
}
_SHOWN = {"Prefer": "return=representation"}
_MERGED = {"Prefer": "return=representation, resolution=merge-duplicates"}
_WARM_UP = 30


@dataclass(frozen=True)
class Case:
    """A kind of request.

    :ivar target: of the request with a number, which grows with each.
    :ivar body: of the request with that number, None without one.
    """

    name: str
    method: str
    target: Callable[[int], str]
    body: Callable[[int], object] | None = None
    headers: Mapping[str, str] | None = None


def _rest(target: str) -> Callable[[int], str]:
    return lambda _: f"/rest/v1/{target}"


def _graphql(name: str, text: str) -> Case:
    return Case(
        f"GraphQL {name}", "POST", lambda _: "/graphql/v1", lambda n: {"query": text.replace("#", str(n))}
    )


def _task(number: int) -> dict[str, object]:
    return {"company_id": 3, "id": number, "project_id": 1, "title": f"Task {number}"}


_KEY = "filter: {companyId: {eq: 3}, id: {eq: 4}}"
CASES = [
    Case("read by key", "GET", _rest("task?company_id=eq.3&id=eq.4")),
    Case("read of a page", "GET", _rest("task?company_id=eq.3&id=lt.16&order=id&limit=10")),
    Case("read with parent", "GET", _rest("task?company_id=eq.3&id=eq.4&select=id,title,project(title)")),
    Case("read with children", "GET", _rest("project?company_id=eq.3&id=eq.2&select=id,task(id,title)")),
    Case("insert", "POST", _rest("task"), _task, _SHOWN),
    Case("upsert", "POST", _rest("task"), lambda n: {**_task(1), "hours": n}, _MERGED),
    Case("update", "PATCH", _rest("task?company_id=eq.3&id=eq.4"), lambda n: {"hours": n}, _SHOWN),
    Case("delete", "DELETE", lambda n: f"/rest/v1/task?company_id=eq.3&id=eq.{n}", None, _SHOWN),
    _graphql("read by key", f"{{ taskCollection({_KEY}) {{ edges {{ node {{ id title }} }} }} }}"),
    _graphql(
        "read with parent",
        f"{{ taskCollection({_KEY}) {{ edges {{ node {{ id project {{ title }} }} }} }} }}",
    ),
    _graphql(
        "insert",
        "mutation { insertIntoTaskCollection(objects: [{companyId: 3, id: 1#, projectId: 1, title: \"T\"}])"
        " { affectedCount records { id } } }",
    ),
    _graphql(
        "update",
        f"mutation {{ updateTaskCollection({_KEY}, set: {{title: \"#\"}}) {{ records {{ title }} }} }}",
    ),
    _graphql(
        "delete",
        "mutation { deleteFromTaskCollection(filter: {companyId: {eq: 3}, id: {eq: 1#}}) { affectedCount } }",
    ),
]  # fmt: skip


def _sent(connection: HTTPConnection, case: Case, number: int) -> float:
    """Send a request and return the seconds until its answer."""
    body = None if case.body is None else json.dumps(case.body(number)).encode()
    headers = {**_HEADERS, **(case.headers or {})}
    began = time.perf_counter()
    connection.request(case.method, case.target(number), body, headers)
    answer = connection.getresponse()
    text = answer.read()
    took = time.perf_counter() - began
    if answer.status >= 300 or b'"errors"' in text:
        raise AssertionError(f"{case.name}: {answer.status} {text.decode()}")
    return took


def _measured(case: Case, connections: list[HTTPConnection], rounds: int) -> list[float]:
    """Return the time of each connection that a twentieth of its times stays below, in milliseconds."""
    found: list[list[float]] = [[] for _ in connections]
    for number in range(1000, 1000 + _WARM_UP + rounds):
        for times, connection in zip(found, connections, strict=True):
            times.append(_sent(connection, case, number))
    return [1000 * sorted(times[_WARM_UP:])[rounds // 20] for times in found]


def main(rounds: int) -> None:
    """Start what is needed, measure, print, and end it."""
    server = Server()
    with ExitStack() as stack:
        stack.callback(server.remove)
        server.create()
        if not server.has("citus"):
            sys.stderr.write("nothing is measured: this PostgreSQL lacks citus\n")
            return
        _, distributed = stack.enter_context(cluster())
        connections = []
        for database in (plain_tables(server), distributed):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            daemon = stack.enter_context(Daemon(folder, database.uri))
            daemon.wait_ready()
            connections.append(HTTPConnection("127.0.0.1", daemon.port))
            stack.callback(connections[-1].close)
        sys.stdout.write(f"{'':26}{'one server':>12}{'cluster':>10}{'times':>8}\n")
        for case in CASES:
            one, many = _measured(case, connections, rounds)
            sys.stdout.write(f"{case.name:26}{one:12.2f}{many:10.2f}{many / one:8.2f}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["300"])[0]))
