"""Which form of answer a client accepts, of those that can be given (reference/rest.md 1.4); pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from dataapi.catalog.formats import ANY_MEDIA_TYPE
from dataapi.catalog.model import Table
from dataapi.errors import ApiError
from dataapi.query.bodies import Body, Content, Form, Handled
from dataapi.rest.request.accept import Accepted, parse_accept

LONGEST_REMEMBERED = 300
"""Characters of an ``Accept`` header whose outcome is remembered: clients repeat themselves."""

PLAN_OPTIONS = ("analyze", "verbose", "settings", "buffers", "wal")
"""What ``EXPLAIN`` can be asked for, in the order in which answers name it."""

BINARY = "application/octet-stream"
LINES = "application/x-ndjson"
OBJECT = "application/vnd.pgrst.object+json"


class Kind(Enum):
    """How the body is made."""

    JSON = "json"
    """An array of objects; of a function that gives no set, its value."""
    OBJECT = "object"
    """The one object there must be."""
    CSV = "csv"
    GEOJSON = "geojson"
    LINES = "lines"
    """A JSON object a line, sent while the rows come."""
    RAW = "raw"
    """A function's value as it is."""
    MADE = "made"
    """By an aggregate of the database."""


@dataclass(frozen=True, slots=True)
class Producer:
    """An aggregate of the database that makes a media type of rows.

    :ivar media_type: in small letters, ``*/*`` for whatever is accepted.
    :ivar function: its SQL name, quoted and qualified.
    :ivar table: the oid of the table whose rows it takes, 0 for any rows.
    :ivar content: what it gives.
    """

    media_type: str
    function: str
    table: int
    content: Content


@dataclass(frozen=True, slots=True)
class Explain:
    """A wish for the statement's plan in place of its rows.

    :ivar as_json: else as text.
    :ivar options: some of ``PLAN_OPTIONS``.
    """

    as_json: bool
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Media:
    """The form of an answer.

    :ivar content_type: as the answer's header says it.
    :ivar stripped: leave null members out.
    :ivar producer: what makes the body, for ``Kind.MADE``.
    :ivar explain: give the plan of the statement that would make this body.
    """

    kind: Kind
    content_type: str
    stripped: bool = False
    producer: Producer | None = None
    explain: Explain | None = None

    @property
    def single(self) -> bool:
        """Whether the answer must be exactly one object."""
        return self.kind is Kind.OBJECT

    @property
    def binary(self) -> bool:
        """Whether an aggregate gives the body as a ``bytea``, of which the statement shows the text form."""
        return self.producer is not None and self.producer.content is Content.BYTES

    def body(self, table: Table | None) -> Body:
        """Return how the body is made of rows.

        :param table: what the rows are of.
        """
        if self.producer is not None:
            return Handled(
                self.producer.function, table if self.producer.table else None, self.producer.content
            )
        if self.kind is Kind.CSV:
            return Form.CSV
        if self.kind is Kind.GEOJSON:
            return Form.GEOJSON
        return Form.STRIPPED if self.stripped else Form.ARRAY


@dataclass(frozen=True, slots=True)
class Offers:
    """What can be given beside JSON, CSV and GeoJSON.

    :ivar producers: the aggregates that the role may use, those for a table's rows before others.
    :ivar table: the oid of the table of whose whole rows the answer is, 0 when it is of anything else.
    :ivar raw: the media types that a function's value is as it stands, ``*/*`` for all.
    :ivar lines: whether rows can be sent while they come.
    :ivar plans: whether plans may be shown (``db-plan-enabled``).
    """

    producers: tuple[Producer, ...] = ()
    table: int = 0
    raw: tuple[str, ...] = ()
    lines: bool = False
    plans: bool = False


def negotiate(accept: str | None, offers: Offers) -> Media:
    """Return the form that a client likes best of those that there are.

    :param accept: the ``Accept`` header, None when there is none: anything is accepted.
    :raises ApiError: PGRST107 (406), none of the accepted forms is available.
    """
    if accept is None:
        return _remembered(ANY_MEDIA_TYPE, offers)
    return (_remembered if len(accept) <= LONGEST_REMEMBERED else _negotiate)(accept, offers)


def _negotiate(accept: str, offers: Offers) -> Media:
    accepted = parse_accept(accept)
    for form in accepted:
        media = _media(form, offers)
        if media is not None:
            return media
    raise unavailable([_canonical(form) for form in accepted] or [accept])


def unavailable(names: Iterable[str]) -> ApiError:
    """Return the error for media ranges of which none can be given."""
    return ApiError(406, "PGRST107", f"None of these media types are available: {', '.join(names)}")


_remembered = lru_cache(maxsize=512)(_negotiate)

# ---------------------------------------------------------------- the choice

_OBJECTS = (OBJECT, "application/vnd.pgrst.object")
_ARRAYS = ("application/vnd.pgrst.array+json", "application/vnd.pgrst.array")
_PLANS = {
    "application/vnd.pgrst.plan": False,
    "application/vnd.pgrst.plan+text": False,
    "application/vnd.pgrst.plan+json": True,
}
_BUILT_IN = {
    ANY_MEDIA_TYPE: Media(Kind.JSON, "application/json; charset=utf-8"),
    "application/json": Media(Kind.JSON, "application/json; charset=utf-8"),
    "text/csv": Media(Kind.CSV, "text/csv; charset=utf-8"),
    "application/geo+json": Media(Kind.GEOJSON, "application/geo+json; charset=utf-8"),
}
_WITH_CHARSET = frozenset({*_BUILT_IN, "text/plain", "text/xml"})


def _media(form: Accepted, offers: Offers) -> Media | None:
    if form.name in _PLANS:
        return _plan(form, offers) if offers.plans else None
    if form.name in _OBJECTS:
        return Media(Kind.OBJECT, f"{_canonical(form)}; charset=utf-8", _strips(form))
    if form.name in _ARRAYS:
        if not _strips(form):
            return _found("application/json", offers)
        return Media(Kind.JSON, f"{_canonical(form)}; charset=utf-8", stripped=True)
    if form.name.endswith("/*") and form.name != ANY_MEDIA_TYPE:
        return _in_range(form.name[:-1], offers)
    return _found(form.name, offers)


def _plan(form: Accepted, offers: Offers) -> Media | None:
    media = _media(_explained(form), offers)
    if media is None or media.explain is not None:
        return None
    explain = Explain(_PLANS[form.name], _options(form))
    content_type = f"{_canonical(form)}; charset=utf-8"
    return Media(media.kind, content_type, media.stripped, media.producer, explain)


def _found(name: str, offers: Offers) -> Media | None:
    """Return what is given for a media type: a function's own value, what is made for the table, for any."""
    if ANY_MEDIA_TYPE in offers.raw:
        return Media(Kind.RAW, BINARY)
    if name in offers.raw:
        return Media(Kind.RAW, _content_type(name))
    if offers.table:
        for wanted in (ANY_MEDIA_TYPE, name):
            made = _made(wanted, offers.table, offers)
            if made is not None:
                return made
    made = _made(name, 0, offers)
    if made is not None:
        return made
    if name == LINES and offers.lines:
        return Media(Kind.LINES, LINES)
    return _BUILT_IN.get(name)


def _in_range(beginning: str, offers: Offers) -> Media | None:
    names = (*offers.raw, *(producer.media_type for producer in offers.producers), *_BUILT_IN)
    for name in names:
        if name.startswith(beginning):
            found = _found(name, offers)
            if found is not None:
                return found
    return None


def _made(name: str, table: int, offers: Offers) -> Media | None:
    for producer in offers.producers:
        if producer.media_type == name and producer.table == table:
            return Media(Kind.MADE, _content_type(name), producer=producer)
    return None


def _content_type(name: str) -> str:
    if name == ANY_MEDIA_TYPE:
        return BINARY
    return f"{name}; charset=utf-8" if name in _WITH_CHARSET else name


# ---------------------------------------------------------------- names


def _strips(form: Accepted) -> bool:
    return form.parameter("nulls") == "stripped"


def _options(form: Accepted) -> tuple[str, ...]:
    asked = (form.parameter("options") or "").split("|")
    return tuple(option for option in PLAN_OPTIONS if option in asked)


def _explained(form: Accepted) -> Accepted:
    """Return the form whose statement's plan is asked for."""
    name, *fields = (form.parameter("for") or "application/json").lower().split(";")
    parameters = [field.strip().partition("=") for field in fields]
    return Accepted(name.strip(), tuple((key, value) for key, _, value in parameters))


def _canonical(form: Accepted) -> str:
    """Return a media range of PostgREST's as it names it itself."""
    if form.name in _OBJECTS:
        return _OBJECTS[0] + (";nulls=stripped" if _strips(form) else "")
    if form.name in _ARRAYS:
        return _ARRAYS[0] + ";nulls=stripped" if _strips(form) else "application/json"
    if form.name in _PLANS:
        options = "|".join(_options(form))
        name = "application/vnd.pgrst.plan+" + ("json" if _PLANS[form.name] else "text")
        shown = f'{name}; for="{_canonical(_explained(form))}"'
        return f"{shown}; options={options}" if options else shown
    return form.name
