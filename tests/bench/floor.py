"""What PostgreSQL alone does: pgbench sends the message that the daemon would send for a case."""

from __future__ import annotations

import asyncio
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg2.extensions
from bench.cases import Case
from dataapi.auth.caller import REST_PREFIX, Caller
from dataapi.database import sql_text
from dataapi.database.message import NO_DEFAULTS, UNDO
from dataapi.database.prepared import Prepared, opened
from dataapi.database.sql_text import quote_literal
from dataapi.graphql import transport
from dataapi.graphql.engine import Engine
from dataapi.http.messages import Request
from dataapi.rest import handler as rest_handler
from dataapi.rest.handler import RestHandler
from dataapi.settings import Project
from support.catalog import load_catalog

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from pathlib import Path

    from dataapi.database.message import Message
    from support.postgres import Database

_PROBE = 2357
"""A number that no message holds but as the one of its request."""

_CALLER = Caller("anon", '{"role":"anon"}')


@dataclass
class _Recorder:
    """Stands in for the pool: keeps what would be sent, and answers with a row of the form expected."""

    row: tuple[Any, ...]
    message: Message | None = None

    async def run(self, message: Message) -> list[tuple[Any, ...]]:
        """Keep the message."""
        self.message = message
        return [self.row]

    def stream(self, message: Message) -> Any:
        """Refuse: no case is sent while it is made."""
        raise NotImplementedError

    open_transaction = stream


def messages_per_second(
    case: Case, database: Database, headers: Mapping[str, str], folder: Path, *, seconds: int, clients: int
) -> float:
    """Return how often a second the case's message is answered."""
    script = folder / "floor.sql"
    script.write_text(_script(_message(case, database, headers), case.most))
    address = psycopg2.extensions.parse_dsn(database.uri)
    finished = subprocess.run(
        ["pgbench", "-n", "-M", "simple", "-j", "1", "-c", str(clients), "-T", str(seconds),
         "-D", "unprepared=1", "-f", str(script), "-h", address["host"], "-p", address["port"],
         "-U", address["user"], address["dbname"]],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = re.search(r"^tps = ([0-9.]+)", finished.stdout, re.MULTILINE)
    if found is None or "failed" in finished.stderr or "ERROR" in finished.stderr:
        raise RuntimeError(f"pgbench failed: {finished.stderr[-2000:]}")
    return float(found[1])


def _message(case: Case, database: Database, headers: Mapping[str, str]) -> Message:
    """Return what the daemon would send to PostgreSQL for the request numbered ``_PROBE``."""
    path, body = case.numbered(_PROBE)
    path, _, query = path.partition("?")
    named = {name.lower(): value for name, value in headers.items()}
    request = Request("bench", "GET" if body is None else "POST", path, query, named, (body or "").encode())
    catalog = load_catalog(database.uri)
    project = Project("a" * 20, "acme", database.uri)
    answer: Coroutine[Any, Any, Any]
    if path.startswith(REST_PREFIX):
        recorder = _Recorder((b"[]", 0, None, None, None))
        answer = RestHandler(project, recorder, lambda: catalog).answer(request, _CALLER)
        # There is no reactor here to plan long bodies beside.
        rest_handler.LONG = len(request.body)
    else:
        recorder = _Recorder((b"null",))
        engine = Engine(project, recorder, lambda: catalog)
        answer = engine.answer(transport.read(request), _CALLER, request)
    asyncio.run(answer)
    assert recorder.message is not None, "the case sends nothing to PostgreSQL"
    return recorder.message


def _script(message: Message, most: int) -> str:
    """Return pgbench's script of a message: its statements are prepared once a connection."""
    prepared = Prepared()
    prepared.compose(message)
    composed = prepared.compose(message)
    names = re.findall(r"execute (\w+)", composed.text)
    statements = (opened(message, NO_DEFAULTS)[0], *[bound.statement for bound in message.statements])
    prepares = [
        sql_text.prepare(name, statement.text, statement.types).replace("%%", "%")
        for name, statement in zip(names, statements, strict=True)
    ]
    values = iter(composed.values)
    one_message = (UNDO + composed.text).rstrip(";").replace(";", "\\;\n")
    filled = re.sub(r"%s|%%", lambda place: "%" if place[0] == "%%" else _value(next(values)), one_message)
    lines = [
        "\\if :unprepared",
        *prepares,
        "\\set unprepared 0",
        "\\endif",
        f"\\set number random(1, {min(most, 10**6)})",
        filled + ";",
    ]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if value is None:
        return "null"
    text = str(value)
    # Within a text pgbench fills in the number too.
    return ":number" if text == str(_PROBE) else quote_literal(text).strip().replace(str(_PROBE), ":number")
