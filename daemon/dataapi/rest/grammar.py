"""Parses the values of ``select`` and ``order``; pure, and every mistake told with its place."""

from __future__ import annotations

from dataapi.errors import ApiError
from dataapi.rest.syntax import Embed, Field, Item, Star, Step, Term

DEEPEST = 20
"""How deep resources may be embedded in each other."""

_DIRECTIONS = {"asc": False, "desc": True}
_NULLS = {"nullsfirst": True, "nullslast": False}
_NAME = "a name (letters, digits, _, $, blank or dash; others within double quotes)"


def parse_select(text: str, parameter: str = "select") -> tuple[Item, ...]:
    """Return the items of a ``select`` value; none when it is empty.

    :raises ApiError: PGRST100 (400) with the column at which the value cannot be understood.
    """
    parser = _Parser(text, parameter)
    items = parser.items(0)
    parser.end("a comma or the end")
    return items


def parse_order(text: str, parameter: str = "order") -> tuple[Term, ...]:
    """Return the terms of an ``order`` value.

    :raises ApiError: PGRST100 (400) with the column at which the value cannot be understood.
    """
    parser = _Parser(text, parameter)
    terms = [parser.term()]
    while parser.take(","):
        terms.append(parser.term())
    parser.end("a comma or the end")
    return tuple(terms)


class _Parser:
    """Reads one value from left to right."""

    def __init__(self, text: str, parameter: str) -> None:
        self._text = text
        self._parameter = parameter
        self._at = 0

    # ------------------------------------------------------------ select

    def items(self, depth: int) -> tuple[Item, ...]:
        """Read items up to the end or a closing parenthesis."""
        if self._at == len(self._text) or self._text[self._at] == ")":
            return ()
        items = [self._item(depth)]
        while self.take(","):
            items.append(self._item(depth))
        return tuple(items)

    def _item(self, depth: int) -> Item:
        self._blanks()
        if self.take("*"):
            self._blanks()
            return Star()
        spread = self.take("...")
        if not spread and self.take("count()"):
            return Field("", aggregate="count", aggregate_cast=self._cast())
        alias, name = None, self._name()
        if self._alias_follows():
            alias = name
            if self.take("count()"):
                return Field("", alias, aggregate="count", aggregate_cast=self._cast())
            name = self._name()
        hints = []
        while self.take("!"):
            hints.append(self._name())
        if self.take("("):
            return self._embed(name, alias, tuple(hints), spread, depth)
        if spread or hints:
            raise self._error('"(" and what to select of the resource')
        return self._field(name, alias)

    def _alias_follows(self) -> bool:
        return not self._text.startswith("::", self._at) and self.take(":")

    def _embed(self, name: str, alias: str | None, hints: tuple[str, ...], spread: bool, depth: int) -> Embed:
        if depth >= DEEPEST:
            raise self._error(f"an embedding at most {DEEPEST} resources deep")
        items = self.items(depth + 1)
        if not self.take(")"):
            raise self._error('a comma or ")"')
        self._blanks()
        return Embed(name, items, alias, hints, spread)

    def _field(self, name: str, alias: str | None) -> Field:
        path, cast = self._path(), self._cast()
        aggregate = aggregate_cast = None
        if self.take("."):
            aggregate = self._name()
            if not self.take("()"):
                raise self._error('"()" behind the name of an aggregate')
            aggregate_cast = self._cast()
        return Field(name, alias, path, cast, aggregate, aggregate_cast)

    def _path(self) -> tuple[Step, ...]:
        steps = []
        while self.take("->"):
            as_text = self.take(">")
            sign = "-" if self.take("-") else ""
            steps.append(Step(sign + self._name(), as_text))
        return tuple(steps)

    def _cast(self) -> str | None:
        return self._name() if self.take("::") else None

    # ------------------------------------------------------------ order

    def term(self) -> Term:
        """Read one term of an order."""
        self._blanks()
        name, relation = self._name(), None
        if self.take("("):
            relation, name = name, self._name()
        path = self._path()
        if relation is not None and not self.take(")"):
            raise self._error('")"')
        descending = nulls_first = None
        if self.take("."):
            word = self._word((*_DIRECTIONS, *_NULLS))
            if word in _DIRECTIONS:
                descending = _DIRECTIONS[word]
                word = self._word(tuple(_NULLS)) if self.take(".") else ""
            nulls_first = _NULLS.get(word)
        return Term(name, path, relation, descending, nulls_first)

    def _word(self, known: tuple[str, ...]) -> str:
        """Read one of the known words."""
        rest = self._text[self._at :].partition(",")[0].partition(".")[0].rstrip(" ")
        if rest not in known:
            raise self._error(" or ".join(known))
        self._at += len(rest)
        self._blanks()
        return rest

    # ------------------------------------------------------------ ground

    def take(self, token: str) -> bool:
        """Step over the token when it is next."""
        found = self._text.startswith(token, self._at)
        if found:
            self._at += len(token)
        return found

    def end(self, expected: str) -> None:
        """Fail unless everything was read."""
        if self._at < len(self._text):
            raise self._error(expected)

    def _blanks(self) -> None:
        while self._text.startswith(" ", self._at):
            self._at += 1

    def _name(self) -> str:
        if self.take('"'):
            return self._quoted()
        start = self._at
        while self._at < len(self._text) and self._is_in_name(self._text[self._at]):
            self._at += 1
        name = self._text[start : self._at].strip()
        if not name:
            raise self._error(_NAME)
        return name

    def _is_in_name(self, character: str) -> bool:
        if character == "-":
            return not self._text.startswith("->", self._at)
        return character.isalnum() or character in "_$ "

    def _quoted(self) -> str:
        characters = []
        while not self.take('"'):
            self.take("\\")
            if self._at == len(self._text):
                raise self._error("a closing double quote")
            characters.append(self._text[self._at])
            self._at += 1
        self._blanks()
        return "".join(characters)

    def _error(self, expected: str) -> ApiError:
        found = f'"{self._text[self._at]}"' if self._at < len(self._text) else "the end"
        return ApiError(
            400,
            "PGRST100",
            f'"failed to parse {self._parameter} parameter ({self._text})" (line 1, column {self._at + 1})',
            details=f"unexpected {found}, expecting {expected}",
        )
