"""Processor time of the schema diagram in the browser, for the main thread and the worker.

Run as ``PYTHONPATH=daemon:tests python tests/bench/diagram.py [TABLES]``. Each table has ten columns and one
or two foreign keys.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright
from support.console import act_as
from support.daemon import Daemon
from support.postgres import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = "/usr/bin/chromium"
TIMES = 5
CATEGORIES = ["toplevel", "__metadata"]


def schema(tables: int) -> str:
    """Return SQL that creates tables. Each table references a hub, and two of three also a neighbor."""
    columns = ", ".join(f"column_{number} {kind}" for number, kind in enumerate(["text", "int", "date"] * 2))
    statements = ["create table part_0 (id int primary key)"]
    for number in range(1, tables):
        hub = f"hub int references part_{number // 20 * 20 if number % 20 else max(0, number - 20)}"
        neighbor = f"neighbor int {f'references part_{number - 1}' if number % 3 else ''}"
        statements.append(
            f"create table part_{number} (id int primary key, {hub}, {neighbor}, {columns}, word text)"
        )
    return ";\n".join([*statements, "grant all on all tables in schema public to service_role;"])


def measure(browser: Browser, address: str, tables: int) -> dict[str, float]:
    """Open the Schema page. Return milliseconds of processor time per thread, and until it is complete."""
    context = browser.new_context(base_url=address, viewport={"width": 1440, "height": 900})
    page = context.new_page()
    act_as(page, "service_role")
    page.goto("/console/health")
    page.get_by_role("heading", name="Health").wait_for()
    browser.start_tracing(page=page, categories=CATEGORIES)
    page.goto("/console/schema")
    drawn = "tables => document.querySelectorAll('[data-table]').length === tables && performance.now()"
    until = page.wait_for_function(drawn, arg=tables).json_value()
    page.wait_for_timeout(500)
    events = json.loads(browser.stop_tracing())["traceEvents"]
    context.close()
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found: dict[str, float] = defaultdict(float, drawn=until)
    for event in events:
        if event["name"].endswith("RunTask"):
            found[names.get((event["pid"], event["tid"]), "?")] += (
                event.get("tdur", event.get("dur", 0)) / 1000
            )
    return found


def main() -> None:
    """Print the medians of five page loads."""
    tables = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    server = Server()
    server.create()
    try:
        database = server.create_database(schema(tables))
        with tempfile.TemporaryDirectory() as folder, Daemon(Path(folder), database.uri) as daemon:
            daemon.wait_ready()
            with sync_playwright() as driver:
                browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                runs = [measure(browser, f"http://127.0.0.1:{daemon.port}", tables) for _ in range(TIMES)]
                browser.close()
            for name in ("CrRendererMain", "DedicatedWorker thread", "drawn"):
                sys.stdout.write(f"{name}: {median(run[name] for run in runs):.0f} ms\n")
            daemon.stop()
    finally:
        server.remove()


if __name__ == "__main__":
    main()
