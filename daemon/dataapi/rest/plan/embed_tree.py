"""The tree of embedded resources of one request: their relationships and parameters; pure.

PostgREST's rules decide which resource a parameter is for (``docs/reference/rest.md``, Embedding), and which
relationship a resource means (Relationships): it is named by its table, by a constraint or by a key column,
and a hint distinguishes several relationships.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from dataapi.catalog.model import Table, TableKind
from dataapi.catalog.relationships import (
    Cardinality,
    ComputedRelationship,
    JunctionRelationship,
    KeyRelationship,
    Relationship,
)
from dataapi.http.errors import ApiError
from dataapi.rest.parse.filters import LogicFilter, LogicTree, leaves
from dataapi.rest.parse.query import Selection, too_much
from dataapi.rest.parse.select import JOINS, Embed, EmbedPath, Field, Item, Star, Term
from dataapi.rest.plan.similar_names import DISTANTLY_ALIKE, NameIndex, similar
from dataapi.rest.plan.tables import Relation, RoleTables
from dataapi.settings import Project

MAX_MEMBERS = 1600
"""Members of one object: PostgreSQL makes rows of little more."""
MAX_MEMBERS_IN_ALL = 5000
"""Members of the objects of all resources, those that stars stand for included."""

MAX_COMPUTED_ITEMS = 500
"""Maximum number of items of a ``select`` with an alias, a cast, a JSON path or an aggregate."""


@dataclass(slots=True)
class Resource:
    """One resource with its parameters.

    :ivar embed, relationship: None for the outermost one.
    :ivar children: one for each embedded resource among the items, in their order.
    :ivar filters: filters and logic trees, with the position of the first value of each.
    :ivar limit, offset: the positions of the numbers, None without them.
    """

    relation: Relation
    items: tuple[Item, ...]
    embed: Embed | None = None
    relationship: Relationship | None = None
    children: list[Resource] = field(default_factory=list)
    filters: list[tuple[LogicTree, int]] = field(default_factory=list)
    order: tuple[Term, ...] = ()
    limit: int | None = None
    offset: int | None = None

    @property
    def to_one(self) -> bool:
        """Whether at most one row is related to the row that the resource is embedded in."""
        return self.relationship is not None and self.relationship.to_one

    @property
    def is_spread(self) -> bool:
        """Whether its members are spread among those of the row that it is embedded in."""
        return self.embed is not None and self.embed.spread

    def child(self, name: str) -> Resource | None:
        """Return the embedded resource of a name in the answer: its alias if it has one."""
        return next((child for child in self.children if child.embed and child.embed.key == name), None)

    def at(self, embeds: EmbedPath) -> Resource:
        """Return the resource at the end of a path of embedded ones, by their aliases or relations' names.

        :raises ApiError: PGRST108 (400), one of them is not embedded.
        """
        resource = self
        for name in embeds:
            of_relation = (each for each in resource.children if each.embed and each.embed.name == name)
            found = resource.child(name) or next(of_relation, None)
            if found is None:
                raise not_embedded(name)
            resource = found
        return resource


def build_embed_tree(
    tables: RoleTables, relation: Relation, selection: Selection, project: Project
) -> Resource:
    """Return the tree of a selection's resources, each with its parameters.

    :param project: the limits, and whether aggregate functions may be used (``db-aggregates-enabled``).
    :raises ApiError: names that do not exist, ambiguous relationships, too many items or members, aggregates
        that are not allowed.
    """
    _check_size(selection.items or ())
    root = Resource(relation, selection.items or (Star(),))
    _embed_all(tables, root)
    _assign_parameters(root, selection)
    maximum, in_all = _members(root)
    if maximum > MAX_MEMBERS or in_all > MAX_MEMBERS_IN_ALL:
        raise too_much(
            f"At most {MAX_MEMBERS} members are allowed in one object, and {MAX_MEMBERS_IN_ALL} in all"
        )
    if not project.db_aggregates_enabled and _has_aggregates(root):
        raise ApiError(400, "PGRST123", "Use of aggregate functions is not allowed")
    _check_spreads(root)
    return root


def _check_size(items: tuple[Item, ...]) -> None:
    """Reject a ``select`` that makes PostgreSQL compute too much."""
    listed = list(_all_items(items))
    computed = sum(1 for item in listed if isinstance(item, Field) and item != Field(item.name))
    if computed > MAX_COMPUTED_ITEMS:
        raise too_much(f"At most {MAX_COMPUTED_ITEMS} items of select may be more than the name of a column")


def _all_items(items: tuple[Item, ...]) -> Iterator[Item]:
    for item in items:
        yield item
        if isinstance(item, Embed):
            yield from _all_items(item.items)


def _embed_all(tables: RoleTables, resource: Resource, depth: int = 1) -> None:
    members: set[str | None] = set()
    for item in resource.items:
        if isinstance(item, Embed):
            if item.member is not None and item.member in members:
                # The answer could hold only one of them.
                raise ApiError(
                    400,
                    "42712",
                    f'table name "{resource.relation.name}_{item.member}_{depth}" specified more than once',
                    hint=f"Give one of the resources named '{item.member}' an alias in the 'select' query"
                    " parameter.",
                )
            members.add(item.member)
            relationship = find_relationship(tables, resource.relation, item)
            is_direct = not isinstance(relationship, JunctionRelationship)
            # Errors of its columns call it so, as in PostgREST.
            alias = f"{relationship.target.name}_{depth}" if is_direct else None
            child = Resource(Relation.of(relationship.target, alias), item.items, item, relationship)
            resource.children.append(child)
            _embed_all(tables, child, depth + 1)


def _assign_parameters(root: Resource, selection: Selection) -> None:
    """Give each resource its parameters, with the positions of their values."""
    position = 0
    for target, operation in selection.filters:
        leaf = LogicFilter(target.name, target.path, operation)
        root.at(target.embeds).filters.append((leaf, position))
        position += operation.value_count
    for embeds, tree in selection.shape.logic:
        root.at(embeds).filters.append((tree, position))
        position += sum(leaf.operation.value_count for leaf in leaves(tree))
    for embeds in selection.limits:
        root.at(embeds).limit = position
        position += 1
    for embeds in selection.offsets:
        root.at(embeds).offset = position
        position += 1
    for embeds, terms in selection.orders:
        root.at(embeds).order = terms


def not_embedded(name: str) -> ApiError:
    """Return the error of a parameter for a resource that is not embedded (PGRST108)."""
    return ApiError(
        400,
        "PGRST108",
        f"'{name}' is not an embedded resource in this request",
        hint=f"Verify that '{name}' is included in the 'select' query parameter.",
    )


def _members(resource: Resource) -> tuple[int, int]:
    """Return how many members the largest object below a resource has, and all of them together."""
    children = iter(resource.children)
    own = maximum = in_all = 0
    for item in resource.items:
        if isinstance(item, Embed):
            maximum_below, below = _members(next(children))
            maximum, in_all = max(maximum, maximum_below), in_all + below
            own += below if item.spread else 1
        else:
            own += len(resource.relation.columns or ()) if isinstance(item, Star) else 1
    return max(maximum, own), in_all + own


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
    return any(map(_is_aggregate, resource.items)) or any(map(_is_grouped, spread))


def _has_aggregates(resource: Resource) -> bool:
    return any(map(_is_aggregate, resource.items)) or any(map(_has_aggregates, resource.children))


def _is_aggregate(item: Item) -> bool:
    return isinstance(item, Field) and item.aggregate is not None


StoredRelationship = KeyRelationship | JunctionRelationship
"""A relationship by foreign keys, and not by a function."""

_BARE = re.compile(r"[\w$]+(?:[ -]?[\w$]+)*")
"""Names that need no quotes in ``select``."""
_VIEWS = frozenset({TableKind.VIEW, TableKind.MATERIALIZED_VIEW})
"""Their rows are those of a query, which may have the row of a key several times."""
_CARDINALITIES = tuple(Cardinality)
"""In the order in which PGRST201 lists them."""


# ---------------------------------------------------------------- which relationship is meant


def find_relationship(tables: RoleTables, relation: Relation, embed: Embed) -> Relationship:
    """Return the relationship by which a resource is embedded.

    :raises ApiError: PGRST200 (400), there is none; PGRST201 (300), there are several; 42501 (401, 403), the
        role has no privilege on a table of it.
    """
    existing = [] if relation.table is None else tables.all.relationships.of(relation.table)
    existing = [
        each
        for each in existing
        if isinstance(each, ComputedRelationship) or each.target.schema == relation.schema
    ]
    usable = [each for each in existing if _denied_table(tables, each) is None]
    found = matching(usable, embed.name, embed.hint, relation.schema)
    if len(found) == 1:
        return found[0]
    if found:
        raise _ambiguous(relation, embed, found, usable)
    for each in matching(existing, embed.name, embed.hint, relation.schema):
        denied = _denied_table(tables, each)
        if denied is not None:
            raise tables.denied(denied)
    using = f" using the hint '{embed.hint}'" if embed.hint else ""
    raise ApiError(
        400,
        "PGRST200",
        f"Could not find a relationship between '{relation.name}' and '{embed.name}' in the schema cache",
        details=f"Searched for a foreign key relationship between '{relation.name}' and '{embed.name}'"
        f"{using} in the schema '{relation.schema}', but no matches were found.",
        hint=_hint(tables, relation, embed, usable),
    )


def _denied_table(tables: RoleTables, relationship: Relationship) -> Table | None:
    """Return a table that a relationship leads to or through and that the role may not use at all."""
    used = [relationship.target]
    if isinstance(relationship, JunctionRelationship):
        used.append(relationship.junction)
    return next((table for table in used if not tables.may_see(table)), None)


def matching(
    relationships: Iterable[Relationship], name: str, hint: str | None, schema: str
) -> list[Relationship]:
    """Return the relationships that a name and a hint can mean; more than one is ambiguous.

    :param schema: the request's; relationships within it come first.
    """
    stored, named = list[StoredRelationship](), list[StoredRelationship]()
    for each in relationships:
        if isinstance(each, ComputedRelationship):
            if each.function.name == name:
                return [each]
            continue
        stored.append(each)
        if _is_meant(each, name, hint):
            named.append(each)
    if not named and hint is not None:
        named = [each for each in stored if name == each.target.name and hint in _long_hints(each)]
    found: dict[tuple[bool, bool], list[Relationship]] = {}
    for each in named:
        rank = (False, False)
        if isinstance(each, JunctionRelationship):
            if not each.in_unique_key:
                continue
            # A unique key in place of a primary key relates tables that PostgREST does not.
            rank = (each.junction.schema != schema, not each.in_primary_key)
        found.setdefault(rank, []).append(each)
    return found[min(found)] if found else []


def _is_meant(relationship: StoredRelationship, name: str, hint: str | None) -> bool:
    target = relationship.target
    if isinstance(relationship, JunctionRelationship):
        return name == target.name and _junction_fits(relationship, hint)
    own, theirs = _only_columns(relationship)
    key = relationship.foreign_key.name
    if relationship.table is target:
        # The table's name means the rows that reference this one, other names the row that it references.
        if relationship.outgoing:
            return hint is None and name in (key, own)
        return name == target.name and (hint is None or hint in (key, theirs))
    if hint is None:
        return name == target.name or (name in (key, own) and target.kind not in _VIEWS)
    return name == target.name and hint in (key, own, theirs)


def _only_columns(relationship: KeyRelationship) -> tuple[str | None, str | None]:
    """Return the column on either side, None for keys of several columns."""
    return relationship.pairs[0] if len(relationship.pairs) == 1 else (None, None)


def _junction_fits(relationship: JunctionRelationship, hint: str | None) -> bool:
    if relationship.table is relationship.target:
        # Both keys reference the same table: only a column as the hint says which is the near one.
        return hint is not None and hint == _only_columns(relationship.near)[1]
    return hint is None or hint == relationship.junction.name


def _long_hints(relationship: StoredRelationship) -> tuple[str, ...]:
    """Return longer hints, for a relationship that shares its shorter hints with another one."""
    if isinstance(relationship, KeyRelationship):
        pairs = relationship.pairs
        if relationship.table is relationship.target and relationship.outgoing:
            return ()
        equalities = ",".join([f"{own}={theirs}" for own, theirs in pairs])
        return _columns(pairs, 0, ","), _columns(pairs, 1, ","), equalities
    near, far, junction = relationship.near, relationship.far, relationship.junction
    keys = (near.foreign_key.name, far.foreign_key.name)
    columns = f"{_columns(near.pairs, 1, ',')},{_columns(far.pairs, 0, ',')}"
    alone = keys[:1] if relationship.table is relationship.target else keys
    return *alone, f"{junction.schema}.{junction.name}", ",".join(keys), columns


# ---------------------------------------------------------------- what errors say


def _hint(
    tables: RoleTables, relation: Relation, embed: Embed, relationships: list[Relationship]
) -> str | None:
    """Return the hint of PGRST200: a target like the one named, or else a table that has relationships."""
    name = embed.name if relationships else relation.name
    if relationships:
        stored = [each for each in relationships if not isinstance(each, ComputedRelationship)]
        targets = dict.fromkeys(each.target.name for each in stored)
        close = None if name in targets else similar(name, NameIndex(targets), DISTANTLY_ALIKE)
    else:
        close = tables.similar_name(relation.schema, name, related=True)
    return f"Perhaps you meant '{close}' instead of '{name}'." if close else None


def _ambiguous(
    relation: Relation, embed: Embed, found: list[Relationship], usable: list[Relationship]
) -> ApiError:
    # Computed relationships are never ambiguous.
    stored = [(each, *_described(each)) for each in found if not isinstance(each, ComputedRelationship)]
    stored.sort(key=itemgetter(1))
    choices = ", ".join(f"'{_choice(usable, each, relation.schema)}'" for each, *_ in stored)
    return ApiError(
        300,
        "PGRST201",
        "Could not embed because more than one relationship was found for"
        f" '{relation.name}' and '{embed.name}'",
        details=[description for *_, description in stored],
        hint=f"Try changing '{embed.name}' to one of the following: {choices}. "
        "Find the desired relationship in the 'details' key.",
    )


def _choice(usable: list[Relationship], meant: StoredRelationship, schema: str) -> str:
    """Return the shortest item of ``select`` that means a relationship, as PostgREST has it if that works."""
    target, choices = meant.target.name, list[tuple[str, str | None]]()
    if isinstance(meant, JunctionRelationship):
        choices = [(target, meant.junction.name), (target, _only_columns(meant.near)[1])]
    else:
        key = meant.foreign_key.name
        choices = [(target, key), *[(target, column) for column in _only_columns(meant)], (key, None)]
    choices += [(target, hint) for hint in _long_hints(meant)]
    works = (
        (name, hint)
        for name, hint in choices
        if hint not in JOINS and matching(usable, name, hint, schema) == [meant]
    )
    return "!".join([_name_text(each) for each in next(works, choices[0]) if each is not None])


def _name_text(name: str) -> str:
    """Return a name as ``select`` reads it: in quotes if it must be."""
    if _BARE.fullmatch(name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _described(relationship: StoredRelationship) -> tuple[tuple[object, ...], object]:
    """Return the sort key of a relationship in a PGRST201 error, and its details.

    As in PostgREST cardinalities go before names.
    """
    table, target, cardinality = relationship.table.name, relationship.target.name, relationship.cardinality
    rank: tuple[object, ...]
    if isinstance(relationship, JunctionRelationship):
        near, far = relationship.near, relationship.far
        hint, keys = relationship.junction.name, [near.foreign_key.name, far.foreign_key.name]
        rank = (hint, keys, ())
        columns = f"{keys[0]}({_columns(near.pairs, 1)}) and {keys[1]}({_columns(far.pairs, 0)})"
    else:
        hint, pairs = relationship.foreign_key.name, relationship.pairs
        rank = ("", [hint], pairs)
        columns = f"{table}({_columns(pairs, 0)}) and {target}({_columns(pairs, 1)})"
    details = {
        "cardinality": cardinality.value,
        "embedding": f"{table} with {target}",
        "relationship": f"{hint} using {columns}",
    }
    return (target, _CARDINALITIES.index(cardinality), *rank), details


def _columns(pairs: Iterable[tuple[str, str]], side: int, separator: str = ", ") -> str:
    return separator.join([pair[side] for pair in pairs])
