"""Filters as conditions of the algebra; pure (reference/rest.md 1.1)."""

from __future__ import annotations

from collections.abc import Callable

from dataapi.errors import ApiError
from dataapi.query.algebra import Parameter, Rows
from dataapi.query.conditions import (
    And,
    Compare,
    Condition,
    Converted,
    Distinct,
    Exists,
    Is,
    IsNull,
    Not,
    Operator,
    Or,
    Quantifier,
    QueryParser,
    TextSearch,
    Truth,
)
from dataapi.rest.request.filters import PATTERNS, SEARCHES
from dataapi.rest.request.syntax import Leaf, Operation, Tree
from dataapi.rest.resolve.fields import Language, Lifted, Typed, field_of, has_field
from dataapi.rest.resolve.resources import Held, Resource
from dataapi.rest.resolve.tables import ReadableTables
from dataapi.rest.resolve.types import Types

_OPERATORS = {
    "eq": Operator.EQ,
    "neq": Operator.NEQ,
    "gt": Operator.GT,
    "gte": Operator.GTE,
    "lt": Operator.LT,
    "lte": Operator.LTE,
    "like": Operator.LIKE,
    "ilike": Operator.ILIKE,
    "match": Operator.REGEX,
    "imatch": Operator.IREGEX,
    "in": Operator.IN,
    "cs": Operator.CONTAINS,
    "cd": Operator.CONTAINED_BY,
    "ov": Operator.OVERLAPS,
    "sl": Operator.STRICTLY_LEFT,
    "sr": Operator.STRICTLY_RIGHT,
    "nxr": Operator.NOT_RIGHT,
    "nxl": Operator.NOT_LEFT,
    "adj": Operator.ADJACENT,
}
_PARSERS = {
    "fts": QueryParser.SYNTAX,
    "plfts": QueryParser.PLAIN,
    "phfts": QueryParser.PHRASE,
    "wfts": QueryParser.WEB,
}
_QUANTIFIERS = {"any": Quantifier.ANY, "all": Quantifier.ALL}
_TRUTHS = {"true": Truth.TRUE, "false": Truth.FALSE, "unknown": Truth.UNKNOWN}
_NULLS = frozenset({"null", "not_null"})

RowsOf = Callable[[Resource], Rows]


def conditions_of(tables: ReadableTables, resource: Resource, rows_of: RowsOf) -> list[Condition]:
    """Return what the filters and logic trees of a resource demand of its rows.

    :param rows_of: makes the rows of an embedded resource, for filters on whether there are any.
    :raises ApiError: for what is not there, and PGRST120 (400) for other filters on whole resources.
    """
    making = _Making(tables, resource, rows_of)
    return [making.condition(held) for held in resource.held]


class _Making:
    """Makes conditions on one resource."""

    def __init__(self, tables: ReadableTables, resource: Resource, rows_of: RowsOf) -> None:
        self._tables = tables
        self._resource = resource
        self._rows_of = rows_of
        self._place = 0

    def condition(self, held: Held) -> Condition:
        self._place = held.place
        return self._tree(held.tree)

    def _tree(self, tree: Tree) -> Condition:
        """Make the condition of a tree whose values begin at the next place."""
        if isinstance(tree, Leaf):
            place = self._place
            self._place += tree.operation.places
            return self._leaf(tree, place)
        parts = tuple([self._tree(part) for part in tree.parts])
        joined: Condition = And(parts) if tree.every else Or(parts)
        return Not(joined) if tree.negated else joined

    def _leaf(self, leaf: Leaf, place: int) -> Condition:
        child = None if leaf.path else self._resource.child(leaf.name)
        if child is not None:
            operation = leaf.operation
            if operation.operator == "is" and operation.word in _NULLS:
                exists: Condition = Exists(self._rows_of(child))
                absent = (operation.word == "null") is not operation.negated
                return Not(exists) if absent else exists
            if not has_field(self._tables, self._resource.relation, leaf.name):
                raise ApiError(
                    400,
                    "PGRST120",
                    f"Bad operator on the '{leaf.name}' embedded resource",
                    details="Only is null or not is null filters are allowed on embedded resources",
                )
        typed = field_of(self._tables, self._resource.relation, leaf.name, leaf.path)
        return _condition(self._tables.types, typed, leaf.operation, place)


def _condition(types: Types, left: Typed, operation: Operation, place: int) -> Condition:
    if operation.word in _NULLS:
        return IsNull(left.expression, (operation.word == "not_null") is not operation.negated)
    positive = _positive(types, left, operation, place)
    return Not(positive) if operation.negated else positive


def _positive(types: Types, left: Typed, operation: Operation, place: int) -> Condition:
    if operation.word is not None:
        return Is(left.expression, _TRUTHS[operation.word])
    if operation.operator in SEARCHES:
        return _search(types, left, operation, place)
    if operation.operator == "isdistinct":
        return Distinct(left.expression, _value(types, left, place))
    operator = _OPERATORS[operation.operator]
    builtin = left.type is not None and types.is_own(left.type)
    if operation.modifier is not None:
        quantifier = _QUANTIFIERS[operation.modifier]
        return Compare(left.expression, operator, Parameter(Lifted(place)), builtin, quantifier)
    if operation.operator in PATTERNS:  # texts, whatever is read as the column's values
        return Compare(left.expression, operator, Parameter(Lifted(place)), builtin)
    many = operator is Operator.IN
    return Compare(left.expression, operator, _value(types, left, place, many=many), builtin)


def _value(types: Types, left: Typed, place: int, *, many: bool = False) -> Parameter | Converted:
    """Return a value to compare with: PostgreSQL infers its type, unless a domain has texts of its own."""
    function = types.read_by(left.type) if left.type is not None else None
    if function is None:
        return Parameter(Lifted(place))
    return Converted(function, Parameter(Lifted(place), "text[]" if many else "text"))


def _search(types: Types, left: Typed, operation: Operation, place: int) -> TextSearch:
    language = None
    if operation.modifier == "language":
        language = Parameter(Language(place), "regconfig")
        place += 1
    words = Parameter(Lifted(place), "text")
    vector = left.type is not None and types.is_vector(left.type)
    return TextSearch(left.expression, words, language, _PARSERS[operation.operator], vector=vector)
