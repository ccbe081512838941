"""Extracts the Helm chart from a source distribution into a reproducible archive.

python packaging/chart.py SOURCE FOLDER
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

from distributions import commit_time, normalized

CHART = "packaging/helm/"


def archive(source: Path, folder: Path) -> Path:
    """Write the chart's archive into a folder, and return its path."""
    name, version = source.name.removesuffix(".tar.gz").rsplit("-", 1)
    packed = io.BytesIO()
    with tarfile.open(source) as files, tarfile.open(fileobj=packed, mode="w") as chart:
        for entry in files.getmembers():
            if entry.isfile() and entry.name.startswith(f"{name}-{version}/{CHART}"):
                content = files.extractfile(entry)
                entry.name = entry.name.removeprefix(f"{name}-{version}/{CHART}")
                chart.addfile(entry, content)
    path = folder / f"dataapi-{version}.tgz"
    path.write_bytes(normalized(packed.getvalue(), commit_time()))
    return path


if __name__ == "__main__":
    print(archive(Path(sys.argv[1]), Path(sys.argv[2])))  # noqa: T201 - the user reads it
