"""Builds the files of a release, with SBOMs and checksums, and checks them: ``make release``.

    python packaging/release.py FOLDER

If this machine cannot build a file, or a check fails, the reason is printed and the exit status is 1.

Environment variables for the image:

- ``IMAGE_BASE``: the base image with its digest (default: the tag in Dockerfile).
- ``IMAGE_PLATFORM``: the platform, such as ``linux/arm64`` (default: this machine's).
- ``IMAGE_SOURCE``: URL of the source code, for the label org.opencontainers.image.source.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from chart import archive
from checks import SUMS, problems
from deb import advice, missing, package
from distributions import ROOT, build
from sbom import write

IMAGE = "dataapi"


def main(folder: Path) -> int:
    """Build everything, and return the exit status."""
    shutil.rmtree(folder, ignore_errors=True)
    source, wheel = build(folder)
    version = wheel.name.split("-")[1]
    _report(f"{source.name}: the source distribution.")
    _report(f"{wheel.name}: the wheel. Install it with the versions in requirements.lock.")
    shutil.copy(ROOT / "requirements.lock", folder)
    _report(f"{archive(source, folder).name}: the Helm chart.")
    built = [wheel, _build_package(folder), _build_image(folder, source, version)]
    for file in filter(None, built):
        _report(f"{write(file).name}: the SBOM of {file.name}.")
    files = sorted(path for path in folder.iterdir() if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / SUMS).write_text("".join(sums))
    _report(f"{SUMS}: checksums of {len(files)} files; check them with sha256sum --check {SUMS}.")
    if "author_email" not in (ROOT / "setup.cfg").read_text("utf-8"):
        _report("setup.cfg has no author_email, which SECURITY.md refers to: set it before you publish.")
    found = list(problems(folder))
    for problem in found:
        _report(f"Problem: {problem}.")
    return 0 if all(built) and not found else 1


def _build_package(folder: Path) -> Path | None:
    if packages := missing():
        _report(advice(packages))
        return None
    system = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line
    )
    built_package = package(folder)
    _report(f"{built_package.name}: the package for {system['PRETTY_NAME'].strip(chr(34))}.")
    return built_package


def image_options(version: str, revision: str) -> list[str]:
    """Return the options for building the image, according to the environment."""
    arguments = {
        "BASE": os.environ.get("IMAGE_BASE", ""),
        "VERSION": version,
        "REVISION": revision,
        "SOURCE": os.environ.get("IMAGE_SOURCE", ""),
    }
    options = [f"--build-arg={name}={value}" for name, value in arguments.items() if value]
    if target := os.environ.get("IMAGE_PLATFORM"):
        options.append(f"--platform={target}")
    return options


def image_architecture() -> str:
    """Return Debian's and Docker's name for the architecture of the image."""
    machine = platform.machine()
    native = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    return os.environ.get("IMAGE_PLATFORM", f"linux/{native}").split("/")[1]


def _build_image(folder: Path, source: Path, version: str) -> Path | None:
    """Build the image with buildah or docker, and save it as an archive for ``docker load``."""
    file = folder / f"dataapi-{version}-{image_architecture()}-image.tar"
    name = f"{IMAGE}:{version}"
    programs = {
        "buildah": (
            ["build", "--isolation=chroot", "--format=docker"],
            ["push", "--quiet", name, f"docker-archive:{file}:{name}"],
        ),
        "docker": (["build"], ["save", f"--output={file}", name]),
    }
    program = next(filter(shutil.which, programs), None)
    if program is None:
        _report("No image: neither docker nor buildah is installed.")
        return None
    if "@sha256:" not in os.environ.get("IMAGE_BASE", ""):
        _report("The base image is not pinned: set IMAGE_BASE (see CONTRIBUTING.md, Release).")
    building, saving = programs[program]
    with tempfile.TemporaryDirectory() as tree:
        subprocess.run(["tar", "-xzf", source, "-C", tree, "--strip-components=1"], check=True)
        options = image_options(version, _revision())
        command = [program, *building, *options, f"--tag={name}", tree]
        built = subprocess.run(command, check=False, capture_output=True, text=True)
    if built.returncode:
        _report(f"No image: {program}: {built.stderr.strip().splitlines()[-1]}")
        return None
    subprocess.run([program, *saving], check=True, capture_output=True)
    _report(f"{file.name}: the image {name}, for docker load.")
    return file


def _revision() -> str:
    """Return the last commit, or "" if there is no repository."""
    if not (ROOT / ".git").exists():
        return ""
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _report(message: str) -> None:
    print(message, flush=True)  # noqa: T201 - the user reads it


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
