"""Guards: numbers with which a statement refuses itself, so that nothing of what it did stays done.

A statement raises by casting a text to an integer: it takes no function that a database would have to
hold, and PostgreSQL's message has the text, which says why and with which number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dataapi.database.sql_text import quote_literal
from dataapi.sql.algebra import Parameter
from dataapi.sql.writer import Writer

_MARK = "~dataapi~"
_INVALID_TEXT = "22P02"
# A client's own value may look so too: no more digits than a number of rows has.
_RAISED = re.compile(f"{_MARK}([^~]+){_MARK}([0-9]{{1,9}}){_MARK}([0-9]{{1,19}})(?![0-9])", re.ASCII)


@dataclass(frozen=True, slots=True)
class Guard:
    """A bound for a number of rows.

    :ivar reason: what the statement raises; without ``~``.
    :ivar at_most: a ``bigint`` parameter, or None where there must be exactly one row.
    """

    reason: str
    at_most: Parameter | None = None

    def violated_sql(self, writer: Writer, count: str) -> str:
        """Return the condition under which a number of rows is out of bounds."""
        return f"{count} <> 1" if self.at_most is None else f"{count} > {writer.slot(self.at_most)}"


@dataclass(frozen=True, slots=True)
class Violation:
    """What a statement raised.

    :ivar reason: the guard's.
    :ivar place: which of several changes of one request it was, from 0.
    :ivar number: the number that is out of bounds.
    """

    reason: str
    place: int
    number: int


def raise_sql(reason: str, number: str, place: int = 0) -> str:
    """Return SQL of type ``int`` that raises; it depends on the number, so that planning does not raise."""
    return f"({quote_literal(f'{_MARK}{reason}{_MARK}{place}{_MARK}')} || {number})::int"


def violation_in(code: str, message: str) -> Violation | None:
    """Return what an error of PostgreSQL says of a guard, None for any other error.

    :param code: its SQLSTATE.
    """
    match = _RAISED.search(message) if code == _INVALID_TEXT else None
    return None if match is None else Violation(match[1], int(match[2]), int(match[3]))
