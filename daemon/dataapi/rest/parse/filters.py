"""Parses filters and logic trees (docs/reference/rest.md, Filters).

A filter is split into a ``FilterOperation``, which determines the SQL, and the values to bind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dataapi.rest.parse.reader import BLANKS, DELIMITER, Failure, Mismatch, Reader, read_with
from dataapi.rest.parse.select import Path, json_path, parse_embeds

MAX_CONDITIONS = 1000
"""Maximum number of filters in a request, including those in logic trees. A list for ``in`` counts as one."""
QUANTIFIABLE = frozenset({"eq", "gt", "gte", "lt", "lte", "like", "ilike", "match", "imatch"})
SEARCHES = frozenset({"fts", "plfts", "phfts", "wfts"})
SIMPLE = frozenset({"neq", "cs", "cd", "ov", "sl", "sr", "nxr", "nxl", "adj", "isdistinct"})
PATTERNS = frozenset({"like", "ilike"})
"""Operators whose values may contain ``*`` instead of ``%``."""
IS_VALUES = ("null", "not_null", "true", "false", "unknown")
MAX_LOGIC_DEPTH = 50
"""Maximum nesting depth of ``and`` and ``or``."""


class FilterOperation(NamedTuple):
    """A filter's ``not.operator(modifier)``, without the value.

    :ivar operator: name of the operator, such as ``eq`` or ``plfts``.
    :ivar modifier: ``any`` or ``all``, or ``language`` for a text search with a language. The language is
        then the first of two values to bind.
    :ivar word: right-hand side of ``is``. It is part of the statement, not a bound value.
    """

    operator: str
    negated: bool = False
    modifier: str | None = None
    word: str | None = None

    @property
    def value_count(self) -> int:
        return 0 if self.word is not None else 2 if self.modifier == "language" else 1


@dataclass(frozen=True, slots=True)
class LogicFilter:
    """A filter in a logic tree."""

    name: str
    path: Path
    operation: FilterOperation


@dataclass(frozen=True, slots=True)
class LogicGroup:
    """``and(…)`` if ``every``, otherwise ``or(…)``."""

    every: bool
    negated: bool
    parts: tuple[LogicFilter | LogicGroup, ...]


LogicTree = LogicFilter | LogicGroup


def leaves(tree: LogicTree) -> Iterator[LogicFilter]:
    """Yield the filters of a tree, in the order in which the request contains their values."""
    if isinstance(tree, LogicFilter):
        yield tree
    else:
        for part in tree.parts:
            yield from leaves(part)


# ---------------------------------------------------------------- parameters

_IS_VALUES_EXPECTED = f"isVal: ({', '.join(IS_VALUES)})"
_OPERATOR_EXPECTED = "operator (eq, gt, ...)"
_OPERATORS = QUANTIFIABLE | SEARCHES | SIMPLE | {"in", "is"}
_LONGEST_FIRST = re.compile("|".join(sorted(_OPERATORS, key=lambda word: -len(word))))
_PLAIN = {word: FilterOperation(word) for word in QUANTIFIABLE | SEARCHES | SIMPLE}
_NEGATED = {word: FilterOperation(word, True) for word in QUANTIFIABLE | SEARCHES | SIMPLE}
_IS = {word: FilterOperation("is", word=word) for word in IS_VALUES}
_IN, _NOT_IN = FilterOperation("in"), FilterOperation("in", True)
_LETTERS = re.compile(r"[a-z]+", re.IGNORECASE)
_BEGINNING = re.compile(r"(?:not\.)?[a-z]+[.(]")
_BARE_LIST = re.compile(r'\(([^"()]*)\)')
_ELEMENT = re.compile(r"[^,)]*")
_PLAIN_LEAF = re.compile(r'([A-Za-z_]\w*)\.(not\.)?([a-z]+)\.([^,)"{]*)(?=[,)])', re.ASCII)
_PG_ARRAY = re.compile(r"\{[^{}]*\}")

Literal = tuple[str, ...]


def read_filter(text: str) -> tuple[FilterOperation, Literal]:
    """Return the operation of a filter, and the values to bind.

    As in PostgREST, text after the list in ``in.(1,2)`` or the keyword in ``is.null`` is ignored.

    :raises ApiError: PGRST100 (400) with the column of the syntax error.
    """
    word, dot, rest = text.partition(".")
    plain = _PLAIN.get(word)
    if plain is not None and dot:
        return plain, (rest.replace("*", "%") if word in PATTERNS else rest,)
    if word == "is" and rest in _IS:
        return _IS[rest], ()
    if word == "in":
        bare = _BARE_LIST.fullmatch(rest)
        if bare is not None:
            listed = bare[1].lstrip(BLANKS)
            return _IN, (array_literal(listed.split(",") if listed else ()),)
    values: list[str] = []
    operation = read_with(lambda reader: _operation(reader, values, _remainder), text, f"filter ({text})")
    return operation, tuple(values)


def has_operator(text: str) -> bool:
    """Whether a parameter's value starts with an operator, so that it is a filter and not an argument."""
    if _BEGINNING.match(text) is None:
        return False
    reader = Reader(text)
    try:
        _operation(reader, [], _remainder)
    except Mismatch:
        return False
    return True


def read_logic(name: str, text: str) -> tuple[tuple[str, ...], LogicTree, Literal]:
    """Return the embedded resource of a logic parameter, its tree, and the values to bind in order.

    As in PostgREST, text after the tree's closing parenthesis is ignored.

    :param name: name of the parameter, such as ``or`` or ``directors.not.and``.
    :raises ApiError: PGRST100 (400) with the column of the syntax error.
    """
    names = parse_embeds(name, "logic path")
    embeds = tuple(part for part in names[:-1] if part != "not")
    word = f"not.{names[-1]}" if "not" in names else names[-1]
    values: list[str] = []
    tree = read_with(lambda reader: _tree(reader, values, 0), word + text, f"logic tree ({text})")
    return embeds, tree, tuple(values)


def array_literal(elements: Iterable[str]) -> str:
    quoted = [element.replace("\\", "\\\\").replace('"', '\\"') for element in elements]
    return '{"' + '","'.join(quoted) + '"}' if quoted else "{}"


# ---------------------------------------------------------------- operations


def _operation(reader: Reader, values: list[str], read_value: Callable[[Reader], str]) -> FilterOperation:
    negated = reader.token("not.", '"not"')
    word, modifier = _operator(reader)
    if word == "is":
        return FilterOperation("is", negated, word=_is_value(reader))
    if word == "in":
        values.append(array_literal(_elements(reader)))
        return _NOT_IN if negated else _IN
    if word in SEARCHES and modifier is not None:
        values += [modifier, read_value(reader)]
        return FilterOperation(word, negated, "language")
    value = read_value(reader)
    values.append(value.replace("*", "%") if word in PATTERNS else value)
    if modifier is None:
        return _NEGATED[word] if negated else _PLAIN[word]
    return FilterOperation(word, negated, modifier)


def _operator(reader: Reader) -> tuple[str, str | None]:
    start, failure = reader.at, reader.failure
    match = _LONGEST_FIRST.match(reader.text, start)
    if match is None:
        raise reader.fail(_OPERATOR_EXPECTED)
    reader.at = match.end()
    word, modifier = match[0], None
    try:
        if (word in QUANTIFIABLE or word in SEARCHES) and reader.token("("):
            modifier = reader.word() if word in SEARCHES else reader.one_of(("any", "all"))
            reader.require(")")
        reader.require(".", DELIMITER)
    except Mismatch:
        # Replace failures inside an operator with a failure of the whole operator, as PostgREST does.
        farthest = reader.failure[0]
        longer = _LETTERS.match(reader.text, match.end())
        reader.failure = failure
        reader.note_expected(_OPERATOR_EXPECTED, longer.end() if longer else farthest, farthest)
        raise
    return word, modifier


def _is_value(reader: Reader) -> str:
    rest = reader.text[reader.at : reader.at + len("not_null")].lower()
    for word in IS_VALUES:
        if rest.startswith(word):
            reader.at += len(word)
            return word
    raise reader.fail(_IS_VALUES_EXPECTED)


def _remainder(reader: Reader) -> str:
    value = reader.text[reader.at :]
    reader.at = len(reader.text)
    return value


# ---------------------------------------------------------------- lists and trees


def _elements(reader: Reader) -> list[str]:
    if not reader.lexeme("("):
        raise Mismatch
    if reader.lexeme(")"):
        return []
    elements = [_element(reader)]
    while reader.token(","):
        elements.append(_element(reader))
    if not reader.lexeme(")"):
        raise Mismatch
    return elements


def _element(reader: Reader) -> str:
    start, failure = reader.at, reader.failure
    if reader.text.startswith('"', start):
        try:
            quoted = reader.quoted()
        except Mismatch:
            reader.failure = failure
        else:
            if reader.at == len(reader.text) or reader.text[reader.at] in ",)":
                return quoted
    match = _ELEMENT.match(reader.text, start)
    reader.at = match.end() if match else start
    return reader.text[start : reader.at]


def _leaf_value(reader: Reader) -> str:
    match = _PG_ARRAY.match(reader.text, reader.at)
    if match is None:
        return _element(reader)
    reader.at = match.end()
    return match[0]


def _tree(reader: Reader, values: list[str], depth: int) -> LogicTree:
    reader.count("filters and logic operators", MAX_CONDITIONS)
    plain = _plain_leaf(reader, values)
    if plain is not None:
        return plain
    start, failure, count = reader.at, reader.failure, len(values)
    try:
        return _leaf(reader, values)
    except Mismatch:
        reader.at = start
        del values[count:]
    missed = reader.failure
    reader.failure = failure
    negated = reader.token("not.", "negation operator (not)")
    label = "logic operator (and, or)"
    every = reader.token("and", label)
    if not every and not reader.token("or", label):
        if not negated:
            _merge_failures(reader, missed)
        raise Mismatch
    if depth == MAX_LOGIC_DEPTH:
        raise reader.fail(f"at most {MAX_LOGIC_DEPTH} levels of logic operators")
    if not reader.lexeme("("):
        raise Mismatch
    parts = [_tree(reader, values, depth + 1)]
    while reader.lexeme(","):
        parts.append(_tree(reader, values, depth + 1))
    if not reader.lexeme(")"):
        raise Mismatch
    return LogicGroup(every, negated, tuple(parts))


def _plain_leaf(reader: Reader, values: list[str]) -> LogicFilter | None:
    match = _PLAIN_LEAF.match(reader.text, reader.at)
    if match is None:
        return None
    name, negated, word, value = match.groups()
    operation = (_NEGATED if negated else _PLAIN).get(word)
    if operation is None:
        return None
    values.append(value.replace("*", "%") if word in PATTERNS else value)
    reader.at = match.end()
    return LogicFilter(name, (), operation)


def _merge_failures(reader: Reader, other: Failure) -> None:
    """Store the farther of two failures. If their positions are equal, merge their expectations."""
    farthest, expected, *_ = reader.failure
    if other[0] >= farthest:
        reader.failure = other
        for each in expected if other[0] == farthest else ():
            reader.note_expected(each, farthest)


def _leaf(reader: Reader, values: list[str]) -> LogicFilter:
    reader.blanks()
    name = reader.name()
    path = json_path(reader)
    reader.blanks()
    reader.require(".", DELIMITER)
    return LogicFilter(name, path, _operation(reader, values, _leaf_value))
