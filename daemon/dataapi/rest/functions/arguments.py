"""The arguments that a request gives a function, by its query string or by its body; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from dataapi.catalog.model import Argument, Catalog, Function, Type
from dataapi.errors import ApiError
from dataapi.headers import media_type
from dataapi.query.algebra import Call, CallArgument, Parameter, Unfolded
from dataapi.rest.context import Context
from dataapi.rest.functions.overloads import WHOLE_BODY, Wanted
from dataapi.rest.media import BINARY
from dataapi.rest.request import payload
from dataapi.rest.request.filters import array_literal, has_operator
from dataapi.rest.request.grammar import parse_names
from dataapi.rest.request.syntax import EMBEDDABLE, RESERVED
from dataapi.rest.resolve.selection import LONGEST_REMEMBERED
from dataapi.web import querystring

Pairs = tuple[tuple[str, str], ...]

_UNBOUNDED = {"character": "varchar", "character[]": "varchar[]", "bit": "varbit", "bit[]": "varbit[]"}
"""What arguments of types are read as whose bare names mean a length of one."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a request gives a function.

    :ivar wanted: the function, as far as the request names it.
    :ivar aside: the parameters of the query string that are no arguments.
    :ivar pairs: names and values, in order, where they come one by one and not as members of ``body``.
    :ivar body: the text of the body.
    :ivar many: whether that is an array of objects.
    :ivar refusal: why the body has no arguments by name; a function may still take it as it is.
    """

    wanted: Wanted
    aside: Pairs
    pairs: Pairs | None = None
    body: str = ""
    many: bool = False
    refusal: ApiError | None = None


@dataclass(frozen=True, slots=True)
class CallValues:
    """The values of a call, in the places that its sources know.

    :ivar lifted: those of the selection.
    :ivar given: those of arguments that come one by one, by name.
    :ivar most: how many rows the call may give, where that is limited.
    """

    lifted: tuple[str, ...]
    given: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    most: int | None = None


@dataclass(frozen=True, slots=True)
class GivenValue:
    """Where an argument's value comes from that comes by itself."""

    name: str

    def bind(self, values: CallValues) -> str:
        """Return the value."""
        return values.given[self.name]


@dataclass(frozen=True, slots=True)
class BodyValue:
    """Where the body comes from."""

    def bind(self, values: CallValues) -> str:
        """Return the body's text."""
        return values.body


# ---------------------------------------------------------------- what is given


def read_arguments(context: Context) -> Given:
    """Return what a request gives to the function that it names.

    :raises ApiError: PGRST100 (400) for a query string, PGRST102 (400) for a body that can't be understood.
    """
    query = context.request.query
    if context.request.method == "POST":
        return _posted(context, tuple(querystring.pairs(query)))
    arguments, aside = (_remembered if len(query) <= LONGEST_REMEMBERED else _queried)(query)
    names = frozenset([name for name, _ in arguments])
    return Given(Wanted(context.schema, context.target, names), aside, arguments)


def _queried(query: str) -> tuple[Pairs, Pairs]:
    """Return the parameters of a query string that are arguments, and the others."""
    told = [(pair, _is_argument(*pair)) for pair in querystring.pairs(query)]
    return tuple([pair for pair, given in told if given]), tuple([pair for pair, given in told if not given])


_remembered = lru_cache(maxsize=1024)(_queried)


def _is_argument(name: str, value: str) -> bool:
    """Whether a parameter of a query string is an argument: no filter, nor what shapes the rows."""
    return not _is_reserved(name) and not has_operator(value)


def _is_reserved(name: str) -> bool:
    return name in RESERVED or name.rpartition(".")[2] in EMBEDDABLE


def by_name(given: Given, candidates: Iterable[Function]) -> Given:
    """Return what is given when parameters that look like filters are arguments where a function has such.

    A text may begin like a filter by chance; this is for calls that are none otherwise.
    """
    names = {argument.name for each in candidates for argument in each.arguments}
    looks = [pair for pair in given.aside if pair[0] in names and not _is_reserved(pair[0])]
    wanted = replace(given.wanted, names=given.wanted.names | {name for name, _ in looks})
    aside = tuple([pair for pair in given.aside if pair not in looks])
    return replace(given, wanted=wanted, aside=aside, pairs=(*(given.pairs or ()), *looks))


class _Body(NamedTuple):
    """What a body gives; see ``Given``."""

    names: Iterable[str] = ()
    pairs: Pairs | None = None
    text: str = ""
    many: bool = False
    refusal: ApiError | None = None


def _posted(context: Context, aside: Pairs) -> Given:
    form = media_type(context.request.headers.get("content-type") or payload.JSON)
    body = _read_body(context.request.body, form, aside)
    wanted = Wanted(context.schema, context.target, frozenset(body.names), form)
    return Given(wanted, aside, *body[1:])


def _read_body(body: bytes, form: str, aside: Pairs) -> _Body:
    if form == payload.JSON:
        return _members(_text(body), aside)
    if form == BINARY:
        return _Body(text=rf"\x{body.hex()}")
    if form in WHOLE_BODY:
        return _Body(text=_text(body))
    if form == payload.FORM:
        fields = tuple(querystring.pairs(_text(body)))
        return _Body([name for name, _ in fields], fields)
    read = payload.read(body, form, _chosen(aside))
    return _Body(read.columns, None, read.text, read.many)


def _members(text: str, aside: Pairs) -> _Body:
    """Return what a JSON body gives by the names of its members; an empty one has none."""
    columns = _chosen(aside)
    if not text.strip():
        return _Body(columns or (), None, "{}")
    try:
        read = payload.read(text.encode(), payload.JSON, columns)
    except ApiError as error:
        if error.message != payload.UNEQUAL_KEYS:
            raise
        return _Body((), None, text, True, error)
    return _Body(read.columns, None, text, read.many)


def _chosen(pairs: Pairs) -> tuple[str, ...] | None:
    """Return which members are taken for arguments, None for all."""
    chosen = next((value for name, value in pairs if name == "columns"), None)
    return None if chosen is None else parse_names(chosen, "columns")


def _text(body: bytes) -> str:
    if b"\0" in body:
        raise ApiError(400, "22021", 'invalid byte sequence for encoding "UTF8": 0x00')
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        byte = f"0x{body[error.start]:02x}"
        raise ApiError(400, "22021", f'invalid byte sequence for encoding "UTF8": {byte}') from None


# ---------------------------------------------------------------- the call


def call_of(catalog: Catalog, function: Function, given: Given, *, whole: bool, scalar: bool) -> Call:
    """Return the call of a function.

    :param whole: its single nameless argument takes the body as it is.
    :param scalar: whether its results are values.
    """
    if whole:
        [argument] = function.arguments
        type_ = catalog.types[argument.type].sql_name
        only = (CallArgument("", Parameter(BodyValue(), type_)),)
        return Call(function, only, scalar=scalar, keeps_null=True)
    named = [argument for argument in function.arguments if argument.name in given.wanted.names]
    if given.pairs is not None or not named:
        arguments = tuple(_argument(catalog, argument) for argument in named)
        return Call(function, arguments, scalar=scalar, keeps_null=True)
    members = tuple((argument.name, _member_type(catalog.types[argument.type])) for argument in named)
    unfolded = Unfolded(Parameter(BodyValue(), "json"), given.many, members)
    arguments = tuple(CallArgument(each.name, None, variadic=each.variadic) for each in named)
    return Call(function, arguments, scalar=scalar, unfolded=unfolded, keeps_null=True)


def _argument(catalog: Catalog, argument: Argument) -> CallArgument:
    parameter = Parameter(GivenValue(argument.name), _slot_type(catalog.types[argument.type]))
    return CallArgument(argument.name, parameter, variadic=argument.variadic)


def _slot_type(type_: Type) -> str:
    """Return the type of an argument's slot; PostgreSQL finds those that are not its own by the function.

    So no privilege on the schema of a type is needed to name it.
    """
    return _member_type(type_) if type_.schema == "pg_catalog" and type_.category != "P" else "unknown"


def _member_type(type_: Type) -> str:
    return _UNBOUNDED.get(type_.sql_name, type_.sql_name)


def given_values(function: Function, given: Given) -> dict[str, str]:
    """Return the arguments that come one by one; of several values the last counts, for variadic ones all."""
    values = dict(given.pairs or ())
    for argument in function.arguments:
        if argument.variadic and argument.name in values:
            listed = [value for name, value in given.pairs or () if name == argument.name]
            values[argument.name] = '{""}' if listed == [""] else array_literal(listed)
    return values
