"""Suggests which name may have been meant by an unknown one; pure.

For columns the rule is PostgreSQL's own, whose hint a client would read if the name went there; for tables,
functions and relationships it is PostgREST's.  A schema may have tens of thousands of names, so a search is
bounded by the characters that it scans and the names that it compares.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice

from dataapi.database.sql_text import MAX_IDENTIFIER_BYTES

ALIKE = 0.75
"""How alike the name of a table or function must be: suggesting others would let callers find names out."""
DISTANTLY_ALIKE = 0.33
"""How alike something must be that a caller may know: a relationship or the arguments of a function."""
FARTHEST = 3
"""How many characters of a column's name may differ."""
LONGEST_TEXT = 200
"""Characters of a text for which a similar name is searched."""

_MAX_SCANNED = 4_000_000
"""Characters of names that one search reads: a few milliseconds."""
_MAX_FOUND = 2000
"""Occurrences of pieces of the text that one search looks at; the rarest pieces go first."""
_MAX_COMPARED = 100
"""Names that are compared with the text, those that share the most pieces with it."""
_END = "\0"
"""Stands before and after each name; no name in PostgreSQL has it."""


class NameIndex:
    """Names to search for similar ones, joined into one text that is scanned without a step for each name."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._text = "".join(f"{_END}{name}" for name in self._names).lower() + _END
        lengths = (len(name) + 1 for name in self._text.split(_END)[1:-1])
        self._starts = list(accumulate(lengths, initial=0))

    def sharing(self, pieces: Iterable[str]) -> Iterator[str]:
        """Yield the names that have some of the pieces, those that have the most of them first."""
        shared: Counter[int] = Counter()
        found = 0
        for occurrences, piece in sorted(self._counted(pieces)):
            found += occurrences
            if shared and found > _MAX_FOUND:
                break
            shared.update(set(islice(self._places(piece), _MAX_FOUND)))
        for place in sorted(shared, key=lambda place: (-shared[place], place)):
            yield self._names[place]

    def _counted(self, pieces: Iterable[str]) -> Iterator[tuple[int, str]]:
        """Yield how often each piece occurs; of too many pieces only some, evenly spread."""
        ordered = sorted(pieces)
        step = 1 + len(ordered) * len(self._text) // _MAX_SCANNED
        for piece in ordered[::step]:
            occurrences = self._text.count(piece)
            if occurrences:
                yield occurrences, piece

    def _places(self, piece: str) -> Iterator[int]:
        at = self._text.find(piece)
        while at >= 0:
            yield bisect_right(self._starts, at) - 1
            at = self._text.find(piece, at + 1)


def similar(
    text: str, names: NameIndex, minimum: float = ALIKE, allowed: Callable[[str], bool] = lambda _: True
) -> str | None:
    """Return the most similar name, None if none is similar enough.

    Names that have three characters in a row in common with the text go before those that have two.

    :param minimum: how alike it must be, from 0 to 1: one less the share of characters that differ.
    :param allowed: whether a name may be suggested.
    """
    if len(text) > LONGEST_TEXT:
        return None
    requested = text.lower()
    for size in (3, 2):
        candidates = filter(allowed, islice(names.sharing(_pieces(requested, size)), _MAX_FOUND))
        found = _most_alike(requested, islice(candidates, _MAX_COMPARED), minimum)
        if found is not None:
            return found
    return None


def _pieces(text: str, size: int) -> set[str]:
    """Return the runs of characters within a text, whose ends are characters too."""
    ended = f"{_END}{text}{_END}"
    return {ended[start : start + size] for start in range(len(ended) - size + 1)}


def _most_alike(text: str, names: Iterable[str], minimum: float) -> str | None:
    best, found = minimum, None
    for name in names:
        longest = max(len(text), len(name.lower()))
        maximum = int((1 - best) * longest)
        far = distance(text, name.lower(), maximum)
        likeness = 1 - far / longest if far <= maximum else 0.0
        if likeness > best or (found is None and likeness >= minimum):
            best, found = likeness, name
    return found


def hint_for(relation: str, name: str, columns: Iterable[str]) -> str | None:
    """Return the hint that names the most similar column, or the two; None if there is none, or are more."""
    if len(name) > MAX_IDENTIFIER_BYTES:
        return None
    maximum, alike = min(FARTHEST, len(name) // 2), list[str]()
    for column in columns:
        far = distance(name, column, maximum)
        if far < maximum:
            alike.clear()
        if far <= maximum:
            maximum = far
            alike.append(f'"{relation}.{column}"')
    if len(alike) not in (1, 2):
        return None
    return f"Perhaps you meant to reference the column {' or the column '.join(alike)}."


def distance(one: str, other: str, maximum: int) -> int:
    """Return how many characters must be inserted, removed or replaced; ``maximum + 1`` for any more."""
    beyond = maximum + 1
    # What both have of each character bounds the distance, and takes less time to find.
    if max(len(one), len(other)) - (Counter(one) & Counter(other)).total() > maximum:
        return beyond
    row = [min(place, beyond) for place in range(len(other) + 1)]
    for number, character in enumerate(one, 1):
        first, last = max(1, number - maximum), min(len(other), number + maximum)
        above, row = row, [beyond] * (len(other) + 1)
        if number <= maximum:
            row[0] = number
        for place in range(first, last + 1):
            replaced = above[place - 1] + (character != other[place - 1])
            row[place] = min(replaced, above[place] + 1, row[place - 1] + 1, beyond)
    return row[-1]
