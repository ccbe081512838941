"""Which name may have been meant by one that is none; pure.

For columns the rule is PostgreSQL's own, whose hint a client would read if the name went there; for tables,
functions and relationships it is PostgREST's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dataapi.database.quoting import LONGEST_IDENTIFIER

ALIKE = 0.75
"""How alike a table's or function's name must be to be told: more would let callers find names out."""
DISTANTLY_ALIKE = 0.33
"""How alike something must be that a caller may know: a relationship or the arguments of a function."""
FARTHEST = 3
"""How many characters may differ."""
MOST_COLUMNS = 100
"""Of wider relations nothing is guessed: it would take several milliseconds."""
MOST_NAMES = 200
"""Among more names than these no similar one is looked for: it would take several milliseconds."""
LONGEST_TEXT = 200
"""Characters of what a similar name is looked for."""


def similar(text: str, names: Iterable[str], least: float = ALIKE) -> str | None:
    """Return the name that is most alike, None when none is alike or it would take long to find.

    Names that have three characters in a row in common with the text go before those that have two.

    :param least: how alike it must be, from 0 to 1: one less the share of characters that differ.
    """
    left = list(names)
    if len(left) > MOST_NAMES or len(text) > LONGEST_TEXT:
        return None
    wanted = text.lower()
    for size in (3, 2):
        pieces = _pieces(wanted, size)
        alike = {name: not pieces.isdisjoint(_pieces(name.lower(), size)) for name in left}
        found = _most_alike(wanted, [name for name in left if alike[name]], least)
        if found is not None:
            return found
        left = [name for name in left if not alike[name]]
    return None


def _most_alike(text: str, names: Iterable[str], least: float) -> str | None:
    best, found = least, None
    for name in names:
        likeness = _likeness(text, name.lower(), best)
        if likeness > best or (found is None and likeness >= least):
            best, found = likeness, name
    return found


def _pieces(text: str, size: int) -> set[str]:
    """Return the runs of characters within a text, whose ends are characters too."""
    ended = f"-{text}-"
    return {ended[start : start + size] for start in range(len(ended) - size + 1)}


def _likeness(one: str, other: str, least: float) -> float:
    """Return which share of two texts is alike, 0 for less than the least."""
    longest = max(len(one), len(other))
    most = int((1 - least) * longest)
    # What both have of each character bounds the distance, and takes less time to find.
    if longest - (Counter(one) & Counter(other)).total() > most:
        return 0.0
    far = distance(one, other, most)
    return 1 - far / longest if far <= most else 0.0


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
