"""The manifests for Kubernetes and Fly: valid, and true of the configuration, the image and the drain."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.service.configuration import load
from support import documents

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dataapi.settings import Settings

MANIFEST = "etc/kubernetes/dataapi.yaml"
FINISHING = 40
"""Seconds that a stop may take besides shutdown-delay (etc/dataapi.ini)."""
SECRETS = {
    "db-uri": "postgresql://authenticator@db.internal/app",
    "jwt-secret": "a secret of this test, 32 characters and more",
    "publishable-keys": "sb_publishable_1",
    "secret-keys": "sb_secret_1",
}


@pytest.fixture
def objects() -> dict[str, Any]:
    """Give the objects of the manifest by their kind."""
    yaml = pytest.importorskip("yaml")
    found = {one["kind"]: one for one in yaml.safe_load_all(documents.read(MANIFEST))}
    assert found.keys() == {"ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"}
    return found


def loaded(environ: Mapping[str, str], folder: Path) -> Settings:
    """Return the settings of an environment, with its secrets in a folder of ours."""
    for name, value in SECRETS.items():
        (folder / name).write_text(value)
    here = {name: value.replace("/run/secrets/dataapi", str(folder)) for name, value in environ.items()}
    return load(None, here)


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_kubernetes_takes_each_object(version: str, objects: dict[str, Any]) -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )
    for one in objects.values():
        kubernetes_validate.validate(one, version, strict=True)


def test_the_daemon_takes_the_configuration(
    objects: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each variable is a key, and each secret has the name of a file that ``dataapi init`` writes."""
    monkeypatch.chdir(tmp_path)
    environ = objects["ConfigMap"]["data"]
    settings = loaded(environ, tmp_path)
    [project] = settings.projects
    assert (project.db_uri, project.secret_keys) == (SECRETS["db-uri"], ("sb_secret_1",))
    assert settings.admin_listen == ("tcp:8001",)
    named = {value.rpartition("/")[2] for value in environ.values() if value.startswith("@")}
    assert named == SECRETS.keys()


def test_variables_of_services_are_kept_out(objects: dict[str, Any], tmp_path: Path) -> None:
    from dataapi.service.configuration import ConfigurationError  # noqa: PLC0415 - of this test alone

    environ = objects["ConfigMap"]["data"]
    with pytest.raises(ConfigurationError, match="DATAAPI_PORT_8000_TCP"):
        loaded({**environ, "DATAAPI_PORT_8000_TCP": "tcp://10.0.0.1:8000"}, tmp_path)
    assert objects["Deployment"]["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_a_pod_has_time_to_finish_and_is_asked_where_it_listens(objects: dict[str, Any]) -> None:
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    delay = int(objects["ConfigMap"]["data"]["DATAAPI_DATAAPI_SHUTDOWN_DELAY"])
    assert pod["terminationGracePeriodSeconds"] >= delay + FINISHING
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 8000, "admin": 8001}
    asked = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {one["port"] for one in asked.values()} == {"admin"}
    assert {name: one["path"] for name, one in asked.items()} == {
        "startup": "/live",
        "liveness": "/live",
        "readiness": "/ready",
    }
    assert [port["targetPort"] for port in objects["Service"]["spec"]["ports"]] == ["http"]
    assert "EXPOSE 8000" in documents.read("Dockerfile")


def test_a_pod_may_do_nothing_but_answer(objects: dict[str, Any]) -> None:
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


def test_all_objects_are_about_the_same_pods(objects: dict[str, Any]) -> None:
    """A selector that finds nothing would protect and serve nothing."""
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


def test_fly_asks_the_admin_listener_and_leaves_time_to_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fly = tomllib.loads(documents.read("etc/fly.toml"))
    secrets = {f"DATAAPI_PROJECT_{name.upper().replace('-', '_')}": value for name, value in SECRETS.items()}
    settings = loaded({**fly["env"], **secrets}, tmp_path)
    assert settings.listen == (f"tcp:{fly['http_service']['internal_port']}",)
    assert settings.admin_listen == (f"tcp:{fly['checks']['ready']['port']}",)
    assert fly["checks"]["ready"]["path"] == "/ready"
    assert int(fly["kill_timeout"].removesuffix("s")) >= settings.shutdown_delay + FINISHING
    assert fly["http_service"]["concurrency"]["hard_limit"] <= settings.max_connections
