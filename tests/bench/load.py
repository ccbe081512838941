"""Puts load on the daemon with wrk, and reads what wrk saw."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.cases import NUMBER, Case

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SCRIPT = """
local headers = {headers}
local method = {method}
local path_head, path_tail = {path_head}, {path_tail}
local body_head, body_tail = {body_head}, {body_tail}
local varying, most, number = {varying}, {most}, {first}
function request()
  if not varying then return fixed end
  number = number % most + 1
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
class Load:
    """What a run of wrk saw; ``p50`` and ``p99`` in milliseconds, ``cpu`` in microseconds per request."""

    per_second: float
    p50: float
    p99: float
    failed: int
    cpu: float


def put_load(
    case: Case,
    port: int,
    headers: Mapping[str, str],
    folder: Path,
    *,
    pid: int,
    seconds: int,
    connections: int,
) -> Load:
    """Send a case's requests for some seconds, after a second that is not counted."""
    script = folder / "case.lua"
    url = f"http://127.0.0.1:{port}"
    results = []
    first = 0
    for length in (1, seconds):
        script.write_text(_lua(case, headers, first))
        before = processor_time(pid)
        finished = subprocess.run(
            ["wrk", "-t1", f"-c{connections}", f"-d{length}", "-s", str(script), url],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        results.append(json.loads(finished.stdout.rstrip().splitlines()[-1]))
        results[-1]["cpu"] = processor_time(pid) - before
        first += results[-1]["requests"] + connections
    seen = results[-1]
    return Load(
        seen["requests"] / seen["microseconds"] * 1e6,
        seen["p50"],
        seen["p99"],
        seen["failed"],
        seen["cpu"] / max(1, seen["requests"]) * 1e6,
    )


def processor_time(pid: int) -> float:
    """Return the seconds of processor time that a process and its children, such as workers, used."""
    children = [int(one) for one in _read(f"/proc/{pid}/task/{pid}/children").split()]
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(processor_time(child) for child in children)


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()


def _lua(case: Case, headers: Mapping[str, str], first: int) -> str:
    path_head, path_varies, path_tail = case.path.partition(NUMBER)
    body_head, body_varies, body_tail = (case.body or "").partition(NUMBER)
    members = ", ".join(f"[{_quoted(name)}] = {_quoted(value)}" for name, value in headers.items())
    return _SCRIPT.format(
        headers="{" + members + "}",
        method=_quoted("POST" if case.body else "GET"),
        path_head=_quoted(path_head),
        path_tail=_quoted(path_tail) if path_varies else "nil",
        body_head=_quoted(body_head) if case.body else "nil",
        body_tail=_quoted(body_tail) if body_varies else "nil",
        varying="true" if path_varies or body_varies else "false",
        most=case.most,
        first=first,
    )


def _quoted(text: str) -> str:
    """Return a Lua string."""
    return '"' + "".join(c if c.isalnum() else f"\\{ord(c):03d}" for c in text) + '"'
