"""Runs the README's chapter "Use your own database" on a freshly booted Debian 12.

Run manually, as root, on a machine with debootstrap, systemd-nspawn and a network:

    python3 tests/fresh/own_database.py FOLDER

The system in FOLDER is created if necessary.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


from fresh.container import Container, booted, check, listens, steps, wait_for
from fresh.run import USER, say
from support.documents import chapter, read

PORT = 8000
PORTS = (5432, PORT, 8001)


def follow(container: Container, text: str) -> None:
    """Run each block as a user. The daemon keeps running in the background."""
    for script, shown in steps(text):
        *commands, last = script.splitlines()
        serves = "twistd" in last
        for command in commands if serves else [*commands, last]:
            say(f"$ {command}")
            check(container.output(USER, command), shown if command is last else "")
        if serves:
            say(f"$ {last}")
            # The daemon ends when the system stops.
            words = container.command(USER, last)
            subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            wait_for(lambda: listens(PORT), "the daemon")


def main() -> int:
    with booted("Run the README commands for your own database on Debian 12.", PORTS) as container:
        follow(container, chapter(read("README.md"), "Use your own database"))
    say("the README works as documented")
    return 0


if __name__ == "__main__":
    sys.exit(main())
