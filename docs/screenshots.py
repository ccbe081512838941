"""Write docs/images: screenshots of each console page of the demo, in both themes and two widths.

``make screenshots`` runs it. It requires Debian's package of Chromium, and the extra ``test``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sample_webhooks
from playwright.sync_api import Browser, Page, Route, sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGES = Path(__file__).with_name("images")
TWISTD = Path(sys.executable).with_name("twistd")
CHROMIUM = Path("/usr/bin/chromium")
LISTEN = "tcp:8765:interface=127.0.0.1"
ADDRESS = "http://127.0.0.1:8765"
WIDTHS = {375: 740, 1440: 900}
QUERY = """{
  blogCollection(first: 2) {
    edges {
      node {
        name
        owner { firstName }
      }
    }
  }
}"""

REQUEST = (
    "blog?select=name,description,owner:account(first_name),blog_post(title,claps)"
    "&id=in.(1,2,3)&order=name.desc&limit=20&blog_post.order=claps.desc&blog_post.limit=1"
)


@contextmanager
def demo() -> Iterator[str]:
    """Start the demo, yield its complete banner, and stop the demo."""
    command = [str(TWISTD), "--nodaemon", "--pidfile=", "dataapi", "--demo", "--listen", LISTEN]
    environ = {
        **os.environ,
        "DATAAPI_DATAAPI_ADMIN_LISTEN": "tcp:8766:interface=127.0.0.1",
        "PYTHONUNBUFFERED": "1",
    }
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, text=True) as process:
        assert process.stdout is not None
        try:
            banner = ""
            while "add -H" not in banner:
                if not (line := process.stdout.readline()):
                    raise SystemExit("the demo did not start")
                banner += line
            yield banner
        finally:
            process.terminate()


def run_query(page: Page) -> None:
    """Run a query on the GraphiQL page."""
    page.get_by_role("region", name="Query Editor").locator(".CodeMirror").first.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(QUERY)
    page.get_by_role("button", name="Execute query").click()
    page.get_by_role("region", name="Result Window").get_by_text("Tides and Tables").wait_for()


def show_statistics(page: Page) -> None:
    """Show the charts on the Webhooks page."""
    page.get_by_role("button", name="Statistics").click()
    page.get_by_role("figure", name="Latency").locator("circle").first.wait_for()
    page.mouse.move(0, 0)


def show_delivery(page: Page) -> None:
    """Show the attempts of a delivery that failed."""
    page.get_by_role("button", name="Endpoints").click()
    page.get_by_role("button", name="failed").first.click()
    page.get_by_role("cell").get_by_role("button").first.click()
    page.get_by_role("list", name="Attempts").get_by_role("article").nth(1).wait_for()


def send_request(page: Page) -> None:
    """Run a request on the REST page."""
    page.get_by_label("Address, after /rest/v1/").fill(REQUEST)
    page.get_by_label("Count all rows").select_option("exact")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("region", name="Rows").get_by_text("Tides and Tables").wait_for()
    page.get_by_role("main").evaluate("main => main.scrollTo(0, 0)")


def edit_rows(page: Page) -> None:
    """Show rows with unsaved changes."""
    page.goto(f"{ADDRESS}/console/rows?table=blog_post&order=claps.desc&filter=claps%3Dgt.5")
    grid = page.get_by_role("grid")
    grid.locator("tbody tr").nth(3).wait_for()
    heads = grid.locator("thead th").all_inner_texts()
    [at] = [index for index, text in enumerate(heads) if text.startswith("title")]
    grid.locator(f"[data-at='1 {at}']").click()
    page.keyboard.press("Enter")
    page.keyboard.insert_text("Vienna after breakfast")
    page.keyboard.press("Enter")
    grid.get_by_role("button", name="Delete row 4", exact=True).click()
    grid.evaluate("grid => grid.parentElement.scrollTo(0, 0)")
    page.get_by_role("main").evaluate("main => main.scrollTo(0, 0)")
    page.mouse.move(0, 0)


def show_table(page: Page) -> None:
    """Show the details of one table."""
    page.get_by_role("button", name="blog_post", exact=True).click()
    page.get_by_role("complementary", name="Table blog_post").wait_for()
    page.locator("[data-table]").first.wait_for()
    page.locator(".diagram").scroll_into_view_if_needed()


def wait_for_health(page: Page) -> None:
    """Wait for the health report, and show the advisor's finding."""
    page.get_by_text("Ready", exact=True).wait_for()
    page.get_by_text("Table without row level security").click()
    page.get_by_role("main").evaluate("main => main.scrollTo(0, 0)")


PREPARATIONS = {
    "graphql": run_query,
    "rest": send_request,
    "rows": edit_rows,
    "schema": show_table,
    "webhooks": show_statistics,
    "health": wait_for_health,
}
"""Actions on a page before its first screenshot."""

FURTHER = {"webhooks": {"delivery": show_delivery}}
"""Actions on a page before each further screenshot, by the names of the page and the screenshot."""


AS_SERVICE = ("rows", "schema", "health")
"""Pages to show as ``service_role``, because other roles see less of them."""


def hide_tour(route: Route) -> None:
    """Remove the guided tour from the settings. Only the demo offers it."""
    settings = route.fetch().json()
    del settings["tour"]
    route.fulfill(json=settings)


def become_service(page: Page, banner: str) -> None:
    """Call the APIs as ``service_role`` from the next page on, with the token that the demo prints."""
    [_anonymous, token] = re.findall(r"(?:as JWT|^) +(eyJ\S+)$", banner, re.MULTILINE)
    page.evaluate(
        "token => sessionStorage.setItem('dataapi.identity', JSON.stringify({"
        " ...JSON.parse(sessionStorage.getItem('dataapi.identity')), kind: 'service', token }))",
        token,
    )


def take(browser: Browser, theme: str, width: int, script: str, banner: str) -> None:
    """Take screenshots of every page in the navigation. ``script`` runs before each page loads."""
    context = browser.new_context(color_scheme=theme, viewport={"width": width, "height": WIDTHS[width]})  # type: ignore[arg-type]
    context.add_init_script(script)
    context.route("**/console/data/settings", hide_tour)
    page = context.new_page()
    page.goto(f"{ADDRESS}/console")
    links = page.get_by_role("navigation", name="Pages").get_by_role("link")
    links.first.wait_for()
    for address in [link.get_attribute("href") or "" for link in links.all()]:
        name = re.sub(r".*/", "", address)
        if name in AS_SERVICE:
            become_service(page, banner)
        page.goto(ADDRESS + address)
        page.wait_for_load_state("networkidle")
        PREPARATIONS.get(name, lambda _page: None)(page)
        page.screenshot(path=IMAGES / f"console-{name}-{theme}-{width}.png")
        for further, prepare in FURTHER.get(name, {}).items():
            prepare(page)
            page.screenshot(path=IMAGES / f"console-{name}-{further}-{theme}-{width}.png")
    context.close()


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with demo() as banner, sync_playwright() as driver:
        script = sample_webhooks.session(sample_webhooks.fill(ADDRESS, banner))
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for theme in ("light", "dark"):
            for width in WIDTHS:
                take(browser, theme, width, script, banner)
        browser.close()


if __name__ == "__main__":
    main()
