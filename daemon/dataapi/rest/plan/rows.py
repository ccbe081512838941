"""Turns a selection into rows of the SQL algebra, for one role; pure."""

from __future__ import annotations

from collections.abc import Iterator

from dataapi.catalog.relationships import (
    ComputedRelationship,
    JunctionRelationship,
    KeyRelationship,
    Relationship,
)
from dataapi.http.errors import ApiError
from dataapi.rest.parse.syntax import (
    MOST_MEMBERS,
    MOST_MEMBERS_IN_ALL,
    MOST_RESOURCES_AND_CONDITIONS,
    Embed,
    Field,
    Item,
    Selection,
    Star,
    Term,
    leaves,
    too_much,
)
from dataapi.rest.plan.embed_tree import Resource, build_embed_tree, not_embedded
from dataapi.rest.plan.expressions import CappedLimit, Literal, TypedExpression, conditions_of, field_of
from dataapi.rest.plan.select_items import record_of, value_named
from dataapi.rest.plan.tables import Relation, RoleTables
from dataapi.sql.algebra import (
    Expression,
    FunctionCall,
    Join,
    OrderTerm,
    Parameter,
    RelatedOf,
    Rows,
    Through,
)
from dataapi.sql.conditions import Condition, Exists, all_of
from dataapi.sql.row_output import Record


class RowPlanner:
    """Plans the rows of one selection as expressions of the SQL algebra.

    What it makes raises ``ApiError``: PGRST100 for what cannot be understood, PGRST108 for parameters of
    resources that are not embedded, PGRST200 and PGRST201 for resources that cannot be, PGRST118,
    PGRST120, PGRST123, 42703 and 42704.

    :param relation: what the rows are of.
    :param most: the most rows of any resource (``db-max-rows``); a table's directive takes precedence.
    :param aggregates: whether aggregate functions may be used (``db-aggregates-enabled``).
    """

    def __init__(
        self,
        tables: RoleTables,
        relation: Relation,
        selection: Selection,
        most: int | None,
        *,
        aggregates: bool = False,
    ) -> None:
        self._tables = tables
        self._most = most
        self._places = 0
        self._root = root = build_embed_tree(tables, relation, selection)
        _check_members(root)
        if not aggregates and any(map(_aggregates, _items(root))):
            raise ApiError(400, "PGRST123", "Use of aggregate functions is not allowed")
        _check_spreads(root)

    def record(self) -> Record:
        """Return the record of a row."""
        return record_of(self._tables, self._root, self._rows)

    def rows(self, call: FunctionCall | None = None) -> Rows:
        """Return the rows that match, in their order and window, of the relation's table or of a call."""
        return self._rows(self._root, call)

    def where(self) -> Condition | None:
        """Return the filters on the relation itself, as changes take them."""
        return all_of(conditions_of(self._tables, self._root, self._rows))

    def required(self) -> Condition | None:
        """Return the condition that inner embedded resources put on a row."""
        return all_of(list(self._required(self._root)))

    def order(self) -> tuple[OrderTerm, ...]:
        """Return the order of the rows."""
        return self._order(self._root)

    # ------------------------------------------------------------ resources

    def _rows(self, resource: Resource, call: FunctionCall | None = None) -> Rows:
        self._count(resource)
        relationship = resource.relationship
        conditions = conditions_of(self._tables, resource, self._rows)
        where = all_of([*conditions, *self._required(resource)])
        table = resource.relation.table
        most = 1 if resource.to_one else self._cap(resource)
        limit: Parameter | int | None = most
        if resource.limit is not None:
            limit = Parameter(CappedLimit(resource.limit, most), "bigint")
        return Rows(
            table,
            _call_of(relationship) or call,
            _join_of(relationship),
            where,
            self._order(resource),
            limit,
            Parameter(Literal(resource.offset), "bigint") if resource.offset is not None else None,
            unique=_is_unique(resource),
            through=_through_of(relationship),
        )

    def _count(self, resource: Resource) -> None:
        """Count each occurrence of a resource in the statement: filters on embedded ones repeat it."""
        self._places += 1 + len(resource.order)
        self._places += sum(1 for filters in resource.filters for _ in leaves(filters.tree))
        if self._places > MOST_RESOURCES_AND_CONDITIONS:
            raise too_much(
                "Filters and orders by embedded resources repeat these with all of their own filters: "
                f"at most {MOST_RESOURCES_AND_CONDITIONS} resources, filters and terms are allowed"
            )

    def _cap(self, resource: Resource) -> int | None:
        table = resource.relation.table
        own = None if table is None else self._tables.catalog.directives.table(table.oid).rest_max_rows
        return self._most if own is None else own

    def _required(self, resource: Resource) -> Iterator[Condition]:
        for child in resource.children:
            if child.embed is not None and child.embed.inner:
                yield Exists(self._rows(child))

    # ------------------------------------------------------------ orders

    def _order(self, resource: Resource) -> tuple[OrderTerm, ...]:
        return tuple(self._order_term(resource, term) for term in resource.order)

    def _order_term(self, resource: Resource, term: Term) -> OrderTerm:
        typed = self._ordered_by(resource, term)
        descending = bool(term.descending)
        # PostgreSQL sorts nulls as the largest values by default.
        nulls_first = descending if term.nulls_first is None else term.nulls_first
        return OrderTerm(typed.expression, descending, nulls_first, typed.nullable)

    def _ordered_by(self, resource: Resource, term: Term) -> TypedExpression:
        if term.relation is None:
            return field_of(self._tables, resource.relation, term.name, term.path)
        child = resource.child(term.relation)
        if child is None:
            raise not_embedded(term.relation)
        if not child.to_one:
            raise _not_to_one(resource.relation, term.relation)
        return self._related(child, term)

    def _related(self, child: Resource, term: Term) -> TypedExpression:
        """Return a value of a related row: the member of that name, or else the field."""
        inner = self._member_value(child, term) or field_of(
            self._tables, child.relation, term.name, term.path
        )
        return self._of(child, inner)

    def _member_value(self, child: Resource, term: Term) -> TypedExpression | None:
        """Return the member of the term's name in a related row or in one that is spread into it."""
        own = value_named(self._tables, child, term)
        if own is not None:
            return own
        spread = (below for below in child.children if below.is_spread and below.to_one)
        found = ((below, self._member_value(below, term)) for below in spread)
        return next((self._of(below, inner) for below, inner in found if inner is not None), None)

    def _of(self, child: Resource, inner: TypedExpression) -> TypedExpression:
        related: Expression = RelatedOf(self._rows(child), inner.expression)
        return TypedExpression(related, inner.type)


def _is_unique(resource: Resource) -> bool:
    """Whether a unique key finds the one row of an embedded resource, and no limit or offset drops it."""
    relationship = resource.relationship
    if not isinstance(relationship, KeyRelationship) or not relationship.to_one:
        return False
    unwindowed = resource.limit is None and resource.offset is None
    return unwindowed and relationship.target.is_unique(theirs for _, theirs in relationship.pairs)


def _check_members(root: Resource) -> None:
    most, in_all = _members(root)
    if most > MOST_MEMBERS or in_all > MOST_MEMBERS_IN_ALL:
        raise too_much(
            f"At most {MOST_MEMBERS} members are allowed in one object, and {MOST_MEMBERS_IN_ALL} in all"
        )


def _members(resource: Resource) -> tuple[int, int]:
    """Return how many members the largest object below a resource has, and all of them together."""
    children = iter(resource.children)
    own = most = in_all = 0
    for item in resource.items:
        if isinstance(item, Embed):
            most_below, below = _members(next(children))
            most, in_all = max(most, most_below), in_all + below
            own += below if item.spread else 1
        else:
            own += len(resource.relation.columns or ()) if isinstance(item, Star) else 1
    return max(most, own), in_all + own


def _check_spreads(resource: Resource) -> None:
    """Refuse aggregates in a to-many spread, where they could belong to either side."""
    for child in resource.children:
        _check_spreads(child)
        if child.is_spread and not child.to_one and _is_grouped(child):
            raise ApiError(
                400,
                "PGRST127",
                "Feature not implemented",
                details="Aggregates are not implemented for one-to-many or many-to-many spreads.",
            )


def _is_grouped(resource: Resource) -> bool:
    """Whether a resource has an aggregate, its own or that of a spread resource."""
    spread = (child for child in resource.children if child.is_spread and child.to_one)
    return any(map(_aggregates, resource.items)) or any(map(_is_grouped, spread))


def _items(resource: Resource) -> Iterator[Item]:
    yield from resource.items
    for child in resource.children:
        yield from _items(child)


def _aggregates(item: Item) -> bool:
    return isinstance(item, Field) and item.aggregate is not None


def _not_to_one(relation: Relation, name: str) -> ApiError:
    return ApiError(
        400,
        "PGRST118",
        f"A related order on '{name}' is not possible",
        details=f"'{relation.name}' and '{name}' do not form a many-to-one or one-to-one relationship",
    )


# ---------------------------------------------------------------- relationships


def _join_of(relationship: Relationship | None) -> Join | None:
    """Return the equality that relates rows directly; None for others, and without a relationship."""
    if not isinstance(relationship, KeyRelationship):
        return None
    return Join(tuple((theirs, own) for own, theirs in relationship.pairs))


def _through_of(relationship: Relationship | None) -> Through | None:
    """Return the junction that relates rows; None for others, and without a relationship."""
    if not isinstance(relationship, JunctionRelationship):
        return None
    near = tuple((theirs, own) for own, theirs in relationship.near.pairs)
    return Through(relationship.junction, near, relationship.far.pairs)


def _call_of(relationship: Relationship | None) -> FunctionCall | None:
    """Return the call that returns the related rows of a row; None for others, and without a relationship.

    A single NULL is a row of NULLs, as in PostgREST.
    """
    if not isinstance(relationship, ComputedRelationship):
        return None
    return FunctionCall(relationship.function, of_row=True, keeps_null=True)
