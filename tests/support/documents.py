"""The documentation's examples: code blocks, and the requests that their curl commands make."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"^    .*\n(?:(?:    .*)?\n(?=    |\n    )|    .*\n)*", re.MULTILINE)
_HEADING = re.compile(r"^(#+) (.*)$", re.MULTILINE)
_MORE = "…"
_TAKES_VALUE = {"-X", "-H", "-d", "--data-binary"}


@dataclass(frozen=True, slots=True)
class Block:
    """A code block.

    :ivar line: where it begins in its file, for messages.
    """

    language: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Request:
    """What a curl command sends.

    :ivar target: path and query.
    :ivar shows_head: whether status and headers are printed too (``-i``).
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    shows_head: bool = False


def read(name: str) -> str:
    """Return the text of a document by its path below the project's root."""
    return (ROOT / name).read_text("utf-8")


def names() -> list[str]:
    """Return the paths of all documents below the project's root."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def headings(text: str) -> set[str]:
    """Return the headings of a document."""
    return {heading[2] for heading in _HEADING.finditer(text)}


def anchors(text: str) -> set[str]:
    """Return what a link may name in a document: GitHub's anchors of its headings."""
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings(text)}


def blocks(text: str) -> list[Block]:
    """Return the code blocks of a document in their order."""
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start()) + 1) for found in _BLOCK.finditer(text)
    ]


def indented(text: str) -> list[str]:
    """Return the blocks of a document that are set off by four spaces, in their order."""
    return [re.sub("^    ", "", found[0], flags=re.MULTILINE) for found in _INDENTED.finditer(text)]


def chapter(text: str, title: str) -> str:
    """Return the part of a document below a heading, up to the next one of its level or above."""
    found = next(heading for heading in _HEADING.finditer(text) if heading[2] == title)
    ends = (each for each in _HEADING.finditer(text, found.end()) if len(each[1]) <= len(found[1]))
    end = next(ends, None)
    return text[found.end() : end.start() if end else len(text)]


def requests(script: str, variables: Mapping[str, str]) -> Iterator[Request]:
    """Yield the requests of a script of curl commands, with shell variables replaced."""
    words = shlex.split(script.replace("\\\n", " "), comments=True)
    assert words[0] == "curl", script
    starts = [at for at, word in enumerate(words) if word == "curl"]
    for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
        yield _request([Template(word).substitute(variables) for word in words[start + 1 : end]])


def _request(words: list[str]) -> Request:
    options: dict[str, list[str]] = {}
    urls = []
    given = iter(words)
    for word in given:
        if word in _TAKES_VALUE:
            options.setdefault(word, []).append(next(given))
        elif word.startswith("-"):
            assert word in ("-s", "-i"), f"curl's option {word} is not known here"
            options[word] = []
        else:
            urls.append(word)
    [url] = map(urlsplit, urls)
    # As curl does, -d takes the line ends out of a file only, and neither option out of an argument.
    body = next(iter(options.get("-d", []) + options.get("--data-binary", [])), None)
    headers = dict(re.split(r":\s*", header, maxsplit=1) for header in options.get("-H", []))
    if body is not None and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    method = options["-X"][0] if "-X" in options else "GET" if body is None else "POST"
    target = f"{url.path}?{url.query}" if url.query else url.path
    return Request(method, target, headers, body, "-i" in options)


def pattern(text: str) -> Any:
    """Read the JSON of a document, in which ``…`` stands for further members and ``"…"`` for any text."""
    return json.loads(re.sub(f'(?<!"){_MORE}', f'"{_MORE}": null', text))


def fits(value: Any, expected: Any) -> bool:
    """Whether a value is what a document shows of it."""
    if isinstance(expected, dict) and isinstance(value, dict):
        shown = expected.keys() - {_MORE}
        if shown != value.keys() and not (_MORE in expected and shown <= value.keys()):
            return False
        return all(fits(value[name], expected[name]) for name in shown)
    if isinstance(expected, list) and isinstance(value, list):
        return len(value) == len(expected) and all(map(fits, value, expected))
    return bool(value == expected) or (expected == _MORE and isinstance(value, str))
