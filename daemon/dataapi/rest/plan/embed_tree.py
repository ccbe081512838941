"""The tree of embedded resources of one request, each with its parameters; pure.

PostgREST's rules decide which resource a parameter is for (``docs/reference/rest.md``, Embedding).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dataapi.catalog.relationships import JunctionRelationship, Relationship
from dataapi.http.errors import ApiError
from dataapi.rest.parse.syntax import (
    Embed,
    EmbedPath,
    Item,
    LogicFilter,
    LogicTree,
    Selection,
    Star,
    Term,
    leaves,
)
from dataapi.rest.plan.tables import Relation, RoleTables


@dataclass(frozen=True, slots=True)
class ResourceFilter:
    """A filter or logic tree on a resource, with the position of its first value."""

    tree: LogicTree
    position: int


@dataclass(slots=True)
class Resource:
    """One resource with its parameters.

    :ivar embed, relationship: None for the outermost one.
    :ivar children: one for each embedded resource among the items, in their order.
    :ivar limit, offset: the positions of the numbers, None without them.
    """

    relation: Relation
    items: tuple[Item, ...]
    embed: Embed | None = None
    relationship: Relationship | None = None
    children: list[Resource] = field(default_factory=list)
    filters: list[ResourceFilter] = field(default_factory=list)
    order: tuple[Term, ...] = ()
    limit: int | None = None
    offset: int | None = None

    @property
    def spreads_one(self) -> bool:
        """Whether the values of its one row are spread among those of the row that it is embedded in."""
        return self._is_spread and self.relationship is not None and self.relationship.to_one

    @property
    def spreads_many(self) -> bool:
        """Whether it is spread as arrays of its rows' values."""
        return self._is_spread and self.relationship is not None and not self.relationship.to_one

    @property
    def _is_spread(self) -> bool:
        return self.embed is not None and self.embed.spread

    def child(self, name: str) -> Resource | None:
        """Return the embedded resource of a name in the answer: its alias if it has one."""
        for child in self.children:
            if child.embed is not None and child.embed.key == name:
                return child
        return None

    def of_table(self, name: str) -> Resource | None:
        """Return the embedded resource of a relation's name, whatever its alias."""
        return next((child for child in self.children if child.embed and child.embed.name == name), None)

    def at(self, embeds: EmbedPath) -> Resource:
        """Return the resource at the end of a path of embedded ones.

        :raises ApiError: PGRST108 (400), one of them is not embedded.
        """
        resource = self
        for name in embeds:
            found = resource.child(name) or resource.of_table(name)
            if found is None:
                raise not_embedded(name)
            resource = found
        return resource


def build_embed_tree(tables: RoleTables, relation: Relation, selection: Selection) -> Resource:
    """Return the tree of a selection's resources, each with its parameters.

    :raises ApiError: names that do not exist, and ambiguous relationships.
    """
    root = Resource(relation, selection.items or (Star(),))
    _embed_all(tables, root)
    _assign_parameters(root, selection)
    return root


def _embed_all(tables: RoleTables, resource: Resource, depth: int = 1) -> None:
    members: set[str | None] = set()
    for item in resource.items:
        if isinstance(item, Embed):
            if item.member is not None and item.member in members:
                raise _embedded_twice(resource.relation, item.member, depth)
            members.add(item.member)
            relationship = tables.relationship(resource.relation, item)
            alias = _alias(relationship, depth)
            child = Resource(Relation.of(relationship.target, alias), item.items, item, relationship)
            resource.children.append(child)
            _embed_all(tables, child, depth + 1)


def _alias(relationship: Relationship, depth: int) -> str | None:
    """Return the name by which errors of its columns call an embedded resource, as in PostgREST."""
    is_direct = not isinstance(relationship, JunctionRelationship)
    return f"{relationship.target.name}_{depth}" if is_direct else None


def _embedded_twice(relation: Relation, key: str, depth: int) -> ApiError:
    """Return the error of two resources of one name, of which the answer could hold only one."""
    return ApiError(
        400,
        "42712",
        f'table name "{relation.name}_{key}_{depth}" specified more than once',
        hint=f"Give one of the resources named '{key}' an alias in the 'select' query parameter.",
    )


def _assign_parameters(root: Resource, selection: Selection) -> None:
    """Give each resource its parameters, with the positions of their values."""
    position = 0
    for target, operation in selection.filters:
        leaf = LogicFilter(target.name, target.path, operation)
        root.at(target.embeds).filters.append(ResourceFilter(leaf, position))
        position += operation.value_count
    for embeds, tree in selection.logic:
        root.at(embeds).filters.append(ResourceFilter(tree, position))
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
