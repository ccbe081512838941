"""Functions as root fields: which ones a role can call, their arguments and their results.

Stable and immutable functions are fields of ``Query``, volatile ones of ``Mutation``
(docs/reference/graphql.md, Functions).  Overloads share a field where their results agree; the names of the
provided arguments choose one.
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
    """Return the default of an argument in the schema, None for an expression or a type without a plain form.

    An argument with any other default is optional all the same (docs/reference/graphql.md, Functions).

    :param sql: the default as PostgreSQL writes it, such as ``'a, b'::text``.
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

    :ivar composite: the composite type that the value is made of from JSON, None for others.
    """

    name: str
    argument: Argument
    mapping: TypeMapping
    composite: Type | None = None


@dataclass(frozen=True, slots=True)
class Overload:
    """One function behind a root field."""

    function: Function
    arguments: tuple[FunctionArgument, ...]

    @property
    def required(self) -> frozenset[str]:
        """Return the names of the arguments without a default."""
        return frozenset(item.name for item in self.arguments if item.argument.default is None)

    def takes(self, provided: Collection[str]) -> bool:
        """Whether the function can be called with these arguments."""
        return self.required.issubset(provided) and {item.name for item in self.arguments}.issuperset(
            provided
        )


@dataclass(frozen=True, slots=True)
class FunctionField:
    """A function's field, with all overloads that share it.

    :ivar mapping: that of the result or of a list's items; None for rows and for no result.
    :ivar view: that of a result of rows.
    :ivar is_list: whether the result is a list, of rows a collection.
    """

    name: str
    mapping: TypeMapping | None
    view: TableView | None
    is_list: bool
    overloads: tuple[Overload, ...]
    description: str | None

    def arguments(self) -> dict[str, tuple[FunctionArgument, bool]]:
        """Return the arguments of all overloads, and whether each is required by every one."""
        found: dict[str, tuple[FunctionArgument, bool]] = {}
        for overload in self.overloads:
            for item in overload.arguments:
                required = all(item.name in other.required for other in self.overloads)
                found.setdefault(item.name, (item, required))
        return found

    def choose(self, provided: Collection[str]) -> Overload | None:
        """Return the overload that takes these arguments, the one with the fewest of its own first."""
        fitting = [overload for overload in self.overloads if overload.takes(provided)]
        return min(fitting, key=lambda overload: len(overload.arguments), default=None)


def function_fields(view: CatalogView, *, volatile: bool) -> dict[str, FunctionField]:
    """Return the fields of the volatile functions that a role can call, or of the others, by name."""
    groups: dict[str, list[FunctionField]] = defaultdict(list)
    for function in view.catalog.functions:
        name = view.catalog.registry.functions.get(function.oid)
        if name is None or (function.volatility is Volatility.VOLATILE) is not volatile:
            continue
        field = _field(view, function, name) if view.can_call(function) else None
        if field is not None:
            groups[name].append(field)
    registry = view.catalog.registry
    taken = {*registry.functions.values(), *(registry.mutations if volatile else registry.queries)}
    found: dict[str, FunctionField] = {}
    for requested, fields in groups.items():
        for field in _merged(fields):
            name = field.name
            if name != requested:  # the field of an overload that does not fit the others
                name = first_free((name,), name, taken)
                taken.add(name)
            found[name] = replace(field, name=name)
    return found


def _field(view: CatalogView, function: Function, name: str) -> FunctionField | None:
    """Return the function's own field, None when the role cannot have it."""
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
    """Return an argument, None when the role cannot use its type."""
    found = view.catalog.types[argument.type]
    nameable = found.schema in view.usable_schemas
    name, mapping = argument_name(view.catalog, function, argument), view.mapping(argument.type)
    if mapping is None:
        composite = found.kind is TypeKind.COMPOSITE and nameable and view.privileges.can_use_type(found.oid)
        return FunctionArgument(name, argument, _OPAQUE, found) if composite else None
    if mapping.parameter == "unknown" and nameable:
        # PostgreSQL chooses overloads by the types of arguments; one of type unknown is a text to it.
        mapping = replace(mapping, parameter=qualified(found))
    return FunctionArgument(name, argument, mapping)


class _Result(NamedTuple):
    """What a function returns: a value, rows of a table, or nothing."""

    mapping: TypeMapping | None = None
    view: TableView | None = None
    is_list: bool = False


def _result(view: CatalogView, function: Function) -> _Result | None:
    """Return what a function returns, None if that has no GraphQL type."""
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


def _merged(entries: list[FunctionField]) -> Iterator[FunctionField]:
    """Yield the fields of functions of one name: those that agree share one.

    One that does not agree with the first gets a name of its own, made of its arguments.
    """
    entries = sorted(entries, key=_fewest_arguments)
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


def _fewest_arguments(entry: FunctionField) -> tuple[int, list[tuple[str, str, str]]]:
    """Return what overloads are sorted by: their arguments, which outlive a dump and restore."""
    arguments = entry.overloads[0].arguments
    return len(arguments), [(item.name, item.mapping.kind, item.mapping.parameter) for item in arguments]


def _agree(one: FunctionField, other: FunctionField) -> bool:
    """Whether two functions can share a field: one result type, and one type for each argument's name."""
    if (one.mapping, one.view, one.is_list) != (other.mapping, other.view, other.is_list):
        return False
    known = {name: item for name, (item, _) in one.arguments().items()}
    new = other.overloads[0]
    if any(item.name in known and known[item.name].mapping != item.mapping for item in new.arguments):
        return False
    own_names = {item.name for item in new.arguments}
    return all(own_names != {item.name for item in overload.arguments} for overload in one.overloads)


def arguments_error(field: FunctionField, provided: Collection[str]) -> str:
    """Return the message for arguments that no overload takes."""
    forms = ", ".join(
        f"{field.name}({', '.join(item.name for item in overload.arguments)})" for overload in field.overloads
    )
    return f"No form of {field.name} takes the arguments ({', '.join(sorted(provided))}); there are: {forms}"
