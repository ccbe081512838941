"""Configuration of Sphinx, which builds a site from the Markdown files: ``make docs``.

The project's root is the source folder, so that links between the files work both on GitHub and here.
"""

from __future__ import annotations

import configparser
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from pygments.lexers.sql import PostgresLexer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_ROOT = Path(__file__).parents[1]
_SETUP = configparser.ConfigParser(interpolation=None)
_SETUP.read(_ROOT / "setup.cfg", "utf-8")

project = "dataapi"
author = _SETUP["metadata"]["author"]
version = release = _SETUP["metadata"]["version"]

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "packaging/helm/**/*.md"]
exclude_patterns = [".*", "build", "daemon", "dist", "etc", "plugins", "tests", "twisted"]

# Same anchors as on GitHub.
myst_heading_anchors = 6
# In JSON examples, "…" marks omissions.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"dataapi {release}"
html_copy_source = False
# The folder's index.html redirects from the site's root to docs/index.html.
html_extra_path = ["site"]

_LISTED = re.compile(r"^- \[(?P<title>[^]]+)\]\((?P<page>[^)#]+)\.md\)", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([^)]+\.md)")


def setup(app: Sphinx) -> None:
    """Configure the table of contents, the SQL dialect, and the files for language models."""
    app.add_lexer("sql", PostgresLexer)
    app.connect("source-read", _add_contents)
    app.connect("build-finished", _add_markdown)


def _add_contents(_: Sphinx, page: str, source: list[str]) -> None:
    """Turn the lists in docs/index.md into tables of contents. GitHub does not support toctree."""
    if page != root_doc:
        return
    for chapter in source[0].split("\n## ")[1:]:
        listed = "\n".join(f"{found['title']} <{found['page']}>" for found in _LISTED.finditer(chapter))
        caption = chapter.partition("\n")[0]
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"


def _add_markdown(app: Sphinx, error: Exception | None) -> None:
    """Add each page as Markdown, and the list of pages as ``llms.txt`` (llmstxt.org)."""
    if error is not None:
        return
    for page in sorted(app.env.found_docs):
        copy = Path(app.outdir, f"{page}.md")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_ROOT / f"{page}.md", copy)
    _, summary, rest = (_ROOT / f"{root_doc}.md").read_text("utf-8").split("\n\n", 2)
    pages = rest[rest.index("## ") :]
    index = f"# {project}\n\n> {summary}\n\n{_LINK.sub(_from_root, pages)}"
    Path(app.outdir, "llms.txt").write_text(index, "utf-8")


def _from_root(link: re.Match[str]) -> str:
    return f"]({(_ROOT / 'docs' / link[1]).resolve().relative_to(_ROOT)}"
