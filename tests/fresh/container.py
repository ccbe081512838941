"""A Debian 12 that systemd-nspawn boots from a folder. A user's home contains a copy of the project.

Changes are discarded at the end, so that each run begins with a clean system. The container shares the
network of this machine, so the ports of its services must be free.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import socket
import subprocess
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fresh.run import NETWORK, SOURCE, USER, network, run, say
from support import documents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PACKAGES = "systemd-sysv,dbus,sudo,python3"
PROJECT = f"/home/{USER}/dataapi"
PATIENCE = 600.0


class Container:
    """The booted system.

    :param init: process ID of the system's init.
    """

    def __init__(self, init: int) -> None:
        self._init = init

    def command(self, user: str, script: str) -> list[str]:
        """Return a command that runs a shell script in the project's folder as a logged-in user."""
        variables = network()
        kept = f"--whitelist-environment={','.join(variables)}"
        entered = ["nsenter", f"--target={self._init}", "--mount", "--uts", "--ipc", "--pid", "--"]
        typed = f"set -euo pipefail; cd {PROJECT}; {script}"
        given = [f"{name}={value}" for name, value in variables.items()]
        return ["env", *given, *entered, "/usr/sbin/runuser", "--login", kept, user, "--command", typed]

    def output(self, user: str, script: str) -> str:
        """Run a script and return its output. Fail if the script fails."""
        words = self.command(user, script)
        done = subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        return done.stdout.decode()

    def has_booted(self) -> bool:
        """Return whether the system has booted."""
        words = self.command("root", "systemctl is-active --quiet multi-user.target")
        return subprocess.run(words, check=False).returncode == 0


@contextmanager
def booted(description: str, ports: Sequence[int]) -> Iterator[Container]:
    """Boot the system in the folder that the command line names. Create the system if necessary."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path, help="folder of the system (created if missing)")
    parser.add_argument("--mirror", help="URL of the Debian mirror (default: that of debootstrap)")
    arguments = parser.parse_args()
    for port in ports:
        assert not listens(port), f"port {port} is in use"
    folder = arguments.folder.resolve()
    _make(folder, arguments.mirror)
    with _boot(folder) as container:
        yield container


def steps(text: str) -> Iterator[tuple[str, str]]:
    """Yield each block of shell commands in a document, with the JSON shown below the block, or ""."""
    blocks = documents.blocks(text)
    for block, after in itertools.zip_longest(blocks, blocks[1:]):
        if block.language == "sh":
            yield block.text, after.text if after and after.language == "json" else ""


def check(printed: str, shown: str) -> None:
    """Check that commands print the documented output."""
    say(printed)
    assert not shown or documents.fits(json.loads(printed), documents.pattern(shown)), printed


def listens(port: int) -> bool:
    """Return whether a port of this machine is in use."""
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Wait until a condition is true and return its value."""
    limit = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < limit, f"timed out waiting for {what}"
        time.sleep(0.2)
    return value


def _make(folder: Path, mirror: str | None) -> None:
    """Install the system with a user for sudo, and a copy of the project."""
    if not (folder / "etc/debian_version").exists():
        words = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(folder)]
        run([*words, mirror] if mirror else words)
    if not (folder / "home" / USER).exists():
        run(["chroot", str(folder), "useradd", "--create-home", "--shell", "/bin/bash", USER])
    (folder / "etc/sudoers.d/newcomer").write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n")
    for name in filter(os.path.exists, NETWORK):
        place = folder / name.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(name, place)
    project = folder / PROJECT.lstrip("/")
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=SOURCE, check=True, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", project], input=archive.stdout, check=True)
    run(["chroot", str(folder), "chown", "-R", f"{USER}:", PROJECT])
    run(["chroot", str(folder), "apt-get", "update", "--quiet"])


@contextmanager
def _boot(folder: Path) -> Iterator[Container]:
    # A clean shutdown is unnecessary, because changes are discarded.
    options = ["--volatile=overlay", "--register=no", "--keep-unit", "--kill-signal=SIGKILL"]
    with folder.with_suffix(".boot.log").open("wb") as log:
        running = subprocess.Popen(
            ["systemd-nspawn", f"--directory={folder}", *options, "--boot", "--console=pipe"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        container = Container(int(wait_for(lambda: children.read_text().split(), "the boot")[0]))
        wait_for(container.has_booted, "the boot")
        yield container
    finally:
        running.terminate()
        running.wait()
