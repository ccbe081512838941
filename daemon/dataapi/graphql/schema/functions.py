"""Functions as root fields: which functions a role can call, their arguments and their results.

See docs/reference/graphql.md, Functions.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from graphql import GraphQLDefaultInput

from dataapi.catalog.model import Argument, Function, Type, TypeKind, Volatility
from dataapi.catalog.names import argument_name, first_free
from dataapi.graphql.schema.catalog_view import CatalogView, TableView
from dataapi.graphql.schema.type_mapping import OPAQUE, TypeMapping
from dataapi.sql.statement import qualified

_QUOTED = re.compile(r"'((?:[^']|'')*)'(::[\w\" .]+)?")
_NUMBER = re.compile(r"\(?(-?[0-9]+(?:\.[0-9]+)?)\)?(::[\w ]+)?")
_NUMBERS = {"Int": int, "Float": float}


def constant_default(sql: str | None, mapping: TypeMapping) -> GraphQLDefaultInput | None:
    """Return the default that the schema shows for an argument, None if it is not a simple constant.

    An argument with any default is optional (docs/reference/graphql.md, Functions).
    """
    value = None if sql is None or mapping.is_list else _constant(sql, mapping.kind)
    return None if value is None else GraphQLDefaultInput(value=value)


def _constant(sql: str, kind: str) -> object:
    quoted = _QUOTED.fullmatch(sql)
    text = None if quoted is None else quoted[1].replace("''", "'")
    if kind == "String":
        return text
    if kind == "Boolean":
        return {"true": True, "false": False}.get(sql)
    number = _NUMBER.fullmatch(sql if text is None else text)
    if number is None or kind not in _NUMBERS or (kind == "Int" and "." in number[1]):
        return None
    return _NUMBERS[kind](number[1])


COLLECTION_ARGUMENTS = frozenset({"first", "last", "before", "after", "offset", "filter", "orderBy"})


@dataclass(frozen=True, slots=True)
class FunctionArgument:
    """An argument of a function as a GraphQL argument.

    :ivar composite: the composite type that the JSON value is converted to, None for other types.
    """

    name: str
    argument: Argument
    mapping: TypeMapping
    composite: Type | None = None


@dataclass(frozen=True, slots=True)
class Overload:
    """One of the functions that share a root field."""

    function: Function
    arguments: tuple[FunctionArgument, ...]

    @property
    def required(self) -> frozenset[str]:
        return frozenset(item.name for item in self.arguments if item.argument.default is None)

    def accepts(self, provided: Collection[str]) -> bool:
        return self.required.issubset(provided) and {item.name for item in self.arguments}.issuperset(
            provided
        )


@dataclass(frozen=True, slots=True)
class FunctionField:
    """A root field with the overloads that share it.

    :ivar mapping: the type of the result or of a list's items, None for rows and for ``void``.
    :ivar view: the table of the resulting rows.
    """

    name: str
    mapping: TypeMapping | None
    view: TableView | None
    is_list: bool
    overloads: tuple[Overload, ...]
    description: str | None

    def arguments(self) -> dict[str, tuple[FunctionArgument, bool]]:
        """Return the arguments of all overloads, and whether every overload requires the argument."""
        arguments: dict[str, tuple[FunctionArgument, bool]] = {}
        for overload in self.overloads:
            for item in overload.arguments:
                required = all(item.name in other.required for other in self.overloads)
                arguments.setdefault(item.name, (item, required))
        return arguments

    def choose(self, provided: Collection[str]) -> Overload | None:
        candidates = [overload for overload in self.overloads if overload.accepts(provided)]
        return min(candidates, key=lambda overload: len(overload.arguments), default=None)


def function_fields(view: CatalogView, *, volatile: bool) -> dict[str, FunctionField]:
    groups: dict[str, list[FunctionField]] = defaultdict(list)
    for function in view.catalog.functions:
        name = view.catalog.registry.functions.get(function.oid)
        if name is None or (function.volatility is Volatility.VOLATILE) is not volatile:
            continue
        field = _field(view, function, name) if view.can_call(function) else None
        if field is not None:
            groups[name].append(field)
    registry = view.catalog.registry
    used_names = {*registry.functions.values(), *(registry.mutations if volatile else registry.queries)}
    result: dict[str, FunctionField] = {}
    for requested, fields in groups.items():
        for field in _merge(fields):
            name = field.name
            if name != requested:  # incompatible with the other overloads
                name = first_free((name,), name, used_names)
                used_names.add(name)
            result[name] = replace(field, name=name)
    return result


def _field(view: CatalogView, function: Function, name: str) -> FunctionField | None:
    arguments = [_argument(view, function, argument) for argument in function.arguments]
    result = _result(view, function)
    accepted = tuple(argument for argument in arguments if argument is not None)
    if result is None or len(accepted) < len(arguments):
        return None
    if result.view and result.is_list and not COLLECTION_ARGUMENTS.isdisjoint(item.name for item in accepted):
        return None
    description = view.catalog.directives.function(function.oid).description
    overloads = (Overload(function, accepted),)
    return FunctionField(name, result.mapping, result.view, result.is_list, overloads, description)


def _argument(view: CatalogView, function: Function, argument: Argument) -> FunctionArgument | None:
    type_ = view.catalog.types[argument.type]
    is_usable = type_.schema in view.usable_schemas
    name, mapping = argument_name(view.catalog, function, argument), view.mapping(argument.type)
    if mapping is None:
        composite = type_.kind is TypeKind.COMPOSITE and is_usable and view.privileges.can_use_type(type_.oid)
        return FunctionArgument(name, argument, _OPAQUE, type_) if composite else None
    if mapping.parameter == "unknown" and is_usable:
        # PostgreSQL resolves overloads by argument types, and treats type unknown as text.
        mapping = replace(mapping, parameter=qualified(type_))
    return FunctionArgument(name, argument, mapping)


class _Result(NamedTuple):
    mapping: TypeMapping | None = None
    view: TableView | None = None
    is_list: bool = False


def _result(view: CatalogView, function: Function) -> _Result | None:
    if view.catalog.types[function.returns].name == "void":
        return _Result()
    rows = view.table_of_type(function.returns)
    if rows is not None:
        return _Result(view=rows, is_list=not function.returns_one_row)
    mapping = view.mapping(function.returns)
    if mapping is None or (mapping.is_list and function.returns_set):
        return None
    return _Result(mapping, is_list=function.returns_set)


_OPAQUE = TypeMapping(OPAQUE, parameter="json")


def _merge(entries: list[FunctionField]) -> Iterator[FunctionField]:
    """Yield the fields of functions that have the same name.

    Compatible functions share a field. The field of an incompatible function is named after its arguments.
    """
    entries = sorted(entries, key=_sort_key)
    shared = entries[0]
    for entry in entries[1:]:
        if _agree(shared, entry):
            overloads = (*shared.overloads, *entry.overloads)
            description = shared.description or entry.description
            shared = replace(shared, overloads=overloads, description=description)
        else:
            names = [item.name[:1].upper() + item.name[1:] for item in entry.overloads[0].arguments]
            yield replace(entry, name=f"{entry.name}By{'And'.join(names)}")
    yield shared


def _sort_key(entry: FunctionField) -> tuple[int, list[tuple[str, str, str]]]:
    """Return a sort key that, unlike an OID, does not change if the database is dumped and restored."""
    arguments = entry.overloads[0].arguments
    return len(arguments), [(item.name, item.mapping.kind, item.mapping.parameter) for item in arguments]


def _agree(one: FunctionField, other: FunctionField) -> bool:
    """Return whether two functions can share a field.

    Results and the types of arguments with equal names must match. The sets of argument names must differ.
    """
    if (one.mapping, one.view, one.is_list) != (other.mapping, other.view, other.is_list):
        return False
    known = {name: item for name, (item, _) in one.arguments().items()}
    new = other.overloads[0]
    if any(item.name in known and known[item.name].mapping != item.mapping for item in new.arguments):
        return False
    own_names = {item.name for item in new.arguments}
    return all(own_names != {item.name for item in overload.arguments} for overload in one.overloads)


def arguments_error(field: FunctionField, provided: Collection[str]) -> str:
    forms = ", ".join(
        f"{field.name}({', '.join(item.name for item in overload.arguments)})" for overload in field.overloads
    )
    names = ", ".join(sorted(provided))
    return f"No overload of {field.name} accepts the arguments ({names}). Overloads: {forms}"
