"""The README's way to one's own database, typed on a Debian 12 that was booted with nothing installed.

Run by hand, as root, on a machine with debootstrap, systemd-nspawn and a network:

    python3 tests/fresh/own_database.py FOLDER

makes the system in FOLDER, or takes the one that is there. It boots with a layer over it that is dropped
at the end, so that each run begins on the bare system. It shares the network with this machine, so that the
ports of PostgreSQL and of the daemon must be free.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

SOURCE = Path(__file__).parents[2]
sys.path.insert(0, str(SOURCE / "tests"))


from fresh.run import NETWORK, USER, network, run, say  # noqa: E402
from support import documents  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGES = "systemd-sysv,dbus,sudo,python3"
PROJECT = f"/home/{USER}/dataapi"
PORTS = (5432, 8000, 8001)
PATIENCE = 600.0


def make(folder: Path, mirror: str | None) -> None:
    """Install the system, with a user who may use sudo and a clone of the project."""
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
def booted(folder: Path) -> Iterator[int]:
    """Boot the system; give the process that is its init."""
    options = ["--volatile=overlay", "--register=no", "--keep-unit", "--boot", "--console=pipe"]
    with folder.with_suffix(".boot.log").open("wb") as log:
        container = subprocess.Popen(
            ["systemd-nspawn", f"--directory={folder}", *options],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
        init = int(wait_for(lambda: children.read_text().split(), "the boot")[0])
        running = [*enter(init, "root", "/"), "systemctl", "is-active", "--quiet", "multi-user.target"]
        wait_for(lambda: subprocess.run(running, check=False).returncode == 0, "the boot")
        yield init
    finally:
        container.terminate()
        container.wait()


def enter(init: int, user: str, folder: str) -> list[str]:
    """Return what runs a command in the booted system."""
    variables = [f"{name}={value}" for name, value in network().items()]
    entered = ["nsenter", f"--target={init}", "--mount", "--uts", "--ipc", "--pid"]
    return [*entered, "--", "runuser", "-u", user, "--", "env", "-i", f"--chdir={folder}", *variables]


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Return the condition's first true value."""
    limit = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < limit, f"waited in vain for {what}"
        time.sleep(0.2)
    return value


def answers() -> bool:
    """Whether the daemon listens."""
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", 8000)) == 0


def follow(init: int, text: str) -> None:
    """Paste each block into a shell of the newcomer, and see that it prints what is shown below it."""
    shell = [*enter(init, USER, PROJECT), "bash", "-euo", "pipefail", "-c"]
    for block, after in itertools.pairwise([*documents.blocks(text), documents.Block("", "", 0)]):
        if block.language != "sh":
            continue
        *commands, last = block.text.splitlines()
        serves = "twistd" in last
        for command in commands if serves else [*commands, last]:
            say(f"$ {command}")
            typed = [*shell, command]
            done = subprocess.run(typed, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            say(done.stdout.decode())
        if serves:
            say(f"$ {last}")
            # It ends with the system.
            subprocess.Popen([*shell, last], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            wait_for(answers, "the daemon")
        elif after.language == "json":
            assert documents.fits(json.loads(done.stdout), documents.pattern(after.text)), done.stdout


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description="Type the README's own-database commands on Debian 12.")
    parser.add_argument("folder", type=Path, help="where the system is, or is to be")
    parser.add_argument("--mirror", help="a Debian mirror, if not debootstrap's")
    arguments = parser.parse_args()
    for port in PORTS:
        with closing(socket.socket()) as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0, f"port {port} is taken"
    folder = arguments.folder.resolve()
    make(folder, arguments.mirror)
    with booted(folder) as init:
        follow(init, documents.chapter(documents.read("README.md"), "Use your own database"))
    say("it is as the README says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
