"""Builds the files of a release, with checksums: ``make release``.

    python packaging/release.py FOLDER

If something cannot be built on this machine, the reason is printed and the exit status is 1.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deb import package
from distributions import ROOT, build

IMAGE = "dataapi"
PACKAGE_TOOLS = ("dpkg-buildpackage", "dh_installsystemd")


def main(folder: Path) -> int:
    """Build everything, and return the exit status."""
    shutil.rmtree(folder, ignore_errors=True)
    source, wheel = build(folder)
    version = wheel.name.split("-")[1]
    _report(f"{source.name}: the source distribution.")
    _report(f"{wheel.name}: the wheel. Install it with the versions in requirements.lock.")
    shutil.copy(ROOT / "requirements.lock", folder)
    complete = all([_build_package(folder), _build_image(folder, source, version)])
    files = sorted(path for path in folder.iterdir() if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(sums))
    _report(f"SHA256SUMS: checksums of {len(files)} files; check them with sha256sum --check SHA256SUMS.")
    if "author_email" not in (ROOT / "setup.cfg").read_text("utf-8"):
        _report("setup.cfg has no author_email, which SECURITY.md refers to: set it before you publish.")
    return 0 if complete else 1


def _build_package(folder: Path) -> bool:
    if missing := [tool for tool in PACKAGE_TOOLS if shutil.which(tool) is None]:
        _report(f"No Debian package: {missing[0]} is not installed.")
        return False
    system = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line
    )
    built_package = package(folder)
    _report(f"{built_package.name}: the package for {system['PRETTY_NAME'].strip(chr(34))}.")
    return True


def _build_image(folder: Path, source: Path, version: str) -> bool:
    """Build the image with buildah or docker, and save it as an archive for ``docker load``."""
    file = folder / f"dataapi-{version}-image.tar"
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
        return False
    building, saving = programs[program]
    with tempfile.TemporaryDirectory() as tree:
        subprocess.run(["tar", "-xzf", source, "-C", tree, "--strip-components=1"], check=True)
        command = [program, *building, f"--tag={name}", tree]
        built = subprocess.run(command, check=False, capture_output=True, text=True)
    if built.returncode:
        _report(f"No image: {program}: {built.stderr.strip().splitlines()[-1]}")
        return False
    subprocess.run([program, *saving], check=True, capture_output=True)
    _report(f"{file.name}: the image {name}, for docker load.")
    return True


def _report(message: str) -> None:
    print(message, flush=True)  # noqa: T201 - the user reads it


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
