"""Functions as root fields: which ones a role can call, their arguments and their results.

Stable and immutable functions are fields of ``Query``, volatile ones of ``Mutation``
(docs/reference/graphql.md, Functions).  Overloads share a field where their results agree, and the
names of the provided arguments choose among them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from graphql import GraphQLDefaultInput

from dataapi.catalog.model import Argument, Function, Type, TypeKind, Volatility
from dataapi.catalog.names import argument_name, first_free
from dataapi.graphql.schema.catalog_view import CatalogView
from dataapi.graphql.schema.table_view import TableView
from dataapi.graphql.schema.type_mapping import OPAQUE, TypeMapping, mapping_of
from dataapi.sql.outputs import WireForm
from dataapi.sql.writer import qualified

_QUOTED = re.compile(r"'((?:[^']|'')*)'(::[\w\" .]+)?")
_NUMBER = re.compile(r"\(?(-?[0-9]+(?:\.[0-9]+)?)\)?(::[\w ]+)?")
_NUMBERS = {"Int": int, "Float": float}


def shown_default(sql: str | None, mapping: TypeMapping) -> GraphQLDefaultInput | None:
    """Return the default that an argument shows, None for an expression or a type without a plain form.

    An argument with any other default is optional all the same (docs/reference/graphql.md, Functions).

    :param sql: the default as PostgreSQL writes it, such as ``'a, b'::text``.
    """
    value = None if sql is None or mapping.is_list else _value(sql, mapping.kind)
    return None if value is None else GraphQLDefaultInput(value=value)


def _value(sql: str, kind: str) -> object:
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


class ResultKind(Enum):
    """The kind of a function's result."""

    SCALAR = "scalar"
    SCALARS = "list"
    ROW = "object"
    ROWS = "collection"
    VOID = "void"


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

    :ivar mapping: of a scalar result or of a list's items.
    :ivar view: of a result of rows.
    """

    name: str
    shape: ResultKind
    mapping: TypeMapping | None
    view: TableView | None
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


class FunctionFields:
    """The functions that one role can call, by the name of their field."""

    def __init__(self, view: CatalogView) -> None:
        self._view = view
        self._catalog = view.catalog
        self._found: dict[bool, dict[str, FunctionField]] = {}

    def fields(self, *, volatile: bool) -> dict[str, FunctionField]:
        """Return the fields of volatile functions, or of the others."""
        if volatile not in self._found:
            self._found[volatile] = self._collect(volatile=volatile)
        return self._found[volatile]

    def _collect(self, *, volatile: bool) -> dict[str, FunctionField]:
        groups: dict[str, list[FunctionField]] = defaultdict(list)
        for function, name in self._callable(volatile=volatile):
            entry = self._entry(function, name)
            if entry is not None:
                groups[entry.name].append(entry)
        found: dict[str, FunctionField] = {}
        for entries in groups.values():
            for entry in _merged(entries):
                name = first_free((entry.name,), entry.name, found)
                found[name] = entry if name == entry.name else replace(entry, name=name)
        return found

    def _callable(self, *, volatile: bool) -> Iterator[tuple[Function, str]]:
        privileges, names = self._view.privileges, self._view.names.entry_points
        for function in self._catalog.functions:
            name = names.get(function.oid)
            if name is None or (function.volatility is Volatility.VOLATILE) is not volatile:
                continue
            if self._view.shows_schema(function.schema) and privileges.can_execute(function):
                yield function, name

    def _entry(self, function: Function, name: str) -> FunctionField | None:
        """Return the function's own field, None when the role can't have it."""
        arguments = self._arguments(function)
        result = self._result(function)
        if arguments is None or result is None:
            return None
        shape, mapping, view = result
        if shape is ResultKind.ROWS and COLLECTION_ARGUMENTS.intersection(item.name for item in arguments):
            return None
        description = self._catalog.directives.function(function.oid).description
        return FunctionField(name, shape, mapping, view, (Overload(function, arguments),), description)

    def _arguments(self, function: Function) -> tuple[FunctionArgument, ...] | None:
        found = []
        for argument in function.arguments:
            name = argument_name(self._catalog, function, argument)
            mapping, composite = mapping_of(self._catalog, argument.type), None
            if mapping is None:
                composite = self._composite(argument.type)
                mapping = _OPAQUE if composite is not None else None
            if mapping is None or not self._view.shows(mapping):
                return None
            if mapping.parameter == "unknown" and composite is None:
                mapping = self._with_type(mapping, argument.type)
            found.append(FunctionArgument(name, argument, mapping, composite))
        return tuple(found)

    def _with_type(self, mapping: TypeMapping, oid: int) -> TypeMapping:
        """Return the mapping with the type's own name where the role may use it.

        PostgreSQL chooses among overloads by the types of their arguments, and takes one that is left
        open for a text.
        """
        found = self._catalog.types[oid]
        return (
            replace(mapping, parameter=qualified(found)) if self._view.shows_schema(found.schema) else mapping
        )

    def _composite(self, oid: int) -> Type | None:
        """Return a composite type that a value can be made of from JSON: one that the role may name."""
        found = self._catalog.types[oid]
        if found.kind is not TypeKind.COMPOSITE or not self._view.shows_schema(found.schema):
            return None
        return found if self._view.privileges.can_use_type(oid) else None

    def _result(self, function: Function) -> tuple[ResultKind, TypeMapping | None, TableView | None] | None:
        if self._catalog.types[function.returns].name == "void":
            return ResultKind.VOID, None, None
        view = self._view.table_of_type(function.returns)
        if view is not None:
            to_one = not function.returns_set or function.rows == 1
            return ResultKind.ROW if to_one else ResultKind.ROWS, None, view
        mapping = mapping_of(self._catalog, function.returns)
        if mapping is None or not self._view.shows(mapping):
            return None
        if not function.returns_set:
            return ResultKind.SCALAR, mapping, None
        return None if mapping.is_list else (ResultKind.SCALARS, mapping, None)


_OPAQUE = TypeMapping(OPAQUE, 0, False, WireForm.JSON, (), "json", "unknown")


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
    if (one.shape, one.mapping, one.view) != (other.shape, other.mapping, other.view):
        return False
    known = {name: item for name, (item, _) in one.arguments().items()}
    new = other.overloads[0]
    if any(item.name in known and known[item.name].mapping != item.mapping for item in new.arguments):
        return False
    own_names = {item.name for item in new.arguments}
    return all(own_names != {item.name for item in overload.arguments} for overload in one.overloads)


def arguments_error(entry: FunctionField, provided: Collection[str]) -> str:
    """Return the message for arguments that no overload takes."""
    forms = ", ".join(
        f"{entry.name}({', '.join(item.name for item in overload.arguments)})" for overload in entry.overloads
    )
    return f"No form of {entry.name} takes the arguments ({', '.join(sorted(provided))}); there are: {forms}"
