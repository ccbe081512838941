"""Limits on a request before it is validated: length, depth and aliases of the document (tokens are the
parser's), objects in the variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLError,
    InlineFragmentNode,
    OperationDefinitionNode,
    SelectionNode,
    SelectionSetNode,
    get_named_type,
)

LONGEST_DOCUMENT = 1_000_000
"""Characters of the longest document that is read."""
MOST_SELECTIONS = 5_000
"""Fields and fragments that one selection set may name; validation looks at all of them at once."""
MOST_INPUT_OBJECTS = 10_000
"""Input objects that one request's variables may hold; each becomes a piece of a statement."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one document or operation may ask for.

    :ivar depth: fields nested in fields, fragments resolved.
    :ivar aliases: aliased fields of an operation, fragments counted at each spread.
    :ivar tokens: of the document.
    :ivar cost: rows that an operation may touch.
    """

    depth: int = 50
    aliases: int = 1_000
    tokens: int = 20_000
    cost: int = 5_000_000


@dataclass(frozen=True, slots=True)
class Extent:
    """How much a selection set holds, fragments resolved."""

    depth: int
    aliases: int


class _Measure:
    """Measures selection sets; each fragment once, however often it is spread."""

    def __init__(self, fragments: Mapping[str, FragmentDefinitionNode]) -> None:
        self._fragments = fragments
        self._known: dict[str, Extent] = {}
        self._open: set[str] = set()

    def of(self, selection_set: SelectionSetNode) -> Extent:
        if len(selection_set.selections) > MOST_SELECTIONS:
            raise GraphQLError(
                f"A selection set names more than the {MOST_SELECTIONS} fields allowed.", selection_set
            )
        depth = aliases = 0
        for selection in selection_set.selections:
            if isinstance(selection, FieldNode):
                inner = self.of(selection.selection_set) if selection.selection_set else Extent(0, 0)
                depth = max(depth, 1 + inner.depth)
                aliases += inner.aliases + (selection.alias is not None)
            else:
                inner = self._fragment(selection)
                depth = max(depth, inner.depth)
                aliases += inner.aliases
        return Extent(depth, aliases)

    def _fragment(self, selection: SelectionNode) -> Extent:
        if isinstance(selection, InlineFragmentNode):
            return self.of(selection.selection_set)
        assert isinstance(selection, FragmentSpreadNode), "a selection is a field or a fragment"
        name = selection.name.value
        fragment = self._fragments.get(name)
        if fragment is None or name in self._open:
            return Extent(0, 0)  # validation reports unknown fragments and cycles
        if name not in self._known:
            self._open.add(name)
            self._known[name] = self.of(fragment.selection_set)
            self._open.discard(name)
        return self._known[name]


def check_limits(document: DocumentNode, limits: Limits) -> None:
    """Refuse a document with an operation or a fragment that is too deep, too wide or has too many aliases.

    :raises GraphQLError: naming its place, what it has and what is allowed.
    """
    fragments = {
        node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)
    }
    measure = _Measure(fragments)
    for definition in document.definitions:
        if not isinstance(definition, OperationDefinitionNode | FragmentDefinitionNode):
            continue
        extent = measure.of(definition.selection_set)
        what = "operation" if isinstance(definition, OperationDefinitionNode) else "fragment"
        if extent.depth > limits.depth:
            raise GraphQLError(
                f"The {what} is {extent.depth} fields deep, more than the {limits.depth} allowed.",
                definition,
            )
        if extent.aliases > limits.aliases:
            raise GraphQLError(
                f"The {what} has {extent.aliases} aliases, more than the {limits.aliases} allowed.",
                definition,
            )


def check_length(text: str) -> None:
    """Refuse a document that takes too long to read, whatever its tokens.

    :raises GraphQLError: saying how long it is and what is allowed.
    """
    if len(text) > LONGEST_DOCUMENT:
        raise GraphQLError(
            f"The document has {len(text)} characters, more than the {LONGEST_DOCUMENT} allowed: "
            "send long values as variables."
        )


def check_variables(variables: Iterable[tuple[str, Any, Any]]) -> None:
    """Refuse variables that hold too many input objects.

    Rows to insert that all name the same members are one value, so they do not count.

    :param variables: name, type and value of each, as the client sent it.
    :raises GraphQLError: naming the variable.
    """
    left = MOST_INPUT_OBJECTS
    for name, type_, value in variables:
        rows = get_named_type(type_).extensions.get("rows")
        left -= 0 if rows and _same_members(value) else _objects(value, left)
        if left < 0:
            raise GraphQLError(
                f"The variable '${name}' holds too many input objects: {MOST_INPUT_OBJECTS} are allowed in "
                "one request, not counting rows that all name the same members."
            )


def _same_members(value: Any) -> bool:
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        return False
    members = value[0].keys()
    return bool(members) and all(item.keys() == members for item in value)


def _objects(value: Any, most: int) -> int:
    """Return how many objects a JSON value holds, not counting far beyond ``most``."""
    found = 0
    pending = [value]
    while pending and found <= most:
        item = pending.pop()
        if isinstance(item, dict):
            found += 1
            pending.extend(item.values())
        elif isinstance(item, list) and item and isinstance(item[0], dict | list):
            pending.extend(item)
    return found
