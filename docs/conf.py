"""The site that Sphinx makes of the Markdown files: ``make docs``.

The project's root is the source folder, so that links between the files mean on GitHub what they mean here.
"""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pygments.lexers.sql import PostgresLexer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_SETUP = configparser.ConfigParser(interpolation=None)
_SETUP.read(Path(__file__).parents[1] / "setup.cfg", "utf-8")

project = "dataapi"
author = _SETUP["metadata"]["author"]
version = release = _SETUP["metadata"]["version"]

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**"]
exclude_patterns = [".*", "build", "daemon", "dist", "etc", "plugins", "tests", "twisted"]

# Same anchors as on GitHub.
myst_heading_anchors = 6
# In JSON examples, "…" marks omissions.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"dataapi {release}"
html_copy_source = False
# Leads from the site's root to docs/index.html.
html_extra_path = ["site"]

_LISTED = re.compile(r"^- \[(?P<title>[^]]+)\]\((?P<page>[^)#]+)\.md\)", re.MULTILINE)


def setup(app: Sphinx) -> None:
    """Have the site's table of contents made, and SQL read as PostgreSQL's."""
    app.add_lexer("sql", PostgresLexer)
    app.connect("source-read", _add_contents)


def _add_contents(_: Sphinx, page: str, source: list[str]) -> None:
    """Make tables of contents of the lists in docs/index.md, which GitHub would show as code."""
    if page != root_doc:
        return
    for chapter in source[0].split("\n## ")[1:]:
        listed = "\n".join(f"{found['title']} <{found['page']}>" for found in _LISTED.finditer(chapter))
        caption = chapter.partition("\n")[0]
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"
