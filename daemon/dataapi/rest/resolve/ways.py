"""The ways from a relation to those that can be embedded in it, and which one a request means; pure.

The rules, with which of them go before others, are PostgREST's (reference/rest.md 1.1): a resource is
named by its table, by a constraint or by a key column, and a hint tells several ways apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dataapi.catalog.model import Catalog, ForeignKey, Function, Table, TableKind
from dataapi.catalog.relationships import Relationship, RelationshipKind, Relationships
from dataapi.query.algebra import Call, Join, Through

MANY_TO_MANY = "many-to-many"

_RANKS = (
    RelationshipKind.ONE_TO_MANY.value,
    RelationshipKind.MANY_TO_ONE.value,
    RelationshipKind.ONE_TO_ONE.value,
    MANY_TO_MANY,
)


@dataclass(frozen=True, slots=True)
class Way:
    """One way from a table to another.

    :ivar kind: as errors call it, such as ``many-to-one``; "" for a computed relationship.
    :ivar to_one: whether at most one row of the target belongs to a row.
    :ivar key: the foreign key, None for a computed relationship.
    :ivar pairs: pairs of a column of ``table`` and the equal one of ``target``; none where another table
        or a function is in between.
    :ivar onward: the second foreign key of a table in between.
    """

    table: Table
    target: Table
    kind: str
    to_one: bool
    key: ForeignKey | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    through: Through | None = None
    onward: ForeignKey | None = None
    function: Function | None = None

    @property
    def join(self) -> Join | None:
        """The equality that relates the rows directly."""
        return Join(tuple((theirs, own) for own, theirs in self.pairs)) if self.pairs else None

    @property
    def call(self) -> Call | None:
        """The call that gives the related rows of a row; a single NULL is a row of NULLs to PostgREST."""
        return Call(self.function, of_row=True, keeps_null=True) if self.function is not None else None

    @property
    def hint(self) -> str:
        """What tells this way apart from others between the same tables."""
        if self.through is not None:
            return self.through.table.name
        return self.key.name if self.key is not None else ""

    @property
    def rank(self) -> tuple[object, ...]:
        """What the ways that PGRST201 lists are sorted by, as PostgREST does: kinds first, then names."""
        through = self.through.table.name if self.through is not None else ""
        keys = [key.name for key in (self.key, self.onward) if key is not None]
        return self.target.name, _RANKS.index(self.kind), through, keys, self.pairs

    def told(self) -> dict[str, str]:
        """Return what the details of PGRST201 say of the way."""
        assert self.key is not None, "computed relationships are never ambiguous"
        if self.through is not None and self.onward is not None:
            near, far = self.through.near, self.through.far
            between = (
                f"{self.through.table.name} using {self.key.name}({_listed(own for own, _ in near)})"
                f" and {self.onward.name}({_listed(own for own, _ in far)})"
            )
        else:
            between = (
                f"{self.key.name} using {self.table.name}({_listed(own for own, _ in self.pairs)})"
                f" and {self.target.name}({_listed(theirs for _, theirs in self.pairs)})"
            )
        return {
            "cardinality": self.kind,
            "embedding": f"{self.table.name} with {self.target.name}",
            "relationship": between,
        }


def is_view(table: Table) -> bool:
    """Whether a relation's rows are those of a query, which may give a key's row several times."""
    return table.kind in (TableKind.VIEW, TableKind.MATERIALIZED_VIEW)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


class Ways:
    """All ways of a catalog, found when a table is first asked for."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        keys = catalog.foreign_keys + catalog.view_keys
        self._relationships = Relationships(replace(catalog, foreign_keys=keys))
        self._found: dict[int, tuple[Way, ...]] = {}
        self._functions: dict[int, list[Function]] = {}
        for function in catalog.functions:
            if len(function.arguments) == 1:
                self._functions.setdefault(function.arguments[0].type, []).append(function)

    def of(self, table: Table) -> tuple[Way, ...]:
        """Return the ways from a table."""
        found = self._found.get(table.oid)
        if found is None:
            found = (*self._direct(table), *self._through(table), *self._computed(table))
            self._found[table.oid] = found
        return found

    def functions_of(self, table: Table) -> list[Function]:
        """Return the functions whose one argument is a row of the table."""
        return self._functions.get(table.type, [])

    def _direct(self, table: Table) -> Iterator[Way]:
        for way in self._relationships.of(table.oid):
            target = self._catalog.tables[way.target]
            yield Way(table, target, way.kind.value, way.to_one, way.foreign_key, way.pairs)

    def _through(self, table: Table) -> Iterator[Way]:
        """Yield the ways by a table in between, whose key the columns of both foreign keys belong to."""
        for near in self._relationships.of(table.oid):
            if near.outgoing or near.kind is not RelationshipKind.ONE_TO_MANY:
                continue
            middle = self._catalog.tables[near.target]
            for far in self._relationships.of(middle.oid):
                if (
                    far.outgoing
                    and far.kind is RelationshipKind.MANY_TO_ONE
                    and far.foreign_key.name != near.foreign_key.name
                ):
                    yield self._many(table, middle, near, far)

    def _many(self, table: Table, middle: Table, near: Relationship, far: Relationship) -> Way:
        near_pairs = tuple((theirs, own) for own, theirs in near.pairs)
        through = Through(middle, near_pairs, far.pairs)
        target = self._catalog.tables[far.target]
        return Way(table, target, MANY_TO_MANY, False, near.foreign_key, (), through, far.foreign_key)

    def _computed(self, table: Table) -> Iterator[Way]:
        for function in self.functions_of(table):
            type_ = self._catalog.types.get(function.returns)
            target = self._catalog.tables.get(type_.relation) if type_ is not None else None
            if target is not None:
                to_one = not function.returns_set or function.rows == 1
                yield Way(table, target, "", to_one, function=function)

    def keyed(self, way: Way) -> tuple[bool, bool]:
        """Return whether a table in between has all columns in its primary key, or in a unique key."""
        assert way.through is not None, "only a table in between is looked at"
        middle = way.through.table
        columns = {own for own, _ in (*way.through.near, *way.through.far)}
        primary = columns <= set(self._catalog.row_key(middle))
        return primary, primary or any(columns <= set(key.columns) for key in middle.unique_keys)

    def meant(self, ways: Iterable[Way], name: str, hint: str | None) -> list[Way]:
        """Return the ways that a name and a hint can mean; more than one is ambiguous."""
        listed = list(ways)
        computed = [way for way in listed if way.function is not None and way.function.name == name]
        if computed:
            return computed[:1]
        named = [way for way in listed if way.function is None and _is_named(way, name, hint)]
        found = [way for way in named if way.through is None or self.keyed(way)[0]]
        # A unique key in the place of a primary one goes where PostgREST finds nothing.
        return found or [way for way in named if way.through is not None and self.keyed(way)[1]]


def _is_named(way: Way, name: str, hint: str | None) -> bool:
    if way.through is not None:
        return name == way.target.name and _through_fits(way, hint)
    own = way.pairs[0][0] if len(way.pairs) == 1 else None
    theirs = way.pairs[0][1] if len(way.pairs) == 1 else None
    if way.table is way.target:
        return _is_named_within(way, name, hint, own, theirs)
    if hint is None:
        by_key = way.key is not None and name in (way.key.name, own)
        return name == way.target.name or (by_key and not is_view(way.target))
    return name == way.target.name and way.key is not None and hint in (way.key.name, own, theirs)


def _is_named_within(way: Way, name: str, hint: str | None, own: str | None, theirs: str | None) -> bool:
    """Whether a way of a table to itself is meant: by the table's name the many, by the column's the one."""
    to_many = way.kind == RelationshipKind.ONE_TO_MANY.value
    if hint is None:
        by_column = way.kind == RelationshipKind.MANY_TO_ONE.value and name == own
        return (to_many and name == way.target.name) or by_column
    return to_many and name == way.target.name and hint == theirs


def _through_fits(way: Way, hint: str | None) -> bool:
    assert way.through is not None, "only ways by a table in between come here"
    if way.table is way.target:
        # One key leads here and the other on; which is which only a hint's column can tell.
        return hint is not None and [own for own, _ in way.through.near] == [hint]
    return hint is None or hint == way.through.table.name
