"""The customer portal's page: access, framing and files."""

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
    """A fake management API that must not be called."""

    enabled: bool = True
    portal_origins: Sequence[str] = ()

    async def handle(self, _request: Request, _path: str, _parameters: Mapping[str, str]) -> Reply:
        raise AssertionError


@pytest.fixture(autouse=True)
def _read_synchronously(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files without a thread, because no reactor runs in these tests."""

    def read(function, *arguments):  # type: ignore[no-untyped-def]
        done: Deferred[object] = Deferred()
        done.callback(function(*arguments))
        return done

    monkeypatch.setattr("dataapi.web.assets.deferToThread", read)


def send(target: str, webhooks: Webhooks | None = None, method: str = "GET", **headers: str) -> Response:
    """Send a request to a daemon whose console is closed."""
    web = Web()
    web.site = make_site([], web.clock, web.served.append, webhooks=webhooks or Webhooks(), now=lambda: NOW)
    return web.request(method, target, headers=list(headers.items()), key=None)


def test_portal_is_public_while_webhooks_are_on() -> None:
    """The page requires no project, API key or open console, because it contains no data."""
    page = send("/portal")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert send("/portal", Webhooks(enabled=False)).status == 404
    assert send("/console").status == 404


def test_portal_loads_only_its_own_files() -> None:
    html = send("/portal").body.decode()
    files = re.findall(r'(?:src|href)="(/[^"]+)"', html)
    assert len(files) == 2
    for target in files:
        assert target.startswith("/portal/assets/")
        response = send(target)
        assert (response.status, response.headers["x-content-type-options"]) == (200, "nosniff")
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
        assert send(target, Webhooks(enabled=False)).status == 404
    own = next(each.name for each in CONSOLE.iterdir() if each.name.endswith(".js.gz"))
    for target in (
        f"/portal/assets/{own.removesuffix('.gz')}",
        "/portal/assets/portal.html",
        "/portal/data/x",
    ):
        assert send(target).status == 404


def test_only_configured_origins_can_frame_the_portal() -> None:
    unframed = send("/portal").headers
    assert unframed["content-security-policy"].endswith("frame-ancestors 'none'")
    assert unframed["x-frame-options"] == "DENY"
    framed = send("/portal", Webhooks(portal_origins=ORIGINS)).headers
    assert framed["content-security-policy"].endswith(f"frame-ancestors {' '.join(ORIGINS)}")
    assert "x-frame-options" not in framed
    for headers in (unframed, framed):
        policy = headers["content-security-policy"]
        assert policy.startswith(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        )
        assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_portal_accepts_only_reads(method: str) -> None:
    refused = send("/portal", method=method)
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
