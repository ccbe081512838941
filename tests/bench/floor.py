"""The floor: minimal SQL for a case's response, executed by pgbench as a prepared statement."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import psycopg2.extensions
from bench.cases import NUMBER, Case
from bench.load import Load, processor_time
from support.postgres import Database

_SCRIPT = """
\\if :begins
\\set counter :first + :client_id
\\set begins 0
\\endif
\\set counter :counter + :clients
\\set number 1 + mod(:counter, :most)
{statement};
"""


def put_floor_load(
    case: Case, uri: str, folder: Path, *, database: int, first: int, seconds: int, connections: int
) -> tuple[Load, int]:
    """Execute the case's SQL for some seconds, with the parameters and results of ``put_load``."""
    script = folder / "floor.sql"
    script.write_text(
        _SCRIPT.format(statement=case.floor.replace(NUMBER, ":number").replace("':number'", ":number::text"))
    )
    address = psycopg2.extensions.parse_dsn(uri)
    before = processor_time(database)
    finished = subprocess.run(
        ["pgbench", "-n", "-M", "prepared", "-j", "1", "-c", str(connections), "-T", str(seconds),
         "-D", "begins=1", "-D", f"first={first}", "-D", f"clients={connections}",
         "-D", f"most={case.maximum}",
         "-f", str(script), "-h", address["host"], "-p", address["port"],
         "-U", address["user"], address["dbname"]],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    used = processor_time(database) - before
    rate = re.search(r"^tps = ([0-9.]+)", finished.stdout, re.MULTILINE)
    count = re.search(r"^number of transactions actually processed: ([0-9]+)", finished.stdout, re.MULTILINE)
    if rate is None or count is None or "ERROR" in finished.stderr:
        raise RuntimeError(f"pgbench failed: {finished.stderr[-2000:]}")
    done = int(count[1])
    return Load(float(rate[1]), None, None, 0, 0.0, used / done * 1e6), first + done


def floor_result(case: Case, database: Database, number: int) -> Any:
    """Return the parsed result of the case's SQL for a number."""
    [(text,)] = database.execute(case.floor.replace(NUMBER, str(number)))
    return json.loads(text)
