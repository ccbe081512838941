"""Builds the source distribution and the wheel of a commit, the same byte for byte wherever that is done.

    python packaging/distributions.py FOLDER

What a build of setuptools leaves to chance is set here: times are the commit's, and owners, modes and the
order of files are fixed.  The wheel is built from the source distribution only, which has all that it takes.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = "import setuptools.build_meta as b, sys; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"


def build(folder: Path) -> tuple[Path, Path]:
    """Build both into a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    moment = commit_time()
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as scratch:
        tree, unpacked = Path(scratch, "tree"), Path(scratch, "unpacked")
        _export(tree)
        source = folder / _run("sdist", tree, Path(scratch), moment)
        source.write_bytes(_normal(Path(scratch, source.name).read_bytes(), moment))
        unpacked.mkdir()
        subprocess.run(["tar", "-xzf", source, "-C", unpacked, "--strip-components=1"], check=True)
        wheel = folder / _run("wheel", unpacked, folder.resolve(), moment)
    return source, wheel


def commit_time() -> int:
    """Return the time that all files have: the commit's, or that of an unpacked source distribution's."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    if (ROOT / ".git").exists():
        words = ["git", "log", "-1", "--format=%ct"]
        return int(subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    return int((ROOT / "setup.cfg").stat().st_mtime)


def _export(tree: Path) -> None:
    """Copy what the last commit has; without git, what is here."""
    if not (ROOT / ".git").exists():
        ignored = shutil.ignore_patterns(
            ".venv", "build", "dist", "node_modules", "__pycache__", "*.egg-info"
        )
        shutil.copytree(ROOT, tree, ignore=ignored)
        return
    if subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT, check=False).returncode:
        sys.stderr.write("what is not committed is left out\n")
    tree.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", tree], input=archive, check=True)


def _run(kind: str, tree: Path, folder: Path, moment: int) -> str:
    """Build one of the two as pip would, and return its file's name."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD, kind, folder],
        cwd=tree,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(moment)},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return done.stdout.splitlines()[-1]


def _normal(archive: bytes, moment: int) -> bytes:
    """Return an archive with times, owners, modes and an order that no machine changes."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as given,
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=moment) as pressed,
        tarfile.open(fileobj=pressed, mode="w", format=tarfile.PAX_FORMAT) as made,
    ):
        for member in sorted(given.getmembers(), key=lambda each: each.name):
            runnable = member.isdir() or member.mode & 0o100
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.linkname, plain.size = member.type, member.linkname, member.size
            plain.mtime, plain.mode = moment, 0o755 if runnable else 0o644
            made.addfile(plain, given.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


if __name__ == "__main__":
    for made in build(Path(sys.argv[1])):
        print(made)  # noqa: T201 - the user reads it
