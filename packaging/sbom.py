"""Writes the software bill of materials (SBOM) of a release file, as CycloneDX 1.6 in JSON.

    python packaging/sbom.py FILE

FILE is a wheel, a Debian package, or an image as an archive for ``docker load``. The SBOM is written to
FILE.cdx.json. The SBOM of a file is reproducible.
"""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components import (
    NOTICES,
    ROOT,
    Component,
    InstalledDistribution,
    console_components,
    debian_components,
    distributions,
    python_components,
    read_image,
    read_package,
    read_wheel,
)
from distributions import commit_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SUFFIX = ".cdx.json"
WHEELS = ROOT / "packaging" / "wheels.sha256"
NAMESPACE = uuid.UUID("7f3a3f0e-6d0b-5c0e-9d0e-0b6c1b6f9a11")
"""Namespace of the serial numbers. The numbers are derived from the digests of the described files."""


def write(file: Path) -> Path:
    """Write the SBOM of a file next to it, and return its path."""
    path = file.with_name(file.name + SUFFIX)
    described, components = describe(file)
    path.write_text(json.dumps(document(described, components, commit_time()), indent=1) + "\n", "utf-8")
    return path


def describe(file: Path) -> tuple[Component, list[Component]]:
    """Return a file as a component, and the components in it."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    hashes = (("SHA-256", digest),)
    kind = file.suffix
    if kind == ".whl":
        files = read_wheel(file)
        own = _own(distributions(files))
        components = _console(files)
        requires = tuple(each.purl for each in components)
        return Component(own.purl, own.name, own.version, own.licence, hashes, requires), components
    configuration: Mapping[str, Any] = {}
    if kind == ".deb":
        files = read_package(file)
        architecture = file.stem.rpartition("_")[2]
        purl = f"pkg:deb/dataapi/dataapi@{{}}?arch={architecture}"
    else:
        files, configuration = read_image(file)
        purl = "pkg:docker/dataapi@{}"
    installed = distributions(files)
    own = _own(installed)
    components = [*python_components(installed, locked_wheels(), _console(files)), *debian_components(files)]
    variables = dict(each.split("=", 1) for each in configuration.get("Env") or ())
    if python := variables.get("PYTHON_VERSION"):
        components.append(Component(f"pkg:generic/python@{python}", "python", python, "PSF-2.0"))
    # The direct requirements of dataapi are the components that no other component requires.
    required = {purl for each in components for purl in each.requires}
    requires = tuple(each.purl for each in components if each.purl not in required)
    return Component(
        purl.format(own.version), "dataapi", own.version, own.licence, hashes, requires
    ), components


def document(described: Component, components: Sequence[Component], timestamp: int) -> dict[str, Any]:
    """Return the SBOM of a component.

    :param timestamp: seconds since 1970.
    """
    ordered = sorted(components, key=lambda each: each.purl)
    [(_, digest)] = described.hashes
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, digest)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycles": [{"phase": "build"}],
            "authors": [{"name": "the dataapi authors"}],
            "component": _entry(described, "application"),
        },
        "components": [_entry(each, "library") for each in ordered],
        "dependencies": [
            {"ref": each.purl, "dependsOn": sorted(each.requires)} for each in (described, *ordered)
        ],
    }


def locked_wheels() -> dict[str, str]:
    """Return the SHA-256 digests of the locked wheels by file name."""
    lines = WHEELS.read_text("utf-8").splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def _own(installed: Sequence[InstalledDistribution]) -> InstalledDistribution:
    [own] = (each for each in installed if each.name == "dataapi-daemon")
    return own


def _console(files: Mapping[str, bytes]) -> list[Component]:
    notices = next(content for path, content in files.items() if f"/{path}".endswith(f"/{NOTICES}"))
    lock = json.loads((ROOT / "console" / "package-lock.json").read_text("utf-8"))
    return console_components(notices.decode(), lock)


def _entry(component: Component, kind: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": kind,
        "bom-ref": component.purl,
        "name": component.name,
        "purl": component.purl,
    }
    if component.version:
        entry["version"] = component.version
    if component.licence:
        entry["licenses"] = [{"expression": component.licence}]
    if component.hashes:
        entry["hashes"] = [{"alg": algorithm, "content": digest} for algorithm, digest in component.hashes]
    return entry


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(write(Path(name)))  # noqa: T201 - the user reads it
