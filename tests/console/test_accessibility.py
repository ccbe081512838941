"""Accessibility of the console: axe finds no serious problem on any page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from support.console import act_as, obstacles, show_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page


def _graphql(page: Page) -> None:
    page.get_by_role("region", name="Query Editor").get_by_text("__typename").wait_for()
    page.get_by_role("button", name="Execute query").click()
    page.get_by_role("region", name="Result Window").get_by_text("__typename").wait_for()


def _plan(page: Page) -> None:
    page.get_by_role("region", name="Query Editor").get_by_text("__typename").wait_for()
    page.get_by_role("button", name="Show Cost and plan").click()
    page.get_by_role("button", name="Execute query").click()
    page.get_by_text("rows that an operation may touch").wait_for()


def _documents(page: Page) -> None:
    page.get_by_role("button", name="Show Stored documents").click()
    page.get_by_role("button", name="Titles").wait_for()


def _rest(page: Page) -> None:
    page.get_by_label("Address, after /rest/v1/").fill("note?select=id,title")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("region", name="Rows").get_by_text("For Ada").wait_for()


def _description(page: Page) -> None:
    page.get_by_role("button", name="Description").click()
    page.locator(".swagger-ui .opblock").first.wait_for()


def _rows(page: Page) -> None:
    page.get_by_role("grid").get_by_text("For Ada").dblclick()
    page.get_by_role("grid").get_by_role("textbox").or_(page.get_by_role("dialog")).first.wait_for()


def _schema(page: Page) -> None:
    page.get_by_role("button", name="note", exact=True).click()
    page.get_by_role("complementary", name="Table note").wait_for()


def _identity(page: Page) -> None:
    page.get_by_role("button", name="Calling as").click()
    page.get_by_role("radio", name="Signed-in user").check()
    page.get_by_role("button", name="Sign one here").click()


def _sign_in(page: Page) -> None:
    page.get_by_label("Personal access token").wait_for()


def _health(page: Page) -> None:
    page.get_by_text("Ready", exact=True).wait_for()


VIEWS: list[tuple[str, Callable[[Page], None]]] = [
    ("graphql", _graphql),
    ("graphql", _plan),
    ("graphql", _documents),
    ("rest", _rest),
    ("rest", _description),
    ("rows", _rows),
    ("schema", _schema),
    ("schema", _identity),
    ("webhooks", _sign_in),
    ("health", _health),
]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_have_no_serious_accessibility_problems(page: Page, theme: str) -> None:
    act_as(page, "service_role")
    show_in(page, theme)
    found: list[str] = []
    for name, show in VIEWS:
        page.goto(f"/console/{name}")
        expect(page.locator(f"main[data-page={name}]")).to_be_visible()
        show(page)
        found += obstacles(page)
    assert not found, "\n".join(found)


def test_pages_can_be_navigated_by_keyboard(page: Page) -> None:
    page.goto("/console/schema")
    page.get_by_role("searchbox").wait_for()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.get_by_role("link", name="Health").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Health")).to_be_visible()
