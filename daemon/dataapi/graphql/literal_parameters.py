"""Literals and aliases as parameters of documents, so that documents that differ in them share plans.

Many clients write values into the text instead of sending variables, and name fields as they need them.
Such a text is reduced to a shape without its numbers, strings and aliases; the first document of a shape is
validated and compiled with parameters for them, and the next ones only bring other values.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import graphql as gql

from dataapi.graphql.input_values import LiteralReading
from dataapi.graphql.sources import parameter_name

_TOKEN = re.compile(
    r'''
      (?P<name>[_A-Za-z][_0-9A-Za-z]*+)(?P<colon>(?=[ \t\r\n,\ufeff]*+:))?
    | (?P<parenthesis>[()])
    | (?P<block>"""(?:\\"""|(?!""").)*""")
    | (?P<string>"(?:[^"\\\n\r]|\\[^\n\r])*")
    | \#[^\n\r]*
    | (?P<number>-?(?:0|[1-9][0-9]*)(?P<real>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![._0-9A-Za-z]))
    ''',
    re.VERBOSE | re.DOTALL,
)
INTROSPECTING = re.compile(r"__(?:type|schema)\b")
"""Finds text that may be an introspection field."""
_MARK = "\0"
"""Begins an alias in a shape; no text that has it is reduced to one."""


@dataclass(frozen=True, slots=True)
class ExtractedParameters:
    """A document's text without its literals and aliases.

    :ivar shape: the text with every literal and alias replaced, equal for texts that differ only in them.
    :ivar literals: the literals by the names of their parameters.
    :ivar aliases: the aliases by the names of their parameters, each of them once.
    :ivar places: the parameters' names by the offsets in the text of the tokens that they stand for.
    """

    shape: str
    literals: Mapping[str, gql.ConstValueNode]
    aliases: Mapping[str, str]
    places: Mapping[int, str]


def extract_parameters(text: str) -> ExtractedParameters | None:
    """Return a text without its literals and aliases, None for one without any or that must stay as it is."""
    extraction = _Extraction()
    shape = _TOKEN.sub(extraction.replaced, text)
    if not extraction.aliases.keys().isdisjoint(extraction.names):
        # The name of another field is part of the document, and so is an alias that may be merged with it.
        extraction = _Extraction(aliases=False)
        shape = _TOKEN.sub(extraction.replaced, text)
    # A default of a variable is part of the document; introspection is executed as it was written.
    if not extraction.places or _MARK in text or "=" in shape or INTROSPECTING.search(shape):
        return None
    try:
        literals = {name: _literal(source) for name, source in extraction.literals.items()}
    except gql.GraphQLError:
        return None  # an invalid escape, which parsing the whole document reports
    aliases = {name: alias for alias, name in extraction.aliases.items()}
    return ExtractedParameters(shape, literals, aliases, extraction.places)


class _Extraction:
    """Collects the literals and aliases that are taken out of a text.

    :ivar literals: source texts by the names of their parameters.
    :ivar aliases: names of parameters by alias.
    :ivar names: the names outside of parentheses that stay in the text.
    """

    def __init__(self, *, aliases: bool = True) -> None:
        self.literals: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        self.names: set[str] = set()
        self.places: dict[int, str] = {}
        self._depth = 0 if aliases else 1  # a name before a colon in parentheses is an argument's

    def replaced(self, match: re.Match[str]) -> str:
        """Return the text that stands in the shape for a token."""
        kind, source = match.lastgroup, match[0]
        if kind == "colon" and self._depth == 0:
            parameter = self.aliases.setdefault(source, parameter_name(len(self.places)))
            self.places[match.start()] = parameter
            return _MARK + parameter
        if kind in ("name", "colon"):
            if self._depth == 0:
                self.names.add(source)
        elif kind == "parenthesis":
            self._depth += 1 if source == "(" else -1
        elif kind is not None:
            parameter = parameter_name(len(self.places))
            self.literals[parameter] = source
            self.places[match.start()] = parameter
            if kind != "number":
                return '""'
            return "0.0" if match["real"] else "0"
        return source


def _literal(source: str) -> gql.ConstValueNode:
    if source[0] != '"':
        is_integer = source.lstrip("-").isdigit()
        return gql.IntValueNode(value=source) if is_integer else gql.FloatValueNode(value=source)
    if "\\" not in source and not source.startswith('""'):
        return gql.StringValueNode(value=source[1:-1])
    return gql.parse_const_value(source)


@dataclass(frozen=True, slots=True)
class Parameters:
    """What was taken out of a text.

    :ivar values: the coerced literals and the aliases by the names of their parameters.
    :ivar shapes: the literals' shapes, in the order of their places' types.
    """

    values: Mapping[str, Any]
    shapes: tuple[Hashable, ...]


NO_PARAMETERS = Parameters({}, ())


def coerce_literals(
    extracted: ExtractedParameters, types: Mapping[str, gql.GraphQLInputType]
) -> Parameters | None:
    """Return the values of all parameters, None when a literal is not valid at its place.

    :param types: those of the literals' places, by the names of their parameters.
    """
    if extracted.literals.keys() != types.keys():
        return None  # a literal that is no argument's, such as a description
    reading = LiteralReading()
    values, shapes = dict[str, Any](extracted.aliases), list[Hashable]()
    for name, type_ in types.items():
        found = reading.constant(extracted.literals[name], type_)
        if found is None:
            return None
        values[name], shape = found
        shapes.append(shape)
    return Parameters(values, tuple(shapes))
