"""Limits on a request: the length, depth and aliases of its document, the objects in its variables, its cost.

The cost is how many rows an operation may touch, from page sizes, nesting and table sizes.  It is known
before anything runs, so that a request that multiplies small pages into millions of rows is refused.
(The parser limits tokens.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

import graphql as gql

from dataapi.catalog.model import Table
from dataapi.graphql.sources import Variables
from dataapi.graphql.transport import RequestRejected, Stage

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


class _Measure:
    """Measures the depth and aliases of selection sets; each fragment once, however often it is spread."""

    def __init__(self, fragments: Mapping[str, gql.FragmentDefinitionNode]) -> None:
        self._fragments = fragments
        self._measured: dict[str, tuple[int, int]] = {}

    def of(self, selection_set: gql.SelectionSetNode | None) -> tuple[int, int]:
        if selection_set is None:
            return 0, 0
        if len(selection_set.selections) > MOST_SELECTIONS:
            raise gql.GraphQLError(
                f"A selection set names more than the {MOST_SELECTIONS} fields allowed.", selection_set
            )
        depth = aliases = 0
        for selection in selection_set.selections:
            if isinstance(selection, gql.FragmentSpreadNode):
                inner, more = self._fragment(selection.name.value)
            else:
                assert isinstance(selection, gql.FieldNode | gql.InlineFragmentNode), "there is nothing else"
                inner, more = self.of(selection.selection_set)
            if isinstance(selection, gql.FieldNode):
                inner += 1
                more += selection.alias is not None
            depth = max(depth, inner)
            aliases += more
        return depth, aliases

    def _fragment(self, name: str) -> tuple[int, int]:
        if name not in self._measured:
            self._measured[name] = 0, 0  # validation reports unknown fragments and cycles
            if name in self._fragments:
                self._measured[name] = self.of(self._fragments[name].selection_set)
        return self._measured[name]


def check_limits(document: gql.DocumentNode, limits: Limits) -> None:
    """Refuse a document with an operation or a fragment that is too deep, too wide or has too many aliases.

    :raises GraphQLError: naming its place, what it has and what is allowed.
    """
    fragments = {
        node.name.value: node for node in document.definitions if isinstance(node, gql.FragmentDefinitionNode)
    }
    measure = _Measure(fragments)
    for definition in document.definitions:
        if not isinstance(definition, gql.OperationDefinitionNode | gql.FragmentDefinitionNode):
            continue
        depth, aliases = measure.of(definition.selection_set)
        what = "operation" if isinstance(definition, gql.OperationDefinitionNode) else "fragment"
        if depth > limits.depth:
            message = f"The {what} is {depth} fields deep, more than the {limits.depth} allowed."
            raise gql.GraphQLError(message, definition)
        if aliases > limits.aliases:
            message = f"The {what} has {aliases} aliases, more than the {limits.aliases} allowed."
            raise gql.GraphQLError(message, definition)


def check_variables(variables: Iterable[tuple[str, Any, Any]]) -> None:
    """Refuse variables that hold too many input objects.

    Rows to insert that all name the same members are one value, so they do not count.

    :param variables: name, type and value of each, as the client sent it.
    :raises RequestRejected: naming the variable.
    """
    left = MOST_INPUT_OBJECTS
    for name, type_, value in variables:
        rows = gql.get_named_type(type_).extensions.get("rows")
        left -= 0 if rows and _same_members(value) else _objects(value, left)
        if left < 0:
            message = (
                f"The variable '${name}' holds too many input objects: {MOST_INPUT_OBJECTS} are allowed in "
                "one request, not counting rows that all name the same members."
            )
            raise RequestRejected(Stage.VARIABLES, message)


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


GROWTH_FACTOR, GROWTH_ROWS = 2, 1_000
"""How far a table may have grown since its rows were estimated: to twice as many, and a thousand more."""


class PageSize(Protocol):
    """A number of rows that a request's variables decide."""

    @property
    def maximum(self) -> int | None:
        """The most rows, None without a bound."""

    def count(self, variables: Variables) -> int:
        """Return the number of rows."""


def capacity(table: Table) -> int | None:
    """Return the most rows that a table is taken to hold, None where PostgreSQL has no estimate."""
    rows = table.estimated_rows
    return None if rows is None else GROWTH_FACTOR * rows + GROWTH_ROWS


@dataclass(frozen=True, slots=True)
class Cost:
    """Rows of one page, each with the rows nested in it.

    :ivar page: how many rows: a fixed number or the value of a variable.
    :ivar capacity: the most rows that there are, None where that is unknown.
    :ivar disjoint: whether different parents' pages hold different rows, so that all pages together hold
        no more rows than there are.
    """

    page: PageSize | int
    nested: tuple[Cost, ...] = ()
    capacity: int | None = None
    disjoint: bool = False

    def rows(self, variables: Variables) -> int:
        """Return the number of rows for a request's variables."""
        return int(self._rows(lambda page: page.count(variables)))

    def most(self) -> float:
        """Return the number of rows whatever the variables say; infinite when nothing bounds them."""
        return self._rows(lambda page: inf if page.maximum is None else page.maximum)

    def _rows(self, size: Callable[[PageSize], float], parents: float = 1, *, distinct: bool = True) -> float:
        """Return the rows of all parents' pages with what is nested in them.

        :param distinct: whether the parents are different rows.
        """
        page = self.page if isinstance(self.page, int) else size(self.page)
        limit = inf if self.capacity is None else self.capacity
        distinct = distinct and self.disjoint
        rows = min(parents * min(page, limit), limit if distinct else inf)
        return rows + sum(cost._rows(size, rows, distinct=distinct) for cost in self.nested)
