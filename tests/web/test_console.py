"""The console's page and files: who gets them, what they allow, and whether they are current."""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from dataapi.http.messages import Request
from dataapi.web.console.access import is_local
from support.memory_http import PROJECT, Web, empty_list, typename
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from support.memory_http import Response

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "console"
ASSETS = ROOT / "daemon" / "dataapi" / "web" / "console" / "assets"
PORTAL = ROOT / "daemon" / "dataapi" / "web" / "portal" / "assets"
BROWSER = (("Accept", "text/html,*/*;q=0.8"),)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files without a thread: nothing runs the reactor here."""

    def read(function, *arguments):  # type: ignore[no-untyped-def]
        done: Deferred[object] = Deferred()
        done.callback(function(*arguments))
        return done

    monkeypatch.setattr("dataapi.web.assets.deferToThread", read)


def _get(target: str, *headers: tuple[str, str], console: Literal["yes", "no", "local"] = "yes") -> Response:
    project = replace(PROJECT, console=console)
    return Web(typename, empty_list, project).request("GET", target, headers=headers, key=None)


@pytest.mark.parametrize(("target", "page"), [("/", "/console"), ("/graphql/v1", "/console/graphql")])
def test_an_address_leads_a_browser_to_the_console(target: str, page: str) -> None:
    response = _get(target, *BROWSER)
    assert (response.status, response.headers["location"]) == (302, page)


@pytest.mark.parametrize("console", ["no", "local"])
def test_strangers_find_no_console(console: Literal["no", "local"]) -> None:
    for target in ("/", "/console", "/console/graphql", "/console/data/settings"):
        assert _get(target, *BROWSER, console=console).status == 404
    assert _get("/graphql/v1", *BROWSER, console=console).status == 401


def test_the_page_runs_its_own_files_alone_and_cannot_be_framed() -> None:
    response = _get("/console/graphql", *BROWSER)
    assert (response.status, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert response.headers["x-frame-options"] == "DENY"
    assert "http" not in response.body.decode()


@pytest.mark.parametrize("encoding", ["br", "gzip", "identity"])
def test_files_are_sent_as_the_client_takes_them_and_kept_for_ever(encoding: str) -> None:
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
def test_pages_of_other_origins_can_read_nothing(header: tuple[str, str]) -> None:
    response = _get("/console/data/settings", header)
    assert (response.status, response.json()["code"]) == (403, "CROSS_ORIGIN_REQUEST")
    assert "access-control-allow-origin" not in response.headers


def test_a_key_is_handed_to_nobody_who_is_not_at_this_machine() -> None:
    described = _get("/console/data/settings").json()
    assert described["project"] == PROJECT.ref
    assert described["publishableKey"] is None
    for secret in (PROJECT.jwt_secret, *PROJECT.secret_keys):
        assert str(secret) not in str(described)


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
def test_local_is_who_comes_from_this_machine_to_its_own_name_without_a_proxy(
    peer: str, headers: dict[str, str], local: bool
) -> None:
    assert is_local(Request("1", "GET", "/console", "", headers, b"", peer=peer)) == local


def test_no_message_gets_a_full_stop_by_hand() -> None:
    """Messages may have one already: ``sentence`` of kit/words.ts sees to it that there is one."""
    stop = re.compile(
        r"\b(message|problem|details|hint|reason|error)( \?\? \"\")?\}\.(?=[\s`<]|$)", re.MULTILINE
    )
    sources = {path: path.read_text("utf-8") for path in (SOURCES / "src").rglob("*.ts*")}
    assert len(sources) > 50
    found = [f"{path.name}: {match[0]}" for path, text in sources.items() for match in stop.finditer(text)]
    assert not found


@pytest.mark.parametrize("assets", [ASSETS, PORTAL], ids=["console", "portal"])
def test_the_files_are_made_from_the_sources_as_they_are(assets: Path) -> None:
    """``make console`` was run after the last change."""
    digest = hashlib.sha256()
    names = sorted(each.relative_to(SOURCES).as_posix() for each in SOURCES.rglob("*") if each.is_file())
    for name in names:
        if not name.startswith("node_modules/") and name != "README.md":
            content = hashlib.sha256((SOURCES / name).read_bytes()).digest()
            digest.update(f"{name}\0".encode() + content)
    assert (assets / "sources.sha256").read_text().strip() == digest.hexdigest(), "run make console"


def test_the_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (SOURCES / "package-lock.json").read_text("utf-8")
