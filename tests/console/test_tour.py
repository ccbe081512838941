"""The guided tour of the demo's console."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from support.console import checked_page, obstacles
from support.demo import RunningDemo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.direct("the daemon has a PostgreSQL of its own")

STEPS = ["Query", "Mutation", "Live query", "Webhook"]
RUN = "Execute query (Ctrl-Enter)"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    running = RunningDemo(tmp_path_factory.mktemp("tour"))
    yield running
    running.kill()


@pytest.fixture
def tab(browser: Browser, demo: RunningDemo) -> Iterator[Page]:
    with checked_page(browser, demo.origin, ()) as opened:
        yield opened


def panel(page: Page) -> Locator:
    return page.get_by_role("complementary", name="Guided tour")


def press(page: Page, name: str) -> None:
    panel(page).get_by_role("button", name=name, exact=True).click()


def heading(page: Page, number: int) -> Locator:
    return panel(page).get_by_role("heading", name=f"Step {number} of 4: {STEPS[number - 1]}", exact=True)


def result(page: Page) -> Locator:
    return page.get_by_role("region", name="Result Window")


def start(page: Page) -> None:
    page.goto("/console")
    press(page, "Start the tour")


def test_tour_shows_a_query_a_mutation_a_live_query_and_a_webhook(tab: Page) -> None:
    """The user performs the first action of each step, and the tour performs the remaining actions."""
    start(tab)
    marked = tab.locator("main [data-tour]")
    expect(marked).to_have_accessible_name(RUN)
    marked.click()
    expect(panel(tab)).to_contain_text("Ada's draft “On indexes” is missing")
    expect(result(tab)).to_contain_text('"Policies are fences"')
    assert "On indexes" not in result(tab).inner_text()

    press(tab, "Next")
    expect(marked).to_have_accessible_name(RUN)
    tab.get_by_role("region", name="Query Editor").locator(".CodeMirror").first.click()
    tab.keyboard.press("Control+Enter")
    expect(panel(tab)).to_contain_text("affectedCount is 1 for Ada's blog and 0 for Bruno's")
    assert re.findall(r'"affectedCount": (\d)', result(tab).inner_text()) == ["1", "0"]
    expect(tab.get_by_role("button", name="Calling as User 1")).to_be_visible()

    press(tab, "Next")
    marked.click()
    assert obstacles(tab, ".frame > aside") == []
    expect(result(tab)).to_contain_text('"claps": "42"')
    expect(panel(tab).get_by_role("button", name="Send the request")).to_have_attribute("data-tour", "")
    press(tab, "Do it for me")
    expect(panel(tab)).to_contain_text("arrived in the open subscription")
    expect(result(tab)).to_contain_text('"claps": "43"')
    expect(tab.get_by_text("blogPostCollection.edges.0.node.claps")).to_be_visible()

    press(tab, "Next")
    expect(marked).to_have_text("Create a receiver")
    marked.click()
    for action in ("Create an endpoint for it", "Send a test event"):
        expect(marked).to_have_text(action)
        press(tab, "Do it for me")
    expect(tab.get_by_text("Signature valid")).to_be_visible()
    expect(marked).to_have_text("Deliveries")
    press(tab, "Do it for me")
    expect(panel(tab)).to_contain_text("The history records every attempt")
    expect(tab.get_by_role("region", name="Deliveries").get_by_text("Delivered")).to_be_visible()

    press(tab, "Finish")
    expect(panel(tab).get_by_role("heading", name="The end of the tour")).to_be_focused()
    press(tab, "Close")
    expect(panel(tab)).to_have_count(0)


def test_tour_works_with_the_keyboard_and_every_step_can_be_skipped(tab: Page) -> None:
    tab.goto("/console")
    panel(tab).get_by_role("button", name="Start the tour").press("Enter")
    for number in range(1, 5):
        expect(heading(tab, number)).to_be_focused()
        tab.keyboard.press("Escape")
        expect(panel(tab)).to_have_count(0)
        expect(tab.locator("[data-tour]")).to_have_count(0)
        expect(tab.get_by_role("button", name="Tour", exact=True)).to_be_focused()
        tab.keyboard.press("Enter")
        expect(heading(tab, number)).to_be_focused()
        panel(tab).get_by_role("button", name="Skip this step").press("Enter")
    expect(panel(tab).get_by_role("heading", name="The end of the tour")).to_be_focused()


def test_tour_resumes_after_a_reload(tab: Page) -> None:
    start(tab)
    press(tab, "2 Mutation")
    do_it = panel(tab).get_by_role("button", name="Do it for me")
    expect(do_it).to_be_enabled()
    tab.get_by_role("link", name="Health").click()
    expect(panel(tab).get_by_role("button", name="Back to this step")).to_be_visible()
    tab.reload()
    expect(heading(tab, 2)).to_be_visible()
    expect(tab).to_have_url(re.compile("/console/graphql$"))
    do_it.click()
    expect(panel(tab)).to_contain_text("affectedCount is 1")
    press(tab, "Skip the tour")
    tab.reload()
    tab.get_by_role("button", name="Tour", exact=True).wait_for()
    expect(panel(tab)).to_have_count(0)


def test_tour_covers_nothing_on_a_narrow_screen(browser: Browser, demo: RunningDemo) -> None:
    size = {"width": 375, "height": 740}
    with checked_page(browser, demo.origin, (), viewport=size, color_scheme="dark") as tab:
        start(tab)
        expect(tab.locator("main [data-tour]")).to_be_in_viewport(ratio=1)
        press(tab, "Do it for me")
        expect(panel(tab)).to_contain_text("Ada's draft")
        main, tour = tab.get_by_role("main").bounding_box(), panel(tab).bounding_box()
        assert main is not None
        assert tour is not None
        assert main["y"] + main["height"] == tour["y"]
        assert tour["height"] <= 0.45 * 740
        assert tour["y"] + tour["height"] == 740
        expect(result(tab).get_by_text("blogCollection")).to_be_in_viewport(ratio=1)
        assert tab.evaluate("document.documentElement.scrollWidth") == 375
        assert obstacles(tab, ".frame > aside") == []


def test_other_daemons_offer_no_tour(page: Page) -> None:
    page.goto("/console/health")
    expect(page.get_by_role("heading", name="Health")).to_be_visible()
    expect(page.get_by_role("button", name="Tour")).to_have_count(0)
    loaded = page.evaluate("performance.getEntriesByType('resource').map(each => each.name)")
    assert [name for name in loaded if "/index-" in name]
    assert not [name for name in loaded if "/tour" in name]
