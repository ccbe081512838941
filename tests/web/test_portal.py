"""The page for customers: who gets it, who may frame it, and that it has its own files alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dataapi.web.app import make_site
from support.memory_http import NOW, Response, Web
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dataapi.http.messages import Reply, Request

CONSOLE = Path(__file__).parents[2] / "daemon" / "dataapi" / "web" / "console" / "assets"
ORIGINS = ("https://app.example.org", "https://admin.example.org:8443")


@dataclass
class Webhooks:
    """Webhooks that nobody manages."""

    enabled: bool = True
    portal_origins: Sequence[str] = ()

    async def handle(self, _request: Request, _path: str, _places: Mapping[str, str]) -> Reply:
        """Never be asked."""
        raise AssertionError


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files without a thread: nothing runs the reactor here."""

    def read(function, *arguments):  # type: ignore[no-untyped-def]
        done: Deferred[object] = Deferred()
        done.callback(function(*arguments))
        return done

    monkeypatch.setattr("dataapi.web.assets.deferToThread", read)


def ask(target: str, webhooks: Webhooks | None = None, method: str = "GET", **headers: str) -> Response:
    """Send a request to a daemon whose project closes its console."""
    web = Web()
    web.site = make_site([], web.clock, web.served.append, webhooks=webhooks or Webhooks(), now=lambda: NOW)
    return web.request(method, target, headers=list(headers.items()), key=None)


def test_it_is_there_for_everybody_while_webhooks_are_on() -> None:
    """Without a project, an API key or an open console: the link alone has what it shows."""
    page = ask("/portal")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert ask("/portal", Webhooks(enabled=False)).status == 404
    assert ask("/console").status == 404


def test_it_runs_its_own_files_alone() -> None:
    html = ask("/portal").body.decode()
    files = re.findall(r'(?:src|href)="(/[^"]+)"', html)
    assert len(files) == 2
    for target in files:
        assert target.startswith("/portal/assets/")
        found = ask(target)
        assert (found.status, found.headers["x-content-type-options"]) == (200, "nosniff")
        assert "frame-ancestors 'none'" in found.headers["content-security-policy"]
        assert ask(target, Webhooks(enabled=False)).status == 404
    own = next(each.name for each in CONSOLE.iterdir() if each.name.endswith(".js.gz"))
    for target in (
        f"/portal/assets/{own.removesuffix('.gz')}",
        "/portal/assets/portal.html",
        "/portal/data/x",
    ):
        assert ask(target).status == 404


def test_pages_of_the_configured_origins_alone_may_frame_it() -> None:
    """Without any, no page may; nothing else of the daemon may be framed."""
    alone = ask("/portal").headers
    assert alone["content-security-policy"].endswith("frame-ancestors 'none'")
    assert alone["x-frame-options"] == "DENY"
    framed = ask("/portal", Webhooks(portal_origins=ORIGINS)).headers
    assert framed["content-security-policy"].endswith(f"frame-ancestors {' '.join(ORIGINS)}")
    assert "x-frame-options" not in framed
    for headers in (alone, framed):
        policy = headers["content-security-policy"]
        assert policy.startswith(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        )
        assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_is_only_read(method: str) -> None:
    refused = ask("/portal", method=method)
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
