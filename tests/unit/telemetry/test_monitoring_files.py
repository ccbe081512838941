"""The dashboard and the alerts that operators install, held against the metrics that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dataapi.telemetry.metrics import FAMILIES

ETC = Path(__file__).parents[3] / "etc"
ALERTS = ETC / "prometheus" / "alerts.yml"
DASHBOARD = ETC / "grafana" / "dashboard.json"
PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}


def series() -> set[str]:
    """Return the names that ``/metrics`` may have."""
    histograms = [name for name, metric in FAMILIES.items() if metric.histogram]
    parts = {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    return {*FAMILIES, *parts, *PROCESS}


@pytest.mark.parametrize("file", [ALERTS, DASHBOARD], ids=["alerts", "dashboard"])
def test_every_metric_that_is_asked_for_exists(file: Path) -> None:
    """A name that is misspelt would show nothing, and alert nobody."""
    named = set(re.findall(r"\b(?:dataapi|process)_[a-z_]+(?=\{|\[| [=><]|\))", file.read_text("utf-8")))
    assert len(named) >= 6
    assert named <= series()


def test_every_label_that_is_asked_for_is_one_of_its_metric() -> None:
    """A selector by another label finds nothing; instance, job and le are Prometheus's own."""
    text = DASHBOARD.read_text("utf-8") + ALERTS.read_text("utf-8")
    for name, selector in re.findall(r"(dataapi_[a-z_]+)\{([^}]*)\}", text):
        labels = set(re.findall(r"(\w+) *(?:=~|=|!=)", selector.replace('\\"', '"')))
        family = FAMILIES[re.sub("_(bucket|sum|count)$", "", name)]
        assert labels <= {*family.labels, "instance", "job"}, name


def test_panels_do_not_overlap_and_have_what_to_show() -> None:
    """Each has its place, a unit and a query."""
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels) == len({panel["title"] for panel in panels})
    assert all(panel["targets"] and panel["fieldConfig"]["defaults"]["unit"] for panel in panels)


def test_prometheus_understands_the_alerts() -> None:
    """Its own tool checks rules and expressions."""
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    checked = subprocess.run(
        [tool, "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
