"""The built files of the console and the portal (``make console``), as responses cached in memory."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable

from twisted.internet.threads import deferToThread

from dataapi.http.headers import parse_accept
from dataapi.http.messages import Reply, Request

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "font-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors "
)
_MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}
_SAFE = (
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)
_UNFRAMED = (("Content-Security-Policy", f"{_POLICY}'none'"), ("X-Frame-Options", "DENY"))
_IMMUTABLE = ("Cache-Control", "public, max-age=31536000, immutable")
"""Header that lets caches store a file forever.

The name of a file contains a hash of its content, so a changed file has another name.
"""

_ENCODINGS = {"br": ".br", "gzip": ".gz", "identity": ".gz"}
"""Suffix of the stored file by content coding. The preferred coding is first."""


class Assets:
    """The files of a package. Each file is read in a thread when it is first requested."""

    def __init__(self, package: str, page: str = "index.html") -> None:
        self._folder = files(package) / "assets"
        self._page = page
        self._html: bytes | None = None
        self._replies: dict[tuple[str, str], Reply] = {}
        self._names: frozenset[str] = frozenset()

    async def page(self, framing: Sequence[str] = ()) -> Reply:
        """Return the HTML page. ``framing`` are the origins that may embed it in a frame (default: none)."""
        if self._html is None:
            self._html = await deferToThread((self._folder / self._page).read_bytes)
        framed = (("Content-Security-Policy", _POLICY + " ".join(framing)),) if framing else _UNFRAMED
        headers = (("Content-Type", "text/html; charset=utf-8"), ("Cache-Control", "no-cache"))
        return Reply(200, (*headers, *_SAFE, *framed), self._html)

    async def file(self, name: str, request: Request) -> Reply | None:
        if not self._names:
            self._names = await deferToThread(_names, self._folder)
        if name not in self._names:
            return None
        encoding = _encoding(request.headers.get("accept-encoding", ""))
        reply = self._replies.get((name, encoding))
        if reply is None:
            body = await deferToThread(_read, self._folder, name, encoding)
            reply = self._replies[name, encoding] = Reply(200, _headers(name, encoding), body)
        return reply


def _names(folder: Traversable) -> frozenset[str]:
    return frozenset(entry.name[:-3] for entry in folder.iterdir() if entry.name.endswith(".gz"))


def _read(folder: Traversable, name: str, encoding: str) -> bytes:
    stored = (folder / (name + _ENCODINGS[encoding])).read_bytes()
    return gzip.decompress(stored) if encoding == "identity" else stored


def _headers(name: str, encoding: str) -> tuple[tuple[str, str], ...]:
    media_type = _MEDIA_TYPES.get(name.rpartition(".")[2], "application/octet-stream")
    encoded = () if encoding == "identity" else (("Content-Encoding", encoding),)
    return (
        ("Content-Type", media_type),
        *encoded,
        ("Vary", "Accept-Encoding"),
        _IMMUTABLE,
        *_SAFE,
        *_UNFRAMED,
    )


def _encoding(accepted: str) -> str:
    offered = {entry.name for entry in parse_accept(accepted)}
    return next((name for name in _ENCODINGS if name in offered), "identity")
