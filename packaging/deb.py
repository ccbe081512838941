"""Builds the Debian package of a commit, for the Debian that it is built on.

    python packaging/deb.py FOLDER

Needs ``dpkg-dev``, ``debhelper`` and ``python3-venv``, and fetches the versions of ``requirements.lock``
from the registry of Python packages.
``DEBFULLNAME`` and ``DEBEMAIL`` say who maintains the package, as everywhere in Debian.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from email.utils import formatdate
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from distributions import build, commit_time

CHANGELOG = """dataapi ({version}) unstable; urgency=medium

  * The changes are in changelog.gz, beside this file.

 -- {maintainer}  {date}
"""
NOBODY = "packages@dataapi.invalid"
"""Who maintains a package of which nobody said so; no such host can exist."""


def package(folder: Path) -> Path:
    """Build the package into a folder, and return its path."""
    moment = commit_time()
    with tempfile.TemporaryDirectory() as scratch:
        source, wheel = build(Path(scratch))
        tree = Path(scratch, "dataapi")
        tree.mkdir()
        subprocess.run(["tar", "-xzf", source, "-C", tree, "--strip-components=1"], check=True)
        _write_manual(tree, wheel, moment)
        shutil.move(tree / "packaging" / "debian", tree / "debian")
        version = wheel.name.split("-")[1]
        name = os.environ.get("DEBFULLNAME", "the dataapi authors")
        maintainer = f"{name} <{os.environ.get('DEBEMAIL', NOBODY)}>"
        changelog = CHANGELOG.format(version=version, maintainer=maintainer, date=formatdate(moment))
        (tree / "debian" / "changelog").write_text(changelog, "utf-8")
        for file, mark, value in (("preinst", "@VERSION@", version), ("control", "@MAINTAINER@", maintainer)):
            path = tree / "debian" / file
            path.write_text(path.read_text("utf-8").replace(mark, value), "utf-8")
        environ = {**os.environ, "SOURCE_DATE_EPOCH": str(moment), "WHEEL": str(wheel)}
        # Not what a development environment has on its path.
        environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
        words = ["dpkg-buildpackage", "--build=binary", "--no-sign", "--no-check-builddeps"]
        with Path(scratch, "log").open("w+") as log:
            built = subprocess.run(words, cwd=tree, env=environ, check=False, stdout=log, stderr=log)
            if built.returncode:
                sys.exit(Path(log.name).read_text())
        [made] = Path(scratch).glob("*.deb")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(made, folder))


def _write_manual(tree: Path, wheel: Path, moment: int) -> None:
    """Write the manual pages and completions into unpacked sources, by the modules of their wheel."""
    installed = tree.with_name("installed")
    shutil.unpack_archive(wheel, installed, "zip")
    environ = {**os.environ, "PYTHONPATH": str(installed), "SOURCE_DATE_EPOCH": str(moment)}
    words = [sys.executable, str(tree / "packaging" / "manual.py"), str(tree / "build")]
    subprocess.run(words, env=environ, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    print(package(Path(sys.argv[1])))  # noqa: T201 - the user reads it
