"""Lists the locked wheels for Linux with glibc, with digests, in packaging/wheels.sha256: ``make lock``.

    python packaging/wheels.py PYLOCK

PYLOCK is requirements.lock in the form of a pylock.toml (PEP 751), which has a file name for each digest. The
list shows which platforms the versions support, and from which file an installed distribution comes.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PLATFORM = re.compile(r"-any\.whl$|manylinux")
LIST = Path(__file__).with_name("wheels.sha256")


def main(pylock: Path) -> None:
    packages = tomllib.loads(pylock.read_text("utf-8"))["packages"]
    wheels = (wheel for package in packages for wheel in package["wheels"])
    digests = {wheel["url"].rpartition("/")[2]: wheel["hashes"]["sha256"] for wheel in wheels}
    lines = [f"{digests[name]}  {name}\n" for name in sorted(digests) if PLATFORM.search(name)]
    LIST.write_text("".join(lines), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
