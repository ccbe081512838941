"""Replaces literals and aliases with parameters, so that documents share a plan if nothing else differs.

Many clients write values into the text instead of sending variables, and choose their own aliases. The shape
of a text contains placeholders for numbers, strings and aliases. The first document of a shape is validated
and compiled with parameters, and later texts only supply other values.
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
"""Matches text that may be an introspection field."""
_MARK = "\0"
"""Marks an alias's placeholder. Texts that contain this character keep their literals and aliases."""


@dataclass(frozen=True, slots=True)
class ExtractedParameters:
    """A document's text without its literals and aliases.

    :ivar shape: the text with placeholders. Texts that differ only in literals and aliases have equal shapes.
    :ivar aliases: the aliases by parameter name. An alias that is used several times has one parameter.
    :ivar names_by_offset: the parameter names by offset in the text.
    """

    shape: str
    literals: Mapping[str, gql.ConstValueNode]
    aliases: Mapping[str, str]
    names_by_offset: Mapping[int, str]


def extract_parameters(text: str) -> ExtractedParameters | None:
    """Extract a text's literals and aliases. Return None if it has none or they must stay in the text."""
    extraction = _Extraction()
    shape = _TOKEN.sub(extraction.replaced, text)
    if not extraction.aliases.keys().isdisjoint(extraction.names):
        # A field whose alias is the name of another field may be merged with that field, so aliases must stay
        # in the text.
        extraction = _Extraction(aliases=False)
        shape = _TOKEN.sub(extraction.replaced, text)
    # Defaults of variables must stay in the document, and introspection runs with the original text.
    if not extraction.names_by_offset or _MARK in text or "=" in shape or INTROSPECTING.search(shape):
        return None
    try:
        literals = {name: _literal(source) for name, source in extraction.literals.items()}
    except gql.GraphQLError:
        return None  # an invalid escape: parsing the whole document reports it
    aliases = {name: alias for alias, name in extraction.aliases.items()}
    return ExtractedParameters(shape, literals, aliases, extraction.names_by_offset)


class _Extraction:
    def __init__(self, *, aliases: bool = True) -> None:
        self.literals: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        self.names: set[str] = set()
        self.names_by_offset: dict[int, str] = {}
        # A name before a colon is an alias at depth 0, and an argument inside parentheses. If the depth
        # starts at 1, no alias is found.
        self._depth = 0 if aliases else 1

    def replaced(self, match: re.Match[str]) -> str:
        kind, source = match.lastgroup, match[0]
        if kind == "colon" and self._depth == 0:
            parameter = self.aliases.setdefault(source, parameter_name(len(self.names_by_offset)))
            self.names_by_offset[match.start()] = parameter
            return _MARK + parameter
        if kind in ("name", "colon"):
            if self._depth == 0:
                self.names.add(source)
        elif kind == "parenthesis":
            self._depth += 1 if source == "(" else -1
        elif kind is not None:
            parameter = parameter_name(len(self.names_by_offset))
            self.literals[parameter] = source
            self.names_by_offset[match.start()] = parameter
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
    """Coerced literals and aliases of a document, by parameter name. ``shapes`` are those of the literals."""

    values: Mapping[str, Any]
    shapes: tuple[Hashable, ...]


NO_PARAMETERS = Parameters({}, ())


def coerce_literals(
    extracted: ExtractedParameters, types: Mapping[str, gql.GraphQLInputType]
) -> Parameters | None:
    """Return the values of all parameters, or None if a literal is invalid."""
    if extracted.literals.keys() != types.keys():
        return None  # a literal outside of arguments, such as a description
    reading = LiteralReading()
    values, shapes = dict[str, Any](extracted.aliases), list[Hashable]()
    for name, type_ in types.items():
        coerced = reading.constant(extracted.literals[name], type_)
        if coerced is None:
            return None
        values[name], shape = coerced
        shapes.append(shape)
    return Parameters(values, tuple(shapes))
