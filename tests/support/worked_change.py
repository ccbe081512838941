"""Parses a page that shows a change step by step, such as docs/contributing/worked-change.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from support import documents

if TYPE_CHECKING:
    from collections.abc import Iterator


class Step(NamedTuple):
    """A code block on the page.

    :ivar kind: ``diff``, ``sh``, or ``message`` for the commit message.
    :ivar failures: lines that a failing command prints; empty if the command succeeds.
    """

    kind: str
    text: str
    failures: str = ""


def steps(page: str) -> Iterator[Step]:
    blocks = documents.blocks(documents.read(page))
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        shows_failures = after is not None and after.text.startswith("FAILED")
        if block.language != "text":
            yield Step(block.language, block.text, after.text if after and shows_failures else "")
        elif not block.text.startswith("FAILED"):
            yield Step("message", block.text)
