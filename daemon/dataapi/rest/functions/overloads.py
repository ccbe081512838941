"""Which function of a name a request calls; pure.

The names of what is given decide, never the types, as PostgREST has it (reference/rest.md 1.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dataapi.catalog.model import Argument, Catalog, Function, TypeKind
from dataapi.errors import ApiError
from dataapi.rest.resolve.spelling import DISTANTLY_ALIKE, Names, similar

WHOLE_BODY = {
    "application/json": ("json", "jsonb"),
    "text/plain": ("text",),
    "text/xml": ("xml",),
    "application/octet-stream": ("bytea",),
}
"""Types of the single nameless argument that takes a body of a media type as it is."""
_BODIES = {type_: media_type for media_type, types in WHOLE_BODY.items() for type_ in types}

_UNPARSED = ("text/plain", "text/xml", "application/octet-stream")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request calls.

    :ivar names: of the arguments that it gives.
    :ivar media_type: of the body of a POST; None for a call by GET.
    """

    schema: str
    name: str
    names: frozenset[str]
    media_type: str | None = None

    @property
    def unparsed(self) -> bool:
        """Whether the body is of a type that has no names of arguments."""
        return self.media_type in _UNPARSED


@dataclass(frozen=True, slots=True)
class Chosen:
    """The function that is called.

    :ivar whole: its single nameless argument takes the whole body.
    """

    function: Function
    whole: bool


def choose(catalog: Catalog, candidates: Sequence[Function], wanted: Wanted) -> Chosen | None:
    """Return the function that takes what is given, None when there is none.

    Functions that take the names go before those that take the whole body; an empty name stands for it.

    :raises ApiError: PGRST203 (300), several do.
    """
    matching = [each for each in candidates if _takes_names(each, wanted)]
    whole = [each for each in candidates if _takes_whole(catalog, each, wanted)] if not matching else []
    found = matching or whole
    if len(found) > 1:
        raise _ambiguous(catalog, found)
    return Chosen(found[0], bool(whole)) if found else None


def _takes_names(function: Function, wanted: Wanted) -> bool:
    if not function.arguments:
        return not wanted.names and not wanted.unparsed
    required = {argument.name for argument in function.arguments if argument.default is None}
    optional = {argument.name for argument in function.arguments if argument.default is not None}
    return "" not in wanted.names and wanted.names - optional == required


def _takes_whole(catalog: Catalog, function: Function, wanted: Wanted) -> bool:
    body = whole_body(catalog, function)
    if wanted.media_type == "application/json" and wanted.names == {""}:
        return body is not None
    return wanted.media_type is not None and body == wanted.media_type


def is_callable(catalog: Catalog, function: Function) -> bool:
    """Whether a request can call the function: its arguments have names, or it takes a whole body."""
    return all(argument.name for argument in function.arguments) or whole_body(catalog, function) is not None


def whole_body(catalog: Catalog, function: Function) -> str | None:
    """Return the media type of the bodies that a single nameless argument takes as they are; None without."""
    if len(function.arguments) != 1 or function.arguments[0].name:
        return None
    type_ = catalog.types[function.arguments[0].type]
    return _BODIES.get(type_.name) if type_.kind is TypeKind.BASE else None


def _ambiguous(catalog: Catalog, functions: Iterable[Function]) -> ApiError:
    signatures = [
        f"{each.schema}.{each.name}({', '.join(_shown(catalog, argument) for argument in each.arguments)})"
        for each in sorted(functions, key=lambda each: _rank(catalog, each))
    ]
    return ApiError(
        300,
        "PGRST203",
        f"Could not choose the best candidate function between: {', '.join(signatures)}",
        hint="Try renaming the parameters or the function itself in the database so function overloading can"
        " be resolved",
    )


def _rank(catalog: Catalog, function: Function) -> tuple[object, ...]:
    """Return what functions of a name are sorted by: the number of arguments, the comment, the arguments."""
    arguments = [(argument.name, catalog.types[argument.type].sql_name) for argument in function.arguments]
    return len(arguments), function.comment or "", arguments


def _shown(catalog: Catalog, argument: Argument) -> str:
    return f"{argument.name} => {catalog.types[argument.type].sql_name}"


def unknown(wanted: Wanted, candidates: Sequence[Function], names: Names) -> ApiError:
    """Return the error for a call that no function takes (PGRST202, 404).

    :param candidates: the functions of that name.
    :param names: the names of all functions of the schema.
    """
    function = f"{wanted.schema}.{wanted.name}"
    given = sorted(wanted.names)
    shown = "" if wanted.unparsed else _names(given) if given else " without parameters"
    return ApiError(
        404,
        "PGRST202",
        f"Could not find the function {function}{shown} in the schema cache",
        details=f"Searched for the function {function}{_searched(wanted, given)},"
        " but no matches were found in the schema cache.",
        hint=_hint(wanted, candidates, names),
    )


def _searched(wanted: Wanted, given: Sequence[str]) -> str:
    if wanted.unparsed:
        [type_] = WHOLE_BODY[wanted.media_type or ""]
        return f" with a single unnamed {type_} parameter"
    searched = " without parameters"
    if given:
        searched = f" with parameter{'s' if len(given) > 1 else ''} {', '.join(given)}"
    if wanted.media_type == "application/json":
        searched += " or with a single unnamed json/jsonb parameter"
    return searched


def _hint(wanted: Wanted, candidates: Sequence[Function], names: Names) -> str | None:
    if wanted.unparsed:
        return None
    begin = f"Perhaps you meant to call the function {wanted.schema}."
    if candidates:
        signatures = [_names(argument.name for argument in each.arguments) for each in candidates]
        close = similar(_names(wanted.names), Names(signatures), DISTANTLY_ALIKE)
        return None if close is None else begin + wanted.name + close
    close = similar(wanted.name, names)
    return None if close is None else begin + close


def _names(names: Iterable[str]) -> str:
    return f"({', '.join(sorted(names))})"
