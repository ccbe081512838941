"""Runs docs/guides/debian.md as root on a freshly booted Debian 12.

Run manually, as root, on a machine with debootstrap, systemd-nspawn and a network:

    python3 tests/fresh/debian.py FOLDER

The system in FOLDER is created if necessary.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


from fresh.container import Container, booted, check, steps, wait_for
from fresh.run import say
from support.documents import read

PORTS = (80, 443, 5432, 8000, 8001)
KEYS = "/etc/dataapi/dataapi.secrets/publishable-keys"


def follow(container: Container, text: str) -> None:
    """Run each block as root and check that services shown by systemctl are active."""
    for script, shown in steps(text):
        say(f"# {script}")
        printed = container.output("root", script)
        check(printed, shown)
        if "systemctl status" in script:
            assert "active (running)" in printed, printed


def newest_key_is_allowed(container: Container) -> bool:
    """Return whether the service accepts the API key in the last line of the key file."""
    key = container.output("root", f"tail -n 1 {KEYS}").strip()
    asked = f"curl --silent --fail --insecure https://localhost/rest/v1/note -H 'apikey: {key}'"
    return subprocess.run(container.command("root", asked), check=False).returncode == 0


def check_failed_reload(container: Container) -> None:
    """Add an invalid section to the configuration, check that the reload fails, and remove the section."""
    file = "/etc/dataapi/dataapi.ini"
    said = container.output(
        "root",
        f"echo '[nonsense]' >> {file}; if systemctl reload dataapi; then exit 1; fi; sed -i '$d' {file};"
        f" systemctl reload dataapi; journalctl --unit dataapi --no-pager --output cat",
    )
    assert "[nonsense]: no such section" in said, said
    assert said.count("reloaded on POST /reload") == 2, said


def main() -> int:
    guide = read("docs/guides/debian.md")
    typed, _, _ = guide.partition("## As a package\n")
    before, heading, after = typed.partition("## Upgrade\n")
    with booted("Follow docs/guides/debian.md on Debian 12.", PORTS) as container:
        follow(container, before)
        wait_for(lambda: newest_key_is_allowed(container), "the reload")
        check_failed_reload(container)
        follow(container, heading + after)
    say("the guide works as documented")
    return 0


if __name__ == "__main__":
    sys.exit(main())
