"""Write docs/images/metrics.png: the demo under load, as Prometheus draws the dashboard's queries.

Run as ``python docs/metrics_picture.py``. It requires Debian's packages of Prometheus and Chromium and the
extra ``test``, and takes ten minutes.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from playwright.sync_api import sync_playwright
from screenshots import ADDRESS, CHROMIUM, IMAGES, demo

if TYPE_CHECKING:
    from collections.abc import Iterator

DASHBOARD = Path(__file__).parents[1] / "etc" / "grafana" / "dashboard.json"
PROMETHEUS = "127.0.0.1:9099"
ADMINISTRATION = "127.0.0.1:8766"
"""Address of the demo's admin listener."""
SECONDS = 420
SHOWN = {"Requests": 0, "Response time": 1}
"""Panels to draw, each with the index of the query to draw."""
OPERATION = {"query": "{ blogCollection(first: 2) { edges { node { name owner { firstName } } } } }"}
REQUESTS = (
    ("/rest/v1/leaderboard?select=player,score&order=score.desc", None),
    ("/graphql/v1", OPERATION),
    ("/rest/v1/blog?select=name,blog_post(title)", None),
    ("/graphql/v1", OPERATION),
    ("/rest/v1/leaderboard?select=player,score&order=score.desc", None),
    ("/rest/v1/nothing", None),
)


@contextmanager
def prometheus() -> Iterator[None]:
    """Run a Prometheus that scrapes the demo every two seconds."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prometheus.yml"
        job = {"job_name": "dataapi", "static_configs": [{"targets": [ADMINISTRATION]}]}
        file.write_text(json.dumps({"global": {"scrape_interval": "2s"}, "scrape_configs": [job]}))
        options = [
            f"--config.file={file}",
            f"--storage.tsdb.path={folder}",
            f"--web.listen-address={PROMETHEUS}",
        ]
        with subprocess.Popen(["prometheus", *options, "--log.level=error"]) as process:
            try:
                yield
            finally:
                process.terminate()
                process.wait()


def send_requests(key: str) -> None:
    """Send requests in waves, so that their rate rises and falls."""
    headers = {"apikey": key, "Content-Type": "application/json"}
    began = time.monotonic()
    number = 0
    while (passed := time.monotonic() - began) < SECONDS:
        path, body = REQUESTS[number % len(REQUESTS)]
        number += 1
        data = json.dumps(body).encode() if body else None
        with suppress(HTTPError), urlopen(Request(ADDRESS + path, data, headers)) as answer:
            answer.read()
        time.sleep(0.01 * (1.5 + math.sin(passed / 40)))


def address_of_graphs() -> str:
    """Return the URL of the Prometheus page that graphs the queries."""
    panels = {panel["title"]: panel for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]}
    fields: dict[str, str] = {}
    for number, (title, query) in enumerate(SHOWN.items()):
        text = panels[title]["targets"][query]["expr"]
        text = text.replace('{instance=~"$instance"}', "").replace("$__rate_interval", "30s")
        fields |= {
            f"g{number}.expr": text,
            f"g{number}.tab": "0",
            f"g{number}.range_input": f"{SECONDS - 60}s",
        }
    return f"http://{PROMETHEUS}/classic/graph?{urlencode(fields)}"


def main() -> None:
    os.environ["DATAAPI_DATAAPI_LOG_LEVEL"] = "crit"  # no process reads the log
    with demo() as banner, prometheus(), sync_playwright() as driver:
        key = re.search(r"sb_publishable_\S+", banner)
        assert key is not None, "the demo prints its keys"
        send_requests(key[0])
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 1580})
        page.goto(address_of_graphs())
        page.locator(".legend").nth(len(SHOWN) - 1).wait_for()
        page.wait_for_load_state("networkidle")
        page.screenshot(path=IMAGES / "metrics.png")
        browser.close()


if __name__ == "__main__":
    main()
