"""Builds the Debian package of the last commit, for the Debian release of this machine.

    python packaging/deb.py FOLDER

Requires ``dpkg-dev``, ``debhelper`` and ``python3-venv``. The versions in ``requirements.lock`` are
downloaded from PyPI. ``DEBFULLNAME`` and ``DEBEMAIL`` set the maintainer, as usual in Debian.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

from distributions import build, commit_time

if TYPE_CHECKING:
    from collections.abc import Sequence

CHANGELOG = """dataapi ({version}) unstable; urgency=medium

  * See changelog.gz in this directory.

 -- {maintainer}  {date}
"""
DEFAULT_EMAIL = "packages@dataapi.invalid"
"""Maintainer's address if ``DEBEMAIL`` is not set. Its host cannot exist."""
BUILD_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
"""``PATH`` of the build, without the programs of a development environment."""
TOOLS = {"dpkg-buildpackage": "dpkg-dev", "dh_installsystemd": "debhelper", "dh_installsysusers": "debhelper"}
"""Programs that the build needs, and the Debian packages that contain them."""


def missing() -> list[str]:
    """Return the Debian packages that must be installed first."""
    packages = {name for tool, name in TOOLS.items() if shutil.which(tool, path=BUILD_PATH) is None}
    python = shutil.which("python3", path=BUILD_PATH) or "false"
    if subprocess.run([python, "-c", "import ensurepip"], check=False, capture_output=True).returncode:
        packages.add("python3-venv")
    return sorted(packages)


def advice(packages: Sequence[str]) -> str:
    """Return a sentence about missing Debian packages."""
    return f"The Debian package cannot be built: install {' '.join(packages)} with apt-get."


def package(folder: Path) -> Path:
    """Build the package into a folder, and return its path."""
    if packages := missing():
        sys.exit(advice(packages))
    timestamp = commit_time()
    with tempfile.TemporaryDirectory() as scratch:
        source, wheel = build(Path(scratch))
        tree = Path(scratch, "dataapi")
        tree.mkdir()
        subprocess.run(["tar", "-xzf", source, "-C", tree, "--strip-components=1"], check=True)
        _write_manual(tree, wheel, timestamp)
        shutil.move(tree / "packaging" / "debian", tree / "debian")
        version = wheel.name.split("-")[1]
        name = os.environ.get("DEBFULLNAME", "the dataapi authors")
        maintainer = f"{name} <{os.environ.get('DEBEMAIL', DEFAULT_EMAIL)}>"
        changelog = CHANGELOG.format(version=version, maintainer=maintainer, date=formatdate(timestamp))
        (tree / "debian" / "changelog").write_text(changelog, "utf-8")
        for file, placeholder, value in (
            ("preinst", "@VERSION@", version),
            ("control", "@MAINTAINER@", maintainer),
        ):
            path = tree / "debian" / file
            path.write_text(path.read_text("utf-8").replace(placeholder, value), "utf-8")
        environ = {**os.environ, "SOURCE_DATE_EPOCH": str(timestamp), "WHEEL": str(wheel)}
        environ["PATH"] = BUILD_PATH
        command = ["dpkg-buildpackage", "--build=binary", "--no-sign", "--no-check-builddeps"]
        with Path(scratch, "log").open("w+") as log:
            built = subprocess.run(command, cwd=tree, env=environ, check=False, stdout=log, stderr=log)
            if built.returncode:
                sys.exit(Path(log.name).read_text())
        [built_package] = Path(scratch).glob("*.deb")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(built_package, folder))


def _write_manual(tree: Path, wheel: Path, timestamp: int) -> None:
    """Write the manual pages and completions to the unpacked sources, using the modules of the wheel."""
    installed = tree.with_name("installed")
    shutil.unpack_archive(wheel, installed, "zip")
    environ = {**os.environ, "PYTHONPATH": str(installed), "SOURCE_DATE_EPOCH": str(timestamp)}
    command = [sys.executable, str(tree / "packaging" / "manual.py"), str(tree / "build")]
    subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    print(package(Path(sys.argv[1])))  # noqa: T201 - the user reads it
