"""A selection as the algebra: what is shown of which rows, for one role; pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dataapi.errors import ApiError
from dataapi.query.algebra import Call, Expression, OrderTerm, Parameter, RelatedOf, Rows
from dataapi.query.conditions import And, Condition, Exists
from dataapi.query.results import Record
from dataapi.rest.request.bounds import MOST_MEMBERS, MOST_MEMBERS_IN_ALL, MOST_PLACES, too_much
from dataapi.rest.request.syntax import Embed, Field, Item, Star, Term
from dataapi.rest.resolve.conditions import conditions_of
from dataapi.rest.resolve.fields import Lifted, Limited, Typed, field_of
from dataapi.rest.resolve.members import record_of, shown_as
from dataapi.rest.resolve.relations import Relation
from dataapi.rest.resolve.resources import Resource, gather, leaves, not_embedded
from dataapi.rest.resolve.tables import ReadableTables

if TYPE_CHECKING:
    from dataapi.rest.resolve.selection import Selection


class Selecting:
    """Makes the algebra of one selection.

    What it makes raises ``ApiError``: PGRST100 for what cannot be understood, PGRST108 for parameters of
    resources that are not embedded, PGRST200 and PGRST201 for resources that cannot be, PGRST118,
    PGRST120, PGRST123, 42703 and 42704.

    :param most: the most rows that any resource gives (``db-max-rows``); a table's directive goes before it.
    :param aggregates: whether aggregate functions may be used (``db-aggregates-enabled``).
    """

    def __init__(
        self, tables: ReadableTables, selection: Selection, most: int | None, *, aggregates: bool = False
    ) -> None:
        self._tables = tables
        self._selection = selection
        self._most = most
        self._may_aggregate = aggregates
        self._gathered: Resource | None = None
        self._places = 0

    def check(self, relation: Relation) -> None:
        """Raise what is wrong with the resources, of which nothing may be shown."""
        self._root(relation)

    def record(self, relation: Relation) -> Record:
        """Return what is shown of a row."""
        return record_of(self._tables, self._root(relation), self._rows)

    def rows(self, relation: Relation, call: Call | None = None) -> Rows:
        """Return the rows that match, in their order and window, of the relation's table or of a call."""
        return self._rows(self._root(relation), call)

    def where(self, relation: Relation) -> Condition | None:
        """Return the filters on the relation itself, as changes take them."""
        return _all_of(conditions_of(self._tables, self._root(relation), self._rows))

    def required(self, relation: Relation) -> Condition | None:
        """Return what inner embedded resources demand of a row."""
        return _all_of(list(self._required(self._root(relation))))

    def order(self, relation: Relation) -> tuple[OrderTerm, ...]:
        """Return the order of the rows."""
        return self._order(self._root(relation))

    def _root(self, relation: Relation) -> Resource:
        if self._gathered is None or self._gathered.relation is not relation:
            self._gathered = gather(self._tables, relation, self._selection)
            _check_members(self._gathered)
            if not self._may_aggregate and any(map(_aggregates, _items(self._gathered))):
                raise ApiError(400, "PGRST123", "Use of aggregate functions is not allowed")
            _check_spreads(self._gathered)
        return self._gathered

    # ------------------------------------------------------------ resources

    def _rows(self, resource: Resource, call: Call | None = None) -> Rows:
        self._count(resource)
        way = resource.way
        conditions = conditions_of(self._tables, resource, self._rows)
        where = _all_of([*conditions, *self._required(resource)])
        table = resource.relation.table
        most = 1 if way is not None and way.to_one else self._cap(resource)
        limit: Parameter | int | None = most
        if resource.limit is not None:
            limit = Parameter(Limited(resource.limit, most), "bigint")
        return Rows(
            table,
            way.call if way is not None else call,
            way.join if way is not None else None,
            where,
            self._order(resource),
            limit,
            Parameter(Lifted(resource.offset), "bigint") if resource.offset is not None else None,
            unique=_is_unique(resource),
            through=way.through if way is not None else None,
        )

    def _count(self, resource: Resource) -> None:
        """Count a resource where it stands in the statement: filters on embedded ones repeat it there."""
        self._places += 1 + len(resource.order)
        self._places += sum(1 for held in resource.held for _ in leaves(held.tree))
        if self._places > MOST_PLACES:
            raise too_much(
                "Filters and orders by embedded resources repeat these with all of their own filters: "
                f"at most {MOST_PLACES} resources, filters and terms are allowed"
            )

    def _cap(self, resource: Resource) -> int | None:
        table = resource.relation.table
        own = None if table is None else self._tables.catalog.annotations.table(table.oid).rest_max_rows
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
        # PostgreSQL takes nulls for the largest values unless it is told otherwise.
        nulls_first = descending if term.nulls_first is None else term.nulls_first
        return OrderTerm(typed.expression, descending, nulls_first, typed.nullable)

    def _ordered_by(self, resource: Resource, term: Term) -> Typed:
        if term.relation is None:
            return field_of(self._tables, resource.relation, term.name, term.path)
        child = resource.child(term.relation)
        if child is None:
            raise not_embedded(term.relation)
        way = child.way
        assert way is not None, "an embedded resource has a way to it"
        if not way.to_one:
            raise _not_to_one(resource.relation, term.relation)
        return self._related(child, term)

    def _related(self, child: Resource, term: Term) -> Typed:
        """Return a value of a related row: what it shows under the name, or else a field of it."""
        inner = self._shown(child, term) or field_of(self._tables, child.relation, term.name, term.path)
        return self._of(child, inner)

    def _shown(self, child: Resource, term: Term) -> Typed | None:
        """Return what a related row, or one that is spread into it, shows under the term's name."""
        own = shown_as(self._tables, child, term)
        if own is not None:
            return own
        spread = (below for below in child.children if below.spreads_one)
        found = ((below, self._shown(below, term)) for below in spread)
        return next((self._of(below, inner) for below, inner in found if inner is not None), None)

    def _of(self, child: Resource, inner: Typed) -> Typed:
        related: Expression = RelatedOf(self._rows(child), inner.expression)
        return Typed(related, inner.type)


def _is_unique(resource: Resource) -> bool:
    """Whether a key leads to the one row of an embedded resource, and no window may leave it out."""
    way = resource.way
    if way is None or not way.to_one or way.join is None:
        return False
    unwindowed = resource.limit is None and resource.offset is None
    return unwindowed and way.target.is_unique(own for own, _ in way.join.pairs)


def _all_of(conditions: list[Condition]) -> Condition | None:
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions))


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
    """Refuse aggregates in a spread resource of many rows, where they could be those of either side."""
    for child in resource.children:
        _check_spreads(child)
        if child.spreads_many and _is_grouped(child):
            raise ApiError(
                400,
                "PGRST127",
                "Feature not implemented",
                details="Aggregates are not implemented for one-to-many or many-to-many spreads.",
            )


def _is_grouped(resource: Resource) -> bool:
    """Whether a resource has an aggregate, its own or one that a spread resource lifts to it."""
    lifted = (child for child in resource.children if child.spreads_one)
    return any(map(_aggregates, resource.items)) or any(map(_is_grouped, lifted))


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
