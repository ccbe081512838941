"""Builds the Dockerfile's image with buildah and runs it with PostgreSQL, read-only and unprivileged.

Run manually, as root, on a Debian with buildah, runc, debootstrap, postgresql, git and a network:

    python3 tests/fresh/image.py FOLDER

This builds the image of the last commit. The base image is created in FOLDER from Debian and its Python, so
that no image registry is used. The container and PostgreSQL share a network namespace.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))


from fresh.container import wait_for
from fresh.run import NETWORK, SOURCE, run, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BASE = "docker.io/library/python:3.14-slim-trixie"
IMAGE = "localhost/dataapi"
SUITE = "testing"
"""The Debian release with the base image's version of Python."""
PACKAGES = "python3.14,python3.14-venv,ca-certificates"
LARGEST = 150
"""Maximum size of the image without its base, in megabytes."""
NAME = "dataapi-image-test"
ADMINISTRATOR = "postgresql://postgres@127.0.0.1/app"
TABLES = """
create table note (id int primary key, body text);
insert into note values (1, 'Hello');
create function slow() returns text language sql as $$ select pg_sleep(3)::text || 'slept' $$;
"""


def output(*words: str, **options: Any) -> str:
    """Run a command and return its output. Fail if the command fails."""
    printed: str = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, **options).stdout
    return printed.strip()


def make_base(folder: Path, mirror: str | None) -> None:
    """Create the Dockerfile's base image in buildah's storage."""
    if not (folder / "etc/debian_version").exists():
        words = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(folder)]
        run([*words, mirror] if mirror else words)
    for name in filter(os.path.exists, NETWORK):
        place = folder / name.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(name, place)
    python = folder / "usr/local/bin/python"
    if not python.is_symlink():
        python.symlink_to("/usr/bin/python3.14")
    made = output("buildah", "from", "scratch")
    run(["buildah", "add", "--quiet", made, str(folder), "/"])
    run(["buildah", "config", "--env", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", made])
    run(["buildah", "commit", "--quiet", "--rm", made, BASE])


def build(scratch: Path) -> None:
    """Build the image of the last commit."""
    tree = scratch / "tree"
    run(["git", "clone", "--quiet", str(SOURCE), str(tree)])
    options = ["--isolation=chroot", "--pull-never", "--format=docker", f"--tag={IMAGE}"]
    run(["buildah", "build", *options, str(tree)])


@contextmanager
def mounted(image: str) -> Iterator[Path]:
    """Mount an image and yield the folder."""
    made = output("buildah", "from", "--pull-never", image)
    try:
        yield Path(output("buildah", "mount", made))
    finally:
        output("buildah", "rm", made)


def megabytes(folder: Path) -> int:
    """Return the size of a folder's files in megabytes."""
    return int(output("du", "--summarize", "--block-size=1M", "--apparent-size", str(folder)).split()[0])


class Network:
    """A network namespace with only a loopback interface."""

    def __init__(self) -> None:
        self.path = f"/run/netns/{NAME}"

    def __enter__(self) -> Network:
        run(["ip", "netns", "add", NAME])
        run(["ip", "netns", "exec", NAME, "ip", "link", "set", "lo", "up"])
        return self

    def __exit__(self, *_: object) -> None:
        run(["ip", "netns", "delete", NAME])

    def inside(self, *words: str) -> list[str]:
        """Return a command that runs in the network namespace."""
        return ["ip", "netns", "exec", NAME, *words]

    def sql(self, statement: str, database: str = "app") -> str:
        """Run SQL as PostgreSQL's superuser."""
        words = (
            "psql",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--host=127.0.0.1",
            "--username=postgres",
            database,
        )
        return output(*self.inside(*words), input=statement)


@contextmanager
def postgresql(network: Network, folder: Path) -> Iterator[list[str]]:
    """Run PostgreSQL in the network namespace. Yield its ``pg_ctl`` command without the action."""
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    data = folder / "data"
    as_user = ["runuser", "-u", "postgres", "--"]
    shutil.chown(folder, "postgres")
    output(*as_user, str(programs / "initdb"), "--auth=trust", f"--pgdata={data}")
    options = f"-c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
    control = [str(programs / "pg_ctl"), "--silent", f"--pgdata={data}", f"--options={options}", "--wait"]
    words = network.inside(*as_user, *control, f"--log={folder / 'log'}")
    output(*words, "start")
    try:
        network.sql("create database app", "postgres")
        yield words
    finally:
        output(*words, "--mode=immediate", "stop")


class Container:
    """A container that runc runs from the image, with the image's configuration.

    :param root: the image's files, mounted read-only.
    :param configuration: the folder mounted at ``/etc/dataapi``.
    """

    def __init__(self, scratch: Path, root: Path, network: Network, configuration: Path) -> None:
        self._scratch, self._root, self._network, self._configuration = scratch, root, network, configuration
        self.image: Mapping[str, Any] = json.loads(output("buildah", "inspect", "--type=image", IMAGE))[
            "Docker"
        ]["config"]

    def start(self, name: str, words: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start the image's entry point, or another command, in a container."""
        bundle = self._scratch / name
        bundle.mkdir()
        output("runc", "spec", cwd=bundle)
        file = bundle / "config.json"
        spec = json.loads(file.read_text())
        user, group = map(int, self.image["User"].split(":"))
        process = spec["process"]
        # Some machines do not permit the resource limits of runc's default configuration.
        process.pop("rlimits")
        process |= {
            "terminal": False,
            "user": {"uid": user, "gid": group},
            "args": [*(words or self.image["Entrypoint"])],
            "env": self.image["Env"],
            "cwd": self.image["WorkingDir"],
            "noNewPrivileges": True,
            "capabilities": {},
        }
        spec["root"] = {"path": str(self._root), "readonly": True}
        writable = ["nosuid", "nodev", "mode=1777"]
        place = str(self._configuration)
        spec["mounts"] += [
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": writable},
            {"destination": "/etc/dataapi", "type": "bind", "source": place, "options": ["bind", "rw"]},
        ]
        kinds = [each for each in spec["linux"]["namespaces"] if each["type"] != "network"]
        spec["linux"]["namespaces"] = [*kinds, {"type": "network", "path": self._network.path}]
        file.write_text(json.dumps(spec))
        say(f"$ {' '.join(process['args'])}")
        return subprocess.Popen(["runc", "run", "--bundle", str(bundle), name], stdin=subprocess.DEVNULL)

    def succeeds(self, *words: str) -> bool:
        """Return whether a command in the running container succeeds."""
        done = subprocess.run(["runc", "exec", NAME, *words], check=False, capture_output=True)
        return done.returncode == 0

    def healthy(self) -> bool:
        """Return whether the image's health check succeeds."""
        kind, *words = self.image["Healthcheck"]["Test"]
        assert kind == "CMD", kind
        return self.succeeds(*words)


def check_container(container: Container, network: Network, server: list[str], configuration: Path) -> None:
    """Check that the container initializes a database, serves, survives an outage, and stops gracefully."""
    network.sql(TABLES)
    options = ["--yes", "--anon=read", "--config=/etc/dataapi/dataapi.ini"]
    assert container.start(f"{NAME}-init", ["dataapi", "init", *options, ADMINISTRATOR]).wait() == 0
    network.sql("grant execute on function slow to anon")
    key = (configuration / "dataapi.secrets/publishable-keys").read_text().strip()
    asking = network.inside("curl", "--silent", "--fail", "--header", f"apikey: {key}")
    began = time.monotonic()
    serving = container.start(NAME)
    wait_for(container.healthy, "the check")
    say(f"healthy after {time.monotonic() - began:.1f} s")
    answer = output(*asking, "http://127.0.0.1:8000/rest/v1/note")
    assert json.loads(answer) == [{"id": 1, "body": "Hello"}], answer
    assert container.succeeds("sh", "-c", "test $(id -u) = 10001")
    assert not container.succeeds("touch", "/opt/dataapi/written")
    assert not container.succeeds("touch", "/etc/written")
    output(*server, "--mode=fast", "stop")
    wait_for(lambda: not container.healthy(), "the check to fail")
    output(*server, "start")
    wait_for(container.healthy, "the check")
    say("the health check fails without the database, and then succeeds again")
    flying = subprocess.Popen([*asking, "http://127.0.0.1:8000/rest/v1/rpc/slow"], stdout=subprocess.PIPE)
    sleeping = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'"
    wait_for(lambda: network.sql(sleeping) == "1", "the request")
    output("runc", "kill", NAME, "TERM")
    assert serving.wait(60) == 0
    assert b"slept" in flying.communicate()[0]
    say("SIGTERM: the request in flight got its response, and the exit code is 0")


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the container image and run it.")
    parser.add_argument("folder", type=Path, help="folder of the base image (created if missing)")
    parser.add_argument("--mirror", help="URL of the Debian mirror (default: that of debootstrap)")
    arguments = parser.parse_args()
    make_base(arguments.folder.resolve(), arguments.mirror)
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        scratch.chmod(0o755)
        build(scratch)
        configuration, data = scratch / "configuration", scratch / "postgresql"
        configuration.mkdir(mode=0o700)
        data.mkdir()
        os.chown(configuration, 10001, 10001)
        with mounted(BASE) as base, mounted(IMAGE) as root:
            added = megabytes(root) - megabytes(base)
            say(f"the base has {megabytes(base)} MB, the image {added} MB more")
            assert added < LARGEST
            with Network() as network, postgresql(network, data) as server:
                check_container(
                    Container(scratch, root, network, configuration), network, server, configuration
                )
    say("the image builds, serves, and stops in order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
