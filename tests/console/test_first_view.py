"""What the console costs whoever opens it: bytes, and content that jumps about."""

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


def test_the_first_view_has_less_than_500_kilobytes(page: Page) -> None:
    page.goto("/console")
    page.get_by_role("button", name="Execute query").wait_for()
    milliseconds = page.evaluate("performance.now()")
    loaded = dict(page.evaluate(LOADED))
    print(f"{sum(loaded.values()) / KILOBYTE:.0f} kB in {len(loaded)} files, {milliseconds:.0f} ms")  # noqa: T201
    assert len(loaded) > 3
    assert sum(loaded.values()) < 500 * KILOBYTE


def test_graphiql_is_loaded_by_its_own_page_alone(page: Page) -> None:
    page.goto("/console/health")
    expect(page.get_by_role("heading", name="Health")).to_be_visible()
    loaded = dict(page.evaluate(LOADED))
    assert not [name for name in loaded if name.startswith("codemirror")]
    assert sum(loaded.values()) < 125 * KILOBYTE
    page.get_by_role("link", name="GraphQL").click()
    page.get_by_role("button", name="Execute query").wait_for()
    assert [name for name, _ in page.evaluate(LOADED) if name.startswith("codemirror")]


@pytest.mark.parametrize("name", ["graphql", "rest", "rows", "schema", "webhooks", "health"])
def test_nothing_jumps_about_while_a_page_is_opened(page: Page, name: str) -> None:
    """The sum of layout shifts is what browsers call good: below 0.1."""
    page.add_init_script(SHIFTS)
    page.goto(f"/console/{name}")
    expect(page.locator(f"main[data-page={name}]")).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert sum(page.evaluate("window.shifts")) < 0.1
