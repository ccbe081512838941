"""Makes a change as CONTRIBUTING.md describes, on a Debian 12 with only the packages that it requires.

Run manually, as root, on a machine with debootstrap, git and a network:

    python3 tests/fresh/contribution.py FOLDER

This creates the system in FOLDER, or reuses the system of an earlier run, and copies the last commit to it.
As an unprivileged user, it sets up the project and follows docs/contributing/worked-change.md: it applies the
diffs, runs the commands, and commits with the page's message. It fails if a command has another outcome than
the page shows, or if the hook for commit messages would reject the message.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fresh.run import PACKAGES, System, say
from support import documents
from support.worked_change import steps

SETUP = documents.indented(documents.chapter(documents.read("CONTRIBUTING.md"), "Set up"))[0].strip()
"""The first command in CONTRIBUTING.md."""
STEPS = list(steps("docs/contributing/worked-change.md"))
AUTHOR = {
    "GIT_AUTHOR_NAME": "A newcomer",
    "GIT_AUTHOR_EMAIL": "newcomer@example.org",
    "GIT_COMMITTER_NAME": "A newcomer",
    "GIT_COMMITTER_EMAIL": "newcomer@example.org",
}


def is_accepted(message: str) -> bool:
    """Return whether the hook in .pre-commit-config.yaml accepts a commit message."""
    [pattern] = re.findall(r"entry: '(\\A.*)'$", documents.read(".pre-commit-config.yaml"), re.MULTILINE)
    return re.search(pattern, message, re.MULTILINE | re.DOTALL) is not None


class Newcomer:
    """Runs commands in the system as a contributor."""

    def __init__(self, system: System) -> None:
        self._system = system

    def run(self, script: str, given: str = "") -> tuple[int, str]:
        """Run a shell script and return its status and output.

        :param given: standard input of the script.
        """
        say(f"$ {script}")
        began = time.monotonic()
        done = subprocess.run(
            self._system.command("bash", "-euc", script, environ=AUTHOR),
            input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        say(f"{done.stdout}[exit status {done.returncode}, {time.monotonic() - began:.0f} s]")
        return done.returncode, done.stdout

    def must(self, script: str, given: str = "") -> str:
        """Run a shell script and return its output. Fail if the script fails."""
        status, printed = self.run(script, given)
        assert status == 0, script
        return printed


def main() -> None:
    """Follow the documents and fail if the outcome is not as documented."""
    parser = argparse.ArgumentParser(description="Make the worked change on a minimal Debian 12.")
    parser.add_argument("folder", type=Path, help="folder of the system (created if missing)")
    parser.add_argument("--mirror", help="URL of the Debian mirror (default: that of debootstrap)")
    arguments = parser.parse_args()
    system = System(arguments.folder.resolve(), f"{PACKAGES},git")
    system.make(arguments.mirror)
    newcomer = Newcomer(system)
    newcomer.must(SETUP)
    for step in STEPS:
        match step.kind:
            case "diff":
                newcomer.must("git apply -", step.text)
            case "sh" if step.failures:
                status, printed = newcomer.run(step.text)
                assert status != 0, "the test fails before the change"
                assert step.failures in printed
            case "sh":
                newcomer.must(step.text)
            case "message":
                assert is_accepted(step.text), step.text
                newcomer.must("git add --all")
                newcomer.must("git commit --quiet --file=-", step.text)
    changed = newcomer.must("git diff --name-only HEAD~ && git status --short").split()
    expected = {
        re.findall(r"^\+\+\+ b/(.*)$", step.text, re.MULTILINE)[0] for step in STEPS if step.kind == "diff"
    }
    assert set(changed) == expected, changed
    say("contributed")


if __name__ == "__main__":
    main()
