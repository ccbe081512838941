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
GUIDE = ETC.parent / "docs" / "guides" / "monitoring.md"
DASHBOARD = ETC / "grafana" / "dashboard.json"
PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}


def series() -> set[str]:
    """Return the names that ``/metrics`` may have."""
    histograms = [name for name, metric in FAMILIES.items() if metric.histogram]
    parts = {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    return {*FAMILIES, *parts, *PROCESS}


@pytest.mark.parametrize("file", [ALERTS, DASHBOARD], ids=["alerts", "dashboard"])
def test_every_metric_that_is_asked_for_exists(file: Path) -> None:
    named = set(re.findall(r"\b(?:dataapi|process)_[a-z_]+(?=\{|\[| [=><]|\))", file.read_text("utf-8")))
    assert len(named) >= 6
    assert named <= series()


def test_every_label_that_is_asked_for_is_one_of_its_metric() -> None:
    text = DASHBOARD.read_text("utf-8") + ALERTS.read_text("utf-8")
    for name, selector in re.findall(r"(dataapi_[a-z_]+)\{([^}]*)\}", text):
        labels = set(re.findall(r"(\w+) *(?:=~|=|!=)", selector.replace('\\"', '"')))
        family = FAMILIES[re.sub("_(bucket|sum|count)$", "", name)]
        assert labels <= {*family.labels, "instance", "job"}, name


def test_panels_do_not_overlap_and_have_what_to_show() -> None:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels) == len({panel["title"] for panel in panels})
    assert all(panel["targets"] and panel["fieldConfig"]["defaults"]["unit"] for panel in panels)


def checked(*words: str) -> subprocess.CompletedProcess[str]:
    """Return what Prometheus's own tool says of a file."""
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    return subprocess.run([tool, "check", *words], capture_output=True, text=True, check=False)


def test_prometheus_understands_the_alerts() -> None:
    told = checked("rules", str(ALERTS))
    assert told.returncode == 0, told.stderr


def _shown() -> list[str]:
    """Return the guide's configurations: Prometheus's and the collector's."""
    return re.findall(r"```yaml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)


def test_the_collector_takes_what_the_daemon_sends() -> None:
    yaml = pytest.importorskip("yaml")
    prometheus, collector = map(yaml.safe_load, _shown())
    for pipeline in collector["service"]["pipelines"].values():
        assert set(pipeline["receivers"]) <= collector["receivers"].keys()
        assert set(pipeline["exporters"]) <= collector["exporters"].keys()
    assert collector["receivers"]["prometheus"]["config"]["scrape_configs"] == prometheus["scrape_configs"]
    endpoint = collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    assert f"OTEL_EXPORTER_OTLP_ENDPOINT=http://{endpoint}\n" in GUIDE.read_text("utf-8")


def test_prometheus_understands_what_the_guide_shows(tmp_path: Path) -> None:
    shown, _ = _shown()
    file = tmp_path / "prometheus.yml"
    file.write_text(shown)
    shutil.copy(ALERTS, tmp_path)
    told = checked("config", str(file))
    assert told.returncode == 0, told.stderr
    assert "1 rule files found" in told.stdout
    assert 'job="dataapi"' in ALERTS.read_text("utf-8"), "the guide's job is the alerts' one"


def test_every_metric_that_the_guide_names_exists() -> None:
    named = set(re.findall(r"`(dataapi_[a-z_]+)", GUIDE.read_text("utf-8")))
    assert len(named) >= 6
    assert named <= set(FAMILIES)
