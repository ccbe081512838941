"""The manifests for Kubernetes and Fly, and the Helm chart, match the configuration and the image."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tomllib
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.service.configuration import load
from support import documents

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dataapi.settings import Settings

MANIFEST = "etc/kubernetes/dataapi.yaml"
CHART = documents.ROOT / "packaging" / "helm" / "dataapi"
KINDS = {"ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"}
MAX_STOP_TIME = 40
"""Maximum seconds that a stop takes in addition to shutdown-delay (etc/dataapi.ini)."""
SECRETS = {
    "db-uri": "postgresql://authenticator@db.internal/app",
    "jwt-secret": "a secret for this test, 32 characters or more",
    "publishable-keys": "sb_publishable_1",
    "secret-keys": "sb_secret_1",
}


def helm(*words: str, values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run helm with the chart, or skip the test if helm is not installed."""
    return _helm(words, json.dumps(values))


@cache
def _helm(words: tuple[str, ...], values: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("helm")
    if program is None:
        pytest.skip("helm is not installed")
    command = [program, *words, str(CHART), "--kube-version=1.31.0", "--values=-"]
    return subprocess.run(command, input=values, capture_output=True, text=True, check=False)


def rendered(**values: Any) -> list[dict[str, Any]]:
    """Render the chart and return its objects."""
    yaml = pytest.importorskip("yaml")
    given = {"image": {"repository": "registry.example.org/dataapi"}, "secret": {"existing": "dataapi"}}
    done = helm("template", "dataapi", values=given | values)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


@pytest.fixture(params=["manifest", "chart"])
def objects(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the objects of the manifest, or of the chart with its default values, by kind."""
    yaml = pytest.importorskip("yaml")
    found = rendered() if request.param == "chart" else yaml.safe_load_all(documents.read(MANIFEST))
    by_kind = {each["kind"]: each for each in found}
    assert by_kind.keys() == KINDS
    return by_kind


def load_environment(environ: Mapping[str, str], folder: Path) -> Settings:
    """Return the settings from environment variables, with secrets as files in ``folder``."""
    for name, value in SECRETS.items():
        (folder / name).write_text(value)
    environment = {
        name: value.replace("/run/secrets/dataapi", str(folder)) for name, value in environ.items()
    }
    return load(None, environment)


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_objects_are_valid_for_kubernetes(version: str, objects: dict[str, Any]) -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )
    for each in objects.values():
        kubernetes_validate.validate(each, version, strict=True)


def test_configuration_is_valid_for_the_daemon(
    objects: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secrets' files have the names that ``dataapi init`` writes."""
    monkeypatch.chdir(tmp_path)
    environ = objects["ConfigMap"]["data"]
    settings = load_environment(environ, tmp_path)
    [project] = settings.projects
    assert (project.db_uri, project.secret_keys) == (SECRETS["db-uri"], ("sb_secret_1",))
    assert settings.admin_listen == ("tcp:8001",)
    names = {value.rpartition("/")[2] for value in environ.values() if value.startswith("@")}
    assert names == SECRETS.keys()


def test_variables_of_kubernetes_services_are_disabled(objects: dict[str, Any], tmp_path: Path) -> None:
    from dataapi.service.configuration import ConfigurationError  # noqa: PLC0415 - only this test needs it

    environ = objects["ConfigMap"]["data"]
    with pytest.raises(ConfigurationError, match="DATAAPI_PORT_8000_TCP"):
        load_environment({**environ, "DATAAPI_PORT_8000_TCP": "tcp://10.0.0.1:8000"}, tmp_path)
    assert objects["Deployment"]["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_pod_has_time_to_stop_and_probes_use_the_admin_listener(objects: dict[str, Any]) -> None:
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    delay = int(objects["ConfigMap"]["data"]["DATAAPI_DATAAPI_SHUTDOWN_DELAY"])
    assert pod["terminationGracePeriodSeconds"] >= delay + MAX_STOP_TIME
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 8000, "admin": 8001}
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {each["port"] for each in probes.values()} == {"admin"}
    assert {name: each["path"] for name, each in probes.items()} == {
        "startup": "/live",
        "liveness": "/live",
        "readiness": "/ready",
    }
    assert [port["targetPort"] for port in objects["Service"]["spec"]["ports"]] == ["http"]
    assert "EXPOSE 8000" in documents.read("Dockerfile")


def test_pod_has_minimal_privileges(objects: dict[str, Any]) -> None:
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    user = re.search(r"^USER (\d+):(\d+)$", documents.read("Dockerfile"), re.MULTILINE)
    assert user is not None
    context = pod["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (int(user[1]), int(user[2]))
    assert context["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume.pop("name"): volume for volume in pod["volumes"]}
    assert volumes[mounts["/tmp"]] == {"emptyDir": {}}
    assert volumes[mounts["/run/secrets/dataapi"]]["secret"]["defaultMode"] == 0o440


def test_all_objects_select_the_same_pods(objects: dict[str, Any]) -> None:
    """A selector without matching pods would have no effect."""
    deployment = objects["Deployment"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert objects["Service"]["spec"]["selector"] == labels
    for selector in (
        deployment["selector"],
        objects["PodDisruptionBudget"]["spec"]["selector"],
        objects["NetworkPolicy"]["spec"]["podSelector"],
    ):
        assert selector == {"matchLabels": labels}
    assert objects["PodDisruptionBudget"]["spec"]["minAvailable"] < deployment["replicas"]


EVERYTHING: dict[str, Any] = {
    "image": {"repository": "registry.example.org/dataapi", "digest": f"sha256:{'0' * 64}"},
    "configuration": {
        "project": {"db-max-rows": 1000000, "db-aggregates-enabled": True, "db-schemas": "public, api"}
    },
    "secret": {
        "existing": "",
        "keys": {"encryption-key": "webhooks"},
        "values": {**SECRETS, "encryption-key": base64.b64encode(bytes(32)).decode()},
    },
    "preStopSleep": 5,
    "ingress": {"enabled": True, "className": "nginx", "hosts": ["api.example.org"]},
    "serviceMonitor": {"enabled": True},
    "autoscaling": {"enabled": True},
}
"""Values that enable all options of the chart."""


def test_chart_with_all_options_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    monkeypatch.chdir(tmp_path)
    found = rendered(**EVERYTHING)
    for each in found:
        if each["kind"] != "ServiceMonitor":
            kubernetes_validate.validate(each, "1.31", strict=True)
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in found}
    secret = by_name["Secret", "dataapi"]["stringData"]
    for name, value in secret.items():
        (tmp_path / name).write_text(value)
    environ = by_name["ConfigMap", "dataapi"]["data"]
    settings = load_environment(environ, tmp_path)
    assert settings.webhooks is not None
    [project] = settings.projects
    assert (project.db_max_rows, project.db_aggregates_enabled) == (1000000, True)
    assert tuple(project.db_schemas) == ("public", "api")
    deployment = by_name["Deployment", "dataapi"]["spec"]
    pod = deployment["template"]["spec"]
    [container] = pod["containers"]
    assert "replicas" not in deployment
    assert container["image"].endswith(f"@sha256:{'0' * 64}")
    assert container["lifecycle"] == {"preStop": {"exec": {"command": ["sleep", "5"]}}}
    assert pod["terminationGracePeriodSeconds"] == 10 + 5 + MAX_STOP_TIME
    metrics = by_name["Service", "dataapi-metrics"]
    selected = by_name["ServiceMonitor", "dataapi"]["spec"]["selector"]["matchLabels"]
    assert selected.items() <= metrics["metadata"]["labels"].items()
    assert not selected.items() <= by_name["Service", "dataapi"]["metadata"]["labels"].items()
    [rule] = by_name["Ingress", "dataapi"]["spec"]["rules"]
    assert rule["http"]["paths"][0]["backend"]["service"] == {"name": "dataapi", "port": {"name": "http"}}
    assert by_name["HorizontalPodAutoscaler", "dataapi"]["spec"]["scaleTargetRef"]["name"] == "dataapi"


def test_chart_passes_its_linter() -> None:
    done = helm("lint", "--strict", values=EVERYTHING)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"image": {"repository": ""}}, "set image.repository to your image"),
        ({"secret": {"existing": ""}}, "set secret.existing, or secret.values.db-uri"),
        ({"secret": {"existing": "x", "values": {"db-uri": "y"}}}, "set either secret.existing or"),
        ({"ingress": {"enabled": True}}, "set ingress.hosts to the host names"),
        ({"replica": 3}, "additional properties 'replica' not allowed"),
        ({"replicas": 0}, "minimum: got 0, want 1"),
    ],
)
def test_chart_rejects_values(values: dict[str, Any], message: str) -> None:
    given = {"image": {"repository": "x"}, "secret": {"existing": "x"}}
    done = helm("template", "x", values=given | values)
    assert done.returncode == 1
    assert message in done.stderr


def test_chart_with_one_replica_does_not_block_drains() -> None:
    assert {each["kind"] for each in rendered(replicas=1)} == KINDS - {"PodDisruptionBudget"}


def test_values_of_the_chart_are_used_checked_and_documented() -> None:
    """Compares values.yaml with the templates, the schema and the chart's README, without helm."""
    yaml = pytest.importorskip("yaml")
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    templates = "".join(path.read_text("utf-8") for path in (CHART / "templates").iterdir())
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))["properties"]
    documented = set(re.findall(r"^\| `([\w.]+)` \|", (CHART / "README.md").read_text("utf-8"), re.MULTILINE))
    # Objects that users fill in, such as resources, are documented as one value.
    grouped = {name for name, each in schema.items() if "properties" in each}
    leaves = {
        leaf
        for name, value in values.items()
        for leaf in ([f"{name}.{key}" for key in value] if name in grouped else [name])
    }
    assert documented == leaves
    assert {name: set(schema[name]["properties"]) for name in grouped} == {
        name: set(values[name]) for name in grouped
    }
    assert schema.keys() - {"global"} == values.keys()
    used = set(re.findall(r"\.Values\.([\w.]+)", templates))
    assert used - leaves == set()
    assert leaves - used == set()


def test_chart_has_the_version_of_dataapi() -> None:
    text = (CHART / "Chart.yaml").read_text("utf-8")
    found = re.search(r"^version = (\S+)$", documents.read("setup.cfg"), re.MULTILINE)
    assert found is not None
    assert re.findall(r"^(?:version|appVersion): (\S+)$", text, re.MULTILINE) == [found[1]] * 2


def test_fly_checks_the_admin_listener_and_allows_time_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fly = tomllib.loads(documents.read("etc/fly.toml"))
    secrets = {f"DATAAPI_PROJECT_{name.upper().replace('-', '_')}": value for name, value in SECRETS.items()}
    settings = load_environment({**fly["env"], **secrets}, tmp_path)
    assert settings.listen == (f"tcp:{fly['http_service']['internal_port']}",)
    assert settings.admin_listen == (f"tcp:{fly['checks']['ready']['port']}",)
    assert fly["checks"]["ready"]["path"] == "/ready"
    assert int(fly["kill_timeout"].removesuffix("s")) >= settings.shutdown_delay + MAX_STOP_TIME
    assert fly["http_service"]["concurrency"]["hard_limit"] <= settings.max_connections
