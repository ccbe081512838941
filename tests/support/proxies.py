"""nginx and HAProxy with the configuration of etc/, in front of test daemons."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dataapi.testing import free_port
from support.certificates import make_certificate
from support.daemon import ROOT, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.daemon import Daemon

_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def installed_proxies() -> list[str]:
    """Return the installed proxies. Skip the test if none is installed."""
    found = [proxy for proxy in ("nginx", "haproxy") if _program(proxy) is not None]
    if not found:
        pytest.skip("needs nginx or haproxy")
    return found


def _program(proxy: str) -> str | None:
    return shutil.which(proxy, path=f"{os.environ['PATH']}:/usr/sbin")


@dataclass(frozen=True)
class Proxy:
    """A running proxy.

    :ivar port: TLS port of the proxy.
    """

    port: int
    process: subprocess.Popen[bytes]

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Suspend the proxy: it neither handles requests nor notices that connections were closed."""
        self.process.send_signal(signal.SIGSTOP)
        state = Path(f"/proc/{self.process.pid}/stat")
        wait_for(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", "the proxy to stop")
        yield
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def proxied(
    proxy: str, folder: Path, daemons: Sequence[Daemon], *changed: tuple[str, str]
) -> Iterator[Proxy]:
    """Run ``nginx`` or ``haproxy``.

    :param changed: pairs of a text in the configuration and its replacement.
    """
    program = _program(proxy)
    assert program is not None
    port, file = free_port(), folder / f"{proxy}.conf"
    text = {"nginx": _nginx, "haproxy": _haproxy}[proxy](folder, port, daemons)
    for old, new in changed:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    words = {"nginx": ["-c", str(file)], "haproxy": ["-db", "-f", str(file)]}[proxy]
    with (folder / "proxy-output").open("wb") as output:
        process = subprocess.Popen([program, *words], cwd=folder, stdout=output, stderr=output)
    try:
        wait_for(lambda: process.poll() is not None or _listens(port), f"{proxy} to listen")
        assert process.poll() is None, (folder / "proxy-output").read_text()
        yield Proxy(port, process)
    finally:
        process.kill()
        process.wait()


def _nginx(folder: Path, port: int, daemons: Sequence[Daemon]) -> str:
    certificate = make_certificate(folder)
    served = re.sub(r"(ssl_certificate\w*) .*;", rf"\1 {certificate};", _configuration("nginx.conf"))
    served = served.replace("# server ", "server ").replace("listen 443", f"listen 127.0.0.1:{port}")
    for address, daemon in zip(("127.0.0.1:8000", "127.0.0.1:8010"), daemons, strict=True):
        served = served.replace(address, f"127.0.0.1:{daemon.port}")
    paths = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in _TEMPORARY)
    return (
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr; events {{}}\n"
        f"http {{\naccess_log off;\n{paths}\n{served}}}\n"
    )


def _haproxy(folder: Path, port: int, daemons: Sequence[Daemon]) -> str:
    served = _configuration("haproxy.cfg").replace("bind :443", f"bind 127.0.0.1:{port}")
    served = re.sub(r"crt \S+", f"crt {make_certificate(folder)}", served)
    for address, daemon in zip(
        ("127.0.0.1:8000 port 8001", "127.0.0.1:8010 port 8011"), daemons, strict=True
    ):
        served = served.replace(address, f"127.0.0.1:{daemon.port} port {daemon.admin_port}")
    return served


def _configuration(name: str) -> str:
    return (ROOT / "etc" / name).read_text()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
