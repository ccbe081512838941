"""Builds all that a release consists of, with checksums: ``make release``.

    python packaging/release.py FOLDER

What cannot be built on this machine is named with the reason, and the exit status is 1 then.
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
    """Return the exit status."""
    shutil.rmtree(folder, ignore_errors=True)
    source, wheel = build(folder)
    version = wheel.name.split("-")[1]
    _say(f"{source.name}: the sources, from which the wheel was built.")
    _say(f"{wheel.name}: what pip installs, with the versions of requirements.lock beside it.")
    shutil.copy(ROOT / "requirements.lock", folder)
    complete = all([_packaged(folder), _imaged(folder, source, version)])
    files = sorted(path for path in folder.iterdir() if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(sums))
    _say(f"SHA256SUMS: checksums of {len(files)} files; check them by sha256sum --check SHA256SUMS.")
    if "author_email" not in (ROOT / "setup.cfg").read_text("utf-8"):
        _say("setup.cfg has no author_email, to which SECURITY.md refers: set it before you publish.")
    return 0 if complete else 1


def _packaged(folder: Path) -> bool:
    if missing := [tool for tool in PACKAGE_TOOLS if shutil.which(tool) is None]:
        _say(f"No Debian package: {missing[0]} is not installed.")
        return False
    system = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line
    )
    made = package(folder)
    _say(f"{made.name}: the package for {system['PRETTY_NAME'].strip(chr(34))}, on which it was built.")
    return True


def _imaged(folder: Path, source: Path, version: str) -> bool:
    """Build the image by the program that there is, and save it as an archive that ``docker load`` reads."""
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
        _say("No image: neither docker nor buildah is installed.")
        return False
    building, saving = programs[program]
    with tempfile.TemporaryDirectory() as tree:
        subprocess.run(["tar", "-xzf", source, "-C", tree, "--strip-components=1"], check=True)
        words = [program, *building, f"--tag={name}", tree]
        built = subprocess.run(words, check=False, capture_output=True, text=True)
    if built.returncode:
        _say(f"No image: {program} says {built.stderr.strip().splitlines()[-1]}")
        return False
    subprocess.run([program, *saving], check=True, capture_output=True)
    _say(f"{file.name}: the image {name}, which docker load reads.")
    return True


def _say(sentence: str) -> None:
    print(sentence, flush=True)  # noqa: T201 - the user reads it


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
