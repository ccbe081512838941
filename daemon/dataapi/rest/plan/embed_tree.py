"""The tree of a request's embedded resources, with their relationships and parameters.

See Embedding and Relationships in docs/reference/rest.md.
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
from dataapi.rest.plan.similar_names import MIN_KNOWN_SIMILARITY, NameIndex, similar
from dataapi.rest.plan.tables import Relation, RoleTables
from dataapi.settings import Project

MAX_MEMBERS = 1600
"""Maximum number of members in an object, close to PostgreSQL's limit for the columns of a row."""
MAX_TOTAL_MEMBERS = 5000
"""Maximum total number of members in the objects of all resources, with ``*`` expanded."""

MAX_COMPUTED_ITEMS = 500
"""Maximum number of items in ``select`` with an alias, a cast, a JSON path or an aggregate."""


@dataclass(slots=True)
class Resource:
    """An embedded resource or the root, and its query parameters.

    :ivar embed: None for the root.
    :ivar relationship: None for the root.
    :ivar children: embedded resources, in the order of the items.
    :ivar filters: filters and logic trees, each with the position of its first value.
    :ivar limit: position of the limit's value, None if there is no limit.
    :ivar offset: position of the offset's value, None if there is no offset.
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
        return self.relationship is not None and self.relationship.to_one

    @property
    def is_spread(self) -> bool:
        return self.embed is not None and self.embed.spread

    def child(self, name: str) -> Resource | None:
        return next((child for child in self.children if child.embed and child.embed.key == name), None)

    def descendant(self, embeds: EmbedPath) -> Resource:
        """Return the resource at the end of a path of aliases or relation names.

        :raises ApiError: PGRST108 (400) if a name in the path is not embedded.
        """
        resource = self
        for name in embeds:
            by_relation = (each for each in resource.children if each.embed and each.embed.name == name)
            child = resource.child(name) or next(by_relation, None)
            if child is None:
                raise not_embedded(name)
            resource = child
        return resource


def build_embed_tree(
    tables: RoleTables, relation: Relation, selection: Selection, project: Project
) -> Resource:
    """Return the tree of the resources that a selection embeds.

    :raises ApiError: A name is unknown, a relationship is ambiguous, there are too many items or members, or
        aggregates are not allowed.
    """
    _check_size(selection.items or ())
    root = Resource(relation, selection.items or (Star(),))
    _embed_all(tables, root)
    _assign_parameters(root, selection)
    maximum, total = _members(root)
    if maximum > MAX_MEMBERS or total > MAX_TOTAL_MEMBERS:
        raise too_much(
            f"At most {MAX_MEMBERS} members are allowed in one object, and {MAX_TOTAL_MEMBERS} in total"
        )
    if not project.db_aggregates_enabled and _has_aggregates(root):
        raise ApiError(400, "PGRST123", "Use of aggregate functions is not allowed")
    _check_spreads(root)
    return root


def _check_size(items: tuple[Item, ...]) -> None:
    listed = list(_all_items(items))
    computed = sum(1 for item in listed if isinstance(item, Field) and item != Field(item.name))
    if computed > MAX_COMPUTED_ITEMS:
        raise too_much(
            f"At most {MAX_COMPUTED_ITEMS} items of select may have an alias, cast, JSON path or aggregate"
        )


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
                # A JSON object cannot have two members with the same name.
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
            # Errors about the resource's columns contain this name, as in PostgREST.
            alias = f"{relationship.target.name}_{depth}" if is_direct else None
            child = Resource(Relation.of(relationship.target, alias), item.items, item, relationship)
            resource.children.append(child)
            _embed_all(tables, child, depth + 1)


def _assign_parameters(root: Resource, selection: Selection) -> None:
    position = 0
    for target, operation in selection.filters:
        leaf = LogicFilter(target.name, target.path, operation)
        root.descendant(target.embeds).filters.append((leaf, position))
        position += operation.value_count
    for embeds, tree in selection.shape.logic:
        root.descendant(embeds).filters.append((tree, position))
        position += sum(leaf.operation.value_count for leaf in leaves(tree))
    for embeds in selection.limits:
        root.descendant(embeds).limit = position
        position += 1
    for embeds in selection.offsets:
        root.descendant(embeds).offset = position
        position += 1
    for embeds, terms in selection.orders:
        root.descendant(embeds).order = terms


def not_embedded(name: str) -> ApiError:
    return ApiError(
        400,
        "PGRST108",
        f"'{name}' is not an embedded resource in this request",
        hint=f"Verify that '{name}' is included in the 'select' query parameter.",
    )


def _members(resource: Resource) -> tuple[int, int]:
    children = iter(resource.children)
    own = maximum = total = 0
    for item in resource.items:
        if isinstance(item, Embed):
            maximum_below, below = _members(next(children))
            maximum, total = max(maximum, maximum_below), total + below
            own += below if item.spread else 1
        else:
            own += len(resource.relation.columns or ()) if isinstance(item, Star) else 1
    return max(maximum, own), total + own


def _check_spreads(resource: Resource) -> None:
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
    spread = (child for child in resource.children if child.is_spread and child.to_one)
    return any(map(_is_aggregate, resource.items)) or any(map(_is_grouped, spread))


def _has_aggregates(resource: Resource) -> bool:
    return any(map(_is_aggregate, resource.items)) or any(map(_has_aggregates, resource.children))


def _is_aggregate(item: Item) -> bool:
    return isinstance(item, Field) and item.aggregate is not None


StoredRelationship = KeyRelationship | JunctionRelationship
"""A relationship that is defined by foreign keys rather than by a function."""

_BARE = re.compile(r"[\w$]+(?:[ -]?[\w$]+)*")
"""Names that need no quotes in ``select``."""
_VIEWS = frozenset({TableKind.VIEW, TableKind.MATERIALIZED_VIEW})
"""Kinds of relations that do not enforce keys, so several rows may have the same referenced key."""
_CARDINALITIES = tuple(Cardinality)
"""Cardinalities, in the order of the relationships that PGRST201 lists."""


# ---------------------------------------------------------------- relationships


def find_relationship(tables: RoleTables, relation: Relation, embed: Embed) -> Relationship:
    """Return the relationship for embedding a resource.

    :raises ApiError: PGRST200 (400) if there is none, PGRST201 (300) if there are several, 42501 (401, 403)
        if the role has no privilege on a table of the relationship.
    """
    relationships = [] if relation.table is None else tables.all.relationships.of(relation.table)
    relationships = [
        relationship
        for relationship in relationships
        if isinstance(relationship, ComputedRelationship) or relationship.target.schema == relation.schema
    ]
    usable = [relationship for relationship in relationships if _denied_table(tables, relationship) is None]
    matches = matching(usable, embed.name, embed.hint, relation.schema)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise _ambiguous(relation, embed, matches, usable)
    for relationship in matching(relationships, embed.name, embed.hint, relation.schema):
        denied = _denied_table(tables, relationship)
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
    used = [relationship.target]
    if isinstance(relationship, JunctionRelationship):
        used.append(relationship.junction)
    return next((table for table in used if not tables.may_see(table)), None)


def matching(
    relationships: Iterable[Relationship], name: str, hint: str | None, schema: str
) -> list[Relationship]:
    """Return the relationships that match a name and a hint.

    Junction tables in the request's schema take precedence over junction tables in other schemas.
    """
    stored, named = list[StoredRelationship](), list[StoredRelationship]()
    for each in relationships:
        if isinstance(each, ComputedRelationship):
            if each.function.name == name:
                return [each]
            continue
        stored.append(each)
        if _matches(each, name, hint):
            named.append(each)
    if not named and hint is not None:
        named = [each for each in stored if name == each.target.name and hint in _long_hints(each)]
    ranked: dict[tuple[bool, bool], list[Relationship]] = {}
    for each in named:
        rank = (False, False)
        if isinstance(each, JunctionRelationship):
            if not each.in_unique_key:
                continue
            # PostgREST requires a primary key, so junction tables with a primary key take precedence.
            rank = (each.junction.schema != schema, not each.in_primary_key)
        ranked.setdefault(rank, []).append(each)
    return ranked[min(ranked)] if ranked else []


def _matches(relationship: StoredRelationship, name: str, hint: str | None) -> bool:
    target = relationship.target
    if isinstance(relationship, JunctionRelationship):
        return name == target.name and _junction_fits(relationship, hint)
    own, theirs = _only_columns(relationship)
    key = relationship.foreign_key.name
    if relationship.table is target:
        # In a self-reference, the table's name selects the referencing rows. Other names select the
        # referenced row.
        if relationship.outgoing:
            return hint is None and name in (key, own)
        return name == target.name and (hint is None or hint in (key, theirs))
    if hint is None:
        return name == target.name or (name in (key, own) and target.kind not in _VIEWS)
    return name == target.name and hint in (key, own, theirs)


def _only_columns(relationship: KeyRelationship) -> tuple[str | None, str | None]:
    return relationship.pairs[0] if len(relationship.pairs) == 1 else (None, None)


def _junction_fits(relationship: JunctionRelationship, hint: str | None) -> bool:
    if relationship.table is relationship.target:
        # Both foreign keys of the junction reference this table. The hint must be the column of ``near``.
        return hint is not None and hint == _only_columns(relationship.near)[1]
    return hint is None or hint == relationship.junction.name


def _long_hints(relationship: StoredRelationship) -> tuple[str, ...]:
    if isinstance(relationship, KeyRelationship):
        pairs = relationship.pairs
        if relationship.table is relationship.target and relationship.outgoing:
            return ()
        equalities = ",".join([f"{own}={theirs}" for own, theirs in pairs])
        return _columns(pairs, 0, ","), _columns(pairs, 1, ","), equalities
    near, far, junction = relationship.near, relationship.far, relationship.junction
    keys = (near.foreign_key.name, far.foreign_key.name)
    columns = f"{_columns(near.pairs, 1, ',')},{_columns(far.pairs, 0, ',')}"
    single_keys = keys[:1] if relationship.table is relationship.target else keys
    return *single_keys, f"{junction.schema}.{junction.name}", ",".join(keys), columns


# ---------------------------------------------------------------- errors


def _hint(
    tables: RoleTables, relation: Relation, embed: Embed, relationships: list[Relationship]
) -> str | None:
    name = embed.name if relationships else relation.name
    if relationships:
        stored = [each for each in relationships if not isinstance(each, ComputedRelationship)]
        targets = dict.fromkeys(each.target.name for each in stored)
        close = None if name in targets else similar(name, NameIndex(targets), MIN_KNOWN_SIMILARITY)
    else:
        close = tables.similar_name(relation.schema, name, related=True)
    return f"Perhaps you meant '{close}' instead of '{name}'." if close else None


def _ambiguous(
    relation: Relation, embed: Embed, matches: list[Relationship], usable: list[Relationship]
) -> ApiError:
    # Computed relationships are never ambiguous.
    stored = [(each, *_description(each)) for each in matches if not isinstance(each, ComputedRelationship)]
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


def _choice(usable: list[Relationship], relationship: StoredRelationship, schema: str) -> str:
    """Return a short, unambiguous ``select`` item for a relationship, as PostgREST writes it if possible."""
    target, choices = relationship.target.name, list[tuple[str, str | None]]()
    if isinstance(relationship, JunctionRelationship):
        choices = [(target, relationship.junction.name), (target, _only_columns(relationship.near)[1])]
    else:
        key = relationship.foreign_key.name
        choices = [(target, key), *[(target, column) for column in _only_columns(relationship)], (key, None)]
    choices += [(target, hint) for hint in _long_hints(relationship)]
    unambiguous = (
        (name, hint)
        for name, hint in choices
        if hint not in JOINS and matching(usable, name, hint, schema) == [relationship]
    )
    return "!".join([_name_text(each) for each in next(unambiguous, choices[0]) if each is not None])


def _name_text(name: str) -> str:
    if _BARE.fullmatch(name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _description(relationship: StoredRelationship) -> tuple[tuple[object, ...], object]:
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
