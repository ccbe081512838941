"""Which name may have been meant by one that is none; pure.

For columns the rule is PostgreSQL's own, whose hint a client would read if the name went there.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from dataapi.database.quoting import LONGEST_IDENTIFIER

FARTHEST = 3
"""How many characters may differ."""
MOST_COLUMNS = 100
"""Of wider relations nothing is guessed: it would take several milliseconds."""
MOST_NAMES = 200
"""Among more names than these no similar one is looked for: it would take several milliseconds."""
LONGEST_TEXT = 200
"""Characters of what a similar name is looked for."""


def similar(text: str, names: Iterable[str], least: float = 0.6) -> str | None:
    """Return the name that is most alike, None when none is alike or it would take long to find.

    :param least: how alike it must be, from 0 to 1.
    """
    known = list(names)
    if len(known) > MOST_NAMES or len(text) > LONGEST_TEXT:
        return None
    return next(iter(get_close_matches(text, known, n=1, cutoff=least)), None)


def hint_for(relation: str, name: str, columns: Iterable[str]) -> str | None:
    """Return the hint that names the one or two columns that are most alike, None when none or more are."""
    known = list(columns)
    if len(known) > MOST_COLUMNS or len(name) > LONGEST_IDENTIFIER:
        return None
    most = min(FARTHEST, len(name) // 2)
    distances = [(distance(name, column, most), column) for column in known]
    least = min((far for far, _ in distances), default=most + 1)
    alike = [f'"{relation}.{column}"' for far, column in distances if far == least]
    if least > most or len(alike) > 2:
        return None
    return f"Perhaps you meant to reference the column {' or the column '.join(alike)}."


def distance(one: str, other: str, most: int) -> int:
    """Return how many characters must be put in, taken out or replaced; ``most + 1`` stands for any more."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    beyond = most + 1
    row = [min(place, beyond) for place in range(len(other) + 1)]
    for number, character in enumerate(one, 1):
        first, last = max(1, number - most), min(len(other), number + most)
        above, row = row, [beyond] * (len(other) + 1)
        if number <= most:
            row[0] = number
        for place in range(first, last + 1):
            replaced = above[place - 1] + (character != other[place - 1])
            row[place] = min(replaced, above[place] + 1, row[place - 1] + 1, beyond)
    return row[-1]
