"""What GraphQL calls a thing of SQL, and whether it has values of a type, whatever else there is; pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from functools import lru_cache

from dataapi.catalog.directives import is_graphql_name
from dataapi.catalog.model import Catalog, Type, TypeKind

_VECTORS = frozenset({"int2vector", "oidvector"})
"""Arrays by their elements, but not in how they are written."""


@lru_cache(maxsize=10_000)
def pascal_case(name: str) -> str:
    """Inflect ``account_holder`` to ``AccountHolder``; letters that are upper case stay so."""
    raised = (
        letter if before.isalnum() else letter.upper()
        for before, letter in zip("_" + name, name, strict=False)
    )
    return "".join(raised).replace("_", "")


def lower_first(name: str) -> str:
    """Turn the first letter to lower case: ``AccountHolder`` to ``accountHolder``."""
    return name[:1].lower() + name[1:]


def inflect(name: str, inflection: bool) -> str:
    """Return a type name for an SQL name."""
    return pascal_case(name) if inflection else name


def inflects(catalog: Catalog, schema: str) -> bool:
    """Whether the schema's directive asks for inflection."""
    return catalog.annotations.schema(schema).inflect_names


def numbered(name: str) -> Iterator[str]:
    """Yield the name with ``_2``, ``_3`` and so on."""
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1


def first_free(candidates: Iterable[str], wanted: str, taken: Container[str]) -> str:
    """Return the first candidate that is a name and free, else the wanted one with a number."""
    for candidate in (*candidates, wanted):
        if is_graphql_name(candidate) and candidate not in taken:
            return candidate
    return next(name for name in numbered(wanted) if name not in taken)


def is_list(found: Type) -> bool:
    """Whether values of the type are lists in GraphQL."""
    return found.kind is TypeKind.ARRAY and found.name not in _VECTORS


def has_value(catalog: Catalog, oid: int) -> bool:
    """Whether values of the type have a form in GraphQL: none of composites and lists of lists."""
    found = catalog.types.get(oid)
    if found is None:
        return False
    found = catalog.underlying(found)
    if is_list(found):
        element = catalog.types.get(found.element)
        return (
            element is not None
            and not is_list(catalog.underlying(element))
            and has_value(catalog, element.oid)
        )
    return found.kind not in (TypeKind.COMPOSITE, TypeKind.PSEUDO)
