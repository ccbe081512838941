"""Puts load on an HTTP server with wrk and returns wrk's results and the processor time of processes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.cases import NUMBER, Case

_SCRIPT = """
local headers = {headers}
local method = {method}
local path_head, path_tail = {path_head}, {path_tail}
local body_head, body_tail = {body_head}, {body_tail}
local varying, maximum, number = {varying}, {maximum}, {first}
local tokens, turn = {tokens}, 0
function request()
  if not varying then return fixed end
  number = number % maximum + 1
  if #tokens > 0 then
    turn = turn % #tokens + 1
    headers["Authorization"] = tokens[turn]
  end
  local path, body = path_head, body_head
  if path_tail then path = path_head .. number .. path_tail end
  if body_tail then body = body_head .. number .. body_tail end
  return wrk.format(method, path, headers, body)
end
function init(arguments)
  fixed = wrk.format(method, path_head, headers, body_head)
end
function done(summary, latency, requests)
  local errors = summary.errors
  local failed = errors.status + errors.connect + errors.read + errors.write + errors.timeout
  local form = '\\n{{"requests": %d, "microseconds": %d, "p50": %.3f, "p99": %.3f, "failed": %d}}\\n'
  local p50, p99 = latency:percentile(50) / 1000, latency:percentile(99) / 1000
  io.write(string.format(form, summary.requests, summary.duration, p50, p99, failed))
end
"""


@dataclass(frozen=True, slots=True)
class Target:
    """A server to put load on.

    :ivar path: replaces the path of each case, "" to use the case's path.
    :ivar tokens: ``Authorization`` headers that requests use in turn.
    """

    port: int
    pid: int
    headers: Mapping[str, str]
    path: str = ""
    tokens: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """The results of a measurement.

    :ivar p50: median latency in milliseconds, None if not measured.
    :ivar p99: 99th percentile of the latency in milliseconds, None if not measured.
    :ivar server: microseconds of the server's processor time per request.
    :ivar database: microseconds of PostgreSQL's processor time per request.
    """

    per_second: float
    p50: float | None
    p99: float | None
    failed: int
    server: float
    database: float


def put_load(
    case: Case,
    target: Target,
    folder: Path,
    *,
    database: int,
    first: int,
    seconds: int,
    connections: int,
) -> tuple[Load, int]:
    """Send a case's requests for some seconds, after a second of warm-up.

    :param database: process ID of PostgreSQL.
    :param first: the number of the first request, minus 1.
    :return: the results, and the number of the last request.
    """
    script = folder / "case.lua"
    for length in (1, seconds):
        script.write_text(_lua(case, target, first))
        before = processor_time(target.pid), processor_time(database)
        finished = subprocess.run(
            ["wrk", "-t1", f"-c{connections}", f"-d{length}", "-s", str(script), f"http://127.0.0.1:{target.port}"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        seen = json.loads(finished.stdout.rstrip().splitlines()[-1])
        after = processor_time(target.pid), processor_time(database)
        first += seen["requests"] + connections
    count = max(1, seen["requests"])
    server, postgres = ((end - begin) / count * 1e6 for begin, end in zip(before, after, strict=True))
    per_second = seen["requests"] / seen["microseconds"] * 1e6
    return Load(per_second, seen["p50"], seen["p99"], seen["failed"], server, postgres), first


def processor_time(pid: int) -> float:
    """Return the seconds of processor time of a process and its descendants, including ended descendants."""
    try:
        own = sum(int(field) for field in _stat(pid)[11:15]) / os.sysconf("SC_CLK_TCK")
        return own + sum(processor_time(child) for child in _children(pid))
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # the process has ended, and its parent's statistics include its time


def resident_memory(pid: int) -> float:
    """Return the resident memory of a process and its children in MiB."""
    own = int(_stat(pid)[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return own + sum(resident_memory(child) for child in _children(pid))


def _stat(pid: int) -> list[str]:
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _children(pid: int) -> list[int]:
    return [int(one) for one in _read(f"/proc/{pid}/task/{pid}/children").split()]


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()


def _lua(case: Case, target: Target, first: int) -> str:
    path_head, path_varies, path_tail = (target.path or case.path).partition(NUMBER)
    body_head, body_varies, body_tail = (case.body or "").partition(NUMBER)
    members = ", ".join(f"[{_quoted(name)}] = {_quoted(value)}" for name, value in target.headers.items())
    return _SCRIPT.format(
        headers="{" + members + "}",
        method=_quoted("POST" if case.body else "GET"),
        path_head=_quoted(path_head),
        path_tail=_quoted(path_tail) if path_varies else "nil",
        body_head=_quoted(body_head) if case.body else "nil",
        body_tail=_quoted(body_tail) if body_varies else "nil",
        varying="true" if path_varies or body_varies or target.tokens else "false",
        maximum=case.maximum,
        first=first,
        tokens="{" + ", ".join(_quoted(token) for token in target.tokens) + "}",
    )


def _quoted(text: str) -> str:
    return '"' + "".join(c if c.isalnum() else f"\\{ord(c):03d}" for c in text) + '"'
