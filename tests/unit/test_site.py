"""The documentation site is built without warnings, is self-contained and has valid links."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlencode, urlsplit
from xml.etree import ElementTree

import pytest
from support import documents
from support.chromium import chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page as BrowserPage

REQUIRED = ("sphinx", "myst_parser", "furo")
LOADED_BY_TEXT = re.compile(r"""(?:\burl\(|@import|\bfrom|\bimport\(?)\s*["']?((?:https?:)?//[^\s"')]+)""")
"""Matches external URLs that style sheets and scripts load."""


class Page(HTMLParser):
    """Links, loaded resources and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors.update(filter(None, (values.get("id"), values.get("name"))))
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        if tag == "link" and values.get("href"):
            self.loaded.append(str(values["href"]))
        self.loaded.extend(
            str(values[name]) for name in ("src", "srcset", "poster", "data") if values.get(name)
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as ``make docs`` does. Warnings are errors."""
    if any(find_spec(name) is None for name in REQUIRED):
        pytest.skip("the extra 'docs' is not installed")
    built = tmp_path_factory.mktemp("site")
    command = ["-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--conf-dir", "docs"]
    done = subprocess.run(
        [sys.executable, *command, ".", str(built)],
        cwd=documents.ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return built


def test_every_document_is_a_page(site: Path) -> None:
    pages = {str(path.relative_to(site).with_suffix(".md")) for path in site.rglob("*.html")}
    assert set(documents.names()) <= pages


def test_language_models_get_every_page_as_markdown(site: Path) -> None:
    index = (site / "llms.txt").read_text("utf-8")
    assert index.startswith("# dataapi\n\n> dataapi turns a PostgreSQL database into")
    linked = re.findall(r"\]\(([^)#]+\.md)", index)
    assert len(linked) > 40
    for page in linked:
        assert (site / page).read_text("utf-8") == documents.read(page)


def test_links_within_the_site_resolve(site: Path) -> None:
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 10
    for path, page in pages.items():
        for link in map(urlsplit, page.links):
            if link.scheme:
                continue
            target = (path.parent / unquote(link.path)).resolve() if link.path else path
            assert target.is_file(), f"{path}: {link.path}"
            if link.fragment and target in pages:
                anchor = unquote(link.fragment)
                assert anchor in pages[target].anchors, f"{path}: {link.path}#{anchor}"


def test_root_links_to_the_contents(site: Path) -> None:
    assert Page(site / "index.html").links == ["docs/index.html"]
    assert (site / "search.html").is_file()


def test_pages_load_no_external_resources(site: Path) -> None:
    loaded = {(path, url) for path in site.rglob("*.html") for url in Page(path).loaded}
    for kind in ("html", "css", "js", "svg"):
        for path in site.rglob(f"*.{kind}"):
            loaded |= {(path, url) for url in LOADED_BY_TEXT.findall(path.read_text("utf-8"))}
    assert loaded
    assert [(str(path), url) for path, url in sorted(loaded) if urlsplit(url).netloc] == []


@pytest.fixture(scope="module")
def page(site: Path) -> Iterator[tuple[BrowserPage, list[str]]]:
    external_requests: list[str] = []
    with chromium() as browser:
        page = browser.new_page()
        own = f"{site.as_uri()}/"
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith((own, "data:")) else external_requests.append(request.url)
            ),
        )
        yield page, external_requests


def test_browser_requests_no_other_site(site: Path, page: tuple[BrowserPage, list[str]]) -> None:
    tab, external_requests = page
    contents = (site / "docs" / "index.html").as_uri()
    tab.goto((site / "index.html").as_uri())
    tab.wait_for_url(contents)
    for name in ("README", "docs/architecture", "docs/performance", "docs/reference/rest", "genindex"):
        tab.goto((site / f"{name}.html").as_uri())
    tab.emulate_media(color_scheme="dark")
    tab.goto(contents)
    tab.goto(f"{(site / 'search.html').as_uri()}?q=policy")
    tab.locator("#search-results li").first.wait_for()
    assert external_requests == []


@pytest.mark.parametrize("name", ["index", "architecture"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_architecture_picture_is_shown(
    name: str, scheme: Literal["light", "dark"], site: Path, page: tuple[BrowserPage, list[str]]
) -> None:
    tab, _ = page
    tab.emulate_media(color_scheme=scheme)
    tab.goto((site / "docs" / f"{name}.html").as_uri())
    picture = tab.locator("img[src$='architecture.svg']")
    assert "through a proxy" in str(picture.get_attribute("alt"))
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth > 0 && image.width > 300)")
    own = ElementTree.parse(documents.ROOT / "docs" / "images" / "architecture.svg").getroot()
    assert [each.tag.rpartition("}")[2] for each in own][:2] == ["title", "desc"]
    assert "prefers-color-scheme: dark" in ElementTree.tostring(own, "unicode")


SEARCHES = {
    "rate limit": "docs/guides/recipes",
    "logout": "docs/guides/sign-in",
    "soft delete": "docs/guides/recipes",
    "pagination": "docs/guides/recipes",
    "count": "docs/guides/recipes",
    "upsert": "docs/guides/recipes",
    "JWT": "docs/guides/sign-in",
    "CORS": "docs/reference/rest",
    "timeouts": "docs/database",
    "multi-tenant": "docs/guides/recipes",
}
"""The page that each search term should find."""


@pytest.mark.parametrize("term", SEARCHES)
def test_search_finds_the_page(term: str, site: Path, page: tuple[BrowserPage, list[str]]) -> None:
    tab, _ = page
    tab.goto(f"{(site / 'search.html').as_uri()}?{urlencode({'q': term})}")
    # The summary appears after all results have been listed.
    tab.locator("#search-results p.search-summary", has_text="found").wait_for()
    links = tab.locator("#search-results ul.search > li > a")
    pages = [str(link.get_attribute("href")).partition(".html")[0] for link in links.all()[:3]]
    assert SEARCHES[term] in pages
