"""Requests of commands to the admin listener of a running daemon."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import closing
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

from dataapi.service.configuration.endpoints import http_address, unix_path

_UNIX = "unix:"


def admin_address(endpoints: Iterable[str]) -> str | None:
    """Return the address of the first endpoint that a command can reach, None without one.

    :return: a URL without a path, or ``unix:`` and the path of a socket.
    """
    for endpoint in endpoints:
        path = unix_path(endpoint)
        address = http_address(endpoint) if path is None else _UNIX + path
        if address is not None:
            return address
    return None


def ask(address: str, path: str, within: float, posted: bytes | None = None) -> tuple[int, str]:
    """Send a request and return status and body of the response.

    :param within: the time limit, in seconds.
    :param posted: the body of a POST, None to GET.
    :raises OSError: there is no response in time.
    :raises HTTPException: it is not HTTP.
    """
    with closing(_connection(address, within)) as connection:
        connection.request("GET" if posted is None else "POST", path, posted)
        response = connection.getresponse()
        return response.status, response.read().decode()


def _connection(address: str, within: float) -> HTTPConnection:
    if address.startswith(_UNIX):
        return _UnixConnection(address.removeprefix(_UNIX), within)
    parts = urlsplit(address)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=within)


class _UnixConnection(HTTPConnection):
    """A connection to a socket in the file system."""

    def __init__(self, path: str, within: float) -> None:
        super().__init__("localhost", timeout=within)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
