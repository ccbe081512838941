"""Parses the arguments of a function call, in the query string or the body; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from dataapi.catalog.model import Function
from dataapi.http import query_string as querystring
from dataapi.http.errors import ApiError
from dataapi.http.headers import media_type
from dataapi.http.messages import Request
from dataapi.rest.parse.body import BINARY, FORM, JSON, UNEQUAL_KEYS
from dataapi.rest.parse.body import read as read_body
from dataapi.rest.parse.filters import has_operator
from dataapi.rest.parse.query import LONGEST_REMEMBERED
from dataapi.rest.parse.select import parse_names
from dataapi.rest.parse.syntax import EMBEDDABLE, RESERVED

Pairs = tuple[tuple[str, str], ...]

WHOLE_BODY = {
    "application/json": ("json", "jsonb"),
    "text/plain": ("text",),
    "text/xml": ("xml",),
    "application/octet-stream": ("bytea",),
}
"""Types of the single nameless argument that takes a body of a media type as it is."""
UNPARSED = ("text/plain", "text/xml", "application/octet-stream")


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """What a request calls.

    :ivar names: of its arguments.
    :ivar media_type: of the body of a POST; None for a call by GET.
    """

    schema: str
    name: str
    names: frozenset[str]
    media_type: str | None = None

    @property
    def unparsed(self) -> bool:
        """Whether the body is of a type that has no names of arguments."""
        return self.media_type in UNPARSED


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The arguments of a call.

    :ivar requested: the function, as far as the request names it.
    :ivar row_parameters: the parameters of the query string that are not arguments.
    :ivar pairs: names and values, in order, where they are not members of ``body``.
    :ivar body: the text of the body.
    :ivar many: whether that is an array of objects.
    :ivar refusal: why the body has no named arguments; a function may still accept the whole body.
    """

    requested: RequestedCall
    row_parameters: Pairs
    pairs: Pairs | None = None
    body: str = ""
    many: bool = False
    refusal: ApiError | None = None


# ---------------------------------------------------------------- what is given


def read_arguments(request: Request, schema: str, name: str) -> CallArguments:
    """Parse the arguments of a call.

    :param name: the function's, in the schema.

    :raises ApiError: PGRST100 (400) for a query string, PGRST102 (400) for a body that can't be understood.
    """
    query = request.query
    if request.method == "POST":
        return _posted(request, schema, name, tuple(querystring.pairs(query)))
    arguments, row_parameters = (_remembered if len(query) <= LONGEST_REMEMBERED else _queried)(query)
    names = frozenset([each for each, _ in arguments])
    return CallArguments(RequestedCall(schema, name, names), row_parameters, arguments)


def _queried(query: str) -> tuple[Pairs, Pairs]:
    """Return the parameters of a query string that are arguments, and the others."""
    pairs = [(pair, _is_argument(*pair)) for pair in querystring.pairs(query)]
    return tuple([pair for pair, is_argument in pairs if is_argument]), tuple(
        [pair for pair, is_argument in pairs if not is_argument]
    )


_remembered = lru_cache(maxsize=1024)(_queried)


def _is_argument(name: str, value: str) -> bool:
    """Whether a parameter of a query string is an argument: no filter, nor what shapes the rows."""
    return not _is_reserved(name) and not has_operator(value)


def _is_reserved(name: str) -> bool:
    return name in RESERVED or name.rpartition(".")[2] in EMBEDDABLE


def with_filters_as_arguments(provided: CallArguments, candidates: Iterable[Function]) -> CallArguments:
    """Return the call with filters as arguments where a function has arguments of their names.

    A text may look like a filter by chance; this is for calls that match no function otherwise.
    """
    names = {argument.name for each in candidates for argument in each.arguments}
    filters = [pair for pair in provided.row_parameters if pair[0] in names and not _is_reserved(pair[0])]
    requested = replace(provided.requested, names=provided.requested.names | {name for name, _ in filters})
    row_parameters = tuple([pair for pair in provided.row_parameters if pair not in filters])
    return replace(
        provided,
        requested=requested,
        row_parameters=row_parameters,
        pairs=(*(provided.pairs or ()), *filters),
    )


class _Body(NamedTuple):
    """The arguments in a body; see ``CallArguments``."""

    names: Iterable[str] = ()
    pairs: Pairs | None = None
    text: str = ""
    many: bool = False
    refusal: ApiError | None = None


def _posted(request: Request, schema: str, name: str, row_parameters: Pairs) -> CallArguments:
    form = media_type(request.headers.get("content-type") or JSON)
    body = _parsed_body(request.body, form, row_parameters)
    requested = RequestedCall(schema, name, frozenset(body.names), form)
    return CallArguments(requested, row_parameters, *body[1:])


def _parsed_body(body: bytes, form: str, row_parameters: Pairs) -> _Body:
    if form == JSON:
        return _members(_text(body), row_parameters)
    if form == BINARY:
        return _Body(text=rf"\x{body.hex()}")
    if form in WHOLE_BODY:
        return _Body(text=_text(body))
    if form == FORM:
        fields = tuple(querystring.pairs(_text(body)))
        return _Body([name for name, _ in fields], fields)
    read = read_body(body, form, _chosen_columns(row_parameters))
    return _Body(read.columns, None, read.text, read.many)


def _members(text: str, row_parameters: Pairs) -> _Body:
    """Return the arguments in a JSON body, by the names of its members; an empty one has none."""
    columns = _chosen_columns(row_parameters)
    if not text.strip():
        return _Body(columns or (), None, "{}")
    try:
        read = read_body(text.encode(), JSON, columns)
    except ApiError as error:
        if error.message != UNEQUAL_KEYS:
            raise
        return _Body((), None, text, True, error)
    return _Body(read.columns, None, text, read.many)


def _chosen_columns(pairs: Pairs) -> tuple[str, ...] | None:
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
