"""The literals of a document taken out as parameters, so that documents that differ only in them share plans.

Many clients write values into the text instead of sending variables.  Such a text is
reduced to a shape without its numbers and strings; the first document of a shape is
validated and compiled with its literals as if they were variables, and the next ones only
bring other values.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from graphql import (
    ConstValueNode,
    DocumentNode,
    FieldNode,
    FloatValueNode,
    GraphQLError,
    GraphQLSchema,
    IntValueNode,
    NameNode,
    StringValueNode,
    Undefined,
    ValueNode,
    VariableNode,
    Visitor,
    coerce_input_literal,
    parse_const_value,
    visit,
)

from dataapi.graphql.compatibility import enum_value
from dataapi.graphql.graphql_core import AcyclicTypeInfoVisitor, PausingTypeInfo

_TOKEN = re.compile(
    r'''
      (?P<block>"""(?:\\"""|(?!""").)*""")
    | (?P<string>"(?:[^"\\\n\r]|\\[^\n\r])*")
    | \#[^\n\r]*
    | [_A-Za-z][_0-9A-Za-z]*
    | (?P<number>-?(?:0|[1-9][0-9]*)(?P<real>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![._0-9A-Za-z]))
    ''',
    re.VERBOSE | re.DOTALL,
)
# A default of a variable is part of the document; introspection is executed as it was written.
_KEPT_WHOLE = re.compile(r"=|\b__(?:type|schema)\b")


@dataclass(frozen=True, slots=True)
class ExtractedLiterals:
    """A document's text without its literals.

    :ivar shape: the text with every literal replaced, equal for texts that differ only in their values.
    :ivar pattern: which literals are equal to each other; fields that are merged must have equal ones.
    :ivar literals: the literals in their order.
    :ivar places: a literal's number by its offset in the text.
    """

    shape: str
    pattern: Hashable
    literals: tuple[ConstValueNode, ...]
    places: Mapping[int, int]


def extract_literals(text: str) -> ExtractedLiterals | None:
    """Return a text without its literals, None for one that has none or must be taken as it is."""
    sources: list[str] = []
    places: dict[int, int] = {}

    def replaced(match: re.Match[str]) -> str:
        if match["string"] is None and match["block"] is None and match["number"] is None:
            return match[0]
        places[match.start()] = len(sources)
        sources.append(match[0])
        if match["number"] is None:
            return '""'
        return "0.0" if match["real"] else "0"

    shape = _TOKEN.sub(replaced, text)
    if not sources or _KEPT_WHOLE.search(shape):
        return None
    try:
        literals = tuple(map(_literal, sources))
    except GraphQLError:
        return None  # an invalid escape, which parsing the whole document reports
    first: dict[str, int] = {}
    pattern = tuple(first.setdefault(source, number) for number, source in enumerate(sources))
    return ExtractedLiterals(shape, pattern, literals, places)


def _literal(source: str) -> ConstValueNode:
    if source[0] != '"':
        is_integer = source.lstrip("-").isdigit()
        return IntValueNode(value=source) if is_integer else FloatValueNode(value=source)
    if "\\" not in source and not source.startswith('""'):
        return StringValueNode(value=source[1:-1])
    return parse_const_value(source)


def parameter_name(number: int) -> str:
    """Return the name of the variable that stands for a literal; no document can name it."""
    return f":{number}"


class _Replacing(Visitor):
    """Puts variables in the place of extracted literals.

    :ivar types: the input type of each literal's place, by the literal's number.
    :ivar merges: whether some fields with arguments have one response key, so that they may be merged.
    """

    def __init__(self, types: PausingTypeInfo, places: Mapping[int, int]) -> None:
        super().__init__()
        self._type_info = types
        self._places = places
        self.types: dict[int, Any] = {}
        self.merges = False
        self._keys: set[str] = set()

    def enter_field(self, node: FieldNode, *_args: Any) -> None:
        if node.arguments:
            key = (node.alias or node.name).value
            self.merges |= key in self._keys
            self._keys.add(key)

    def _enter(self, node: ValueNode, *_args: Any) -> VariableNode | None:
        type_ = self._type_info.get_input_type()
        number = self._places.get(node.loc.start) if node.loc is not None else None
        if type_ is None or number is None:
            return None
        self.types[number] = type_
        return VariableNode(name=NameNode(value=parameter_name(number)), loc=node.loc)

    # A string that stands for an enum value is one by now, at its place in the text.
    enter_int_value = enter_float_value = enter_string_value = enter_enum_value = _enter


@dataclass(frozen=True, slots=True)
class ParameterizedDocument:
    """A document with variables for its literals.

    :ivar types: the input type of each literal's place, by the literal's number.
    :ivar merges: whether fields with arguments may be merged, so that the document is valid only
        for literals that are equal to each other in the same pattern.
    """

    document: DocumentNode
    types: Mapping[int, Any]
    merges: bool


def replace_literals(
    document: DocumentNode, schema: GraphQLSchema, extracted: ExtractedLiterals
) -> ParameterizedDocument:
    """Return a validated document with variables for its literals."""
    types = PausingTypeInfo(schema)
    visitor = _Replacing(types, extracted.places)
    replaced: DocumentNode = visit(document, AcyclicTypeInfoVisitor(types, visitor))
    return ParameterizedDocument(replaced, visitor.types, visitor.merges)


def coerce_literals(extracted: ExtractedLiterals, types: Mapping[int, Any]) -> dict[str, Any] | None:
    """Return the values of the literals as variables, None when one is not valid at its place."""
    if len(types) != len(extracted.literals):
        return None  # a literal that is no argument's, such as a description
    values: dict[str, Any] = {}
    for number, literal in enumerate(extracted.literals):
        value = coerce_input_literal(enum_value(literal, types[number]), types[number])
        if value is Undefined:
            return None
        values[parameter_name(number)] = value
    return values
