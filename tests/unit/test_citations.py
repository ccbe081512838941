"""Citations can be followed: code and tests cite headings of documents that the repository holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import documents

SOURCES = ("daemon/**/*.py", "daemon/**/*.sql", "plugins/*.py", "tests/**/*.py", "tests/**/*.sql", "etc/*")

_CITATION = re.compile(r"(?P<document>docs/[\w/-]+\.md)(?:`*, (?P<rest>[A-Z].{0,60}))?")
# A document's name without its folder, or a specification that is not said to be somebody else's.
_ELSEWHERE = re.compile(
    r"(?<!docs/)\breference/\w+\.md|\b(spec|design|style|(?<!guides/)clients)\.md\b"
    r"|\(specification[ ,]|\bthe specification\b|\b[Rr]eference \d\.\d",
)


def sources() -> list[Path]:
    """Return the files that cite."""
    found = (path for pattern in SOURCES for path in documents.ROOT.glob(pattern))
    return sorted(path for path in found if path.is_file() and path != Path(__file__))


def unwrapped(text: str) -> str:
    """Return a text in which no line end and no mark of a comment parts what belongs together."""
    return re.sub(r"\s*\n\s*(?:#|--)?\s*", " ", text)


@pytest.mark.parametrize("document", documents.names())
def test_every_cited_heading_exists(document: str) -> None:
    headings = sorted(documents.headings(documents.read(document)), key=len, reverse=True)
    for path in sources():
        for citation in _CITATION.finditer(unwrapped(path.read_text("utf-8"))):
            rest = citation["rest"]
            if citation["document"] == document and rest is not None:
                named = next((each for each in headings if re.match(rf"{re.escape(each)}(?!\w)", rest)), None)
                assert named, f"{path} cites {citation[0]!r}, which {document} does not have"


def test_every_cited_document_exists() -> None:
    for path in sources():
        for citation in _CITATION.finditer(unwrapped(path.read_text("utf-8"))):
            assert citation["document"] in documents.names(), f"{path} cites {citation['document']}"


def test_nothing_outside_the_repository_is_cited() -> None:
    """Rules are in docs/reference; what others specify is an RFC, or named with its author."""
    found = [
        f"{path.relative_to(documents.ROOT)}: {match[0]}"
        for path in sources()
        for match in _ELSEWHERE.finditer(unwrapped(path.read_text("utf-8")))
    ]
    assert found == []
