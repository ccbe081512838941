"""The Health page in a browser (docs/console.md, Health)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect
from support.console import act_as
from support.daemon import KEY, Daemon

if TYPE_CHECKING:
    from playwright.sync_api import Page


def test_health_requires_service_role(page: Page) -> None:
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    page.goto("/console/health")
    expect(page.get_by_role("note")).to_contain_text("Choose service_role")
    assert not [url for url in urls if url.endswith("/data/health")]
    page.get_by_role("button", name="Choose the role").click()
    expect(page.get_by_role("dialog", name="Call the APIs as")).to_be_visible()


def test_health_shows_state_and_slow_requests_and_is_refreshed(page: Page, daemon: Daemon) -> None:
    act_as(page, "service_role")
    page.clock.install()
    page.goto("/console/health")
    page.get_by_text("Ready", exact=True).wait_for()
    facts = page.locator(".facts")
    for name, value in {"Database": "available", "Workers": "one process", "Webhooks": "working"}.items():
        fact = facts.locator("div").filter(has=page.get_by_text(name, exact=True))
        expect(fact.get_by_role("definition")).to_have_text(value)
    slow = page.get_by_role("region", name="Slow requests")
    expect(slow.get_by_role("row").filter(has_text="dawdle")).to_have_count(0)
    response = daemon.request("POST", "/rest/v1/rpc/dawdle", "{}", {"apikey": KEY})
    assert response.status == 200, response.body
    page.clock.fast_forward(5_000)
    row = slow.get_by_role("row").filter(has_text="/rest/v1/rpc/dawdle")
    expect(row).to_contain_text("anon")
    expect(row.get_by_role("cell").nth(3)).to_have_text("200")


def test_advisor_shows_findings_with_their_fix(page: Page) -> None:
    act_as(page, "service_role")
    page.goto("/console/health")
    advisor = page.get_by_role("region", name="Advisor")
    found = advisor.get_by_role("group").filter(has_text="Policy that calls a function for each row")
    fix = found.get_by_role("region", name="Fix of policy readers of table public.note")
    expect(fix).not_to_be_visible()
    found.get_by_text("Policy that calls a function for each row").click()
    expect(fix).to_contain_text("alter policy readers on public.note using (")
    expect(found).to_contain_text("docs/guides/advisor.md#policy-calls-function-per-row")


def test_advisor_reports_errors(page: Page, refused: set[str]) -> None:
    refused.add("/console/data/advice")
    page.route(
        "**/console/data/advice",
        lambda route: route.fulfill(status=403, json={"code": "42501", "message": "no access", "hint": None}),
    )
    act_as(page, "service_role")
    page.goto("/console/health")
    expect(page.get_by_text("The schema cannot be checked")).to_be_visible()
    expect(page.get_by_text("no access")).to_be_visible()
