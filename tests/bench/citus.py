"""Latency of single-tenant requests on a Citus cluster, compared with a single server.

Run as ``PYTHONPATH=daemon:tests python tests/bench/citus.py [ROUNDS]`` with a PostgreSQL that has Citus
(``PG_BIN``). It starts a cluster of a coordinator and two workers, a single server, and a daemon for the
cluster and for the server. It sends each request to both daemons in turn over persistent connections. The
columns are the 5th percentile of the latency in milliseconds, and the ratio of cluster to server. Higher
percentiles depend on other load of the machine.

For comparison, a plain PostgreSQL client executes a prepared statement for the same row: in a transaction
with role and claims, sent in one message, and without a transaction, so that Citus begins none. In these
columns, the difference between cluster and server is the cost of Citus itself.
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
import psycopg2
from support.cluster import cluster, plain_tables
from support.daemon import JWT_SECRET, KEY, Daemon
from support.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from support.postgres import Database

_CLAIMS = {"role": "authenticated", "company_id": 3}
_HEADERS = {
    "apikey": KEY,
    "Authorization": f"Bearer {jwt.encode(_CLAIMS, JWT_SECRET, 'HS256')}",
    "Content-Type": "application/json",
}
_SHOWN = {"Prefer": "return=representation"}
_MERGED = {"Prefer": "return=representation, resolution=merge-duplicates"}
_WARM_UP = 30


@dataclass(frozen=True)
class Case:
    """A kind of request.

    :ivar target: returns the path and query of the request with an increasing number.
    :ivar body: returns the body of the request, None for requests without a body.
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


_INSERT = "insert into task (company_id, id, project_id, title) values ($1, $2, 1, 'Task')"
PLAIN: Mapping[str, tuple[str, Callable[[int], int]]] = {
    "read by key": ("select * from task where company_id = $1 and id = $2", lambda _: 4),
    "read of a page": (
        "select * from task where company_id = $1 and id < $2 order by id limit 10",
        lambda _: 16,
    ),
    "read with parent": (
        "select t.id, t.title, p.title from task t left join project p on p.company_id = $1"
        " and p.id = t.project_id where t.company_id = $1 and t.id = $2",
        lambda _: 4,
    ),
    "read with children": (
        "select p.id, t.id, t.title from project p left join task t on t.company_id = $1"
        " and t.project_id = p.id where p.company_id = $1 and p.id = $2",
        lambda _: 2,
    ),
    "insert": (f"{_INSERT} returning *", lambda n: 100_000 + n),
    "upsert": (
        f"{_INSERT} on conflict (company_id, id) do update set title = excluded.title returning *",
        lambda _: 1,
    ),
    "update": ("update task set hours = $2 where company_id = $1 and id = 4 returning *", lambda n: n),
    "delete": ("delete from task where company_id = $1 and id = $2 returning *", lambda n: 100_000 + n),
}
"""Statements of the plain client by case, with their second parameter. The first is the company."""


_ROLE = "select set_config('role', 'authenticated', true)"


class Plain:
    """A plain SQL client.

    On a cluster, it also sets the claims on the node that stores the row.
    """

    def __init__(self, database: Database, *, distributed: bool) -> None:
        self._connection = psycopg2.connect(database.uri)
        self._connection.autocommit = True
        self._cursor = self._connection.cursor()
        if distributed:
            self._cursor.execute("set citus.propagate_set_commands = local")
        claims = json.dumps(_CLAIMS)
        known = f"set local request.jwt.claims = '{claims}'"
        # Citus sends workers the full text of a message that contains SET LOCAL, so it must be separate.
        self._claims = f"do $do$begin {known};end$do$" if distributed else known

    def close(self) -> None:
        self._connection.close()

    def prepare(self, text: str) -> None:
        """Prepare a statement, replacing the previous one."""
        self._cursor.execute(f"deallocate all; prepare plain (int, int) as {text}")

    def transaction(self, number: int) -> float:
        """Execute the statement with role and claims in a transaction and return its duration in seconds."""
        return self._timed(f"begin;{_ROLE};{self._claims};execute plain(3, {number});commit")

    def statement(self, number: int) -> float:
        """Execute only the statement as the role and return its duration in seconds."""
        self._cursor.execute("set role authenticated")
        seconds = self._timed(f"execute plain(3, {number})")
        self._cursor.execute("reset role")
        return seconds

    def _timed(self, text: str) -> float:
        began = time.perf_counter()
        self._cursor.execute(text)
        return time.perf_counter() - began


def _sent(connection: HTTPConnection, case: Case, number: int) -> float:
    """Send a request and return the seconds until its response."""
    body = None if case.body is None else json.dumps(case.body(number)).encode()
    headers = {**_HEADERS, **(case.headers or {})}
    began = time.perf_counter()
    connection.request(case.method, case.target(number), body, headers)
    response = connection.getresponse()
    text = response.read()
    seconds = time.perf_counter() - began
    if response.status >= 300 or b'"errors"' in text:
        raise AssertionError(f"{case.name}: {response.status} {text.decode()}")
    return seconds


def _minimum(times: list[float]) -> float:
    """Return the 5th percentile of the times after the warm-up, in milliseconds."""
    return 1000 * sorted(times[_WARM_UP:])[len(times[_WARM_UP:]) // 20]


def _measured(case: Case, connections: list[HTTPConnection], plain: list[Plain], rounds: int) -> list[float]:
    """Return the latency of each connection, of each plain client's transactions, and of its statements."""
    text, value = PLAIN[case.name.removeprefix("GraphQL ")]
    for client in plain:
        client.prepare(text)
    found: list[list[float]] = [[] for _ in range(len(connections) + 2 * len(plain))]
    for number in range(1000, 1000 + _WARM_UP + rounds):
        times = [_sent(connection, case, number) for connection in connections]
        times += [client.transaction(value(2 * number)) for client in plain]
        times += [client.statement(value(2 * number + 1)) for client in plain]
        for several, one in zip(found, times, strict=True):
            several.append(one)
    return [_minimum(times) for times in found]


def main(rounds: int) -> None:
    server = Server()
    with ExitStack() as stack:
        stack.callback(server.remove)
        server.create()
        if not server.has("citus"):
            sys.stderr.write("nothing is measured: this PostgreSQL lacks citus\n")
            return
        _, distributed = stack.enter_context(cluster())
        connections, plain = [], []
        for database in (plain_tables(server), distributed):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            daemon = stack.enter_context(Daemon(folder, database.uri))
            daemon.wait_ready()
            connections.append(HTTPConnection("127.0.0.1", daemon.port))
            stack.callback(connections[-1].close)
            plain.append(Plain(database, distributed=database is distributed))
            stack.callback(plain[-1].close)
        kinds = ("daemon", "plain transaction", "plain statement")
        sys.stdout.write(f"{'':26}{''.join(f'{kind:^26}' for kind in kinds)}\n")
        heading = f"{'one':>9}{'cluster':>9}{'times':>8}"
        sys.stdout.write(f"{'':26}{heading * len(kinds)}\n")
        for case in CASES:
            times = _measured(case, connections, plain, rounds)
            cells = [
                f"{one:9.2f}{many:9.2f}{many / one:8.2f}"
                for one, many in zip(times[::2], times[1::2], strict=True)
            ]
            sys.stdout.write(f"{case.name:26}{''.join(cells)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["300"])[0]))
