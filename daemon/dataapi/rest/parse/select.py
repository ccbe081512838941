"""Parses ``select``, ``order``, ``columns`` and the names of parameters; pure.

Every mistake raises ``ApiError`` with its position (PGRST100, 400).
"""

from __future__ import annotations

import re

from dataapi.rest.parse.reader import DELIMITER, Mismatch, Reader, read_with
from dataapi.rest.parse.syntax import (
    MOST_ITEMS,
    MOST_NAMES,
    MOST_RESOURCES,
    MOST_STEPS,
    MOST_TERMS,
    Embed,
    Field,
    FieldName,
    Item,
    Path,
    Star,
    Step,
    Term,
)

DEEPEST = 20
"""The maximum depth of embedded resources."""
LONGEST_EMBED_PATH = DEEPEST + 5
"""Names in a parameter's name: the path of an embedded resource, and what may follow it."""

AGGREGATES = ("sum", "avg", "count", "max", "min")

_INDEX = re.compile(r"-?[0-9]+(?=->|::|[.,)]|\Z)")
_KEY = re.compile(r"[^(:.,>)-](?:[^(:.,>)-]|-(?!>))*")
_PLAIN_ITEM = re.compile(r"([A-Za-z_]\w*)(?=,)", re.ASCII)
_DIGITS = re.compile(r"[0-9]+")
_KEY_EXPECTED = "any non reserved character different from: .,>()"
_DIRECTIONS = {"asc": False, "desc": True}
_NULLS = {"nullsfirst": True, "nullslast": False}


def parse_select(text: str) -> tuple[Item, ...]:
    """Return the items of a ``select`` value, which may be empty.

    As in PostgREST, whatever follows an outermost resource without a comma, or an unmatched closing
    parenthesis, is ignored.
    """
    return read_with(lambda reader: _items(reader, 0), text, f"select parameter ({text})")


def parse_order(text: str) -> tuple[Term, ...]:
    """Return the terms of an ``order`` value."""
    return read_with(_terms, text, f"order ({text})")


def parse_names(text: str, parameter: str) -> tuple[str, ...]:
    """Return the names of a ``columns`` or ``on_conflict`` value."""
    return read_with(_names, text, f"{parameter} parameter ({text})")


def _names(reader: Reader) -> tuple[str, ...]:
    names: list[str] = []
    while not names or reader.lexeme(","):
        reader.count("names", MOST_NAMES)
        names.append(reader.name())
    reader.need_end(",")
    return tuple(names)


def parse_target(text: str) -> FieldName:
    """Return the field that a parameter names, such as ``directors.films.data->>a``."""
    return read_with(_target, text, f"tree path ({text})")


def _target(reader: Reader) -> FieldName:
    names = _embed_path(reader)
    path = json_path(reader)
    reader.need_end()
    return FieldName(names[:-1], names[-1], path)


def parse_embeds(text: str, what: str = "tree path") -> tuple[str, ...]:
    """Return the names of a parameter's name without a field, such as ``directors.not.or``."""

    def read(reader: Reader) -> tuple[str, ...]:
        names = _embed_path(reader)
        reader.need_end()
        return names

    return read_with(read, text, f"{what} ({text})")


def _embed_path(reader: Reader) -> tuple[str, ...]:
    names = [reader.name()]
    while reader.token(".", DELIMITER):
        reader.count("names within each other", LONGEST_EMBED_PATH)
        names.append(reader.name())
    return tuple(names)


# ---------------------------------------------------------------- select


def _items(reader: Reader, depth: int) -> tuple[Item, ...]:
    """Read items up to the end or a closing parenthesis."""
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
    reader.count("items", MOST_ITEMS)
    plain = _PLAIN_ITEM.match(reader.text, reader.at)
    if plain is not None:  # the usual case
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
        reader.need_end(")", ",")
        return Star()
    alias, name = None, reader.name()
    if _takes_colon(reader):
        alias, name = name, reader.name()
    if name == "count" and reader.token("()"):
        return _counted(reader, alias)
    embed = _embed(reader, alias, name, depth)
    return embed or _field(reader, alias, name)


def _takes_colon(reader: Reader) -> bool:
    return not reader.text.startswith("::", reader.at) and _takes(reader, ":")


def _takes(reader: Reader, token: str) -> bool:
    """Step over a token that errors do not mention."""
    found = reader.text.startswith(token, reader.at)
    if found:
        reader.at += len(token)
    return found


def _embed(reader: Reader, alias: str | None, name: str, depth: int, *, spread: bool = False) -> Embed | None:
    """Read the rest of an embedded resource; None if it is not one."""
    start, record = reader.at, reader.record
    hint, inner = None, False
    for _ in range(2):
        if not _takes(reader, "!"):
            break
        word = reader.name()
        inner = inner or word == "inner"
        hint = hint if word in ("inner", "left") else hint or word
    if not reader.token("("):
        if not spread:
            reader.at, reader.record = start, record
        return None
    if depth >= DEEPEST:
        raise reader.fail(f"at most {DEEPEST} resources within each other")
    reader.count("resources", MOST_RESOURCES)
    items = _items(reader, depth + 1)
    reader.need(")")
    reader.blanks()
    return Embed(name, items, alias, hint, inner, spread)


def _counted(reader: Reader, alias: str | None) -> Field:
    cast = reader.word() if reader.token("::") else None
    reader.blanks()
    reader.need_end(")", ",")
    return Field("", alias, aggregate="count", aggregate_cast=cast)


def _field(reader: Reader, alias: str | None, name: str) -> Field:
    path = json_path(reader)
    reader.blanks()
    cast = reader.word() if reader.token("::") else None
    aggregate = aggregate_cast = None
    if reader.token("."):
        aggregate = _one_of(reader, AGGREGATES)
        reader.need("()")
        aggregate_cast = reader.word() if reader.token("::") else None
    reader.blanks()
    reader.need_end(")", ",")
    return Field(name, alias, path, cast, aggregate, aggregate_cast)


def _one_of(reader: Reader, words: tuple[str, ...]) -> str:
    for word in words:
        if reader.token(word):
            return word
    raise Mismatch


def json_path(reader: Reader) -> Path:
    """Read the steps of a path into a JSON value."""
    steps: list[Step] = []
    while True:
        as_text = reader.token("->>")
        if not as_text and not reader.token("->"):
            return tuple(steps)
        if len(steps) == MOST_STEPS:
            raise reader.fail(f"at most {MOST_STEPS} steps")
        steps.append(_step(reader, as_text))


def _step(reader: Reader, as_text: bool) -> Step:
    if reader.text.startswith('"', reader.at):
        return Step(reader.quoted(), as_text)
    index = _INDEX.match(reader.text, reader.at)
    found = index or _KEY.match(reader.text, reader.at)
    if found is None or not found[0].strip():
        raise _no_step(reader)
    reader.at = found.end()
    if index is None:
        reader.missed(_KEY_EXPECTED)
    return Step(found[0].strip(), as_text, index is not None)


def _no_step(reader: Reader) -> Mismatch:
    """Record why neither an index nor a member's name matches; return the exception to raise."""
    if not _takes(reader, "-"):
        reader.missed('"-"')
        reader.missed("digit")
        return reader.fail(_KEY_EXPECTED)
    digits = _DIGITS.match(reader.text, reader.at)
    reader.missed("digit", digits.end() if digits else None)
    if digits:
        reader.at = digits.end()
        reader.ends("->", "::", ".", ",")
    return Mismatch()


# ---------------------------------------------------------------- order


def _terms(reader: Reader) -> tuple[Term, ...]:
    terms = [_term(reader)]
    while reader.token(","):
        terms.append(_term(reader))
    reader.need_end(",")
    return tuple(terms)


def _term(reader: Reader) -> Term:
    reader.count("terms", MOST_TERMS)
    reader.blanks()
    name, relation = reader.name(), None
    start, record = reader.at, reader.record
    if _takes(reader, "("):
        relation, name = name, reader.name()
    path = json_path(reader)
    if relation is not None and not reader.token(")"):
        # Not an order by a relation: then the parenthesis is unexpected.
        reader.at, reader.record = start, record
        relation, path = None, json_path(reader)
    reader.blanks()
    descending = nulls_first = None
    if reader.token(".", DELIMITER):
        word = _one_of(reader, (*_DIRECTIONS, *_NULLS))
        if word in _DIRECTIONS:
            descending = _DIRECTIONS[word]
            word = _one_of(reader, tuple(_NULLS)) if reader.token(".", DELIMITER) else ""
        nulls_first = _NULLS.get(word)
    reader.blanks()
    reader.need_end(",")
    return Term(name, path, relation, descending, nulls_first)
