"""The Webhooks page of the console in a browser, with a real daemon, PostgreSQL and a receiver."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from dataapi.database.script import complete, opened
from dataapi.webhooks.model import Permission
from dataapi.webhooks.secrets import Cipher
from dataapi.webhooks.store import make_store
from dataapi.webhooks.store.directory import new_token
from playwright.sync_api import expect
from standardwebhooks import Webhook, WebhookVerificationError
from support.console import obstacles, show_in
from support.daemon import Daemon, wait_for
from support.documents import ROOT
from support.webhooks import ACME, KEY, PAUSED, REF, SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Locator, Page
    from support.postgres import Database

SCOPE = f"/v2/projects/{REF}/webhooks"
RESTORED = "v1.project.restored"
SAMPLE = (ROOT / "docs" / "sample-deliveries.sql").read_text("utf-8")


class Receiver:
    """A local receiver that responds with ``status``."""

    def __init__(self) -> None:
        self.status = 200
        self.received: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            """Records webhook requests."""

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.received.append(
                    ({name.lower(): value for name, value in self.headers.items()}, body)
                )
                self.send_response(receiver.status)
                self.send_header("X-Receiver", "of the tests")
                self.end_headers()
                self.wfile.write(b'{"noted": true}')

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"

    def is_signed(self, secret: str) -> bool:
        """Return whether the latest request is signed with a secret."""
        headers, body = self.received[-1]
        try:
            Webhook(secret).verify(body, headers)
        except WebhookVerificationError:
            return False
        return True


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@dataclass(frozen=True)
class Hooks:
    """The daemon's webhooks: tokens, and direct access to the management API and the database."""

    daemon: Daemon
    database: Database
    token: str
    reader: str
    closed: str

    def send(self, method: str, path: str, **attributes: Any) -> Any:
        """Send a request to the project's webhooks and return ``data`` from the response."""
        body = json.dumps({"data": {"type": "endpoint", "attributes": attributes}}) if attributes else None
        headers = {"Authorization": f"Bearer {self.token}"}
        response = self.daemon.request(method, SCOPE + path, body, headers)
        assert response.status < 300, response.body
        return response.json["data"]

    def add(self, url: str, *types: str, **more: Any) -> str:
        """Create an endpoint and return its ID."""
        listed = [{"type": one} for one in types or ("*",)]
        made = self.send("POST", "/endpoints", url=url, event_types=listed, signing_secret=SECRET, **more)
        return str(made["id"])

    def endpoints(self) -> list[dict[str, Any]]:
        return [one["attributes"] for one in self.send("GET", "/endpoints")]

    def publish(self, event_type: str = PAUSED) -> None:
        sql = "select webhooks.publish(%s, %s, %s, %s::jsonb, gen_random_uuid()::text)"
        self.database.execute(sql, (event_type, ACME.organization, REF, '{"reason": "inactivity"}'))

    def statuses(self) -> list[str]:
        """Return the statuses of the latest deliveries."""
        return [one["attributes"]["status"] for one in self.send("GET", "/deliveries?page[size]=100")]


@pytest.fixture(scope="module")
def shared(daemon: Daemon, console_database: Database) -> Hooks:
    """Create tokens with full access, with read-only access, and of an organization without early access."""
    tokens = new_token(), new_token(), new_token()

    async def made(database: Any) -> None:
        directory = make_store(database, Cipher([KEY]), 14).directory
        await directory.create_organization(ACME.organization, early_access=True)
        await directory.create_project(REF, ACME.organization)
        await directory.create_token(tokens[0], ACME.organization, Permission, None)
        await directory.create_token(tokens[1], ACME.organization, [Permission.READ], None)
        await directory.create_organization("initech")
        await directory.create_token(tokens[2], "initech", Permission, None)

    wait_for(lambda: daemon.admin("GET", "/ready").json["webhooks"]["ready"], "webhooks")
    with opened(console_database.uri) as database:
        complete(made(database))
    return Hooks(daemon, console_database, *tokens)


@pytest.fixture
def hooks(shared: Hooks) -> Iterator[Hooks]:
    """Yield webhooks without endpoints. Endpoints that the test creates are deleted after the test."""
    yield shared
    shared.send("DELETE", "/endpoints")


def sign_in(page: Page, token: str) -> None:
    """Open the Webhooks page and sign in."""
    page.goto("/console/webhooks")
    page.get_by_label("Personal access token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Sign out").wait_for()


def part(page: Page, name: str) -> None:
    """Switch to a part of the Webhooks page."""
    page.get_by_role("group", name="Parts of this page").get_by_role("button", name=name).click()


def card(page: Page, url: str) -> Locator:
    return page.get_by_role("article", name=url)


def choose(page: Page, name: str, value: str) -> str:
    """Select a filter of the deliveries, wait for the filtered list, and return its request's URL."""
    with page.expect_response(lambda response: "/deliveries?" in response.url) as response:
        page.get_by_role("combobox", name=name, exact=True).select_option(value)
    return response.value.url


def cells(page: Page, column: int) -> list[str]:
    """Return the texts of a column in the table of deliveries."""
    return (
        page.get_by_role("region", name="Deliveries")
        .locator(f"tbody td:nth-child({column})")
        .all_inner_texts()
    )


def test_revoked_token_ends_the_session_with_the_reason(page: Page, hooks: Hooks) -> None:
    page.goto("/console/webhooks")
    sign_in(page, hooks.token)
    page.get_by_role("button", name="New endpoint").wait_for()
    page.evaluate(
        "sessionStorage.setItem('dataapi.webhooks', JSON.stringify({"
        " ...JSON.parse(sessionStorage.getItem('dataapi.webhooks')), token: 'dapat_revoked' }))"
    )
    page.reload()
    expect(page.get_by_role("alert")).to_have_text(
        "Your token has expired or was revoked. Sign in with another one."
    )
    expect(page.get_by_label("Personal access token")).to_be_visible()


def test_token_is_stored_only_in_the_tab_until_sign_out(page: Page, hooks: Hooks) -> None:
    page.goto("/console/webhooks")
    page.get_by_label("Personal access token").fill("dapat_of_nobody")
    page.get_by_role("button", name="Sign in").click()
    assert "unknown, has expired or was revoked" in page.get_by_role("alert").inner_text()
    page.get_by_label("Personal access token").fill(hooks.closed)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("no early access").wait_for()
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    sign_in(page, hooks.token)
    page.get_by_role("button", name="New endpoint").wait_for()
    assert not any(hooks.token in url for url in urls)
    assert hooks.token in page.evaluate("JSON.stringify(sessionStorage)")
    assert hooks.token not in page.evaluate("JSON.stringify(localStorage) + document.cookie")
    scopes = page.get_by_label("Organization or project").get_by_role("option").all_inner_texts()
    assert scopes == [f"Organization {ACME.organization}", f"Project {REF}"]
    page.reload()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Personal access token").wait_for()
    assert hooks.token not in page.evaluate("JSON.stringify(sessionStorage)")


def test_read_only_token_shows_no_actions(page: Page, hooks: Hooks, receiver: Receiver) -> None:
    hooks.add(receiver.url)
    sign_in(page, hooks.reader)
    card(page, receiver.url).wait_for()
    page.get_by_text("does not have the permission webhooks:write").wait_for()
    for name in ("New endpoint", "Test", "Edit", "Delete", "Pause", "Receiver"):
        assert page.get_by_role("button", name=name, exact=True).count() == 0


def test_url_is_validated_while_an_endpoint_is_created(page: Page, hooks: Hooks, receiver: Receiver) -> None:
    sign_in(page, hooks.token)
    page.get_by_text("There are no endpoints yet").wait_for()
    page.get_by_role("button", name="New endpoint").click()
    url = page.get_by_label("URL")
    url.press_sequentially("https://user@example.com/")
    page.get_by_text("The URL contains a user name or password.").wait_for()
    assert url.get_attribute("aria-invalid") == "true"
    url.fill("http://10.0.0.1/")
    page.get_by_text("allow-addresses").wait_for()
    url.fill(receiver.url)
    page.get_by_text("This URL is valid.").wait_for()
    page.get_by_label("Description").fill("Billing")
    page.get_by_role("radio", name="Selected types").check()
    page.get_by_role("button", name="Create").click()
    page.get_by_text("Choose at least one event type.").wait_for()
    page.get_by_label("Search event types").fill("paused")
    page.get_by_role("checkbox", name=PAUSED).check()
    page.get_by_role("button", name="Add a header").click()
    page.get_by_label("Name of header 1").fill("webhook-mine")
    page.get_by_label("Value of header 1").fill("1")
    page.get_by_role("button", name="Create").click()
    page.get_by_text("custom_headers/webhook-mine: The header's name is reserved").wait_for()
    page.get_by_label("Name of header 1").fill("X-Mine")
    page.get_by_role("button", name="Create").click()
    page.get_by_text("cannot be shown again").wait_for()
    secret = page.get_by_role("dialog").get_by_label("Signing secret", exact=True).input_value()
    page.get_by_role("button", name="Done").click()
    card(page, receiver.url).get_by_text("1 custom header").wait_for()
    [made] = hooks.endpoints()
    assert (made["description"], made["custom_headers"]) == ("Billing", {"X-Mine": "1"})
    assert made["event_types"] == [{"type": PAUSED}]
    assert secret not in page.content()
    hooks.publish()
    wait_for(lambda: receiver.received, "the delivery")
    assert receiver.is_signed(secret)
    assert receiver.received[0][0]["x-mine"] == "1"


def test_endpoint_can_be_edited_paused_resumed_and_deleted(
    page: Page, hooks: Hooks, receiver: Receiver
) -> None:
    hooks.add(receiver.url, description="Old")
    sign_in(page, hooks.token)
    found = card(page, receiver.url)
    found.get_by_role("button", name="Edit").click()
    page.get_by_label("Description").fill("New")
    page.get_by_role("radio", name="Selected types").check()
    page.get_by_role("checkbox", name=RESTORED).check()
    page.get_by_role("button", name="Save").click()
    found.get_by_text("New", exact=True).wait_for()
    [changed] = hooks.endpoints()
    assert (changed["description"], changed["event_types"]) == ("New", [{"type": RESTORED}])

    found.get_by_role("button", name="Pause").click()
    found.get_by_text("Paused").wait_for()
    assert hooks.endpoints()[0]["enabled"] is False
    assert found.get_by_role("button", name="Test").is_disabled()
    found.get_by_role("button", name="Resume").click()
    found.get_by_text("Enabled").wait_for()
    assert hooks.endpoints()[0]["enabled"] is True

    found.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Keep it").click()
    assert len(hooks.endpoints()) == 1
    found.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete permanently").click()
    page.get_by_text("There are no endpoints yet").wait_for()
    assert hooks.endpoints() == []


def test_unknown_event_type_can_be_removed(page: Page, hooks: Hooks, receiver: Receiver) -> None:
    """The management API rejects endpoints with unknown types, so users must be able to remove them."""
    hooks.add(receiver.url, PAUSED)
    hooks.database.execute("update webhooks.endpoint set event_types = event_types || '{v1.shop.lost}'")
    sign_in(page, hooks.token)
    card(page, receiver.url).get_by_role("button", name="Edit").click()
    page.get_by_role("button", name="Save").click()
    page.get_by_text("event_types/1/type").wait_for()
    page.get_by_role("checkbox", name="v1.shop.lost No longer in the catalogue.").uncheck()
    page.get_by_role("button", name="Save").click()
    page.get_by_role("dialog").wait_for(state="detached")
    assert hooks.endpoints()[0]["event_types"] == [{"type": PAUSED}]


@pytest.mark.parametrize(("grace", "stays"), [("a day", True), ("no time (it ends immediately)", False)])
def test_new_secret_can_be_copied_and_signs_deliveries(
    page: Page, hooks: Hooks, receiver: Receiver, grace: str, stays: bool
) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    hooks.add(receiver.url)
    sign_in(page, hooks.token)
    card(page, receiver.url).get_by_role("button", name="New secret").click()
    assert page.get_by_label("The old secret stays valid for").input_value() == "86400"
    page.get_by_label("The old secret stays valid for").select_option(grace)
    page.get_by_role("button", name="Change the secret").click()
    page.get_by_text("The secret was changed").wait_for()
    page.get_by_role("button", name="Copy: Signing secret").click()
    page.get_by_text("Copied").wait_for()
    secret = page.evaluate("navigator.clipboard.readText()")
    page.get_by_role("button", name="Done").click()
    page.get_by_role("dialog").wait_for(state="detached")
    assert secret not in page.content()
    hooks.publish()
    wait_for(lambda: receiver.received, "the delivery")
    assert receiver.is_signed(secret)
    assert receiver.is_signed(SECRET) is stays


def test_automatically_disabled_endpoint_can_be_resumed(page: Page, hooks: Hooks, receiver: Receiver) -> None:
    hooks.add(receiver.url, max_per_second=7)
    hooks.database.execute(
        "insert into webhooks.failing select id, now() - interval '6 days', true from webhooks.endpoint;"
        "update webhooks.endpoint set enabled = false, disabled_since = now()"
    )
    sign_in(page, hooks.token)
    found = card(page, receiver.url)
    found.get_by_text("Disabled", exact=True).wait_for()
    found.get_by_text("All attempts have failed since").wait_for()
    found.get_by_role("button", name="Resume").click()
    found.get_by_text("Enabled", exact=True).wait_for()
    found.get_by_role("button", name="Edit").click()
    assert page.get_by_label("Maximum attempts per second (optional)").input_value() == "7"


def test_test_event_shows_request_and_response(page: Page, hooks: Hooks, receiver: Receiver) -> None:
    hooks.add(receiver.url, PAUSED, RESTORED, custom_headers={"X-Mine": "1"})
    sign_in(page, hooks.token)
    card(page, receiver.url).get_by_role("button", name="Test").click()
    dialog = page.get_by_role("dialog")
    offered = dialog.get_by_label("Event type").get_by_role("option").all_inner_texts()
    assert offered == [PAUSED, RESTORED]
    dialog.get_by_label("Event type").select_option(RESTORED)
    dialog.get_by_role("button", name="Send").click()
    dialog.get_by_text("The receiver responded with 200").wait_for()
    headers, body = receiver.received[0]
    sent = json.loads(dialog.get_by_role("region", name="Request body").inner_text())
    assert sent == json.loads(body)
    assert (sent["type"], sent["payload"]["is_test"]) == (RESTORED, True)
    shown = dialog.get_by_role("article").inner_text()
    for name in ("webhook-id", "webhook-timestamp", "user-agent", "content-type", "x-mine"):
        assert re.search(rf"{name}:\s*{re.escape(headers[name])}", shown, re.IGNORECASE), name
    assert re.search(r"x-receiver:\s*of the tests", shown)
    assert '"noted": true' in dialog.get_by_role("region", name="Response body").inner_text()

    receiver.status = 503
    dialog.get_by_role("button", name="Send another").click()
    dialog.get_by_text("See the receiver's log. Tests are not retried.").wait_for()

    error = {"error": {"code": "too_many_requests", "message": "Too many", "id": "1"}}
    page.route("**/test", lambda route: route.fulfill(status=429, headers={"Retry-After": "42"}, json=error))
    dialog.get_by_role("button", name="Send another").click()
    dialog.get_by_text("accepts 10 tests and retries per minute. Try again in 42 seconds.").wait_for()


def test_attempts_are_listed_and_delivery_can_be_retried(
    page: Page, hooks: Hooks, receiver: Receiver
) -> None:
    receiver.status = 400
    hooks.add(receiver.url)
    hooks.publish()
    wait_for(lambda: "failed" in hooks.statuses(), "the first attempt")
    sign_in(page, hooks.token)
    card(page, receiver.url).get_by_role("button", name="Deliveries").click()
    choose(page, "Status", "failed")
    wait_for(lambda: cells(page, 2) == ["Failed"], "the failed attempt in the list")
    page.get_by_role("button", name=PAUSED).click()
    attempts = page.get_by_role("list", name="Attempts").get_by_role("article")
    attempts.first.get_by_text("The receiver may verify the signature with a different secret").wait_for()
    attempts.nth(1).get_by_text("Attempt 2 is due at").wait_for()
    page.get_by_role("button", name="Close").last.click()

    receiver.status = 200
    hooks.publish(RESTORED)
    wait_for(lambda: "success" in hooks.statuses(), "the delivery")
    choose(page, "Status", "success")
    wait_for(lambda: cells(page, 2) == ["Delivered"], "the delivery in the list")
    page.get_by_role("button", name=RESTORED).click()
    page.get_by_role("button", name="Retry now").click()
    retry = attempts.nth(1)
    retry.get_by_text("Manual retry").wait_for()
    retry.get_by_text("The receiver responded with 200").wait_for()
    assert receiver.received[-1][0]["webhook-id"] == receiver.received[-2][0]["webhook-id"]


def test_deliveries_fit_a_phone_screen(page: Page, hooks: Hooks) -> None:
    sample(hooks)
    page.set_viewport_size({"width": 375, "height": 740})
    sign_in(page, hooks.token)
    part(page, "Deliveries")
    listed = page.get_by_role("region", name="Deliveries")
    for column in (1, 2, 3, 7):
        expect(listed.locator(f"tbody tr:first-child td:nth-child({column})")).to_be_in_viewport(ratio=0.9)
    assert listed.evaluate("region => region.scrollWidth <= region.clientWidth")
    expect(listed.get_by_role("row").nth(0).get_by_role("cell").nth(1)).to_be_visible()


def test_parts_filters_and_deliveries_are_part_of_the_url(page: Page, hooks: Hooks) -> None:
    sample(hooks)
    sign_in(page, hooks.token)
    part(page, "Statistics")
    page.get_by_role("figure", name="Latency").wait_for()
    part(page, "Deliveries")
    choose(page, "Status", "failed")
    choose(page, "Time", "week")
    page.reload()
    expect(page.get_by_role("combobox", name="Status", exact=True)).to_have_value("failed")
    expect(page.get_by_role("combobox", name="Time", exact=True)).to_have_value("week")
    wait_for(lambda: set(cells(page, 2)) == {"Failed"}, "failed deliveries")
    page.get_by_role("cell").get_by_role("button").first.click()
    page.get_by_role("list", name="Attempts").wait_for()
    page.reload()
    page.get_by_role("list", name="Attempts").wait_for()
    assert hooks.token not in page.url
    page.go_back()
    page.get_by_role("dialog").wait_for(state="detached")
    page.go_back()
    expect(page.get_by_role("combobox", name="Time", exact=True)).to_have_value("all")
    page.go_back()
    wait_for(lambda: "Delivered" in cells(page, 2), "all deliveries")
    page.go_back()
    page.get_by_role("figure", name="Latency").wait_for()
    page.get_by_label("Organization or project").select_option(f"Organization {ACME.organization}")
    page.reload()
    expect(page.get_by_label("Organization or project")).to_have_value(f"organization/{ACME.organization}")
    page.get_by_role("figure", name="Latency").wait_for()


def test_invalid_url_parameters_are_ignored(page: Page, hooks: Hooks) -> None:
    sample(hooks)
    sign_in(page, hooks.reader)
    page.goto("/console/webhooks?part=receiver&scope=project/nobodys")
    page.get_by_text("3 endpoints").wait_for()
    with page.expect_response(lambda response: "/deliveries?" in response.url) as response:
        page.goto("/console/webhooks?part=deliveries&status=broken&range=ever")
    assert "filter" not in response.value.url
    wait_for(lambda: cells(page, 2), "the deliveries")
    for name, value in (("Status", ""), ("Time", "all")):
        expect(page.get_by_role("combobox", name=name, exact=True)).to_have_value(value)


def sample(hooks: Hooks) -> None:
    """Create three endpoints with two weeks of deliveries."""
    for number in range(3):
        hooks.add(f"http://127.0.0.1:9/{number}")
    hooks.database.execute(SAMPLE)


def test_deliveries_can_be_filtered_and_paged(page: Page, hooks: Hooks) -> None:
    sample(hooks)
    sign_in(page, hooks.token)
    part(page, "Deliveries")
    page.get_by_role("region", name="Deliveries").wait_for()
    first = cells(page, 7)
    assert len(first) == 25
    page.get_by_role("button", name="Older").click()
    wait_for(lambda: cells(page, 7) not in ([], first), "older deliveries")
    page.get_by_role("button", name="Newer").click()
    wait_for(lambda: cells(page, 7) == first, "the first page")

    choose(page, "Status", "failed")
    wait_for(lambda: set(cells(page, 2)) == {"Failed"}, "failed deliveries")
    choose(page, "Endpoint", next(one["id"] for one in hooks.endpoints() if one["url"].endswith("/1")))
    wait_for(lambda: set(cells(page, 3)) == {"127.0.0.1:9/1"}, "deliveries to one endpoint")
    choose(page, "Type", PAUSED)
    wait_for(lambda: set(cells(page, 1)) == {PAUSED}, "deliveries of one type")
    page.get_by_role("button", name="Reset").click()
    wait_for(lambda: cells(page, 7) == first, "all deliveries")

    page.get_by_role("combobox", name="Time", exact=True).select_option("custom")
    page.get_by_label("To", exact=True).fill("2001-01-01T00:00")
    page.get_by_text("No deliveries match these filters.").wait_for()
    assert quote("filter[since]", safe="[]") in choose(page, "Time", "week")


def test_charts_match_the_statistics(page: Page, hooks: Hooks) -> None:
    """Each chart has a table with the numbers of the last 14 days, including zeros."""
    sample(hooks)
    now = datetime.now(UTC)
    page.clock.set_fixed_time(now)
    sign_in(page, hooks.token)
    part(page, "Statistics")
    rows = [one["attributes"] for one in hooks.send("GET", "/statistics")]
    days = [f"{now - timedelta(days=ago):%Y-%m-%d}" for ago in range(13, -1, -1)]
    found = {row["day"]: row for row in rows if row["endpoint_id"] is None and row["day"] in days}
    outcomes = page.get_by_role("figure", name="Deliveries by outcome")
    outcomes.locator("svg .bar").first.wait_for()
    outcomes.get_by_text("As a table").click()
    shown = outcomes.locator("tbody tr").all_inner_texts()
    nothing = {"success": 0, "failed": 0, "skipped": 0}
    named = [found.get(day, nothing) for day in days]
    expected = [(row["success"], row["failed"], row["skipped"]) for row in named]
    assert [tuple(map(int, row.split("\t")[1:])) for row in shown] == expected
    latency = page.get_by_role("figure", name="Latency")
    expect(latency.locator("circle")).to_have_count(2 * len(found))
    per_endpoint = page.get_by_role("region", name="Failures per endpoint").first.locator("tbody tr")
    expect(per_endpoint).to_have_count(3)
    failures = per_endpoint.all_inner_texts()
    failed = {endpoint["id"]: 0 for endpoint in hooks.endpoints()}
    for row in rows:
        if row["endpoint_id"] is not None and row["day"] in days:
            failed[row["endpoint_id"]] += row["failed"]
    assert [int(row.split("\t")[1]) for row in failures] == sorted(failed.values(), reverse=True)


def test_failed_deliveries_can_be_recovered(page: Page, hooks: Hooks, receiver: Receiver) -> None:
    receiver.status = 500
    endpoint = hooks.add(receiver.url)
    hooks.send("POST", f"/endpoints/{endpoint}/test")
    wait_for(lambda: hooks.statuses() == ["failed"], "a failed test")
    receiver.status = 200
    sign_in(page, hooks.token)
    card(page, receiver.url).get_by_role("button", name="Recover").click()
    page.get_by_role("dialog").get_by_role("button", name="Recover").click()
    page.get_by_text("1 delivery is sent again").wait_for()
    page.get_by_role("button", name="Show them").click()
    wait_for(lambda: cells(page, 2) == ["Delivered", "Failed"], "the delivery in the list")
    assert len(receiver.received) == 2


def test_console_receiver_shows_verified_deliveries(page: Page, hooks: Hooks) -> None:
    sign_in(page, hooks.token)
    page.get_by_role("button", name="try the receiver").click()
    page.get_by_role("button", name="Create a receiver").click()
    page.get_by_role("button", name="Create an endpoint for it").click()
    page.get_by_role("button", name="Send a test event").click()
    item = page.get_by_role("region", name="What it received").get_by_role("article")
    item.first.get_by_text("Signature valid").wait_for()
    item.first.get_by_text("Headers and body").click()
    assert '"is_test": true' in item.first.get_by_role("region", name="Body").inner_text()
    with page.expect_response(lambda response: response.request.method == "POST"):
        page.get_by_label("Response status").select_option("500")
    [endpoint] = hooks.endpoints()
    hooks.send("PATCH", f"/endpoints/{endpoint['id']}", signing_secret="another secret")
    page.get_by_role("button", name="Send a test event").click()
    item.get_by_text("status 500").wait_for()
    item.first.get_by_text("signed with a different secret").wait_for()


def test_receiver_shows_the_required_setting(page: Page, hooks: Hooks) -> None:
    refused = {"accepted": False, "code": "bad_request.endpoint.url.invalid", "message": "Not allowed"}
    page.route("**/url-check", lambda route: route.fulfill(json={"data": {"attributes": refused}}))
    sign_in(page, hooks.token)
    part(page, "Receiver")
    page.get_by_role("button", name="Create a receiver").click()
    page.get_by_text("allow-addresses = 127.0.0.1, ::1").wait_for()
    assert page.get_by_role("button", name="Create an endpoint for it").count() == 0


def test_dialog_can_be_used_by_keyboard(page: Page, hooks: Hooks, receiver: Receiver) -> None:
    focused = "document.activeElement.closest('dialog') ? 'dialog' : document.activeElement.textContent"
    sign_in(page, hooks.token)
    page.get_by_role("button", name="New endpoint").focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="New endpoint").wait_for()
    assert page.evaluate(focused) == "dialog"
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert page.evaluate(focused) == "New endpoint"
    page.keyboard.press("Enter")
    page.get_by_label("URL").focus()
    page.keyboard.insert_text(receiver.url)
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="The endpoint was created").wait_for()
    assert [one["url"] for one in hooks.endpoints()] == [receiver.url]


def test_dialog_can_be_opened_while_another_closes(page: Page, hooks: Hooks) -> None:
    sign_in(page, hooks.token)
    page.get_by_role("button", name="New endpoint").click()
    page.get_by_role("dialog", name="New endpoint").wait_for()
    closed_and_opened = """button => {
        document.querySelector("dialog").requestClose();
        button.click();
        return new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    }"""
    page.get_by_text("New endpoint", exact=True).first.evaluate(closed_and_opened)
    page.get_by_label("URL").fill("https://receiver.example/")


def test_lost_receiver_is_reported(page: Page, hooks: Hooks) -> None:
    stored = {"name": "gone", "url": "http://127.0.0.1:9/", "secret": SECRET}
    page.add_init_script(f"sessionStorage.setItem('dataapi.receiver', JSON.stringify({json.dumps(stored)}))")
    sign_in(page, hooks.token)
    part(page, "Receiver")
    page.get_by_text("The receiver is gone").wait_for()
    page.get_by_role("button", name="Forget it").click()
    page.get_by_role("button", name="Create a receiver").wait_for()


@pytest.mark.parametrize("width", [375, 1440])
def test_every_part_of_the_page_fits_the_window(page: Page, hooks: Hooks, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 740})
    sample(hooks)
    sign_in(page, hooks.token)
    for name in ("Deliveries", "Statistics", "Receiver", "Endpoints"):
        part(page, name)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") == width, name


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_webhooks_page_is_accessible(page: Page, hooks: Hooks, receiver: Receiver, theme: str) -> None:
    """Covers cards, dialogs, attempts and charts."""
    receiver.status = 400
    hooks.add(receiver.url, description="Billing")
    hooks.publish()
    wait_for(lambda: receiver.received, "the delivery")
    show_in(page, theme)
    sign_in(page, hooks.token)
    card(page, receiver.url).get_by_role("button", name="Edit").click()
    page.get_by_label("Description").wait_for()
    found = obstacles(page)
    page.keyboard.press("Escape")
    found += obstacles(page)
    part(page, "Deliveries")
    page.get_by_role("cell").get_by_role("button").first.click()
    page.get_by_text("Request and response").last.wait_for()
    found += obstacles(page)
    page.keyboard.press("Escape")
    part(page, "Statistics")
    page.get_by_role("figure", name="Latency").wait_for()
    found += obstacles(page)
    assert not found, "\n".join(found)
