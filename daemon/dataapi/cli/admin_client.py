"""Requests to the admin listener of a running daemon."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import closing
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

from dataapi.service.configuration.endpoints import http_address, unix_path

_UNIX = "unix:"


def admin_address(endpoints: Iterable[str]) -> str | None:
    """Return the address of the first endpoint that a command can connect to, or None.

    The address is a URL without a path, or ``unix:`` and the path of a socket.
    """
    for endpoint in endpoints:
        path = unix_path(endpoint)
        address = http_address(endpoint) if path is None else _UNIX + path
        if address is not None:
            return address
    return None


def send_request(address: str, path: str, timeout: float, body: bytes | None = None) -> tuple[int, str]:
    """Send a POST request, or a GET request if ``body`` is None, and return the response's status and body.

    :raises OSError: there is no response within ``timeout`` seconds.
    :raises HTTPException: the response is not HTTP.
    """
    with closing(_connection(address, timeout)) as connection:
        connection.request("GET" if body is None else "POST", path, body)
        response = connection.getresponse()
        return response.status, response.read().decode()


def _connection(address: str, timeout: float) -> HTTPConnection:
    if address.startswith(_UNIX):
        return _UnixConnection(address.removeprefix(_UNIX), timeout)
    parts = urlsplit(address)
    connection_class = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return connection_class(parts.hostname or "", parts.port, timeout=timeout)


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
