"""Lists for their reader: aligned columns on a terminal, and lines with tabs for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

_BOLD, _RED, _GREEN, _YELLOW = "1", "31", "32", "33"
_COLOURS = {
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
"""The colours of states, by what stands before a colon."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A list with a name for each column.

    :ivar state: which column says how something stands, and has colours; the last one by default.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    state: int = -1


def show(table: TextTable, output: TextIO, environ: Mapping[str, str]) -> None:
    """Write a table as it suits what reads the output."""
    if output.isatty():
        lines = _aligned(table, colours=not environ.get("NO_COLOR") and environ.get("TERM") != "dumb")
    else:
        lines = map("\t".join, table.rows)
    output.writelines(f"{line}\n" for line in lines)


def _aligned(table: TextTable, *, colours: bool) -> Iterator[str]:
    rows = [tuple(map(_printable, row)) for row in table.rows]
    widths = [max(map(len, column)) for column in zip(table.columns, *rows, strict=True)]
    state = range(len(widths))[table.state]
    for row in (table.columns, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        cells[-1] = row[-1]
        if colours and row is table.columns:
            cells = [_coloured(cell, _BOLD) for cell in cells]
        elif colours:
            cells[state] = _coloured(cells[state], _COLOURS.get(row[state].partition(":")[0], ""))
        yield "  ".join(cells)


def _coloured(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if colour else text


def _printable(text: str) -> str:
    """Return a text without what a terminal would obey."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
