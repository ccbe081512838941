"""Maps and object types whose parts are made when first looked up.

A schema of a thousand tables has some fifteen thousand types; a role's documents use a few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

from graphql import GraphQLField, GraphQLObjectType

T = TypeVar("T")
Make = Callable[[], T | None]


class LazyMap(dict[str, T], Generic[T]):
    """A dict whose values are made when first looked up; a maker that returns None has no entry.

    graphql-core looks types and fields up one by one, and walks all of them only for introspection.
    """

    def __init__(self, makers: Mapping[str, Make[T]]) -> None:
        super().__init__()
        self._makers = dict(makers)

    def put(self, name: str, value: T) -> None:
        """Add an entry that is made already."""
        self._makers.pop(name, None)
        super().__setitem__(name, value)

    def _made(self, name: str) -> bool:
        maker = self._makers.pop(name, None)
        if maker is not None:
            value = maker()
            if value is not None:
                super().__setitem__(name, value)
        return super().__contains__(name)

    def _make_all(self) -> None:
        for name in list(self._makers):
            self._made(name)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (
            isinstance(name, str) and name in self._makers and self._made(name)
        )

    def __getitem__(self, name: str) -> T:
        self._made(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the entry, made now if need be."""
        return super().__getitem__(name) if name in self else default

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
        self, name: str, makers: Callable[[], Mapping[str, Make[GraphQLField]]], description: str
    ) -> None:
        super().__init__(name, fields={}, description=description)
        self._field_makers = makers

    @cached_property
    def fields(self) -> Any:
        """Return the fields, a ``LazyMap``."""
        return LazyMap(self._field_makers())
