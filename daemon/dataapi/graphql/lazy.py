"""Maps and object types whose parts are made when first looked up.

A schema of a thousand tables has some fifteen thousand types; a role's documents use a few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Generic, TypeVar

from graphql import GraphQLField, GraphQLObjectType

T = TypeVar("T")


class LazyMap(dict[str, T], Generic[T]):
    """A dict whose values are made when first looked up.

    graphql-core looks types and fields up one by one, and walks all of them only for introspection.

    :param make: makes the value of a name, None where there is none.
    :param names: gives the names that may have a value, in the order in which they are shown.
    :param unlisted: names that are found and never shown.
    """

    def __init__(
        self,
        make: Callable[[str], T | None],
        names: Callable[[], Iterable[str]],
        unlisted: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        self._make = make
        self._names = names
        self._unlisted = unlisted
        self._whole = False

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and self._made(name) is not None)

    def _made(self, name: str) -> T | None:
        """Return the entry that is not there yet, kept if it is to be shown."""
        if name in self._unlisted:
            return self._make(name)
        value = None if self._whole else self._make(name)
        if value is not None:
            super().__setitem__(name, value)
        return value

    def __missing__(self, name: str) -> T:
        value = self._made(name)
        if value is None:
            raise KeyError(name)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Return the entry, made now if need be."""
        try:
            return self[name]
        except KeyError:
            return default

    def _make_all(self) -> None:
        if self._whole:
            return
        made = {name: self[name] for name in self._names() if name in self}
        self._whole = True
        super().clear()
        super().update(made)

    def __iter__(self) -> Iterator[str]:
        self._make_all()
        return super().__iter__()

    def __len__(self) -> int:
        self._make_all()
        return super().__len__()

    def keys(self) -> Any:
        """Return all names."""
        self._make_all()
        return super().keys()

    def values(self) -> Any:
        """Return all entries."""
        self._make_all()
        return super().values()

    def items(self) -> Any:
        """Return all names and entries."""
        self._make_all()
        return super().items()


class LazyObjectType(GraphQLObjectType):
    """An object type whose fields are made one by one."""

    def __init__(
        self,
        name: str,
        make: Callable[[str], GraphQLField | None],
        names: Callable[[], Iterable[str]],
        description: str,
        unlisted: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(name, fields={}, description=description)
        self._lazy_fields = LazyMap(make, names, unlisted)

    @cached_property
    def fields(self) -> Any:
        """Return the fields."""
        return self._lazy_fields
