"""The tree of resources of one request: the table or call, and what is embedded in it, with its parameters.

PostgREST's rules decide which resource a parameter is for (reference/rest.md 1.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dataapi.errors import ApiError
from dataapi.rest.request.grammar import parse_order, parse_select, parse_target, parse_way
from dataapi.rest.request.syntax import Embed, Item, Leaf, Star, Term, Tree
from dataapi.rest.resolve.relations import Relation
from dataapi.rest.resolve.tables import ReadableTables
from dataapi.rest.resolve.ways import Way

if TYPE_CHECKING:
    from dataapi.rest.resolve.selection import Selection


@dataclass(frozen=True, slots=True)
class Held:
    """A condition on a resource, with the place of its first value."""

    tree: Tree
    place: int


@dataclass(slots=True)
class Resource:
    """One resource, while its parameters are gathered.

    :ivar embed, way: None for the outermost one.
    :ivar children: one for each embedded resource among the items, in their order.
    :ivar limit, offset: the places of the numbers, None without them.
    """

    relation: Relation
    items: tuple[Item, ...]
    embed: Embed | None = None
    way: Way | None = None
    children: list[Resource] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    order: tuple[Term, ...] = ()
    limit: int | None = None
    offset: int | None = None

    @property
    def spreads_one(self) -> bool:
        """Whether the values of its one row are spread among those of the row that it is embedded in."""
        return self._is_spread and self.way is not None and self.way.to_one

    @property
    def spreads_many(self) -> bool:
        """Whether it is spread as arrays of its rows' values."""
        return self._is_spread and self.way is not None and not self.way.to_one

    @property
    def _is_spread(self) -> bool:
        return self.embed is not None and self.embed.spread

    def child(self, name: str) -> Resource | None:
        """Return the embedded resource that answers and filters call so, by its alias if it has one."""
        for child in self.children:
            if child.embed is not None and child.embed.key == name:
                return child
        return None

    def of_table(self, name: str) -> Resource | None:
        """Return the embedded resource that was named so, whatever its alias."""
        return next((child for child in self.children if child.embed and child.embed.name == name), None)

    def at(self, way: tuple[str, ...]) -> Resource:
        """Return the resource at the end of a way through embedded ones.

        :raises ApiError: PGRST108 (400), one of them is not embedded.
        """
        resource = self
        for name in way:
            found = resource.child(name) or resource.of_table(name)
            if found is None:
                raise not_embedded(name)
            resource = found
        return resource


def gather(tables: ReadableTables, relation: Relation, selection: Selection) -> Resource:
    """Return the tree of a selection's resources, all its parameters where they belong.

    :raises ApiError: for what cannot be understood, or is not there.
    """
    items = parse_select(selection.select) if selection.select is not None else ()
    root = Resource(relation, items or (Star(),))
    _embed_all(tables, root)
    _hold(root, selection)
    return root


def _embed_all(tables: ReadableTables, resource: Resource, depth: int = 1) -> None:
    members: set[str | None] = set()
    for item in resource.items:
        if isinstance(item, Embed):
            if item.member is not None and item.member in members:
                raise _embedded_twice(resource.relation, item.member, depth)
            members.add(item.member)
            way = tables.way(resource.relation, item)
            child = Resource(Relation.of(way.target, _alias(way, depth)), item.items, item, way)
            resource.children.append(child)
            _embed_all(tables, child, depth + 1)


def _alias(way: Way, depth: int) -> str | None:
    """Return the name that errors of its columns have for an embedded resource, as PostgREST's do."""
    return f"{way.target.name}_{depth}" if way.through is None else None


def _embedded_twice(relation: Relation, key: str, depth: int) -> ApiError:
    """Return the error of two resources that would answer under one name: one of them would be lost."""
    return ApiError(
        400,
        "42712",
        f'table name "{relation.name}_{key}_{depth}" specified more than once',
        hint=f"Give one of the resources named '{key}' an alias in the 'select' query parameter.",
    )


def _hold(root: Resource, selection: Selection) -> None:
    """Give each resource its parameters, with the places of their values."""
    place = 0
    for name, operation in selection.filters:
        target = parse_target(name)
        root.at(target.way).held.append(Held(Leaf(target.name, target.path, operation), place))
        place += operation.places
    for way, tree in selection.logic:
        root.at(way).held.append(Held(tree, place))
        place += places(tree)
    for name in selection.limited:
        root.at(parse_way(name) if name else ()).limit = place
        place += 1
    for name in selection.moved:
        root.at(parse_way(name) if name else ()).offset = place
        place += 1
    for name, text in selection.orders:
        root.at(parse_way(name)[:-1]).order = parse_order(text)


def places(tree: Tree) -> int:
    """Return how many values a tree has."""
    return sum(leaf.operation.places for leaf in leaves(tree))


def leaves(tree: Tree) -> Iterator[Leaf]:
    """Yield the filters of a tree in the order of their values."""
    if isinstance(tree, Leaf):
        yield tree
    else:
        for part in tree.parts:
            yield from leaves(part)


def not_embedded(name: str) -> ApiError:
    """Return the error of a parameter for a resource that is not there (PGRST108)."""
    return ApiError(
        400,
        "PGRST108",
        f"'{name}' is not an embedded resource in this request",
        hint=f"Verify that '{name}' is included in the 'select' query parameter.",
    )
