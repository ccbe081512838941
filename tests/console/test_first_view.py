"""Download size of the console's pages, and layout shifts while they load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

KILOBYTE = 1000

LOADED = """
performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource'))
    .filter(each => !each.name.includes('/data/') && !each.name.includes('/graphql/v1'))
    .map(each => [each.name.replace(/.*[/]/, ''), each.encodedBodySize])
"""
SHIFTS = """
window.shifts = [];
new PerformanceObserver(list => {
    for (const shift of list.getEntries()) if (!shift.hadRecentInput) window.shifts.push(shift.value);
}).observe({ type: 'layout-shift', buffered: true });
"""


def _wait_for_editor(page: Page) -> None:
    """GraphiQL shows its buttons before it loads CodeMirror."""
    page.get_by_role("region", name="Query Editor").locator(".CodeMirror").first.wait_for()


def test_first_view_loads_less_than_500_kilobytes(page: Page) -> None:
    page.goto("/console")
    _wait_for_editor(page)
    page.wait_for_load_state("networkidle")
    milliseconds = page.evaluate("performance.now()")
    loaded = dict(page.evaluate(LOADED))
    print(f"{sum(loaded.values()) / KILOBYTE:.0f} kB in {len(loaded)} files, {milliseconds:.0f} ms")  # noqa: T201
    assert len(loaded) > 3
    assert sum(loaded.values()) < 500 * KILOBYTE


def test_graphiql_is_loaded_only_by_its_page(page: Page) -> None:
    page.goto("/console/health")
    expect(page.get_by_role("heading", name="Health")).to_be_visible()
    loaded = dict(page.evaluate(LOADED))
    assert not [name for name in loaded if name.startswith("codemirror")]
    assert sum(loaded.values()) < 125 * KILOBYTE
    page.get_by_role("link", name="GraphQL").click()
    _wait_for_editor(page)
    assert [name for name, _ in page.evaluate(LOADED) if name.startswith("codemirror")]


@pytest.mark.parametrize("name", ["graphql", "rest", "rows", "schema", "webhooks", "health"])
def test_pages_load_without_layout_shifts(page: Page, name: str) -> None:
    """Web Vitals rate a sum of layout shifts below 0.1 as good."""
    page.add_init_script(SHIFTS)
    page.goto(f"/console/{name}")
    expect(page.locator(f"main[data-page={name}]")).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert sum(page.evaluate("window.shifts")) < 0.1
