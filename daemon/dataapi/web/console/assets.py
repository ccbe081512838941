"""The console's files, which ``make console`` builds, as replies kept in memory."""

from __future__ import annotations

import gzip
from importlib.resources import files

from twisted.internet.threads import deferToThread

from dataapi.http.headers import parse_accept
from dataapi.http.messages import Reply, Request

_FOLDER = files("dataapi.web.console") / "assets"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}
_SAFE = (
    ("Content-Security-Policy", _POLICY),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)
_FOREVER = ("Cache-Control", "public, max-age=31536000, immutable")
"""A file's name changes with its content."""

_ENCODINGS = {"br": ".br", "gzip": ".gz", "identity": ".gz"}
"""What a file is kept as for each encoding, the best first."""


class Assets:
    """Finds the files of the console; each is read once, in a thread, when it is first asked for."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Reply] = {}
        self._names: frozenset[str] = frozenset()

    async def page(self) -> Reply:
        """Return the page that all addresses of the console show."""
        reply = self._known.get(("index.html", "identity"))
        if reply is None:
            body = await deferToThread((_FOLDER / "index.html").read_bytes)
            headers = (("Content-Type", "text/html; charset=utf-8"), ("Cache-Control", "no-cache"), *_SAFE)
            reply = self._known["index.html", "identity"] = Reply(200, headers, body)
        return reply

    async def file(self, name: str, request: Request) -> Reply | None:
        """Return a file in an encoding that the client takes, None if there is no such file."""
        if not self._names:
            self._names = await deferToThread(_names)
        if name not in self._names:
            return None
        encoding = _encoding(request.headers.get("accept-encoding", ""))
        reply = self._known.get((name, encoding))
        if reply is None:
            body = await deferToThread(_read, name, encoding)
            reply = self._known[name, encoding] = Reply(200, _headers(name, encoding), body)
        return reply


def _names() -> frozenset[str]:
    return frozenset(each.name[:-3] for each in _FOLDER.iterdir() if each.name.endswith(".gz"))


def _read(name: str, encoding: str) -> bytes:
    stored = (_FOLDER / (name + _ENCODINGS[encoding])).read_bytes()
    return gzip.decompress(stored) if encoding == "identity" else stored


def _headers(name: str, encoding: str) -> tuple[tuple[str, str], ...]:
    media_type = _MEDIA_TYPES.get(name.rpartition(".")[2], "application/octet-stream")
    encoded = () if encoding == "identity" else (("Content-Encoding", encoding),)
    return (("Content-Type", media_type), *encoded, ("Vary", "Accept-Encoding"), _FOREVER, *_SAFE)


def _encoding(accepted: str) -> str:
    """Return the best encoding that an ``Accept-Encoding`` header names without refusing it."""
    offered = {each.name for each in parse_accept(accepted)}
    return next((name for name in _ENCODINGS if name in offered), "identity")
