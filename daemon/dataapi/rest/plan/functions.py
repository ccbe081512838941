"""The functions that a role may call, overload resolution, and function results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from dataapi.catalog.media_types import media_type_of
from dataapi.catalog.model import Catalog, Function, Privileges, Type, TypeKind
from dataapi.http.errors import ApiError
from dataapi.rest.media_output import Content
from dataapi.rest.parse.body import BINARY, form_hint
from dataapi.rest.parse.request import WHOLE_BODY, CallShape, PlanInput
from dataapi.rest.plan.similar_names import MIN_KNOWN_SIMILARITY, NameIndex, similar
from dataapi.rest.plan.tables import Relation, RelationColumn, denied
from dataapi.rest.statements import SCALAR

_CONTENTS = {"bytea": Content.BYTES, "xml": Content.XML}


class ResultShape(Enum):
    """Kinds of function results."""

    VOID = "void"
    VALUE = "value"
    VALUES = "values"
    ROW = "row"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """The result of a function.

    :ivar relation: description of its rows. A scalar result is a row with the column ``SCALAR``.
    :ivar raw: media types in which a scalar function's value can be returned unchanged, ``*/*`` for any.
    """

    shape: ResultShape
    relation: Relation
    raw: tuple[str, ...] = ()
    content: Content = Content.TEXT

    @property
    def is_scalar(self) -> bool:
        return self.shape in (ResultShape.VOID, ResultShape.VALUE, ResultShape.VALUES)

    @property
    def is_single(self) -> bool:
        return self.shape in (ResultShape.VOID, ResultShape.VALUE, ResultShape.ROW)


def _result_of(catalog: Catalog, function: Function) -> FunctionResult:
    declared = catalog.types[function.returns]
    relation = _relation(catalog, function, declared)
    if relation is not None:
        return FunctionResult(ResultShape.ROWS if function.returns_set else ResultShape.ROW, relation)
    values = Relation(function.schema, function.name, None, {SCALAR: RelationColumn(function.returns)})
    if function.returns_set:
        return FunctionResult(ResultShape.VALUES, values)
    if declared.name == "void" and declared.kind is TypeKind.PSEUDO:
        return FunctionResult(ResultShape.VOID, values)
    return FunctionResult(ResultShape.VALUE, values, _raw(catalog, declared), content_of(catalog, declared))


def _relation(catalog: Catalog, function: Function, declared: Type) -> Relation | None:
    if function.columns:
        columns = {column.name: RelationColumn(column.type) for column in function.columns}
        return Relation(function.schema, function.name, None, columns)
    type_ = catalog.base_type(declared)
    if type_.kind is not TypeKind.COMPOSITE:
        return None
    table = catalog.tables.get(type_.relation)
    if table is not None:
        return Relation.of(table)
    members = {member.name: RelationColumn(member.type) for member in type_.members}
    return Relation(type_.schema, type_.name, None, members)


def _raw(catalog: Catalog, declared: Type) -> tuple[str, ...]:
    own = media_type_of(declared)
    if own is not None:
        return (own,)
    content = content_of(catalog, declared)
    if content is Content.BYTES:
        return (BINARY,)
    if content is Content.XML:
        return ("text/xml", "text/plain")
    type_ = catalog.base_type(declared)
    is_text = type_.category == "S"  # PostgreSQL's category for string types
    return ("text/plain", BINARY) if is_text else ("text/plain",)


def content_of(catalog: Catalog, type_: Type) -> Content:
    return _CONTENTS.get(catalog.base_type(type_).sql_name, Content.TEXT)


_BODIES = {type_: media_type for media_type, types in WHOLE_BODY.items() for type_ in types}


@dataclass(frozen=True, slots=True)
class ChosenFunction:
    """The function to call. ``whole`` is true if its single unnamed argument receives the whole body."""

    function: Function
    whole: bool


def choose(catalog: Catalog, candidates: Sequence[Function], arguments: CallShape) -> ChosenFunction | None:
    """Return the function that accepts the arguments, None if none does.

    Functions that accept the argument names take precedence over functions that accept the whole body.

    :raises ApiError: PGRST203 (300) if several functions accept the arguments.
    """
    matching = [each for each in candidates if _accepts_names(each, arguments)]
    whole = [each for each in candidates if _accepts_body(catalog, each, arguments)] if not matching else []
    accepted = matching or whole
    if len(accepted) > 1:
        raise _ambiguous(catalog, accepted)
    return ChosenFunction(accepted[0], bool(whole)) if accepted else None


def _accepts_names(function: Function, arguments: CallShape) -> bool:
    if not function.arguments:
        return not arguments.names and not arguments.unparsed
    required, allowed = _names_of(function)
    return "" not in arguments.names and required <= arguments.names <= allowed


def always_ambiguous(catalog: Catalog, function: Function, overloads: Iterable[Function]) -> ApiError | None:
    """Return the error PGRST203 if every call of the function also matches another function, else None."""
    body = whole_body(catalog, function)
    rivals = [
        each
        for each in overloads
        if each is not function and whole_body(catalog, each) == body and _accepts_all_of(each, function)
    ]
    return _ambiguous(catalog, [function, *rivals]) if rivals else None


def _accepts_all_of(one: Function, other: Function) -> bool:
    (required, allowed), (other_required, other_allowed) = _names_of(one), _names_of(other)
    return required <= other_required and other_allowed <= allowed


def _names_of(function: Function) -> tuple[frozenset[str], frozenset[str]]:
    arguments = function.arguments
    required = frozenset(argument.name for argument in arguments if argument.default is None)
    return required, frozenset(argument.name for argument in arguments)


def _accepts_body(catalog: Catalog, function: Function, arguments: CallShape) -> bool:
    body = whole_body(catalog, function)
    if arguments.media_type == "application/json" and arguments.names == {""}:
        return body is not None
    return arguments.media_type is not None and body == arguments.media_type


def is_callable(catalog: Catalog, function: Function) -> bool:
    return all(argument.name for argument in function.arguments) or whole_body(catalog, function) is not None


def whole_body(catalog: Catalog, function: Function) -> str | None:
    """Return the media type of the body that a single unnamed argument accepts, None if there is none."""
    if len(function.arguments) != 1 or function.arguments[0].name:
        return None
    type_ = catalog.types[function.arguments[0].type]
    return _BODIES.get(type_.name) if type_.kind is TypeKind.BASE else None


def _ambiguous(catalog: Catalog, functions: Iterable[Function]) -> ApiError:
    overloads = []
    for each in functions:
        arguments = [(argument.name, catalog.types[argument.type].sql_name) for argument in each.arguments]
        listed = ", ".join([f"{name} => {type_}" for name, type_ in arguments])
        overloads.append(
            (len(arguments), each.comment or "", arguments, f"{each.schema}.{each.name}({listed})")
        )
    signatures = [signature for *_, signature in sorted(overloads)]
    return ApiError(
        300,
        "PGRST203",
        f"Could not choose the best candidate function between: {', '.join(signatures)}",
        hint="Try renaming the parameters or the function itself in the database so function overloading can"
        " be resolved",
    )


def unknown(plan_input: PlanInput, candidates: Sequence[Function], names: NameIndex) -> ApiError:
    function, arguments = f"{plan_input.schema}.{plan_input.target}", plan_input.call
    provided = _names(arguments.names) if arguments.names else " without parameters"
    return ApiError(
        404,
        "PGRST202",
        f"Could not find the function {function}{'' if arguments.unparsed else provided} in the schema cache",
        details=f"Searched for the function {function}{_searched(arguments)},"
        " but no matches were found in the schema cache.",
        hint=form_hint(arguments.names) or _hint(plan_input, candidates, names),
    )


def _searched(arguments: CallShape) -> str:
    if arguments.unparsed:
        [type_] = WHOLE_BODY[arguments.media_type or ""]
        return f" with a single unnamed {type_} parameter"
    searched = " without parameters"
    if arguments.names:
        plural = "s" if len(arguments.names) > 1 else ""
        searched = f" with parameter{plural} {', '.join(sorted(arguments.names))}"
    if arguments.media_type == "application/json":
        searched += " or with a single unnamed json/jsonb parameter"
    return searched


def _hint(plan_input: PlanInput, candidates: Sequence[Function], names: NameIndex) -> str | None:
    if plan_input.call.unparsed:
        return None
    begin = f"Perhaps you meant to call the function {plan_input.schema}."
    if candidates:
        signatures = [_names(argument.name for argument in each.arguments) for each in candidates]
        close = similar(_names(plan_input.call.names), NameIndex(signatures), MIN_KNOWN_SIMILARITY)
        return None if close is None else begin + plan_input.target + close
    close = similar(plan_input.target, names)
    return None if close is None else begin + close


def _names(names: Iterable[str]) -> str:
    return f"({', '.join(sorted(names))})"


class RoleFunctions:
    """The functions of a catalog that a role may call.

    The functions are collected on first use, because many roles only read tables.
    """

    def __init__(self, catalog: Catalog, role: str, *, anonymous: bool) -> None:
        self._catalog = catalog
        self._privileges = Privileges(catalog, role)
        self._anonymous = anonymous
        self._names: dict[str, NameIndex] = {}
        self._results: dict[int, FunctionResult] = {}

    def named(self, schema: str, name: str) -> Sequence[Function]:
        """Return the overloads of a function that the role may call, empty if there is no such function.

        :raises ApiError: 42501 (401, 403) if there are overloads but the role is not allowed to call any of
            them.
        """
        overloads = self._by_name.get((schema, name), ())
        for function in () if overloads else self._catalog.functions:
            if (function.schema, function.name) == (schema, name) and is_callable(self._catalog, function):
                raise denied(self._privileges, "function", function, anonymous=self._anonymous)
        return overloads

    def names(self, schema: str) -> NameIndex:
        if schema not in self._names:
            self._names[schema] = NameIndex(name for in_schema, name in self._by_name if in_schema == schema)
        return self._names[schema]

    @cached_property
    def _by_name(self) -> Mapping[tuple[str, str], Sequence[Function]]:
        privileges, by_name = self._privileges, dict[tuple[str, str], list[Function]]()
        for function in self._catalog.functions:
            usable = privileges.can_use_schema(function.schema) and privileges.can_execute(function)
            if usable and is_callable(self._catalog, function):
                by_name.setdefault((function.schema, function.name), []).append(function)
        return by_name

    def result(self, function: Function) -> FunctionResult:
        result = self._results.get(function.oid)
        if result is None:
            result = self._results[function.oid] = _result_of(self._catalog, function)
        return result
