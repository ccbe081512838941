"""The customer portal in a browser, with a real daemon whose console is closed."""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.database.script import complete, opened
from dataapi.webhooks.model import Permission
from dataapi.webhooks.secrets import Cipher
from dataapi.webhooks.store import make_store
from dataapi.webhooks.store.directory import new_token
from playwright.sync_api import expect
from support.console import obstacles, show_in
from support.daemon import PATIENCE, Daemon, wait_for
from support.webhooks import ACME, KEY, REF, SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page
    from support.postgres import Database, Server

GLOBEX, GLOBEX_REF = "globex", "globexglobexglobexgl"
SCHEMA = "create schema webhooks authorization authenticator"


class Host:
    """A third-party server that receives webhook requests, and whose page can embed frames."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            """Responds to every request."""

            def do_GET(self) -> None:
                self._respond(b"<!doctype html><title>Host</title><h1>The platform</h1>")

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self._respond(b"taken")

            def _respond(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def end(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@dataclass
class Platform:
    """A daemon and two customers with webhooks.

    :ivar tokens: a token with all permissions for each organization.
    :ivar allowed: a server that may embed the portal in a frame, unlike ``foreign``.
    """

    daemon: Daemon
    database: Database
    allowed: Host
    foreign: Host
    operator: str = field(default_factory=new_token)
    tokens: dict[str, str] = field(default_factory=dict)

    def send(self, method: str, path: str, token: str, kind: str = "endpoint", **attributes: Any) -> Any:
        """Send a request to the management API and return ``data`` from the response."""
        body = json.dumps({"data": {"type": kind, "attributes": attributes}}) if attributes else None
        response = self.daemon.request(method, path, body, {"Authorization": f"Bearer {token}"})
        assert response.status < 300, response.body
        return response.json["data"]

    def link(self, organization: str = ACME.organization, **attributes: Any) -> str:
        """Create a portal link and return its URL."""
        merged = {"name": "Acme's webhooks", **attributes}
        path = f"/v2/organizations/{organization}/portal-links"
        made = self.send("POST", path, self.operator, "portal_link", **merged)
        return f"{self.url}{made['attributes']['path']}"

    def endpoint(self, scope: str, organization: str = ACME.organization) -> str:
        """Create an endpoint and return its ID."""
        made = self.send(
            "POST", f"/v2/{scope}/webhooks/endpoints", self.tokens[organization], signing_secret=SECRET,
            url=f"{self.foreign.origin}/hooks/{organization}", event_types=[{"type": "*"}],
        )  # fmt: skip
        return str(made["id"])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.daemon.port}"


@pytest.fixture(scope="module")
def running(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Yield a daemon with two processes and a closed console."""
    allowed, foreign = Host(), Host()
    environ = {
        "DATAAPI_WEBHOOKS_ENCRYPTION_KEY": KEY,
        "DATAAPI_WEBHOOKS_ALLOW_ADDRESSES": "127.0.0.1",
        "DATAAPI_WEBHOOKS_PORTAL_ORIGINS": allowed.origin,
    }
    database = server.create_database(SCHEMA)
    folder = tmp_path_factory.mktemp("portal")
    settings = {"workers": "2", "log-level": "info"}
    with Daemon(
        folder, database.uri, settings=settings, project={"console": "no"}, environ=environ
    ) as daemon:
        daemon.wait_ready()
        wait_for(lambda: daemon.admin("GET", "/ready").json["webhooks"]["ready"], "webhooks")
        platform = Platform(daemon, database, allowed, foreign)

        async def made(runner: Any) -> None:
            directory = make_store(runner, Cipher([KEY]), 14).directory
            await directory.create_operator_token(platform.operator, None)
            for organization, ref in ((ACME.organization, REF), (GLOBEX, GLOBEX_REF)):
                await directory.create_organization(organization, early_access=True)
                await directory.create_project(ref, organization)
                platform.tokens[organization] = new_token()
                await directory.create_token(platform.tokens[organization], organization, Permission, None)

        with opened(database.uri) as runner:
            complete(made(runner))
        yield platform
        daemon.stop()
    allowed.end()
    foreign.end()


@pytest.fixture
def platform(running: Platform) -> Iterator[Platform]:
    """Yield a platform without endpoints."""
    yield running
    for organization, ref in ((ACME.organization, REF), (GLOBEX, GLOBEX_REF)):
        for scope in (f"organizations/{organization}", f"projects/{ref}"):
            running.send("DELETE", f"/v2/{scope}/webhooks/endpoints", running.tokens[organization])


@contextmanager
def tab(browser: Browser) -> Iterator[tuple[Page, list[str]]]:
    """Yield a new tab and its log messages."""
    context = browser.new_context(color_scheme="light")
    context.set_default_timeout(PATIENCE * 1000)
    opened_tab = context.new_page()
    logged: list[str] = []
    opened_tab.on("console", lambda message: logged.append(message.text))
    opened_tab.on("pageerror", lambda error: logged.append(str(error)))
    yield opened_tab, logged
    context.close()


def test_customer_tests_an_endpoint_and_retries_a_delivery(platform: Platform, browser: Browser) -> None:
    platform.endpoint(f"projects/{REF}")
    link = platform.link(project_ref=REF, color="#7c3aed")
    secret = link.partition("#")[2]
    with tab(browser) as (page, logged):
        requests: list[str] = []
        page.on("request", lambda sent: requests.append(f"{sent.url} {sent.headers.get('referer', '')}"))
        page.goto(link)
        expect(page.get_by_role("heading", name="Acme's webhooks")).to_be_visible()
        assert page.url == f"{platform.url}/portal"
        assert page.title() == "Acme's webhooks · Webhooks"
        page.get_by_role("button", name="Test").click()
        page.get_by_role("dialog").get_by_role("button", name="Send").click()
        page.get_by_role("dialog").get_by_text("The receiver responded with 200").wait_for()
        resend = page.get_by_role("dialog").get_by_role("button", name="Send another")
        assert resend.evaluate("one => getComputedStyle(one).backgroundColor") == "rgb(124, 58, 237)"
        page.get_by_role("button", name="Close").last.click()
        page.reload()
        page.get_by_role("group", name="Parts of this page").get_by_role("button", name="Deliveries").click()
        page.get_by_role("region", name="Deliveries").get_by_role("button").first.click()
        page.get_by_role("button", name="Retry now").click()
        attempts = page.get_by_role("list", name="Attempts").get_by_role("article")
        attempts.nth(1).get_by_text("The receiver responded with 200").wait_for()
        assert not any(secret in sent for sent in requests)
        assert logged == []
    assert secret not in platform.daemon.text


def test_secrets_are_hidden_by_default(platform: Platform, browser: Browser) -> None:
    platform.endpoint(f"organizations/{ACME.organization}")
    with tab(browser) as (page, _):
        page.goto(platform.link())
        page.get_by_role("button", name="Pause").wait_for()
        for name in ("New endpoint", "New secret", "Sign out", "Receiver"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
        page.goto(platform.link(signing_secrets=True))
        page.get_by_role("button", name="New endpoint").click()
        page.get_by_label("URL").fill(f"{platform.foreign.origin}/mine")
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_role("textbox", name="Signing secret")).to_have_value(re.compile("^whsec_"))


def test_project_page_shows_deliveries_to_its_organization(platform: Platform, browser: Browser) -> None:
    platform.endpoint(f"organizations/{ACME.organization}")
    publish = "select webhooks.publish('v1.project.restored', 'acme', %s, '{}', gen_random_uuid()::text)"
    platform.database.execute(publish, (REF,))
    with tab(browser) as (page, _):
        page.goto(platform.link(project_ref=REF).replace("#", "?part=deliveries#"))
        row = page.get_by_role("region", name="Deliveries").get_by_role("row").nth(1)
        expect(row).to_contain_text("endpoint of the organization")
        expect(row).to_contain_text("Delivered")
        row.get_by_role("button").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_text("Only the organization can see this response")).to_be_visible()
        expect(dialog.get_by_role("button", name="Retry now")).to_have_count(0)
        assert f"/hooks/{ACME.organization}" not in page.content()


def test_read_only_link_shows_no_actions(platform: Platform, browser: Browser) -> None:
    platform.endpoint(f"projects/{REF}")
    with tab(browser) as (page, _):
        page.goto(platform.link(project_ref=REF, read_only=True))
        expect(page.get_by_text("This page is read-only")).to_be_visible()
        for name in ("Test", "Pause", "Delete", "New endpoint"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)


def test_portal_token_cannot_access_other_organizations(platform: Platform, browser: Browser) -> None:
    theirs = platform.endpoint(f"projects/{GLOBEX_REF}", GLOBEX)
    platform.endpoint(f"projects/{REF}")
    with tab(browser) as (page, _):
        page.goto(platform.link(project_ref=REF))
        page.get_by_role("article").wait_for()
        expect(page.get_by_role("combobox", name="Organization or project")).to_have_count(0)
        token = json.loads(page.evaluate("sessionStorage.getItem('dataapi.portal')"))["token"]
        send = """async ([token, path]) =>
            (await fetch(path, { headers: { Authorization: `Bearer ${token}` } })).status"""
        for path, status in (
            (f"/v2/projects/{GLOBEX_REF}/webhooks/endpoints", 403),
            (f"/v2/projects/{GLOBEX_REF}/webhooks/endpoints/{theirs}", 403),
            (f"/v2/organizations/{GLOBEX}/webhooks/deliveries", 403),
            (f"/v2/organizations/{ACME.organization}/webhooks/endpoints", 403),
            (f"/v2/organizations/{ACME.organization}/tokens", 403),
            (f"/v2/projects/{REF}/webhooks/endpoints/{theirs}", 404),
            (f"/v2/projects/{REF}/webhooks/endpoints", 200),
        ):
            assert page.evaluate(send, [token, path]) == status, path
        page.goto(f"{platform.url}/portal?scope=project/{GLOBEX_REF}")
        expect(page.get_by_role("article")).to_have_count(1)


def test_expired_link_is_rejected(platform: Platform, browser: Browser) -> None:
    platform.endpoint(f"projects/{REF}")
    link = platform.link(project_ref=REF)
    with tab(browser) as (page, _):
        page.goto(link)
        page.get_by_role("article").wait_for()
        platform.database.execute("update webhooks.token set expires_at = now() where portal is not null")
        page.get_by_role("group", name="Parts of this page").get_by_role("button", name="Statistics").click()
        expect(page.get_by_text("The link has expired")).to_be_visible()
        for address, message in (
            (link, "The link has expired"),
            (f"{platform.url}/portal", "is missing"),
            (f"{platform.url}/portal#dapat_of_nobody", "The link has expired"),
            (f"{platform.url}/portal#{platform.tokens[GLOBEX]}", "not a link to this page"),
        ):
            page.goto("about:blank")
            page.goto(address)
            expect(page.get_by_text(message)).to_be_visible()
            expect(page.get_by_role("article")).to_have_count(0)


FRAME = """src => {
    const made = () => document.body.appendChild(document.createElement('iframe'));
    const frame = document.querySelector('iframe') ?? made();
    frame.src = src;
}"""


def test_page_of_an_allowed_origin_can_frame_the_portal(platform: Platform, browser: Browser) -> None:
    platform.endpoint(f"projects/{REF}")
    with tab(browser) as (page, logged):
        page.goto(platform.allowed.origin)
        page.evaluate(FRAME, platform.link(project_ref=REF, name="In a frame"))
        frame = page.frame_locator("iframe")
        expect(frame.get_by_role("heading", name="In a frame")).to_be_visible()
        frame.get_by_role("article").wait_for()
        page.evaluate(FRAME, platform.link(GLOBEX, name="Another one"))
        expect(frame.get_by_role("heading", name="Another one")).to_be_visible()
        expect(frame.get_by_text("There are no endpoints yet")).to_be_visible()
        assert logged == []


def test_page_of_another_origin_cannot_frame_the_portal(platform: Platform, browser: Browser) -> None:
    with tab(browser) as (page, logged):
        page.goto(platform.foreign.origin)
        with page.expect_event("console", lambda message: "frame-ancestors" in message.text):
            page.evaluate(FRAME, platform.link(project_ref=REF))
        assert any(platform.allowed.origin in text for text in logged)
        assert page.frame_locator("iframe").get_by_role("heading", name="Acme's webhooks").count() == 0


def test_console_stays_closed_while_the_portal_is_open(platform: Platform) -> None:
    """An open portal opens neither the console nor the console's data."""
    for path in ("/console", "/console/webhooks", "/console/data/settings"):
        assert platform.daemon.request("GET", path).status == 404
    page = platform.daemon.request("GET", "/portal")
    assert page.headers["Content-Security-Policy"].endswith(f"frame-ancestors {platform.allowed.origin}")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("color", ["#ffee00", "#101060"])
def test_portal_is_accessible_in_every_color(
    platform: Platform, browser: Browser, theme: str, color: str
) -> None:
    platform.endpoint(f"projects/{REF}")
    with tab(browser) as (page, _):
        show_in(page, theme)
        page.goto(platform.link(signing_secrets=True, color=color))
        page.get_by_role("button", name="New endpoint").wait_for()
        for part in ("Endpoints", "Deliveries", "Statistics"):
            page.get_by_role("group", name="Parts of this page").get_by_role("button", name=part).click()
            page.wait_for_load_state("networkidle")
            assert obstacles(page) == []
