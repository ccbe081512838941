"""Suggests similar names for unknown ones.

Columns follow PostgreSQL's rule, so the hint equals PostgreSQL's. Tables, functions and relationships follow
PostgREST's rule. A schema may have tens of thousands of names, so the number of scanned characters and
compared names is limited.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice

from dataapi.database.sql_text import MAX_IDENTIFIER_BYTES

MIN_SIMILARITY = 0.75
"""Minimum similarity of a suggested table or function. A lower value would let callers discover names."""
MIN_KNOWN_SIMILARITY = 0.33
"""Minimum similarity of a suggested relationship or argument list. Callers may see all of these names."""
MAX_EDITS = 3
"""Maximum edit distance of a suggested column."""
LONGEST_TEXT = 200
"""Maximum length of a text for which a similar name is suggested."""

_MAX_SCANNED = 4_000_000
"""Maximum number of characters that a search scans. Scanning them takes a few milliseconds."""
_MAX_MATCHES = 2000
"""Maximum number of matches that a search counts, starting with the text's rarest substrings."""
_MAX_COMPARED = 100
"""Maximum number of names to compare with the text, starting with names that share the most substrings."""
_END = "\0"
"""Separator around names. No name in PostgreSQL contains it."""


class NameIndex:
    """A searchable list of names. They are joined into one text, because scanning one text is fast."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._text = "".join(f"{_END}{name}" for name in self._names).lower() + _END
        lengths = (len(name) + 1 for name in self._text.split(_END)[1:-1])
        self._starts = list(accumulate(lengths, initial=0))

    def sharing(self, pieces: Iterable[str]) -> Iterator[str]:
        shared: Counter[int] = Counter()
        matches = 0
        for occurrences, piece in sorted(self._counted(pieces)):
            matches += occurrences
            if shared and matches > _MAX_MATCHES:
                break
            shared.update(set(islice(self._positions(piece), _MAX_MATCHES)))
        for position in sorted(shared, key=lambda position: (-shared[position], position)):
            yield self._names[position]

    def _counted(self, pieces: Iterable[str]) -> Iterator[tuple[int, str]]:
        ordered = sorted(pieces)
        step = 1 + len(ordered) * len(self._text) // _MAX_SCANNED
        for piece in ordered[::step]:
            occurrences = self._text.count(piece)
            if occurrences:
                yield occurrences, piece

    def _positions(self, piece: str) -> Iterator[int]:
        at = self._text.find(piece)
        while at >= 0:
            yield bisect_right(self._starts, at) - 1
            at = self._text.find(piece, at + 1)


def similar(
    text: str,
    names: NameIndex,
    minimum: float = MIN_SIMILARITY,
    allowed: Callable[[str], bool] = lambda _: True,
) -> str | None:
    """Return the most similar name, None if none is similar enough.

    Names that share three consecutive characters with the text are tried first, then names that share two.

    :param minimum: minimum similarity from 0 to 1: one minus the proportion of characters to edit.
    """
    if len(text) > LONGEST_TEXT:
        return None
    requested = text.lower()
    for size in (3, 2):
        candidates = filter(allowed, islice(names.sharing(_pieces(requested, size)), _MAX_MATCHES))
        match = _most_similar(requested, islice(candidates, _MAX_COMPARED), minimum)
        if match is not None:
            return match
    return None


def _pieces(text: str, size: int) -> set[str]:
    ended = f"{_END}{text}{_END}"
    return {ended[start : start + size] for start in range(len(ended) - size + 1)}


def _most_similar(text: str, names: Iterable[str], minimum: float) -> str | None:
    best, closest = minimum, None
    for name in names:
        longest = max(len(text), len(name.lower()))
        maximum = int((1 - best) * longest)
        edits = distance(text, name.lower(), maximum)
        similarity = 1 - edits / longest if edits <= maximum else 0.0
        if similarity > best or (closest is None and similarity >= minimum):
            best, closest = similarity, name
    return closest


def hint_for(relation: str, name: str, columns: Iterable[str]) -> str | None:
    """Return a hint with the most similar column, or with two if they are equally similar, else None."""
    if len(name) > MAX_IDENTIFIER_BYTES:
        return None
    maximum, closest = min(MAX_EDITS, len(name) // 2), list[str]()
    for column in columns:
        edits = distance(name, column, maximum)
        if edits < maximum:
            closest.clear()
        if edits <= maximum:
            maximum = edits
            closest.append(f'"{relation}.{column}"')
    if len(closest) not in (1, 2):
        return None
    return f"Perhaps you meant to reference the column {' or the column '.join(closest)}."


def distance(one: str, other: str, maximum: int) -> int:
    """Return the Levenshtein distance of two names, at most ``maximum + 1``."""
    too_far = maximum + 1
    # The length of the longer text minus the number of common characters is a lower bound for the distance.
    if max(len(one), len(other)) - (Counter(one) & Counter(other)).total() > maximum:
        return too_far
    row = [min(index, too_far) for index in range(len(other) + 1)]
    for number, character in enumerate(one, 1):
        first, last = max(1, number - maximum), min(len(other), number + maximum)
        above, row = row, [too_far] * (len(other) + 1)
        if number <= maximum:
            row[0] = number
        for index in range(first, last + 1):
            replaced = above[index - 1] + (character != other[index - 1])
            row[index] = min(replaced, above[index] + 1, row[index - 1] + 1, too_far)
    return row[-1]
