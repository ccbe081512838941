"""The response format chosen by the ``Accept`` header."""

from __future__ import annotations

import pytest
from dataapi.http.errors import ApiError
from dataapi.http.headers import parse_accept
from dataapi.rest.media_output import Content
from dataapi.rest.negotiation import Media, MediaKind, Offers, RowHandler, negotiate
from hypothesis import given
from hypothesis import strategies as st

OBJECT = "application/vnd.pgrst.object+json"
PLAN = "application/vnd.pgrst.plan"
TWKB = RowHandler("application/vnd.twkb", "public.twkb", 7, Content.BYTES)
TABS = RowHandler("text/tab-separated-values", "public.tabs", 0, Content.TEXT)
OWN_JSON = RowHandler("application/json", "public.own", 7, Content.TEXT)
ANYTHING = RowHandler("*/*", "public.anything", 7, Content.TEXT)
ANY_ROWS = RowHandler("*/*", "public.any_rows", 0, Content.TEXT)


def kind(accept: str | None, **offers: object) -> tuple[MediaKind, str]:
    """Return the kind and content type of a response."""
    media = negotiate(accept, Offers(**offers))  # type: ignore[arg-type]
    return media.kind, media.content_type


@pytest.mark.parametrize(
    ("accept", "expected", "content_type"),
    [
        (None, MediaKind.JSON, "application/json; charset=utf-8"),
        ("*/*", MediaKind.JSON, "application/json; charset=utf-8"),
        ("application/*", MediaKind.JSON, "application/json; charset=utf-8"),
        ("application/json", MediaKind.JSON, "application/json; charset=utf-8"),
        ("APPLICATION/JSON", MediaKind.JSON, "application/json; charset=utf-8"),
        ("application/vnd.pgrst.array+json", MediaKind.JSON, "application/json; charset=utf-8"),
        ("text/html, application/xhtml+xml, */*;q=0.8", MediaKind.JSON, "application/json; charset=utf-8"),
        ("text/csv", MediaKind.CSV, "text/csv; charset=utf-8"),
        ("text/*", MediaKind.CSV, "text/csv; charset=utf-8"),
        ("application/geo+json", MediaKind.GEOJSON, "application/geo+json; charset=utf-8"),
        (OBJECT, MediaKind.OBJECT, f"{OBJECT}; charset=utf-8"),
        ("application/vnd.pgrst.object", MediaKind.OBJECT, f"{OBJECT}; charset=utf-8"),
        (f"{OBJECT};charset=utf-8", MediaKind.OBJECT, f"{OBJECT}; charset=utf-8"),
        (f"application/json;q=0.5, {OBJECT}", MediaKind.OBJECT, f"{OBJECT}; charset=utf-8"),
    ],
)
def test_built_in_media_types_are_available(
    accept: str | None, expected: MediaKind, content_type: str
) -> None:
    assert kind(accept) == (expected, content_type)


@pytest.mark.parametrize(
    ("accept", "listed"),
    [
        ("text/plain", "text/plain"),
        ("undefined", "undefined"),
        ("", ""),
        ("a;q=x", "a"),
        ("application/json;q=0", "application/json;q=0"),
        ("image/png;q=0.1, audio/mpeg3", "audio/mpeg3, image/png"),
        ("application/x-ndjson", "application/x-ndjson"),
        ("application/openapi+json", "application/openapi+json"),
        (PLAN, f'{PLAN}+text; for="application/json"'),
    ],
)
def test_unavailable_media_types_are_406(accept: str, listed: str) -> None:
    """The message lists the requested media types in order of preference."""
    with pytest.raises(ApiError) as caught:
        negotiate(accept, Offers())
    assert (caught.value.status, caught.value.code) == (406, "PGRST107")
    assert caught.value.message == f"None of these media types are available: {listed}"
    assert (caught.value.details, caught.value.hint) == (None, None)


def test_nulls_stripped_applies_to_objects_and_arrays() -> None:
    single = negotiate(f"{OBJECT};nulls=stripped", Offers())
    assert (single.kind, single.stripped) == (MediaKind.OBJECT, True)
    assert single.content_type == f"{OBJECT};nulls=stripped; charset=utf-8"
    array = negotiate("application/vnd.pgrst.array+json; nulls=stripped", Offers())
    assert (array.kind, array.stripped) == (MediaKind.JSON, True)
    assert array.content_type == "application/vnd.pgrst.array+json;nulls=stripped; charset=utf-8"


WEIGHTS = st.integers(1, 999).map(lambda number: number / 1000)


@given(st.lists(WEIGHTS, min_size=1, max_size=8, unique=True))
def test_media_types_are_sorted_by_weight(weights: list[float]) -> None:
    header = ", ".join(f"a/b{number};q={weight}" for number, weight in enumerate(weights))
    expected = sorted(range(len(weights)), key=lambda number: -weights[number])
    assert [form.name for form in parse_accept(header)] == [f"a/b{number}" for number in expected]


@given(st.text(alphabet=st.sampled_from(list('aA/*;,="q.01 \\+|')), max_size=40))
def test_any_accept_header_is_accepted_or_406(header: str) -> None:
    try:
        media = negotiate(header, Offers(plans=True))
    except ApiError as error:
        code = error.code
    else:
        assert isinstance(media, Media)
        return
    assert code == "PGRST107"


def test_more_specific_then_earlier_media_types_are_preferred() -> None:
    names = [form.name for form in parse_accept("*/*, text/*, text/csv, a/b;x=1, c/d")]
    assert names == ["a/b", "text/csv", "c/d", "text/*", "*/*"]
    [plan] = parse_accept(f'{PLAN}; for="a/b;x=1,2"; options=analyze|wal; q=0.3')
    assert plan.parameters == (("for", "a/b;x=1,2"), ("options", "analyze|wal"))


def test_ndjson_needs_rows_that_can_be_streamed() -> None:
    assert kind("application/x-ndjson", lines=True) == (MediaKind.LINES, "application/x-ndjson")


# ---------------------------------------------------------------- media types of the database


def test_aggregates_of_a_table_only_apply_to_its_rows() -> None:
    offers = {"row_handlers": (TWKB, TABS)}
    assert kind("application/vnd.twkb", table=7, **offers) == (MediaKind.HANDLER, "application/vnd.twkb")
    assert kind("text/tab-separated-values", table=7, **offers)[0] is MediaKind.HANDLER
    assert kind("text/tab-separated-values", **offers)[0] is MediaKind.HANDLER
    for table in (0, 8):
        with pytest.raises(ApiError):
            kind("application/vnd.twkb", table=table, **offers)


def test_aggregate_can_replace_json_but_not_vendor_media_types() -> None:
    offers = {"row_handlers": (OWN_JSON,), "table": 7}
    assert kind("application/json", **offers) == (MediaKind.HANDLER, "application/json; charset=utf-8")
    assert kind(OBJECT, **offers)[0] is MediaKind.OBJECT
    assert kind("*/*", **offers)[0] is MediaKind.JSON


def test_aggregate_for_any_media_type_of_a_table_always_applies() -> None:
    """An aggregate for rows of any table applies only if the request accepts ``*/*``."""
    for accept in ("*/*", "magic/number", "application/json"):
        expected = kind(accept, row_handlers=(ANYTHING, TWKB), table=7)
        assert expected == (MediaKind.HANDLER, "application/octet-stream")
    assert kind("*/*", row_handlers=(ANY_ROWS,)) == (MediaKind.HANDLER, "application/octet-stream")
    assert kind("application/json", row_handlers=(ANY_ROWS,))[0] is MediaKind.JSON


def test_value_of_a_media_type_domain_is_returned_raw() -> None:
    assert kind("image/png", raw=("image/png",)) == (MediaKind.RAW, "image/png")
    assert kind("image/*", raw=("image/png",)) == (MediaKind.RAW, "image/png")
    assert kind("text/plain", raw=("text/plain",)) == (MediaKind.RAW, "text/plain; charset=utf-8")
    assert kind("image/png, */*", raw=("image/png",))[0] is MediaKind.RAW
    assert kind("*/*", raw=("image/png",))[0] is MediaKind.JSON
    assert kind("app/bingo", raw=("*/*",)) == (MediaKind.RAW, "application/octet-stream")


# ---------------------------------------------------------------- plans


@pytest.mark.parametrize(
    ("accept", "content_type", "as_json", "options"),
    [
        (PLAN, f'{PLAN}+text; for="application/json"', False, ()),
        (f"{PLAN};", f'{PLAN}+text; for="application/json"', False, ()),
        (f"{PLAN}+json; options=", f'{PLAN}+json; for="application/json"', True, ()),
        (
            f'{PLAN}+json; for="application/vnd.pgrst.object"; options=wal|analyze|nonsense;',
            f'{PLAN}+json; for="{OBJECT}"; options=analyze|wal',
            True,
            ("analyze", "wal"),
        ),
        (
            f'{PLAN}+text; for="application/vnd.pgrst.array+json;nulls=stripped"',
            f'{PLAN}+text; for="application/vnd.pgrst.array+json;nulls=stripped"',
            False,
            (),
        ),
    ],
)
def test_content_type_of_a_plan_contains_its_media_type(
    accept: str, content_type: str, as_json: bool, options: tuple[str, ...]
) -> None:
    media = negotiate(accept, Offers(plans=True))
    assert media.content_type == f"{content_type}; charset=utf-8"
    assert media.explain is not None
    assert (media.explain.as_json, media.explain.options) == (as_json, options)


def test_plan_of_an_unavailable_media_type_is_406() -> None:
    for accept in (f'{PLAN}; for="{PLAN}"', f'{PLAN}; for="text/plain"'):
        with pytest.raises(ApiError):
            negotiate(accept, Offers(plans=True))
