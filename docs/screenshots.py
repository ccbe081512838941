"""Write docs/images: each page of the console, of the demo, in both themes and two widths.

``make screenshots`` runs it.  It needs Chromium, as Debian packages it, and the extra ``test``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import Browser, Page, sync_playwright

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


@contextmanager
def demo() -> Iterator[None]:
    """Run the demo until its banner is complete, and end it afterwards."""
    command = [str(TWISTD), "--nodaemon", "--pidfile=", "dataapi", "--demo", "--listen", LISTEN]
    environ = {
        **os.environ,
        "DATAAPI_DATAAPI_ADMIN_LISTEN": "tcp:8766:interface=127.0.0.1",
        "PYTHONUNBUFFERED": "1",
    }
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, text=True) as process:
        assert process.stdout is not None
        try:
            if not any("Add -H" in line for line in process.stdout):
                raise SystemExit("the demo did not start")
            yield
        finally:
            process.terminate()


def run_query(page: Page) -> None:
    """Show an answer on GraphiQL's page."""
    page.get_by_role("region", name="Query Editor").locator(".CodeMirror").first.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(QUERY)
    page.get_by_role("button", name="Execute query").click()
    page.get_by_role("region", name="Result Window").get_by_text("Tides and Tables").wait_for()


PREPARATIONS = {"graphql": run_query}
"""What is done on a page before its picture is taken."""


def take(browser: Browser, theme: str, width: int) -> None:
    """Take a picture of every page that the navigation has."""
    context = browser.new_context(color_scheme=theme, viewport={"width": width, "height": WIDTHS[width]})  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"{ADDRESS}/console")
    links = page.get_by_role("navigation", name="Pages").get_by_role("link")
    links.first.wait_for()
    for address in [link.get_attribute("href") or "" for link in links.all()]:
        name = re.sub(r".*/", "", address)
        page.goto(ADDRESS + address)
        page.wait_for_load_state("networkidle")
        PREPARATIONS.get(name, lambda _page: None)(page)
        page.screenshot(path=IMAGES / f"console-{name}-{theme}-{width}.png")
    context.close()


def main() -> None:
    """Take all pictures."""
    IMAGES.mkdir(exist_ok=True)
    with demo(), sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for theme in ("light", "dark"):
            for width in WIDTHS:
                take(browser, theme, width)
        browser.close()


if __name__ == "__main__":
    main()
