"""Negotiates the media type of a response."""

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
"""Maximum length of an ``Accept`` header whose result is cached."""

PLAN_OPTIONS = ("analyze", "verbose", "settings", "buffers", "wal")
"""Options of ``EXPLAIN``, in their order in the response's content type."""

LINES = "application/x-ndjson"
OBJECT = "application/vnd.pgrst.object+json"
OPENAPI = "application/openapi+json"


class MediaKind(Enum):
    """Kinds of response bodies."""

    JSON = "json"
    """An array of objects, or the value of a function that does not return a set."""
    OBJECT = "object"
    CSV = "csv"
    GEOJSON = "geojson"
    LINES = "lines"
    """One JSON object per line, streamed."""
    RAW = "raw"
    """A function's result, returned unchanged."""
    HANDLER = "handler"


@dataclass(frozen=True, slots=True)
class RowHandler:
    """An aggregate that converts rows to a media type (``*/*`` for any).

    ``table`` is the OID of the table whose rows the aggregate accepts, 0 for any rows.
    """

    media_type: str
    function: str
    table: int
    content: Content


@dataclass(frozen=True, slots=True)
class Explain:
    """A request for PostgreSQL's query plan instead of rows. ``options`` is a subset of ``PLAN_OPTIONS``."""

    as_json: bool
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Media:
    """The negotiated media type of a response.

    :ivar row_handler: aggregate that builds the body, for ``MediaKind.HANDLER``.
    :ivar single: whether the result must be exactly one object.
    :ivar is_binary: whether the body is a ``bytea``.
    """

    kind: MediaKind
    content_type: str
    stripped: bool = False
    row_handler: RowHandler | None = None
    explain: Explain | None = None
    single: bool = field(init=False, compare=False)
    is_binary: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        handler = self.row_handler
        object.__setattr__(self, "single", self.kind is MediaKind.OBJECT)
        object.__setattr__(self, "is_binary", handler is not None and handler.content is Content.BYTES)

    def body(self, table: Table | None, postgis: str | None) -> Body:
        handler = self.row_handler
        if handler is not None:
            return HandlerBody(handler.function, table if handler.table else None, handler.content)
        if self.kind is MediaKind.CSV:
            return Form.CSV
        if self.kind is MediaKind.GEOJSON:
            return GeoJson.by(postgis)
        return Form.STRIPPED if self.stripped else Form.ARRAY


class Offers(NamedTuple):
    """Media types that are available in addition to JSON, CSV and GeoJSON.

    :ivar row_handlers: aggregates that the role may use. Aggregates for the rows of ``table`` take
        precedence.
    :ivar table: OID of the table whose whole rows are returned, 0 for other results.
    :ivar raw: media types in which a scalar function's value is returned unchanged, ``*/*`` for any.
    :ivar lines: whether rows can be streamed.
    :ivar plans: whether plans are available (``db-plan-enabled``).
    """

    row_handlers: tuple[RowHandler, ...] = ()
    table: int = 0
    raw: tuple[str, ...] = ()
    lines: bool = False
    plans: bool = False


def negotiate(accept: str | None, offers: Offers) -> Media:
    """Return the available media type that the client prefers. Without ``Accept``, it accepts all types.

    :raises ApiError: PGRST107 (406) if none of the accepted media types is available.
    """
    accept = ANY_MEDIA_TYPE if accept is None else accept
    return (_cached if len(accept) <= LONGEST_CACHED else _negotiate)(accept, offers)


def _negotiate(accept: str, offers: Offers) -> Media:
    accepted = parse_accept(accept)
    for media_range in accepted:
        media = _media(media_range, offers)
        if media is not None:
            return media
    raise unavailable([_canonical(media_range) for media_range in accepted] or [accept])


def unavailable(names: Iterable[str]) -> ApiError:
    return ApiError(406, "PGRST107", f"None of these media types are available: {', '.join(names)}")


_cached = lru_cache(maxsize=512)(_negotiate)

# ---------------------------------------------------------------- selection

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


def _media(media_range: MediaType, offers: Offers) -> Media | None:
    if media_range.name in _PLANS:
        return _plan(media_range, offers) if offers.plans else None
    if media_range.name in _OBJECTS:
        return Media(
            MediaKind.OBJECT, f"{_canonical(media_range)}; charset=utf-8", _strips_nulls(media_range)
        )
    if media_range.name in _ARRAYS:
        if not _strips_nulls(media_range):
            return _media_named("application/json", offers)
        return Media(MediaKind.JSON, f"{_canonical(media_range)}; charset=utf-8", stripped=True)
    if media_range.name.endswith("/*") and media_range.name != ANY_MEDIA_TYPE:
        return _media_in_range(media_range.name[:-1], offers)
    return _media_named(media_range.name, offers)


def _plan(media_range: MediaType, offers: Offers) -> Media | None:
    media = _media(_explained(media_range), offers)
    if media is None or media.explain is not None:
        return None
    explain = Explain(_PLANS[media_range.name], _options(media_range))
    content_type = f"{_canonical(media_range)}; charset=utf-8"
    return Media(media.kind, content_type, media.stripped, media.row_handler, explain)


def _media_named(name: str, offers: Offers) -> Media | None:
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


def _media_in_range(prefix: str, offers: Offers) -> Media | None:
    names = (*offers.raw, *(row_handler.media_type for row_handler in offers.row_handlers), *_BUILT_IN)
    matches = (_media_named(name, offers) for name in names if name.startswith(prefix))
    return next((media for media in matches if media is not None), None)


def _content_type(name: str) -> str:
    if name == ANY_MEDIA_TYPE:
        return BINARY
    return f"{name}; charset=utf-8" if name in _WITH_CHARSET else name


# ---------------------------------------------------------------- names


def _strips_nulls(media_range: MediaType) -> bool:
    return media_range.parameter("nulls") == "stripped"


def _options(media_range: MediaType) -> tuple[str, ...]:
    requested = (media_range.parameter("options") or "").split("|")
    return tuple(option for option in PLAN_OPTIONS if option in requested)


def _explained(media_range: MediaType) -> MediaType:
    name, *fields = (media_range.parameter("for") or "application/json").lower().split(";")
    parameters = [field.strip().partition("=") for field in fields]
    return MediaType(name.strip(), tuple((key, value) for key, _, value in parameters))


def _canonical(media_range: MediaType) -> str:
    if media_range.name in _OBJECTS:
        return _OBJECTS[0] + (";nulls=stripped" if _strips_nulls(media_range) else "")
    if media_range.name in _ARRAYS:
        return _ARRAYS[0] + ";nulls=stripped" if _strips_nulls(media_range) else "application/json"
    if media_range.name in _PLANS:
        options = "|".join(_options(media_range))
        name = "application/vnd.pgrst.plan+" + ("json" if _PLANS[media_range.name] else "text")
        canonical = f'{name}; for="{_canonical(_explained(media_range))}"'
        return f"{canonical}; options={options}" if options else canonical
    return media_range.name


def unhex(text: bytes) -> bytes:
    return bytes.fromhex(text[2:].decode("ascii")) if text.startswith(rb"\x") else text
