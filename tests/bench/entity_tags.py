"""Processor time of a REST response with an entity tag, compared with a response without a tag.

Run as ``PYTHONPATH=daemon:tests python tests/bench/entity_tags.py``. Each line contains the size of a body,
and the microseconds of the fastest round.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from dataapi.http.headers import Headers
from dataapi.http.messages import Request
from dataapi.rest import respond
from dataapi.rest.negotiation import Media, MediaKind
from dataapi.rest.parse.request import parse_request
from dataapi.rest.plan.model import ReadResponse, StatementPlan
from dataapi.rest.statements import ResultRow
from dataapi.settings import Project

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 20
SIZES = (50, 300, 2_000, 20_000, 200_000, respond.LARGEST_TAGGED)
"""Sizes of bodies in bytes."""

HEADERS = Headers({"host": "127.0.0.1", "apikey": "key", "accept": "application/json", "user-agent": "bench"})
REQUEST = Request("id", "GET", "/rest/v1/item", "select=id,name&id=eq.1", HEADERS, b"")
PLAN = StatementPlan((), Media(MediaKind.JSON, "application/json; charset=utf-8"), ReadResponse(), True)


def measure(work: Callable[[], object], repetitions: int) -> float:
    """Return the microseconds of processor time per call."""
    started = time.process_time()
    for _ in range(repetitions):
        work()
    return (time.process_time() - started) / repetitions * 1e6


def main() -> None:
    project = Project("abcdefghijklmnopqrst", "acme", "postgresql:///bench")
    request = parse_request(REQUEST, project, frozenset())
    sys.stdout.write("bytes  with tag  without tag\n")
    largest = respond.LARGEST_TAGGED
    for size in SIZES:
        row = ResultRow(b"x" * size, 1, None, None, None)
        times = {}
        for name, limit in (("with", largest), ("without", -1)):
            respond.LARGEST_TAGGED = limit
            reply = partial(respond.reply, PLAN, request, row)
            times[name] = min(measure(reply, 2_000_000 // (size + 1_000)) for _ in range(ROUNDS))
        respond.LARGEST_TAGGED = largest
        sys.stdout.write(f"{size:>7} {times['with']:>8.2f} {times['without']:>11.2f}\n")


if __name__ == "__main__":
    main()
