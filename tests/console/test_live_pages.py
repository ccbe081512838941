"""The Live switch of the REST and GraphQL pages (docs/console.md, Live)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from support.console import act_as
from support.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page
    from support.postgres import Database, Server

SCHEMA = """
create table note (id int primary key, title text not null);
insert into note values (1, 'one'), (2, 'two');
grant select on note to anon, authenticated;
comment on schema public is '@graphql({"introspection": true})';
"""
QUERY = "{ noteCollection(orderBy: [{id: AscNullsLast}]) { edges { node { title } } } }"


@pytest.fixture(scope="module")
def notes(server: Server) -> Database:
    return server.create_database(SCHEMA)


@pytest.fixture(scope="module")
def daemon(notes: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Yield a daemon with subscriptions and frequent polling."""
    project = {"graphql-features": "subscriptions", "live-interval": "0.1"}
    with Daemon(tmp_path_factory.mktemp("live"), notes.uri, project=project) as made:
        made.wait_ready()
        yield made
        made.stop()


def test_live_read_updates_and_highlights_changed_rows(page: Page, notes: Database) -> None:
    act_as(page, "anon")
    page.goto("/console/rest")
    page.get_by_label("Address, after /rest/v1/").fill("note?order=id")
    switch = page.get_by_role("checkbox", name="Live")
    switch.check()
    rows = page.get_by_role("region", name="Rows").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(page.locator("tr[data-changed]")).to_have_count(0)
    notes.execute("update note set title = 'changed' where id = 2")
    expect(rows.nth(1)).to_contain_text("changed")
    expect(page.locator("tr[data-changed]")).to_have_count(1)
    switch.uncheck()
    notes.execute("update note set title = 'two' where id = 2")
    page.get_by_role("button", name="Send").click()
    expect(rows.nth(1)).to_contain_text("two")
    expect(page.locator("tr[data-changed]")).to_have_count(0)


def test_live_query_lists_changed_paths_and_ends_with_the_page(page: Page, notes: Database) -> None:
    act_as(page, "anon")
    for text, checked in ((QUERY, True), (f"subscription {QUERY}", False)):
        page.goto("/console/graphql")
        page.get_by_role("button", name="Execute query").wait_for()
        page.get_by_role("region", name="Query Editor").locator(".CodeMirror").first.click()
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(text)
        page.get_by_role("checkbox", name="Live").set_checked(checked)
        page.get_by_role("button", name="Execute query").click()
        result = page.get_by_role("region", name="Result Window")
        expect(result).to_contain_text('"two"')
        notes.execute("update note set title = 'changed' where id = 2")
        expect(result).to_contain_text('"changed"')
        expect(page.locator(".live-changes")).to_contain_text("noteCollection.edges.1.node.title")
        notes.execute("update note set title = 'two' where id = 2")
        expect(result).to_contain_text('"two"')
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/graphql/v1")):
        page.get_by_role("link", name="REST").click()
