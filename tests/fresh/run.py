"""Runs the README's commands on a Debian 12 with only the packages that the README requires.

Run manually, as root, on a machine with debootstrap, curl and a network:

    python3 tests/fresh/run.py FOLDER

This creates the system in FOLDER, or reuses the system of an earlier run, and copies the last commit to it.
As an unprivileged user, it runs ``make demo``, the README's first curl command, and ``make test``. The
system shares the network of this machine, so the demo uses free ports.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SOURCE = Path(__file__).parents[2]
PACKAGES = "python3,python3-venv,make"
USER = "newcomer"
PROJECT = f"/home/{USER}/dataapi"
NETWORK = (
    *("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"),
    # The package ca-certificates generates ca-certificates.crt from these files.
    *map(str, Path("/usr/local/share/ca-certificates").glob("*.crt")),
)
"""Files with this machine's network and package index settings, in addition to environment variables."""
PATIENCE = 1800.0
"""Timeout in seconds, long enough for the first command to install packages."""

# The PID namespace ends all processes of the command. PostgreSQL needs shared memory, tests need terminals.
ENTER = """
mount -t proc proc "$0/proc"
mount -t tmpfs -o mode=1777 tmpfs "$0/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$0/dev/pts"
exec chroot "$0" runuser -u "$1" -- env -i --chdir="$2" "${@:3}"
"""


class System:
    """A minimal Debian in a folder.

    :param packages: comma-separated packages, in addition to the minimal system.
    """

    def __init__(self, folder: Path, packages: str = PACKAGES) -> None:
        self._folder = folder
        self._packages = packages

    def make(self, mirror: str | None) -> None:
        """Install the system, the user and the project."""
        if not (self._folder / "etc/debian_version").exists():
            packages = f"--include={self._packages}"
            words = ["debootstrap", "--variant=minbase", packages, "bookworm", str(self._folder)]
            run([*words, mirror] if mirror else words)
        if not (self._folder / "home" / USER).exists():
            run(["chroot", str(self._folder), "useradd", "--create-home", USER])
        for name in filter(os.path.exists, NETWORK):
            place = self._folder / name.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(name, place)
        project = self._folder / PROJECT.lstrip("/")
        clone = project.with_name("clone")
        # Clone by URL, because git hard-links the files of a path, and chown would then change the originals.
        run(["git", "clone", "--quiet", "--depth=1", SOURCE.as_uri(), str(clone)])
        if project.exists():
            if (project / ".venv").exists():
                (project / ".venv").rename(clone / ".venv")
            shutil.rmtree(project)
        clone.rename(project)
        run(["chroot", str(self._folder), "chown", "-R", f"{USER}:", PROJECT])

    def command(self, *words: str, environ: Mapping[str, str]) -> list[str]:
        """Return a command that runs in the project's folder as the user."""
        variables = [f"{name}={value}" for name, value in {**network(), **environ}.items()]
        entered = ["bash", "-euc", ENTER, str(self._folder), USER, PROJECT, *variables, *words]
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", *entered]


def network() -> dict[str, str]:
    """Return the environment variables of the user's commands."""
    passed = {name: value for name, value in os.environ.items() if re.match(r"PIP_|.*_proxy$", name, re.I)}
    return {"HOME": f"/home/{USER}", "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", **passed}


def say(what: str) -> None:
    """Print a progress message."""
    print(what, flush=True)  # noqa: T201 - the user watches


def run(words: list[str]) -> None:
    """Print and run a command."""
    say(f"$ {shlex.join(words)}")
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


@contextmanager
def demo(system: System, log: Path) -> Iterator[tuple[str, str]]:
    """Run ``make demo`` and yield the demo's address and first key."""
    port, admin = free_ports(2)
    environ = {
        "DATAAPI_DATAAPI_LISTEN": f"tcp:{port}:interface=127.0.0.1",
        "DATAAPI_DATAAPI_ADMIN_LISTEN": f"tcp:{admin}:interface=127.0.0.1",
    }
    say("$ make demo")
    with log.open("wb") as output:
        running = subprocess.Popen(
            system.command("make", "demo", environ=environ),
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        limit = time.monotonic() + PATIENCE
        while not (key := re.search(r"sb_publishable_[\w-]+", log.read_text())):
            assert running.poll() is None, log.read_text()
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.5)
        yield f"127.0.0.1:{port}", key[0]
    finally:
        # unshare does not forward other signals.
        running.kill()
        running.wait()


def free_ports(count: int) -> list[int]:
    """Return free ports."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def check_first_curl(address: str, key: str) -> None:
    """Run the README's first curl command and check that the response is as documented."""
    readme = (SOURCE / "README.md").read_text("utf-8")
    pattern = r"^    (curl -s http://127\.0\.0\.1:8000.*?)\n\nThe response:\n\n    (.*?)\n"
    shown = re.search(pattern, readme, re.MULTILINE | re.DOTALL)
    assert shown is not None
    command = shown[1].replace("127.0.0.1:8000", address).replace("sb_publishable_...", key)
    say(f"$ {command}")
    limit = time.monotonic() + PATIENCE
    while True:
        # The demo prints its keys when it is ready. Bypass this machine's proxy.
        answer = subprocess.run(["bash", "-c", f"no_proxy=* {command}"], stdout=subprocess.PIPE, check=False)
        if answer.returncode == 0:
            break
        assert time.monotonic() < limit, "no response"
        time.sleep(0.5)
    assert answer.stdout.decode().strip() == shown[2], answer.stdout
    say(answer.stdout.decode())


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the README commands on a minimal Debian 12.")
    parser.add_argument("folder", type=Path, help="folder of the system (created if missing)")
    parser.add_argument("--mirror", help="URL of the Debian mirror (default: that of debootstrap)")
    arguments = parser.parse_args()
    system = System(arguments.folder.resolve())
    system.make(arguments.mirror)
    with demo(system, arguments.folder.with_suffix(".demo.log")) as (address, key):
        check_first_curl(address, key)
    say("$ make test")
    tests = subprocess.run(system.command("make", "test", environ={}), stdin=subprocess.DEVNULL, check=False)
    say("passed" if tests.returncode == 0 else f"make test exits with {tests.returncode}")
    return tests.returncode


if __name__ == "__main__":
    sys.exit(main())
