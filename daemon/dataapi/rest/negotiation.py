"""Negotiates the media type of an answer: ``Accept`` against the types that the role may have; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from dataapi.catalog.media_types import ANY_MEDIA_TYPE
from dataapi.catalog.model import Table
from dataapi.http.errors import ApiError
from dataapi.http.headers import MediaType, parse_accept
from dataapi.rest.media_output import Body, Content, Form, GeoJson, HandlerBody
from dataapi.rest.parse.body import BINARY

LONGEST_CACHED = 300
"""Characters of an ``Accept`` header whose result is cached: clients repeat themselves."""

PLAN_OPTIONS = ("analyze", "verbose", "settings", "buffers", "wal")
"""Options of ``EXPLAIN``, in the order in which answers name them."""

LINES = "application/x-ndjson"
OBJECT = "application/vnd.pgrst.object+json"
OPENAPI = "application/openapi+json"


class MediaKind(Enum):
    """How the body is made."""

    JSON = "json"
    """An array of objects, or the value of a function that returns no set."""
    OBJECT = "object"
    """The one object there must be."""
    CSV = "csv"
    GEOJSON = "geojson"
    LINES = "lines"
    """A JSON object a line, sent while the rows come."""
    RAW = "raw"
    """A function's value as it is."""
    HANDLER = "handler"
    """By an aggregate of the database."""


@dataclass(frozen=True, slots=True)
class RowHandler:
    """An aggregate of the database that makes a media type of rows.

    :ivar media_type: in small letters, ``*/*`` for whatever is accepted.
    :ivar function: its SQL name, quoted and qualified.
    :ivar table: the oid of the table whose rows it takes, 0 for any rows.
    :ivar content: what it returns.
    """

    media_type: str
    function: str
    table: int
    content: Content


@dataclass(frozen=True, slots=True)
class Explain:
    """The statement's plan is requested in place of its rows.

    :ivar as_json: else as text.
    :ivar options: some of ``PLAN_OPTIONS``.
    """

    as_json: bool
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Media:
    """The form of an answer.

    :ivar content_type: the answer's header.
    :ivar stripped: leave null members out.
    :ivar row_handler: what makes the body, for ``MediaKind.HANDLER``.
    :ivar explain: answer with the plan of the statement that would make this body.
    :ivar single: whether the answer must be exactly one object.
    :ivar is_binary: whether the body comes as a ``bytea``.
    """

    kind: MediaKind
    content_type: str
    stripped: bool = False
    row_handler: RowHandler | None = None
    explain: Explain | None = None
    single: bool = field(init=False, compare=False)
    is_binary: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Derive the offers of each answer."""
        handler = self.row_handler
        object.__setattr__(self, "single", self.kind is MediaKind.OBJECT)
        object.__setattr__(self, "is_binary", handler is not None and handler.content is Content.BYTES)

    def body(self, table: Table | None, postgis: str | None) -> Body:
        """Return how the body is made of rows.

        :param table: the table of the rows.
        :param postgis: see ``GeoJson.by``.
        """
        handler = self.row_handler
        if handler is not None:
            return HandlerBody(handler.function, table if handler.table else None, handler.content)
        if self.kind is MediaKind.CSV:
            return Form.CSV
        if self.kind is MediaKind.GEOJSON:
            return GeoJson.by(postgis)
        return Form.STRIPPED if self.stripped else Form.ARRAY


class Offers(NamedTuple):
    """Media types that are available besides JSON, CSV and GeoJSON.

    :ivar row_handlers: the aggregates that the role may use, those for a table's rows before others.
    :ivar table: the oid of the table of whose whole rows the answer is, 0 when it is of anything else.
    :ivar raw: the media types that a function's value is as it stands, ``*/*`` for all.
    :ivar lines: whether rows can be sent while they come.
    :ivar plans: whether plans may be requested (``db-plan-enabled``).
    """

    row_handlers: tuple[RowHandler, ...] = ()
    table: int = 0
    raw: tuple[str, ...] = ()
    lines: bool = False
    plans: bool = False


def negotiate(accept: str | None, offers: Offers) -> Media:
    """Return the available media type that the client prefers.

    :param accept: the ``Accept`` header; None accepts anything.
    :raises ApiError: PGRST107 (406), none of the accepted media types is available.
    """
    accept = ANY_MEDIA_TYPE if accept is None else accept
    return (_cached if len(accept) <= LONGEST_CACHED else _negotiate)(accept, offers)


def _negotiate(accept: str, offers: Offers) -> Media:
    accepted = parse_accept(accept)
    for form in accepted:
        media = _media(form, offers)
        if media is not None:
            return media
    raise unavailable([_canonical(form) for form in accepted] or [accept])


def unavailable(names: Iterable[str]) -> ApiError:
    """Return the error for media ranges that are not available."""
    return ApiError(406, "PGRST107", f"None of these media types are available: {', '.join(names)}")


_cached = lru_cache(maxsize=512)(_negotiate)

# ---------------------------------------------------------------- the choice

_OBJECTS = (OBJECT, "application/vnd.pgrst.object")
_ARRAYS = ("application/vnd.pgrst.array+json", "application/vnd.pgrst.array")
_PLANS = {
    "application/vnd.pgrst.plan": False,
    "application/vnd.pgrst.plan+text": False,
    "application/vnd.pgrst.plan+json": True,
}
_BUILT_IN = {
    ANY_MEDIA_TYPE: Media(MediaKind.JSON, "application/json; charset=utf-8"),
    "application/json": Media(MediaKind.JSON, "application/json; charset=utf-8"),
    "text/csv": Media(MediaKind.CSV, "text/csv; charset=utf-8"),
    "application/geo+json": Media(MediaKind.GEOJSON, "application/geo+json; charset=utf-8"),
}
_WITH_CHARSET = frozenset({*_BUILT_IN, "text/plain", "text/xml"})


def _media(form: MediaType, offers: Offers) -> Media | None:
    if form.name in _PLANS:
        return _plan(form, offers) if offers.plans else None
    if form.name in _OBJECTS:
        return Media(MediaKind.OBJECT, f"{_canonical(form)}; charset=utf-8", _strips(form))
    if form.name in _ARRAYS:
        if not _strips(form):
            return _found("application/json", offers)
        return Media(MediaKind.JSON, f"{_canonical(form)}; charset=utf-8", stripped=True)
    if form.name.endswith("/*") and form.name != ANY_MEDIA_TYPE:
        return _in_range(form.name[:-1], offers)
    return _found(form.name, offers)


def _plan(form: MediaType, offers: Offers) -> Media | None:
    media = _media(_explained(form), offers)
    if media is None or media.explain is not None:
        return None
    explain = Explain(_PLANS[form.name], _options(form))
    content_type = f"{_canonical(form)}; charset=utf-8"
    return Media(media.kind, content_type, media.stripped, media.row_handler, explain)


def _found(name: str, offers: Offers) -> Media | None:
    """Return what answers a media type: a function's own value, then handlers for the table, then for any."""
    if ANY_MEDIA_TYPE in offers.raw:
        return Media(MediaKind.RAW, BINARY)
    if name in offers.raw:
        return Media(MediaKind.RAW, _content_type(name))
    of_table = ((ANY_MEDIA_TYPE, offers.table), (name, offers.table)) if offers.table else ()
    for requested in (*of_table, (name, 0)):
        for row_handler in offers.row_handlers:
            if (row_handler.media_type, row_handler.table) == requested:
                return Media(MediaKind.HANDLER, _content_type(requested[0]), row_handler=row_handler)
    if name == LINES and offers.lines:
        return Media(MediaKind.LINES, LINES)
    return _BUILT_IN.get(name)


def _in_range(beginning: str, offers: Offers) -> Media | None:
    names = (*offers.raw, *(row_handler.media_type for row_handler in offers.row_handlers), *_BUILT_IN)
    found = (_found(name, offers) for name in names if name.startswith(beginning))
    return next((media for media in found if media is not None), None)


def _content_type(name: str) -> str:
    if name == ANY_MEDIA_TYPE:
        return BINARY
    return f"{name}; charset=utf-8" if name in _WITH_CHARSET else name


# ---------------------------------------------------------------- names


def _strips(form: MediaType) -> bool:
    return form.parameter("nulls") == "stripped"


def _options(form: MediaType) -> tuple[str, ...]:
    requested = (form.parameter("options") or "").split("|")
    return tuple(option for option in PLAN_OPTIONS if option in requested)


def _explained(form: MediaType) -> MediaType:
    """Return the media type whose statement is explained."""
    name, *fields = (form.parameter("for") or "application/json").lower().split(";")
    parameters = [field.strip().partition("=") for field in fields]
    return MediaType(name.strip(), tuple((key, value) for key, _, value in parameters))


def _canonical(form: MediaType) -> str:
    """Return a media range of PostgREST's as it names it itself."""
    if form.name in _OBJECTS:
        return _OBJECTS[0] + (";nulls=stripped" if _strips(form) else "")
    if form.name in _ARRAYS:
        return _ARRAYS[0] + ";nulls=stripped" if _strips(form) else "application/json"
    if form.name in _PLANS:
        options = "|".join(_options(form))
        name = "application/vnd.pgrst.plan+" + ("json" if _PLANS[form.name] else "text")
        canonical = f'{name}; for="{_canonical(_explained(form))}"'
        return f"{canonical}; options={options}" if options else canonical
    return form.name


def unhex(text: bytes) -> bytes:
    """Return the bytes of a ``bytea`` in the text form that it has with ``bytea_output = hex``."""
    return bytes.fromhex(text[2:].decode("ascii")) if text.startswith(rb"\x") else text
