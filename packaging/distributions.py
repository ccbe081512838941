"""Builds the source distribution and the wheel of the last commit, reproducibly.

    python packaging/distributions.py FOLDER

Times are set to the time of the commit, and owners, modes and the order of files are fixed. The wheel is
built from the source distribution.
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
    """Build the source distribution and the wheel into a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    timestamp = commit_time()
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as scratch:
        tree, unpacked = Path(scratch, "tree"), Path(scratch, "unpacked")
        _export(tree)
        source = folder / _run("sdist", tree, Path(scratch), timestamp)
        source.write_bytes(normalized(Path(scratch, source.name).read_bytes(), timestamp))
        unpacked.mkdir()
        subprocess.run(["tar", "-xzf", source, "-C", unpacked, "--strip-components=1"], check=True)
        wheel = folder / _run("wheel", unpacked, folder.resolve(), timestamp)
    return source, wheel


def commit_time() -> int:
    """Return the timestamp for all files: the time of the commit or of the unpacked source distribution."""
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(epoch)
    if (ROOT / ".git").exists():
        command = ["git", "log", "-1", "--format=%ct"]
        return int(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    return int((ROOT / "setup.cfg").stat().st_mtime)


def _export(tree: Path) -> None:
    """Export the files of the last commit, or copy the working directory if there is no repository."""
    if not (ROOT / ".git").exists():
        ignored = shutil.ignore_patterns(
            ".venv", "build", "dist", "node_modules", "__pycache__", "*.egg-info"
        )
        shutil.copytree(ROOT, tree, ignore=ignored)
        return
    if subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT, check=False).returncode:
        sys.stderr.write("uncommitted changes are not included\n")
    tree.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", tree], input=archive, check=True)


def _run(kind: str, tree: Path, folder: Path, timestamp: int) -> str:
    """Build the source distribution or the wheel as pip does, and return its file name."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD, kind, folder],
        cwd=tree,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(timestamp)},
        check=False,
        capture_output=True,
        text=True,
    )
    if result.returncode:
        sys.exit(result.stdout + result.stderr)
    return result.stdout.splitlines()[-1]


def normalized(archive: bytes, timestamp: int) -> bytes:
    """Normalize times, owners, modes and order in an archive."""
    output = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as original,
        gzip.GzipFile(fileobj=output, mode="wb", filename="", mtime=timestamp) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as normalized,
    ):
        for member in sorted(original.getmembers(), key=lambda entry: entry.name):
            executable = member.isdir() or member.mode & 0o100
            entry = tarfile.TarInfo(member.name)
            entry.type, entry.linkname, entry.size = member.type, member.linkname, member.size
            entry.mtime, entry.mode = timestamp, 0o755 if executable else 0o644
            normalized.addfile(entry, original.extractfile(member) if member.isfile() else None)
    return output.getvalue()


if __name__ == "__main__":
    for path in build(Path(sys.argv[1])):
        print(path)  # noqa: T201 - the user reads it
