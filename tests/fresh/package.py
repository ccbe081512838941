"""Tests the Debian package on a freshly booted Debian 12.

Run manually, as root, on a Debian 12 with debootstrap, systemd-nspawn, debhelper, git and a network:

    .venv/bin/python tests/fresh/package.py FOLDER

This builds the package of the last commit, and a package with a higher version. In the system in FOLDER, it
runs the chapter "As a package" of docs/guides/debian.md, upgrades under load, attempts a downgrade, and
removes and purges the package.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))


from fresh.container import Container, booted, check, steps, wait_for
from fresh.run import SOURCE, run, say
from support.documents import chapter, read

if TYPE_CHECKING:
    from collections.abc import Iterator

PORT = 8000
PORTS = (5432, PORT, 8001)
HIGHER = "0.1.1"
PLACE = "/root/package"
ENVIRONMENT = "/etc/dataapi/environment"
THREADS = 4
LINGER = 5.0
"""Seconds of load before and after an upgrade."""


@dataclass
class Load:
    """The outcomes of requests that several threads send, each over a new connection."""

    key: str
    answered: int = 0
    failed: list[str] = field(default_factory=list)
    slowest: float = 0.0
    ends: bool = False

    def ask(self) -> None:
        """Send requests one after another until ``ends`` is set."""
        while not self.ends:
            began = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
            try:
                connection.request(
                    "GET", "/rest/v1/note", headers={"apikey": self.key, "Connection": "close"}
                )
                answer = connection.getresponse()
                answer.read()
                if answer.status == 200:
                    self.answered += 1
                else:
                    self.failed.append(str(answer.status))
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(repr(error))
            finally:
                connection.close()
            self.slowest = max(self.slowest, time.monotonic() - began)


@contextmanager
def load(key: str) -> Iterator[Load]:
    """Send requests continuously from several threads."""
    asked = Load(key)
    threads = [threading.Thread(target=asked.ask) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield asked
    finally:
        asked.ends = True
        for thread in threads:
            thread.join()


def packages(scratch: Path) -> tuple[Path, Path]:
    """Build the package of the last commit and a package with a higher version."""
    made: list[Path] = []
    for version in ("", HIGHER):
        tree = scratch / f"tree{version}"
        run(["git", "clone", "--quiet", str(SOURCE), str(tree)])
        if version:
            run(["sed", "-i", f"s/^version = .*/version = {version}/", str(tree / "setup.cfg")])
            identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
            run(
                ["git", "-C", str(tree), *identity, "commit", "--quiet", "--all", "--message=Another version"]
            )
        run([sys.executable, str(tree / "packaging" / "deb.py"), str(scratch / f"dist{version}")])
        made += (scratch / f"dist{version}").glob("*.deb")
    before, after = made
    return before, after


def put(container: Container, file: Path, folder: str) -> None:
    """Copy a file into the booted system."""
    words = container.command("root", f"mkdir -p {folder}; cat > {folder}/{file.name}")
    subprocess.run(words, check=True, input=file.read_bytes())


def follow(container: Container, text: str) -> None:
    """Run each block as root in the folder with the package."""
    for script, shown in steps(text):
        say(f"# {script}")
        check(container.output("root", f"export DEBIAN_FRONTEND=noninteractive; cd {PLACE}; {script}"), shown)


def succeeds(container: Container, script: str) -> bool:
    """Return whether a script succeeds."""
    return subprocess.run(container.command("root", script), check=False).returncode == 0


def check_systemd(container: Container) -> None:
    """Check that systemd accepts the unit, log entries have fields, and the status reflects an outage."""
    verified = container.output("root", "systemd-analyze verify dataapi.service dataapi.socket 2>&1 || true")
    assert verified == "", verified
    found = container.output("root", "journalctl --unit dataapi --no-pager --output json")
    entries = [json.loads(line) for line in found.splitlines()]
    [started] = [entry for entry in entries if entry["MESSAGE"].endswith(" starts")]
    say(container.output("root", "journalctl --identifier dataapi --no-pager"))
    assert (started["SYSLOG_IDENTIFIER"], started["PRIORITY"]) == ("dataapi", "6"), started
    assert started["DATAAPI_LOGGER"] == "dataapi.service", started
    assert started["DATAAPI_VERSION"] in started["MESSAGE"], started
    status = "systemctl show --property StatusText --value dataapi"
    for action, expected in (("stop", "not ready"), ("start", "serving")):
        container.output("root", f"systemctl {action} postgresql@15-main")
        began = time.monotonic()
        wait_for(lambda: container.output("root", status).startswith(expected), f"status {expected}")  # noqa: B023
        say(
            f"{time.monotonic() - began:.1f} s after the {action}: {container.output('root', status).strip()}"
        )


def check_manual_and_completion(container: Container) -> None:
    """Check the manual pages, and bash completion with Tab."""
    container.output("root", "DEBIAN_FRONTEND=noninteractive apt-get install --yes man-db")
    for page, section in (
        ("1 dataapi", "EXIT STATUS"),
        ("dataapi token", "--permission"),
        ("5 dataapi.ini", "db-uri"),
    ):
        shown = container.output("root", f"MANPAGER=cat man {page}")
        assert section in shown, shown
    script = (
        "set +eu; source /usr/share/bash-completion/completions/dataapi;"
        " COMP_WORDS=(dataapi check-); COMP_CWORD=1;"
        " COMP_LINE='dataapi check-'; COMP_POINT=14;"
        r" $(complete -p dataapi | sed 's/.*-F \([^ ]*\).*/\1/') dataapi check- dataapi;"
        ' echo "${COMPREPLY[*]}"'
    )
    assert container.output("root", script).split() == ["check-config"]
    for other in (
        "zsh/vendor-completions/_dataapi",
        "fish/vendor_completions.d/dataapi.fish",
        "dataapi/dataapi.tcsh",
    ):
        assert succeeds(container, f"test -s /usr/share/{other}"), other


def check_upgrade(container: Container, package: Path) -> None:
    """Upgrade under load and check that no request fails and a changed configuration file is kept."""
    container.output("root", f"echo 'DATAAPI_DATAAPI_LOG_LEVEL=info' >> {ENVIRONMENT}")
    key = container.output("root", "cat /etc/dataapi/dataapi.secrets/publishable-keys").strip()
    pid = container.output("root", "systemctl show --property MainPID --value dataapi").strip()
    with load(key) as asked:
        time.sleep(LINGER)
        put(container, package, "/root/higher")
        say(container.output("root", f"dpkg --install /root/higher/{package.name} 2>&1"))
        time.sleep(LINGER)
    say(f"{asked.answered} requests were answered, the slowest after {asked.slowest:.1f} s; {asked.failed}")
    assert asked.answered > THREADS
    assert not asked.failed
    assert container.output("root", "systemctl show --property MainPID --value dataapi").strip() != pid
    said = container.output("root", "dataapi version --config /etc/dataapi/dataapi.ini")
    assert said.count(HIGHER) == 2, said
    assert "LOG_LEVEL" in container.output("root", f"cat {ENVIRONMENT}")


def check_downgrade(container: Container, package: Path) -> None:
    """Attempt a downgrade and check that it fails and changes nothing."""
    went_back = container.command("root", f"dpkg --install {PLACE}/{package.name}")
    refused = subprocess.run(went_back, check=False, stderr=subprocess.PIPE)
    say(refused.stderr.decode())
    assert refused.returncode != 0
    assert f"dataapi {HIGHER} is installed" in refused.stderr.decode()
    version = container.output("root", "dpkg-query --show --showformat '${Status} ${Version}' dataapi")
    assert version == f"install ok installed {HIGHER}", version
    assert succeeds(container, "systemctl is-active --quiet dataapi && dataapi ready")


def check_purge(container: Container) -> None:
    """Check that a purge leaves only the user account."""
    found = container.output(
        "root",
        "find / -xdev -iname '*dataapi*' -not -path '/home/*' -not -path '/root/*' -not -path '/proc/*'"
        # man caches the pages that it displays, and removes them weekly.
        " -not -path '/sys/*' -not -path '/var/cache/apt/*' -not -path '/var/cache/man/*'",
    )
    assert found == "", found
    assert not succeeds(container, "dpkg-query --show dataapi 2>/dev/null | grep -q .")
    assert "nologin" in container.output("root", "getent passwd dataapi")


def main() -> int:
    installing, removing = chapter(read("docs/guides/debian.md"), "As a package").split("NEWER.deb")
    with tempfile.TemporaryDirectory() as scratch:
        package, higher = packages(Path(scratch))
        with booted("Test the Debian package on Debian 12.", PORTS) as container:
            put(container, package, PLACE)
            follow(container, installing)
            wait_for(
                lambda: succeeds(container, "dataapi ready --config /etc/dataapi/dataapi.ini"), "readiness"
            )
            say(container.output("root", "systemctl status --no-pager dataapi.service"))
            check_systemd(container)
            check_manual_and_completion(container)
            check_upgrade(container, higher)
            check_downgrade(container, package)
            *blocks, last = steps(removing)
            for script, _ in blocks:
                say(container.output("root", script))
            removed, purged = last[0].split("apt-get purge")
            say(container.output("root", removed))
            assert succeeds(container, "test -e /etc/dataapi/dataapi.ini && test ! -e /usr/lib/dataapi")
            assert not succeeds(container, "systemctl is-active dataapi.socket dataapi.service")
            say(container.output("root", f"apt-get purge {purged}"))
            check_purge(container)
    say("the package installs, upgrades, refuses to go back, and leaves nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
