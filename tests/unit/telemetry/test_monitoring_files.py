"""The dashboard and alerts match the daemon's metrics."""

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
    """Return the metric names that ``/metrics`` may contain."""
    histograms = [name for name, metric in FAMILIES.items() if metric.histogram]
    parts = {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    return {*FAMILIES, *parts, *PROCESS}


@pytest.mark.parametrize("file", [ALERTS, DASHBOARD], ids=["alerts", "dashboard"])
def test_metrics_in_dashboard_and_alerts_exist(file: Path) -> None:
    names = set(re.findall(r"\b(?:dataapi|process)_[a-z_]+(?=\{|\[| [=><]|\))", file.read_text("utf-8")))
    assert len(names) >= 6
    assert names <= series()


def test_labels_in_dashboard_and_alerts_exist() -> None:
    text = DASHBOARD.read_text("utf-8") + ALERTS.read_text("utf-8")
    for name, selector in re.findall(r"(dataapi_[a-z_]+)\{([^}]*)\}", text):
        labels = set(re.findall(r"(\w+) *(?:=~|=|!=)", selector.replace('\\"', '"')))
        family = FAMILIES[re.sub("_(bucket|sum|count)$", "", name)]
        assert labels <= {*family.labels, "instance", "job"}, name


def test_panels_have_distinct_positions_and_titles() -> None:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    positions = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(positions) == len(panels) == len({panel["title"] for panel in panels})
    assert all(panel["targets"] and panel["fieldConfig"]["defaults"]["unit"] for panel in panels)


def promtool_check(*words: str) -> subprocess.CompletedProcess[str]:
    """Check a file with Prometheus's promtool."""
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    return subprocess.run([tool, "check", *words], capture_output=True, text=True, check=False)


def test_alerts_are_valid_for_prometheus() -> None:
    result = promtool_check("rules", str(ALERTS))
    assert result.returncode == 0, result.stderr


def _configurations() -> list[str]:
    """Return the guide's configurations of Prometheus and of the OpenTelemetry collector."""
    return re.findall(r"```yaml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)


def test_collector_configuration_matches_the_daemon() -> None:
    yaml = pytest.importorskip("yaml")
    prometheus, collector = map(yaml.safe_load, _configurations())
    for pipeline in collector["service"]["pipelines"].values():
        assert set(pipeline["receivers"]) <= collector["receivers"].keys()
        assert set(pipeline["exporters"]) <= collector["exporters"].keys()
    assert collector["receivers"]["prometheus"]["config"]["scrape_configs"] == prometheus["scrape_configs"]
    endpoint = collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    assert f"OTEL_EXPORTER_OTLP_ENDPOINT=http://{endpoint}\n" in GUIDE.read_text("utf-8")


def test_guides_configuration_is_valid_for_prometheus(tmp_path: Path) -> None:
    configuration, _ = _configurations()
    file = tmp_path / "prometheus.yml"
    file.write_text(configuration)
    shutil.copy(ALERTS, tmp_path)
    result = promtool_check("config", str(file))
    assert result.returncode == 0, result.stderr
    assert "1 rule files found" in result.stdout
    assert 'job="dataapi"' in ALERTS.read_text("utf-8"), "the guide and the alerts name the same job"


def test_metrics_in_the_guide_exist() -> None:
    names = set(re.findall(r"`(dataapi_[a-z_]+)", GUIDE.read_text("utf-8")))
    assert len(names) >= 6
    assert names <= set(FAMILIES)
