"""Features that the GraphQL page adds to GraphiQL (docs/console.md, GraphQL)."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from support.console import act_as, copying, token

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

QUERY = "{ noteCollection(first: 7) { edges { node { title } } } }"


def opened(page: Page, query: str = QUERY) -> None:
    """Open the GraphQL page and type a query."""
    page.goto("/console/graphql")
    page.get_by_role("button", name="Execute query").wait_for()
    page.get_by_role("region", name="Query Editor").locator(".CodeMirror").first.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(query)


def run(page: Page) -> None:
    page.get_by_role("button", name="Execute query").click()


def test_service_role_sees_cost_and_plan_of_an_operation(page: Page) -> None:
    act_as(page, "service_role")
    opened(page)
    page.get_by_role("button", name="Show Cost and plan").click()
    run(page)
    panel = page.get_by_role("region", name="Cost and plan")
    expect(panel).to_contain_text("7 of 5,000,000 rows")
    expect(panel.get_by_text("most expensive", exact=True)).to_have_count(1)
    nodes = panel.locator(".plan-node")
    shares = [int(text.removesuffix(" %")) for text in nodes.locator(".plan-share").all_inner_texts()]
    assert 95 <= sum(shares) <= 105
    most_expensive = panel.locator(".plan-node[data-dear]")
    expect(most_expensive.locator(".plan-share")).to_have_text(f"{max(shares)} %")
    expect(nodes.filter(has_text="Scan on note")).to_have_count(1)
    result = page.get_by_role("region", name="Result Window")
    expect(result).to_contain_text('"limit"')
    assert "Node Type" not in result.inner_text()
    page.get_by_role("button", name="Hide Cost and plan").click()
    run(page)
    expect(result).not_to_contain_text('"limit"')


def test_other_roles_see_only_the_cost(page: Page) -> None:
    opened(page)
    page.get_by_role("button", name="Show Cost and plan").click()
    run(page)
    panel = page.get_by_role("region", name="Cost and plan")
    expect(panel).to_contain_text("7 of 5,000,000 rows")
    expect(panel.get_by_role("note")).to_contain_text("only for service_role")
    expect(page.get_by_role("region", name="Result Window")).to_contain_text('"For all"')


def test_stored_document_can_be_searched_and_opened(page: Page) -> None:
    act_as(page, "service_role")
    opened(page)
    page.get_by_role("button", name="Show Stored documents").click()
    panel = page.get_by_role("region", name="Stored documents")
    expect(panel.get_by_role("status")).to_have_text("2 of 2")
    panel.get_by_role("searchbox").fill("titles")
    expect(panel.get_by_role("status")).to_have_text("1 of 2")
    panel.get_by_role("button", name="Titles").click()
    expect(page.get_by_role("region", name="Query Editor")).to_contain_text("query Titles")
    run(page)
    expect(page.get_by_role("region", name="Result Window")).to_contain_text('"For Bo"')
    page.get_by_role("tab").first.click()
    expect(page.get_by_role("region", name="Query Editor")).to_contain_text("first: 7")


def test_operation_can_be_copied_for_supabase_js(page: Page, tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("the copied program needs node")
    act_as(page, "authenticated", sub="ada")
    opened(page)
    with copying(page) as copied:
        page.get_by_role("button", name="Copy as a program").click()
        page.get_by_role("menuitem", name="Copy as supabase-js").click()
    library = tmp_path / "node_modules" / "@supabase" / "supabase-js"
    library.mkdir(parents=True)
    (library / "package.json").write_text('{"type": "module", "exports": "./index.js"}')
    (library / "index.js").write_text(
        "export const createClient = () =>"
        " ({ auth: { getSession: async () => ({ data: { session: null } }) } });"
    )
    program = tmp_path / "program.mjs"
    program.write_text(copied[0])
    printed = subprocess.run(
        ["node", program.name],
        cwd=tmp_path,
        env={**os.environ, "TOKEN": token("authenticated", sub="ada")},
        capture_output=True,
        check=True,
        text=True,
    )
    assert "noteCollection" in printed.stdout, printed


@pytest.mark.parametrize("panel", ["Cost and plan", "Stored documents", "Documentation Explorer"])
def test_panels_are_usable_on_a_narrow_screen(page: Page, panel: str) -> None:
    page.set_viewport_size({"width": 375, "height": 740})
    act_as(page, "service_role")
    opened(page)
    page.get_by_role("button", name=f"Show {panel}").click()
    run(page)
    expect(page.get_by_role("region", name="Result Window")).to_contain_text('"For all"')
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    parts = (".graphiql-plugin", ".graphiql-query-editor", ".graphiql-response")
    for part in parts:
        page.locator(part).scroll_into_view_if_needed()
        box = page.locator(part).bounding_box()
        assert box is not None, part
        assert box["width"] >= 300, part
        assert box["height"] >= 150, part
