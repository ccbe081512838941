"""Texts for people: docstrings, comments, messages and documentation.

``PYTHONPATH=tests python -m support.texts PATH [PATH ...]`` prints the texts in files and folders, and
``--sample 60`` prints 60 random texts for a review.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
Kind = Literal["docstring", "comment", "message", "sentence"]
_CODE = re.compile(r"^```.*?^```$|^(?: {4}|\t)[^\n]*$|^<!--.*?-->$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_SQL_COMMENT = re.compile(
    r"""\bcomment\ on\ [^;']*?\ is\s+'(?P<comment>(?:[^']|'')*)'  # COMMENT ON
    | '(?:[^']|'')*'  # another string
    | ^[ \t]*--(?P<lines>[^\n]*(?:\n[ \t]*--[^\n]*)*)  # whole lines
    | --(?P<end>[^\n]*)  # end of a line
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_SQL_MARKUP = re.compile(r"^[ \t]*--|^ name: \w+$|-{4,}", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`*\[])|\n\s*\n|\n(?=\s*(?:[-*|#>]|\d+\.) ?)|\s*\|\s*")
_DIRECTIVE = re.compile(r"# (?:noqa|type:|fmt:|pragma)")
_WORDS = re.compile(r"[A-Za-z]+ [a-z]+ [a-z]+")
_SQL = re.compile(
    r"^\W*(?:select|insert|update|delete|with|create|drop|alter|grant|set|from|where|and|or|do|begin)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Text:
    """A text and its location.

    :ivar path: path relative to the project's root.
    :ivar line: first line of a docstring, comment or message; 0 for a sentence of a document.
    """

    path: str
    line: int
    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {' '.join(self.text.split())}"


def texts(*paths: Path) -> Iterator[Text]:
    """Yield the texts in Python, Markdown and SQL files. A path can be a file or a folder."""
    for path in paths:
        found = path.rglob("*") if path.is_dir() else [path]
        files = sorted(file for file in found if file.suffix in _READERS)
        for file in files:
            name = str(file.resolve().relative_to(ROOT))
            source = file.read_text("utf-8")
            yield from _READERS[file.suffix](name, source)


def _of_module(name: str, source: str) -> Iterator[Text]:
    statements = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr):
            statements.add(id(node.value))  # ast.walk yields parents first
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A string used as a statement: a docstring, or a string below an assignment.
            if id(node) in statements:
                yield Text(name, node.lineno, "docstring", node.value)
            elif _WORDS.search(node.value) and not _SQL.match(node.value):
                yield Text(name, node.lineno, "message", node.value)
    yield from _comments(name, source)


def _comments(name: str, source: str) -> Iterator[Text]:
    """Yield comments; consecutive lines are one text."""
    first, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _DIRECTIVE.match(token.string) or token.string.startswith("#!"):
            continue
        if lines and token.start[0] == first + len(lines):
            lines.append(token.string.lstrip("# "))
            continue
        if lines:
            yield Text(name, first, "comment", " ".join(lines))
        first, lines = token.start[0], [token.string.lstrip("# ")]
    if lines:
        yield Text(name, first, "comment", " ".join(lines))


def _of_sql(name: str, source: str) -> Iterator[Text]:
    """Yield comments, and the texts of COMMENT ON. Consecutive lines are one text."""
    for match in _SQL_COMMENT.finditer(source):
        if match["comment"] is not None:
            text = match["comment"].replace("''", "'")
        else:
            text = _SQL_MARKUP.sub("", match["lines"] or match["end"] or "").strip()
        if text:
            line = source.count("\n", 0, match.start()) + 1
            yield Text(name, line, "comment", text)


def _sentences(name: str, source: str) -> Iterator[Text]:
    for sentence in _SENTENCE_END.split(_CODE.sub("`code`", source)):
        if sentence.strip():
            yield Text(name, 0, "sentence", sentence.strip())


_READERS = {".py": _of_module, ".md": _sentences, ".sql": _of_sql}


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Print docstrings, comments, messages and sentences.")
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument(
        "--sample", type=int, metavar="NUMBER", help="print this many texts, chosen at random"
    )
    options = parser.parse_args(words)
    found = list(texts(*options.paths))
    for text in random.sample(found, options.sample) if options.sample else found:
        sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
