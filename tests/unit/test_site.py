"""The documentation's site: it is built without a warning, needs no other, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from support import documents

NEEDED = ("sphinx", "myst_parser", "furo")
LOADED_BY_TEXT = re.compile(r"""(?:\burl\(|@import|\bfrom|\bimport\(?)\s*["']?((?:https?:)?//[^\s"')]+)""")
"""What style sheets and scripts load from elsewhere."""


class Page(HTMLParser):
    """What a page links to, what it loads, and what a link to it may name."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note targets, resources and anchors."""
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
    """Build the site as ``make docs`` does; a warning is an error."""
    if any(find_spec(name) is None for name in NEEDED):
        pytest.skip("the extra docs is not installed, which builds the site")
    built = tmp_path_factory.mktemp("site")
    command = ["-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--conf-dir", "docs"]
    done = subprocess.run(
        [sys.executable, *command, ".", str(built)],
        cwd=documents.ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return built


def test_every_document_is_a_page(site: Path) -> None:
    """With its own place in the contents: Sphinx warns of documents that no list names."""
    pages = {str(path.relative_to(site).with_suffix(".md")) for path in site.rglob("*.html")}
    assert set(documents.names()) <= pages


def test_links_within_the_site_resolve(site: Path) -> None:
    """Those that Sphinx made, too: to pages and files that are there, and anchors that they have."""
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


def test_the_root_leads_to_the_contents(site: Path) -> None:
    """A browser that opens the folder is sent to the page that lists all others."""
    assert Page(site / "index.html").links == ["docs/index.html"]
    assert (site / "search.html").is_file()


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """Scripts, styles, images and fonts: the site needs no network, and tells nobody who reads it."""
    loaded = {(path, one) for path in site.rglob("*.html") for one in Page(path).loaded}
    for kind in ("html", "css", "js", "svg"):
        for path in site.rglob(f"*.{kind}"):
            loaded |= {(path, one) for one in LOADED_BY_TEXT.findall(path.read_text("utf-8"))}
    assert loaded
    assert [(str(path), one) for path, one in sorted(loaded) if urlsplit(one).netloc] == []
