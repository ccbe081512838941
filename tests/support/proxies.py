"""nginx and HAProxy as etc/ configures them, before daemons of the tests, where the machine has them."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from support.certificates import make_certificate
from support.daemon import ROOT, wait_for
from support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from support.daemon import Daemon

_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@contextmanager
def proxied(proxy: str, folder: Path, daemons: Sequence[Daemon]) -> Iterator[int]:
    """Give the port at which ``nginx`` or ``haproxy`` encrypts; skips the test where there is none."""
    program = shutil.which(proxy, path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip(f"needs {proxy}")
    port, file = free_port(), folder / f"{proxy}.conf"
    file.write_text({"nginx": _nginx, "haproxy": _haproxy}[proxy](folder, port, daemons))
    words = {"nginx": ["-c", str(file)], "haproxy": ["-db", "-f", str(file)]}[proxy]
    with (folder / "proxy-output").open("wb") as output:
        process = subprocess.Popen([program, *words], cwd=folder, stdout=output, stderr=output)
    try:
        wait_for(lambda: process.poll() is not None or _listens(port), f"{proxy} to listen")
        assert process.poll() is None, (folder / "proxy-output").read_text()
        yield port
    finally:
        process.kill()
        process.wait()


def _nginx(folder: Path, port: int, daemons: Sequence[Daemon]) -> str:
    certificate = make_certificate(folder)
    served = re.sub(r"(ssl_certificate\w*) .*;", rf"\1 {certificate};", _configuration("nginx.conf"))
    served = served.replace("# server ", "server ").replace("listen 443", f"listen 127.0.0.1:{port}")
    for place, daemon in zip(("127.0.0.1:8000", "127.0.0.1:8010"), daemons, strict=True):
        served = served.replace(place, f"127.0.0.1:{daemon.port}")
    paths = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in _TEMPORARY)
    return (
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr; events {{}}\n"
        f"http {{\naccess_log off;\n{paths}\n{served}}}\n"
    )


def _haproxy(folder: Path, port: int, daemons: Sequence[Daemon]) -> str:
    served = _configuration("haproxy.cfg").replace("bind :443", f"bind 127.0.0.1:{port}")
    served = re.sub(r"crt \S+", f"crt {make_certificate(folder)}", served)
    for place, daemon in zip(("127.0.0.1:8000 port 8001", "127.0.0.1:8010 port 8011"), daemons, strict=True):
        served = served.replace(place, f"127.0.0.1:{daemon.port} port {daemon.admin_port}")
    return served


def _configuration(name: str) -> str:
    return (ROOT / "etc" / name).read_text()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
