"""The console's page and files: access, security headers, and build state."""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import jwt
import pytest
from dataapi.http.messages import Request
from dataapi.settings import Tour
from dataapi.web.console.access import is_local
from support.memory_http import PROJECT, SECRET, Connection, Web, empty_list, raw, typename
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from support.memory_http import Response

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "console"
ASSETS = ROOT / "daemon" / "dataapi" / "web" / "console" / "assets"
PORTAL = ROOT / "daemon" / "dataapi" / "web" / "portal" / "assets"
BROWSER = (("Accept", "text/html,*/*;q=0.8"),)


@pytest.fixture(autouse=True)
def _read_synchronously(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files without a thread, because no reactor runs in these tests."""

    def read(function, *arguments):  # type: ignore[no-untyped-def]
        done: Deferred[object] = Deferred()
        done.callback(function(*arguments))
        return done

    monkeypatch.setattr("dataapi.web.assets.deferToThread", read)


def _get(target: str, *headers: tuple[str, str], console: Literal["yes", "no", "local"] = "yes") -> Response:
    project = replace(PROJECT, console=console)
    return Web(typename, empty_list, project).request("GET", target, headers=headers, key=None)


@pytest.mark.parametrize(("target", "page"), [("/", "/console"), ("/graphql/v1", "/console/graphql")])
def test_browsers_are_redirected_to_the_console(target: str, page: str) -> None:
    response = _get(target, *BROWSER)
    assert (response.status, response.headers["location"]) == (302, page)


@pytest.mark.parametrize("console", ["no", "local"])
def test_console_is_hidden_from_remote_clients(console: Literal["no", "local"]) -> None:
    for target in ("/", "/console", "/console/graphql", "/console/data/settings"):
        assert _get(target, *BROWSER, console=console).status == 404
    assert _get("/graphql/v1", *BROWSER, console=console).status == 401


def test_page_runs_only_its_own_files_and_cannot_be_framed() -> None:
    response = _get("/console/graphql", *BROWSER)
    assert (response.status, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert response.headers["x-frame-options"] == "DENY"
    assert "http" not in response.body.decode()


@pytest.mark.parametrize("encoding", ["br", "gzip", "identity"])
def test_files_are_compressed_and_immutable(encoding: str) -> None:
    [target] = re.findall(r'src="([^"]+)"', _get("/console", *BROWSER).body.decode())
    response = _get(target, ("Accept-Encoding", encoding))
    assert response.status == 200
    assert response.headers.get("content-encoding", "identity") == encoding
    assert "immutable" in response.headers["cache-control"]
    assert response.headers["x-content-type-options"] == "nosniff"
    stored = (ASSETS / f"{target.rpartition('/')[2]}.gz").read_bytes()
    expected = {"gzip": stored, "identity": gzip.decompress(stored)}
    assert response.body == expected.get(encoding, response.body)
    assert _get("/console/assets/none.js").status == 404


@pytest.mark.parametrize(
    "header", [("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site"), ("Origin", "null")]
)
def test_other_origins_cannot_read_console_data(header: tuple[str, str]) -> None:
    response = _get("/console/data/settings", header)
    assert (response.status, response.json()["code"]) == (403, "CROSS_ORIGIN_REQUEST")
    assert "access-control-allow-origin" not in response.headers


def test_remote_clients_get_no_keys() -> None:
    described = _get("/console/data/settings").json()
    assert described["project"] == PROJECT.ref
    assert described["publishableKey"] is None
    for secret in (PROJECT.jwt_secret, *PROJECT.secret_keys):
        assert str(secret) not in str(described)


@pytest.mark.parametrize(
    ("host", "header", "local"),
    [
        ("localhost", ("Accept", "*/*"), True),
        ("api.example.org", ("Accept", "*/*"), False),
        ("localhost", ("webhook-id", "msg_1"), False),
    ],
)
def test_tokens_of_the_tour_are_only_for_local_users(host: str, header: tuple[str, str], local: bool) -> None:
    """Webhook requests come from the daemon, so they may be local without a local user."""
    project = replace(PROJECT, console="yes", tour=Tour("1", "dapat_token"))
    connection = Connection(Web(typename, empty_list, project))
    request = raw("GET", "/console/data/settings", headers=[header])
    connection.send(request.replace(b"api.example.org", host.encode()))
    described = connection.take().json()
    assert ("tour" in described) == local
    if local:
        assert described["tour"]["webhooks"] == "dapat_token"
        claims = jwt.decode(described["tour"]["user"], SECRET, ["HS256"])
        assert (claims["sub"], claims["role"]) == ("1", "authenticated")
        assert claims["exp"] - claims["iat"] == 24 * 3600


def test_settings_have_no_tour_outside_of_the_demo() -> None:
    assert "tour" not in _get("/console/data/settings").json()


@pytest.mark.parametrize(
    ("peer", "headers", "local"),
    [
        ("127.0.0.1", {"host": "localhost:8000"}, True),
        ("::1", {"host": "[::1]:8000"}, True),
        ("::ffff:127.0.0.1", {"host": "127.0.0.1:8000"}, True),
        ("127.0.0.1", {"host": "localhost:8000", "x-forwarded-for": "127.0.0.1"}, False),
        ("127.0.0.1", {"host": "rebound.example:8000"}, False),
        ("192.0.2.1", {"host": "localhost:8000"}, False),
        ("", {"host": "localhost"}, False),
    ],
)
def test_request_is_local_only_from_loopback_without_a_proxy(
    peer: str, headers: dict[str, str], local: bool
) -> None:
    assert is_local(Request("1", "GET", "/console", "", headers, b"", peer=peer)) == local


def test_sources_append_no_full_stop_to_messages() -> None:
    """Messages may already end with a full stop. ``sentence`` in kit/words.ts adds a missing full stop."""
    stop = re.compile(
        r"\b(message|problem|details|hint|reason|error)( \?\? \"\")?\}\.(?=[\s`<]|$)", re.MULTILINE
    )
    sources = {path: path.read_text("utf-8") for path in (SOURCES / "src").rglob("*.ts*")}
    assert len(sources) > 50
    found = [f"{path.name}: {match[0]}" for path, text in sources.items() for match in stop.finditer(text)]
    assert not found


@pytest.mark.parametrize("assets", [ASSETS, PORTAL], ids=["console", "portal"])
def test_built_files_match_the_sources(assets: Path) -> None:
    digest = hashlib.sha256()
    names = sorted(each.relative_to(SOURCES).as_posix() for each in SOURCES.rglob("*") if each.is_file())
    for name in names:
        if not name.startswith("node_modules/") and name != "README.md":
            content = hashlib.sha256((SOURCES / name).read_bytes()).digest()
            digest.update(f"{name}\0".encode() + content)
    assert (assets / "sources.sha256").read_text().strip() == digest.hexdigest(), "run make console"


def test_lock_file_contains_no_registry_urls() -> None:
    assert '"resolved"' not in (SOURCES / "package-lock.json").read_text("utf-8")
