"""The Schema page in a browser, with 300 tables and foreign keys (docs/console.md, Schema)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from playwright.sync_api import expect
from support.console import act_as
from support.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Locator, Page, Route
    from support.postgres import Server

TABLES = 300
CHAINED = "\n".join(
    f"create table part_{number} (id int primary key, whole int references part_{number // 2});"
    for number in range(1, TABLES - 2)
)
SCHEMA = f"""
create table part_0 (id int primary key);
{CHAINED}
create table author (id int primary key, name text not null, password text);
create table book (id int primary key, author_id int not null references author, "Full title" text);
grant select (id, name) on author to anon;
grant select on book to anon;
grant select, insert on book to authenticated;
grant all on all tables in schema public to service_role;
alter table book enable row level security;
create policy "own books" on book for select to authenticated using (author_id = 1);
comment on table book is '@graphql({{"name": "Volume", "totalCount": {{"enabled": true}}}})';
comment on column book."Full title" is 'As it stands on the cover';
comment on table author is '@graphql({{"name": 7}})';
"""


@pytest.fixture(scope="module")
def daemon(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Yield a daemon with 300 tables. Anonymous callers can see two of them."""
    database = server.create_database(SCHEMA)
    with Daemon(tmp_path_factory.mktemp("schema"), database.uri) as made:
        made.wait_ready()
        yield made
        made.stop()


def opened(page: Page, role: str = "service_role") -> Locator:
    """Open the Schema page with a role and return the diagram once it is drawn."""
    act_as(page, role)
    page.goto("/console/schema")
    diagram = page.get_by_role("img", name=re.compile("Diagram of"))
    diagram.locator("[data-table]").first.wait_for()
    return diagram


def saved(page: Page, button: str) -> str:
    """Return the text of the file that a button downloads."""
    with page.expect_download() as download:
        page.get_by_role("button", name=button).click()
    return Path(download.value.path()).read_text("utf-8")


def test_tables_and_keys_are_drawn_without_overlap(page: Page) -> None:
    diagram = opened(page)
    expect(diagram).to_have_attribute("aria-label", "Diagram of 300 tables and 298 relationships")
    expect(diagram.locator("[data-table]")).to_have_count(TABLES)
    expect(diagram.locator(".connection")).to_have_count(TABLES - 2)
    boxes = diagram.locator("[data-table]").evaluate_all(
        "boxes => boxes.map(box => box.getBoundingClientRect())"
        ".map(box => [box.left, box.top, box.right, box.bottom])"
    )
    for index, (left, top, right, bottom) in enumerate(boxes):
        for other in boxes[index + 1 :]:
            apart = right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
            assert apart, (boxes[index], other)
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    ratio = (max(rights) - min(lefts)) / (max(bottoms) - min(tops))
    assert 1 / 3 < ratio < 6
    window = diagram.bounding_box()
    assert window is not None
    assert min(lefts) >= window["x"]
    assert max(rights) <= window["x"] + window["width"]


def test_page_responds_while_the_layout_is_computed(page: Page) -> None:
    routes: list[Route] = []

    def hold(route: Route) -> None:
        routes.append(route)

    page.route("**/layout.worker*", hold)
    act_as(page, "service_role")
    page.goto("/console/schema")
    progress = page.get_by_role("progressbar", name="Placing 300 tables")
    expect(progress).to_be_visible()
    page.get_by_role("searchbox").fill("part_77")
    expect(page.get_by_role("status")).to_have_text("1 of 300 tables, as service_role")
    page.get_by_role("searchbox").fill("")
    expect(page.get_by_role("button", name="Save as SVG")).to_be_disabled()
    for route in routes:
        route.continue_()
    expect(page.locator("[data-table]")).to_have_count(TABLES)
    expect(progress).to_have_count(0)
    assert page.locator(".diagram svg .column").count() == 0
    assert page.locator(".diagram svg *").count() < 10 * TABLES
    page.get_by_role("searchbox").fill("book")
    page.keyboard.press("Enter")
    book = page.locator("[data-table*='\"book\"'] .column")
    expect(book).to_have_text(["id", "author_id", "Full title"])
    assert page.locator(".diagram svg .column").count() < TABLES


def test_search_zooms_to_the_table(page: Page) -> None:
    diagram = opened(page)
    page.get_by_role("searchbox").fill("part_77")
    expect(page.get_by_role("status")).to_have_text("1 of 300 tables, as service_role")
    page.keyboard.press("Enter")
    chosen = diagram.locator("[data-table*='\"part_77\"']")
    expect(chosen).to_be_in_viewport()
    heading = chosen.locator(".title").bounding_box()
    assert heading is not None
    assert heading["height"] >= 8
    page.get_by_role("checkbox", name="Neighbours only").check()
    shown = diagram.locator("[data-table]")
    expect(shown).to_have_count(4)
    assert set(shown.locator(".title").all_text_contents()) == {"part_77", "part_38", "part_154", "part_155"}
    page.get_by_role("checkbox", name="Neighbours only").uncheck()
    expect(shown).to_have_count(TABLES)


def test_selected_table_and_neighbors_stay_visible(page: Page) -> None:
    diagram = opened(page, "anon")
    page.get_by_role("button", name="author").click()
    expect(page.get_by_role("complementary", name="Table author")).to_be_visible()
    for box in diagram.locator("[data-table]").all():
        expect(box).to_be_in_viewport(ratio=1)
    page.wait_for_function(
        "() => { const window = document.querySelector('.diagram svg').getBoundingClientRect();"
        " return [...document.querySelectorAll('[data-table]')].every(each => {"
        " const box = each.getBoundingClientRect();"
        " return box.left >= window.left && box.right <= window.right; }); }"
    )


def test_table_links_to_a_request_for_its_rows(page: Page) -> None:
    opened(page, "anon")
    page.get_by_role("button", name="author").click()
    details = page.get_by_role("complementary", name="Table author")
    expect(details).to_contain_text("This role may select each column.")
    details.get_by_role("button", name="Build a request").click()
    expect(page.get_by_label("Address, after /rest/v1/")).to_have_value("author?select=id,name&limit=20")
    page.go_back()
    expect(details).to_be_visible()


def test_selected_table_is_part_of_the_url(page: Page) -> None:
    """A shared URL or a reload shows the same table."""
    opened(page, "anon")
    page.get_by_role("button", name="author").click()
    expect(page.get_by_role("complementary", name="Table author")).to_be_visible()
    page.reload()
    author = page.get_by_role("complementary", name="Table author")
    author.get_by_role("button", name="book").click()
    expect(page.get_by_role("complementary", name="Table book")).to_be_visible()
    page.go_back()
    expect(author).to_be_visible()
    page.go_back()
    expect(page.get_by_role("complementary")).to_have_count(0)


def test_role_sees_only_its_tables_and_columns(page: Page) -> None:
    diagram = opened(page)
    expect(diagram.locator("[data-table]")).to_have_count(TABLES)
    page.get_by_role("button", name="Calling as").click()
    page.get_by_role("radio", name="Anonymous").check()
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_role("status")).to_have_text("2 of 2 tables, as anon")
    page.get_by_role("button", name="author").click()
    details = page.get_by_role("complementary", name="Table author")
    expect(details.get_by_role("region", name="Columns").get_by_role("row")).to_have_count(3)
    expect(details).not_to_contain_text("password")
    for heading in ("Grants", "Policies"):
        expect(details.get_by_role("heading", name=heading)).to_have_count(0)


def test_service_role_sees_grants_policies_and_problems(page: Page) -> None:
    opened(page)
    page.get_by_role("searchbox").fill("book")
    page.keyboard.press("Enter")
    details = page.get_by_role("complementary", name="Table book")
    for text in (
        "Volume",
        "volumeCollection",
        "/rest/v1/book",
        "totalCount",
        "Row security is on",
        "own books",
        "As it stands on the cover",
    ):
        expect(details).to_contain_text(text)
    expect(details).to_contain_text("(author_id = 1)")
    grants = details.get_by_role("heading", name="Grants").locator("..")
    expect(grants.locator("div").filter(has_text="authenticated")).to_contain_text("SELECT, INSERT")
    details.get_by_role("button", name="author").click()
    author = page.get_by_role("complementary", name="Table author")
    expect(author.get_by_role("note")).to_contain_text("table public.author")
    expect(author.locator("dl")).to_contain_text("SELECT (id, name)")


def test_exports_contain_every_table_and_key(page: Page) -> None:
    """The SVG file is self-contained, and names in the Mermaid file are quoted."""
    opened(page)
    drawing = ElementTree.fromstring(saved(page, "Save as SVG"))
    namespace = "{http://www.w3.org/2000/svg}"
    assert drawing.tag == f"{namespace}svg"
    titles = [each.text for each in drawing.iter(f"{namespace}text")]
    assert titles.count("part_298") == 0
    assert {"whole", "author_id", "Full title", "text"} <= set(titles)
    assert {"part_0", "part_297", "author", "book"} <= set(titles)
    assert all("class" not in each.attrib for each in drawing.iter())
    lines = saved(page, "Save as Mermaid").splitlines()
    assert lines[0] == "erDiagram"
    entities = [line for line in lines if re.fullmatch(r' {4}"[^"]+" \{', line)]
    relations = [line for line in lines if re.fullmatch(r' {4}"[^"]+" \S+--\S+ "[^"]+" : "[^"]+"', line)]
    assert (len(entities), len(relations)) == (TABLES, TABLES - 2)
    assert '    "author" ||--o{ "book" : "author_id"' in lines
    assert "        text Full_title" in lines
    assert "        int4 id PK" in lines or "        integer id PK" in lines
