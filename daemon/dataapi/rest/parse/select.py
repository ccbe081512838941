"""Parses ``select``, ``order``, ``columns`` and parameter names.

Syntax errors raise ``ApiError`` with their position (PGRST100, 400).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dataapi.rest.parse.reader import DELIMITER, Mismatch, Reader, read_with

MAX_ITEMS = 1600
"""Maximum number of items in ``select``: the maximum number of columns of a table."""
MAX_RESOURCES = 100
"""Maximum number of embedded resources in a request."""
MAX_STEPS = 100
"""Maximum number of steps in a JSON path."""
MAX_TERMS = 100
"""Maximum number of terms in ``order``."""
MAX_NAMES = 1600
"""Maximum number of names in ``columns`` or ``on_conflict``."""
MAX_EMBED_DEPTH = 20
"""Maximum nesting depth of embedded resources."""
LONGEST_EMBED_PATH = MAX_EMBED_DEPTH + 5
"""Maximum number of dotted names in a parameter: an embedded resource's path and the names after it."""

JOINS = ("inner", "left")
"""Words after ``!`` that are not hints."""

AGGREGATES = ("sum", "avg", "count", "max", "min")

_INDEX = re.compile(r"-?[0-9]+(?=->|::|[.,)]|\Z)")
_KEY = re.compile(r"[^(:.,>)-](?:[^(:.,>)-]|-(?!>))*")
_PLAIN_ITEM = re.compile(r"([A-Za-z_]\w*)(?=,)", re.ASCII)
_DIGITS = re.compile(r"[0-9]+")
_KEY_EXPECTED = "any non reserved character different from: .,>()"
_DIRECTIONS = {"asc": False, "desc": True}
_NULLS = {"nullsfirst": True, "nullslast": False}


# ---------------------------------------------------------------- parsed values


@dataclass(frozen=True, slots=True)
class PathStep:
    """A step into a JSON value: ``->name``, or ``->>name`` for the value as text."""

    operand: str
    as_text: bool
    is_index: bool = False


Path = tuple[PathStep, ...]

EmbedPath = tuple[str, ...]
"""Names of nested embedded resources, outermost first."""


@dataclass(frozen=True, slots=True)
class Star:
    """``*``: all columns."""


@dataclass(frozen=True, slots=True)
class Field:
    """``alias:name->path::cast.aggregate()::cast``. The name is "" for a bare ``count()``."""

    name: str
    alias: str | None = None
    path: Path = ()
    cast: str | None = None
    aggregate: str | None = None
    aggregate_cast: str | None = None


@dataclass(frozen=True, slots=True)
class Embed:
    """``alias:name!hint!join(items)``, or ``...name(items)`` for a spread.

    :ivar inner: whether rows without a related row are excluded.
    """

    name: str
    items: tuple[Item, ...]
    alias: str | None = None
    hint: str | None = None
    inner: bool = False
    spread: bool = False

    @property
    def key(self) -> str:
        return self.alias or self.name

    @property
    def silent(self) -> bool:
        """Whether the resource only serves as a filter and is not part of the response."""
        return all(isinstance(item, Embed) and item.silent for item in self.items)

    @property
    def member(self) -> str | None:
        return None if self.spread or self.silent else self.key


Item = Star | Field | Embed


@dataclass(frozen=True, slots=True)
class Term:
    """``name.direction.nulls`` in ``order``. Omitted parts are None.

    :ivar relation: embedded resource to order by, for ``relation(name)``.
    """

    name: str
    path: Path = ()
    relation: str | None = None
    descending: bool | None = None
    nulls_first: bool | None = None


@dataclass(frozen=True, slots=True)
class FieldName:
    """A field that a parameter names, and the path of the field's embedded resource."""

    embeds: EmbedPath
    name: str
    path: Path = ()


# ---------------------------------------------------------------- parameters


def parse_select(text: str) -> tuple[Item, ...]:
    """Return the items of a ``select`` value.

    As in PostgREST, text is ignored after a top-level resource without a comma, and after an unmatched
    closing parenthesis.
    """
    return read_with(lambda reader: _items(reader, 0), text, f"select parameter ({text})")


def parse_order(text: str) -> tuple[Term, ...]:
    return read_with(_terms, text, f"order ({text})")


def parse_names(text: str, parameter: str) -> tuple[str, ...]:
    return read_with(_names, text, f"{parameter} parameter ({text})")


def _names(reader: Reader) -> tuple[str, ...]:
    names: list[str] = []
    while not names or reader.lexeme(","):
        reader.count("names", MAX_NAMES)
        names.append(reader.name())
    reader.require_end(",")
    return tuple(names)


def parse_target(text: str) -> FieldName:
    """Return the field that a parameter names, such as ``directors.films.data->>a``."""
    return read_with(_target, text, f"tree path ({text})")


def _target(reader: Reader) -> FieldName:
    names = _embed_path(reader)
    path = json_path(reader)
    reader.require_end()
    return FieldName(names[:-1], names[-1], path)


def parse_embeds(text: str, subject: str = "tree path") -> tuple[str, ...]:
    """Return the dot-separated names in a parameter such as ``directors.not.or``."""

    def read(reader: Reader) -> tuple[str, ...]:
        names = _embed_path(reader)
        reader.require_end()
        return names

    return read_with(read, text, f"{subject} ({text})")


def _embed_path(reader: Reader) -> tuple[str, ...]:
    names = [reader.name()]
    while reader.token(".", DELIMITER):
        reader.count("nested names", LONGEST_EMBED_PATH)
        names.append(reader.name())
    return tuple(names)


# ---------------------------------------------------------------- select


def _items(reader: Reader, depth: int) -> tuple[Item, ...]:
    start = reader.at
    reader.blanks()
    if reader.at == len(reader.text) or reader.text.startswith(")", reader.at):
        reader.at = start
        return ()
    items = [_item(reader, depth)]
    while reader.lexeme(","):
        items.append(_item(reader, depth))
    return tuple(items)


def _item(reader: Reader, depth: int) -> Item:
    reader.count("items", MAX_ITEMS)
    plain = _PLAIN_ITEM.match(reader.text, reader.at)
    if plain is not None:
        reader.at = plain.end()
        return Field(plain[1])
    reader.blanks()
    if reader.token("..."):
        embed = _embed(reader, None, reader.name(), depth, spread=True)
        if embed is None:
            raise Mismatch
        return embed
    if reader.text.startswith("*", reader.at):
        reader.at += 1
        reader.blanks()
        reader.require_end(")", ",")
        return Star()
    alias, name = None, reader.name()
    if not reader.text.startswith("::", reader.at) and _skip(reader, ":"):
        alias, name = name, reader.name()
    if name == "count" and reader.token("()"):
        field = Field("", alias, aggregate="count", aggregate_cast=_cast(reader))
        reader.blanks()
        reader.require_end(")", ",")
        return field
    return _embed(reader, alias, name, depth) or _field(reader, alias, name)


def _skip(reader: Reader, token: str) -> bool:
    matches = reader.text.startswith(token, reader.at)
    if matches:
        reader.at += len(token)
    return matches


def _embed(reader: Reader, alias: str | None, name: str, depth: int, *, spread: bool = False) -> Embed | None:
    start, failure = reader.at, reader.failure
    hint, inner = None, False
    for _ in range(2):
        if not _skip(reader, "!"):
            break
        word = reader.name()
        inner = inner or word == "inner"
        hint = hint if word in JOINS else hint or word
    if not reader.token("("):
        if not spread:
            reader.at, reader.failure = start, failure
        return None
    if depth >= MAX_EMBED_DEPTH:
        raise reader.fail(f"at most {MAX_EMBED_DEPTH} levels of resources")
    reader.count("resources", MAX_RESOURCES)
    items = _items(reader, depth + 1)
    reader.require(")")
    reader.blanks()
    return Embed(name, items, alias, hint, inner, spread)


def _field(reader: Reader, alias: str | None, name: str) -> Field:
    path = json_path(reader)
    reader.blanks()
    cast, aggregate = _cast(reader), None
    if reader.token("."):
        aggregate = reader.one_of(AGGREGATES)
        reader.require("()")
    aggregate_cast = _cast(reader) if aggregate is not None else None
    reader.blanks()
    reader.require_end(")", ",")
    return Field(name, alias, path, cast, aggregate, aggregate_cast)


def _cast(reader: Reader) -> str | None:
    return reader.word() if reader.token("::") else None


def json_path(reader: Reader) -> Path:
    steps: list[PathStep] = []
    while True:
        as_text = reader.token("->>")
        if not as_text and not reader.token("->"):
            return tuple(steps)
        if len(steps) == MAX_STEPS:
            raise reader.fail(f"at most {MAX_STEPS} steps")
        steps.append(_step(reader, as_text))


def _step(reader: Reader, as_text: bool) -> PathStep:
    if reader.text.startswith('"', reader.at):
        return PathStep(reader.quoted(), as_text)
    index = _INDEX.match(reader.text, reader.at)
    match = index or _KEY.match(reader.text, reader.at)
    if match is None or not match[0].strip():
        raise _no_step(reader)
    reader.at = match.end()
    if index is None:
        reader.note_expected(_KEY_EXPECTED)
    return PathStep(match[0].strip(), as_text, index is not None)


def _no_step(reader: Reader) -> Mismatch:
    if not _skip(reader, "-"):
        reader.note_expected('"-"')
        reader.note_expected("digit")
        return reader.fail(_KEY_EXPECTED)
    digits = _DIGITS.match(reader.text, reader.at)
    reader.note_expected("digit", digits.end() if digits else None)
    if digits:
        reader.at = digits.end()
        reader.at_end("->", "::", ".", ",")
    return Mismatch()


# ---------------------------------------------------------------- order


def _terms(reader: Reader) -> tuple[Term, ...]:
    terms = [_term(reader)]
    while reader.token(","):
        terms.append(_term(reader))
    reader.require_end(",")
    return tuple(terms)


def _term(reader: Reader) -> Term:
    reader.count("terms", MAX_TERMS)
    reader.blanks()
    name, relation = reader.name(), None
    start, failure = reader.at, reader.failure
    if _skip(reader, "("):
        relation, name = name, reader.name()
    path = json_path(reader)
    if relation is not None and not reader.token(")"):
        # The term does not order by a relation, so the opening parenthesis is the unexpected character.
        reader.at, reader.failure = start, failure
        relation, path = None, json_path(reader)
    reader.blanks()
    descending = nulls_first = None
    if reader.token(".", DELIMITER):
        word = reader.one_of((*_DIRECTIONS, *_NULLS))
        if word in _DIRECTIONS:
            descending = _DIRECTIONS[word]
            word = reader.one_of(_NULLS) if reader.token(".", DELIMITER) else ""
        nulls_first = _NULLS.get(word)
    reader.blanks()
    reader.require_end(",")
    return Term(name, path, relation, descending, nulls_first)
