"""Functions as entry points: which ones a role can call, their arguments and what they give.

Stable and immutable functions are fields of ``Query``, volatile ones of ``Mutation``
(reference/graphql.md 1.4).  Overloads share a field where their results agree, and the
names of the given arguments choose among them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from dataapi.catalog.entry_points import argument_name
from dataapi.catalog.inflection import first_free
from dataapi.catalog.model import Argument, Function, Type, TypeKind, Volatility
from dataapi.graphql.role_view import RoleView
from dataapi.graphql.scalars import OPAQUE
from dataapi.graphql.table_view import TableView
from dataapi.graphql.wire import Wire, wire_of
from dataapi.query.results import WireForm
from dataapi.query.writer import qualified

COLLECTION_ARGUMENTS = frozenset({"first", "last", "before", "after", "offset", "filter", "orderBy"})


class Shape(Enum):
    """What a function gives."""

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
    wire: Wire
    composite: Type | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One function behind an entry point."""

    function: Function
    arguments: tuple[FunctionArgument, ...]

    @property
    def required(self) -> frozenset[str]:
        """Return the names of the arguments without a default."""
        return frozenset(item.name for item in self.arguments if item.argument.default is None)

    def takes(self, given: Collection[str]) -> bool:
        """Whether the function can be called with these arguments."""
        return self.required.issubset(given) and {item.name for item in self.arguments}.issuperset(given)


@dataclass(frozen=True, slots=True)
class FunctionEntry:
    """A function's field, with all overloads that share it.

    :ivar wire: of a scalar result or of a list's items.
    :ivar view: of a result of rows.
    """

    name: str
    shape: Shape
    wire: Wire | None
    view: TableView | None
    candidates: tuple[Candidate, ...]
    description: str | None

    def arguments(self) -> dict[str, tuple[FunctionArgument, bool]]:
        """Return the arguments of all overloads, and whether each is required by every one."""
        found: dict[str, tuple[FunctionArgument, bool]] = {}
        for candidate in self.candidates:
            for item in candidate.arguments:
                required = all(item.name in other.required for other in self.candidates)
                found.setdefault(item.name, (item, required))
        return found

    def choose(self, given: Collection[str]) -> Candidate | None:
        """Return the overload that takes these arguments, the one with the fewest of its own first."""
        fitting = [candidate for candidate in self.candidates if candidate.takes(given)]
        return min(fitting, key=lambda candidate: len(candidate.arguments), default=None)


class FunctionViews:
    """The functions that one role can call, by the name of their field."""

    def __init__(self, view: RoleView) -> None:
        self._view = view
        self._catalog = view.catalog
        self._found: dict[bool, dict[str, FunctionEntry]] = {}

    def entries(self, *, volatile: bool) -> dict[str, FunctionEntry]:
        """Return the entry points of volatile functions, or of the others."""
        if volatile not in self._found:
            self._found[volatile] = self._collect(volatile=volatile)
        return self._found[volatile]

    def _collect(self, *, volatile: bool) -> dict[str, FunctionEntry]:
        groups: dict[str, list[FunctionEntry]] = defaultdict(list)
        for function, name in self._callable(volatile=volatile):
            entry = self._entry(function, name)
            if entry is not None:
                groups[entry.name].append(entry)
        found: dict[str, FunctionEntry] = {}
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

    def _entry(self, function: Function, name: str) -> FunctionEntry | None:
        """Return the function's own entry point, None when the role can't have it."""
        arguments = self._arguments(function)
        result = self._result(function)
        if arguments is None or result is None:
            return None
        shape, wire, view = result
        if shape is Shape.ROWS and COLLECTION_ARGUMENTS.intersection(item.name for item in arguments):
            return None
        description = self._catalog.annotations.function(function.oid).description
        return FunctionEntry(name, shape, wire, view, (Candidate(function, arguments),), description)

    def _arguments(self, function: Function) -> tuple[FunctionArgument, ...] | None:
        found = []
        for argument in function.arguments:
            name = argument_name(self._catalog, function, argument)
            wire, composite = wire_of(self._catalog, argument.type), None
            if wire is None:
                composite = self._composite(argument.type)
                wire = _OPAQUE if composite is not None else None
            if wire is None or not self._view.shows(wire):
                return None
            if wire.parameter == "unknown" and composite is None:
                wire = self._with_type(wire, argument.type)
            found.append(FunctionArgument(name, argument, wire, composite))
        return tuple(found)

    def _with_type(self, wire: Wire, oid: int) -> Wire:
        """Return the wire form with the type's own name where the role may use it.

        PostgreSQL chooses among overloads by the types of their arguments, and takes one that is left
        open for a text.
        """
        found = self._catalog.types[oid]
        return replace(wire, parameter=qualified(found)) if self._view.shows_schema(found.schema) else wire

    def _composite(self, oid: int) -> Type | None:
        """Return a composite type that a value can be made of from JSON: one that the role may name."""
        found = self._catalog.types[oid]
        if found.kind is not TypeKind.COMPOSITE or not self._view.shows_schema(found.schema):
            return None
        return found if self._view.privileges.can_use_type(oid) else None

    def _result(self, function: Function) -> tuple[Shape, Wire | None, TableView | None] | None:
        if self._catalog.types[function.returns].name == "void":
            return Shape.VOID, None, None
        view = self._view.table_of_type(function.returns)
        if view is not None:
            to_one = not function.returns_set or function.rows == 1
            return Shape.ROW if to_one else Shape.ROWS, None, view
        wire = wire_of(self._catalog, function.returns)
        if wire is None or not self._view.shows(wire):
            return None
        if not function.returns_set:
            return Shape.SCALAR, wire, None
        return None if wire.is_list else (Shape.SCALARS, wire, None)


_OPAQUE = Wire(OPAQUE, 0, False, WireForm.JSON, (), "json", "unknown")


def _merged(entries: list[FunctionEntry]) -> Iterator[FunctionEntry]:
    """Yield the entry points of functions of one name: those that agree share one.

    One that does not agree with the first gets a name of its own, made of its arguments.
    """
    entries = sorted(entries, key=_fewest_arguments)
    shared = entries[0]
    for entry in entries[1:]:
        if _agree(shared, entry):
            candidates = (*shared.candidates, *entry.candidates)
            description = shared.description or entry.description
            shared = replace(shared, candidates=candidates, description=description)
        else:
            names = [item.name[:1].upper() + item.name[1:] for item in entry.candidates[0].arguments]
            yield replace(entry, name=f"{entry.name}By{'And'.join(names)}")
    yield shared


def _fewest_arguments(entry: FunctionEntry) -> tuple[int, list[tuple[str, str, str]]]:
    """Return what overloads are sorted by: their arguments, which outlive a dump and restore."""
    arguments = entry.candidates[0].arguments
    return len(arguments), [(item.name, item.wire.kind, item.wire.parameter) for item in arguments]


def _agree(one: FunctionEntry, other: FunctionEntry) -> bool:
    """Whether two functions can share a field: one result type, and one type for each argument's name."""
    if (one.shape, one.wire, one.view) != (other.shape, other.wire, other.view):
        return False
    known = {name: item for name, (item, _) in one.arguments().items()}
    new = other.candidates[0]
    if any(item.name in known and known[item.name].wire != item.wire for item in new.arguments):
        return False
    own_names = {item.name for item in new.arguments}
    return all(own_names != {item.name for item in candidate.arguments} for candidate in one.candidates)


def arguments_error(entry: FunctionEntry, given: Collection[str]) -> str:
    """Return the message for arguments that no overload takes."""
    forms = ", ".join(
        f"{entry.name}({', '.join(item.name for item in candidate.arguments)})"
        for candidate in entry.candidates
    )
    return f"No form of {entry.name} takes the arguments ({', '.join(sorted(given))}); there are: {forms}"
