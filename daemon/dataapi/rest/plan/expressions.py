"""Converts fields and filters to expressions and conditions of the SQL algebra."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from dataapi.database.sql_text import OWN_SCHEMA
from dataapi.http.errors import ApiError
from dataapi.rest.parse.filters import (
    PATTERNS,
    SEARCHES,
    FilterOperation,
    LogicFilter,
    LogicTree,
    array_literal,
)
from dataapi.rest.parse.query import Values
from dataapi.rest.parse.select import Path
from dataapi.rest.plan.embed_tree import Resource
from dataapi.rest.plan.similar_names import hint_for
from dataapi.rest.plan.tables import JSON, JSONB, TEXT, TSVECTOR, Relation, RoleTables, Types
from dataapi.sql.algebra import (
    And,
    Cast,
    ColumnRef,
    Compare,
    ComputedValue,
    Condition,
    Converted,
    Distinct,
    Exists,
    Expression,
    Is,
    IsNull,
    JsonPath,
    Not,
    Operator,
    Or,
    Parameter,
    Quantifier,
    Rows,
    SearchSyntax,
    TextSearch,
    Truth,
)


@dataclass(frozen=True, slots=True)
class FixedText:
    """A constant that is part of the query's shape, such as an alias."""

    text: str

    def bind(self, values: Values) -> str:  # noqa: ARG002 - the sources' interface
        return self.text


@dataclass(frozen=True, slots=True)
class Literal:
    """A value in the query string, identified by its position."""

    position: int

    def bind(self, values: Values) -> str:
        return values.literals[self.position]


@dataclass(frozen=True, slots=True)
class SearchLanguage:
    """Name of a text search configuration in the query string."""

    position: int

    def bind(self, values: Values) -> str:
        """Return the name.

        :raises ApiError: 42704 (400) for a number, which PostgreSQL would accept as an OID without checking
            it.
        """
        name = values.literals[self.position]
        if name.isdigit():
            raise ApiError(400, "42704", f'text search configuration "{name}" does not exist')
        return name


@dataclass(frozen=True, slots=True)
class CappedLimit:
    """A limit in the query string, capped at the maximum number of rows."""

    position: int
    maximum: int | None

    def bind(self, values: Values) -> str:
        text = values.literals[self.position]
        return text if self.maximum is None or int(text) <= self.maximum else str(self.maximum)


@dataclass(frozen=True, slots=True)
class MaxAffected:
    """Maximum number of rows that a request may change or a function may return (``max-affected``)."""

    def bind(self, values: Values) -> str:
        return str(values.maximum)


@dataclass(frozen=True, slots=True)
class ArgumentValue:
    """An argument with its own parameter in the statement.

    If the argument is variadic, an array of all its values is bound, otherwise the last value.
    """

    name: str
    variadic: bool

    def bind(self, values: Values) -> str:
        texts = values.arguments[self.name]
        return array_literal(texts) if self.variadic else texts[-1]


@dataclass(frozen=True, slots=True)
class BodyText:
    """The request body: rows to write, or arguments."""

    def bind(self, values: Values) -> str:
        return values.body


@dataclass(frozen=True, slots=True)
class TypedExpression:
    """An expression and the OID of its type, None if unknown."""

    expression: Expression
    type: int | None
    nullable: bool = True


def field_of(tables: RoleTables, relation: Relation, name: str, path: Path = ()) -> TypedExpression:
    """Return a field of a relation: a column, a computed field, or a member of a JSON value.

    :raises ApiError: 42703 (400) if there is no such field, 42883 (404) for a JSON path into a text value.
    """
    value = _column_or_computed(tables, relation, name)
    if not path:
        return value
    _check(path)
    json = tables.types.is_one_of(value.type, JSON, JSONB)
    steps = [Parameter(FixedText(step.operand), "integer" if step.is_index else "text") for step in path]
    member = JsonPath(value.expression, json, tuple(steps), path[-1].as_text)
    if path[-1].as_text:
        return TypedExpression(member, TEXT)
    return TypedExpression(member, JSON if tables.types.is_one_of(value.type, JSON) else JSONB)


def comparable(types: Types, typed: TypedExpression) -> TypedExpression:
    """Cast ``json`` to ``jsonb``, because ``json`` has no comparison operators."""
    if not types.is_one_of(typed.type, JSON) or types.representation(TEXT, typed.type) is not None:
        return typed
    return TypedExpression(Cast(typed.expression, f"{OWN_SCHEMA}.jsonb"), JSONB, typed.nullable)


def has_field(tables: RoleTables, relation: Relation, name: str) -> bool:
    if relation.columns is None or name in relation.columns:
        return True
    return tables.computed(relation, name) is not None


def _column_or_computed(tables: RoleTables, relation: Relation, name: str) -> TypedExpression:
    if relation.columns is None:
        return TypedExpression(ColumnRef(name), None)
    cell = relation.columns.get(name)
    if cell is not None:
        return TypedExpression(ColumnRef(name), cell.type, cell.nullable)
    function = tables.computed(relation, name)
    if function is not None:
        return TypedExpression(ComputedValue(function), function.returns)
    label = relation.alias or relation.name
    raise ApiError(
        400,
        "42703",
        f"column {label}.{name} does not exist",
        hint=hint_for(label, name, tables.readable(relation)),
    )


def _check(path: Path) -> None:
    # PostgreSQL's error for a path that continues after ``->>``: text has no members.
    for before, step in pairwise(path):
        if before.as_text:
            arrow, operand = "->>" if step.as_text else "->", "integer" if step.is_index else "unknown"
            raise ApiError(
                404,
                "42883",
                f"operator does not exist: text {arrow} {operand}",
                hint="No operator matches the given name and argument types."
                " You might need to add explicit type casts.",
            )


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
    "fts": SearchSyntax.TSQUERY,
    "plfts": SearchSyntax.PLAIN,
    "phfts": SearchSyntax.PHRASE,
    "wfts": SearchSyntax.WEB,
}
_NULLS = frozenset({"null", "not_null"})

RowsOf = Callable[[Resource], Rows]


def conditions_of(tables: RoleTables, resource: Resource, rows_of: RowsOf) -> list[Condition]:
    """Return the conditions for a resource's filters and logic trees, including conditions on embedded rows.

    :raises ApiError: 42703 (400) for an unknown column, PGRST120 (400) for a filter on an embedded resource
        other than a test for null.
    """

    def condition(tree: LogicTree, position: int) -> tuple[Condition, int]:
        if isinstance(tree, LogicFilter):
            leaf = _leaf(tables, resource, rows_of, tree, position)
            return leaf, position + tree.operation.value_count
        parts = list[Condition]()
        for part in tree.parts:
            operand, position = condition(part, position)
            parts.append(operand)
        joined: Condition = And(tuple(parts)) if tree.every else Or(tuple(parts))
        return Not(joined) if tree.negated else joined, position

    return [condition(tree, position)[0] for tree, position in resource.filters]


def _leaf(
    tables: RoleTables, resource: Resource, rows_of: RowsOf, leaf: LogicFilter, position: int
) -> Condition:
    operation = leaf.operation
    child = None if leaf.path else resource.child(leaf.name)
    if child is not None:
        if operation.operator == "is" and operation.word in _NULLS:
            exists: Condition = Exists(rows_of(child))
            absent = (operation.word == "null") is not operation.negated
            return Not(exists) if absent else exists
        if not has_field(tables, resource.relation, leaf.name):
            raise ApiError(
                400,
                "PGRST120",
                f"Bad operator on the '{leaf.name}' embedded resource",
                details="Only is null or not is null filters are allowed on embedded resources",
            )
    typed = field_of(tables, resource.relation, leaf.name, leaf.path)
    if operation.word in _NULLS:
        return IsNull(typed.expression, (operation.word == "not_null") is not operation.negated)
    positive = _positive(tables.types, typed, operation, position)
    return Not(positive) if operation.negated else positive


def _positive(types: Types, left: TypedExpression, operation: FilterOperation, position: int) -> Condition:
    if operation.word is not None:
        return Is(left.expression, Truth(operation.word))
    if operation.operator in SEARCHES:
        return _search(types, left, operation, position)
    left = comparable(types, left)
    if operation.operator == "isdistinct":
        schema = types.schema_of(Operator.EQ.value, left.type)
        return Distinct(left.expression, _value(types, left, position), schema)
    operator = _OPERATORS[operation.operator]
    schema = types.schema_of(operator.symbol, left.type)
    if operation.modifier is not None or operation.operator in PATTERNS:
        # A pattern is always text, even if the column's domain has a cast from text.
        quantifier = None if operation.modifier is None else Quantifier(operation.modifier)
        return Compare(left.expression, operator, Parameter(Literal(position)), schema, quantifier)
    many = operator is Operator.IN
    return Compare(left.expression, operator, _value(types, left, position, many=many), schema)


def _value(
    types: Types, left: TypedExpression, position: int, *, many: bool = False
) -> Parameter | Converted:
    """Return the value of a filter. PostgreSQL infers its type, unless a domain has a cast from text."""
    function = types.representation(TEXT, left.type)
    if function is None:
        return Parameter(Literal(position))
    return Converted(function, Parameter(Literal(position), "text[]" if many else "text"))


def _search(types: Types, left: TypedExpression, operation: FilterOperation, position: int) -> TextSearch:
    language = None
    if operation.modifier == "language":
        language = Parameter(SearchLanguage(position), "regconfig")
        position += 1
    words = Parameter(Literal(position), "text")
    vector = types.is_one_of(left.type, TSVECTOR)
    return TextSearch(left.expression, words, language, _PARSERS[operation.operator], vector=vector)
