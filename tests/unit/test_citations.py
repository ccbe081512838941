"""Citations in code and tests refer to existing documents and headings."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from support import documents

SOURCES = ("daemon/**/*.py", "daemon/**/*.sql", "plugins/*.py", "tests/**/*.py", "tests/**/*.sql", "etc/*")

_CITATION = re.compile(r"(?P<document>docs/[\w/-]+\.md)(?:`*, (?P<rest>[A-Z].{0,60}))?")
# A document's name without its folder, or a specification without its author.
_EXTERNAL = re.compile(
    r"(?<!docs/)\breference/\w+\.md|\b(spec|design|style|(?<!guides/)clients)\.md\b"
    r"|\(specification[ ,]|\bthe specification\b|\b[Rr]eference \d\.\d",
)


@cache
def sources() -> dict[str, str]:
    """Return the texts of the files that may contain citations, without line breaks and comment marks."""
    paths = {path for pattern in SOURCES for path in documents.ROOT.glob(pattern)} - {Path(__file__)}
    return {
        str(path.relative_to(documents.ROOT)): re.sub(r"\s*\n\s*(?:#|--)?\s*", " ", path.read_text("utf-8"))
        for path in sorted(paths)
        if path.is_file()
    }


@cache
def headings(document: str) -> list[str]:
    return sorted(documents.headings(documents.read(document)), key=len, reverse=True)


def test_every_cited_document_and_heading_exists() -> None:
    wrong = []
    for path, text in sources().items():
        for citation in _CITATION.finditer(text):
            document, rest = citation["document"], citation["rest"]
            exists = document in documents.names() and (
                rest is None
                or any(re.match(rf"{re.escape(each)}(?!\w)", rest) for each in headings(document))
            )
            if not exists:
                wrong.append(f"{path}: {citation[0]}")
    assert wrong == []


def test_no_document_outside_the_repository_is_cited() -> None:
    """Rules are in docs/reference. Other specifications need an RFC number or their author's name."""
    citations = [
        f"{path}: {match[0]}" for path, text in sources().items() for match in _EXTERNAL.finditer(text)
    ]
    assert citations == []
