"""Tables: aligned columns on a terminal, tab-separated lines otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

_BOLD, _RED, _GREEN, _YELLOW = "1", "31", "32", "33"
_COLORS = {
    "early-access": _GREEN,
    "ok": _GREEN,
    "ready": _GREEN,
    "usable": _GREEN,
    "expired": _YELLOW,
    "no event catalogue has the type": _YELLOW,
    "ready for reads": _YELLOW,
    "warning": _YELLOW,
    "mistake": _RED,
    "not ready": _RED,
    "revoked": _RED,
    "writes fail": _RED,
}
"""Terminal colors by state. If a state contains a colon, the key is the text before it."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table with named columns. The column with the index ``state`` is colored."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    state: int = -1


def show(table: TextTable, output: TextIO, environ: Mapping[str, str]) -> None:
    if output.isatty():
        lines = _aligned(table, colors=not environ.get("NO_COLOR") and environ.get("TERM") != "dumb")
    else:
        lines = map("\t".join, table.rows)
    output.writelines(f"{line}\n" for line in lines)


def _aligned(table: TextTable, *, colors: bool) -> Iterator[str]:
    rows = [tuple(map(printable, row)) for row in table.rows]
    widths = [max(map(len, column)) for column in zip(table.columns, *rows, strict=True)]
    state = range(len(widths))[table.state]
    for row in (table.columns, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        cells[-1] = row[-1]
        if colors and row is table.columns:
            cells = [_colored(cell, _BOLD) for cell in cells]
        elif colors:
            cells[state] = _colored(cells[state], _COLORS.get(row[state].partition(":")[0], ""))
        yield "  ".join(cells)


def _colored(text: str, color: str) -> str:
    return f"\x1b[{color}m{text}\x1b[0m" if color else text


def printable(text: str) -> str:
    """Escape unprintable characters, such as terminal control sequences."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
