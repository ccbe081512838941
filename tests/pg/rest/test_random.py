"""Each request with a random query string succeeds, or fails with an explanation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from support.service import Service

COLUMNS = st.sampled_from(
    ["id", "title", "year", "director", "data", "tags", "headline", "frame", "nope", "count"]
)
PATHS = st.sampled_from(["", "", "", "->a", "->>lang", "->cast->size", "->0", "->>-1"])
FIELDS = st.builds("{}{}".format, COLUMNS, PATHS)
CASTS = st.sampled_from(["", "", "", "::text", "::int", "::jsonb", "::nothing"])
AGGREGATES = st.sampled_from(["", "", "", "", ".count()", ".max()", ".sum()"])
ALIASES = st.sampled_from(["", "", "", "x:", '"a b":', "director:"])
ITEMS = st.one_of(
    st.just("*"), st.just("count()"), st.builds("{}{}{}{}".format, ALIASES, FIELDS, CASTS, AGGREGATES)
)
RESOURCES = st.sampled_from(
    ["director", "actor", "part", "premiere", "poster", "lead", "remakes", "film", "mentor", "pupils",
     "city", "city!host", "director!inner", "sale", "...director", "...actor", "...lead!inner",
     "d:director", "nothing"]
)  # fmt: skip
SELECTS = st.recursive(
    st.lists(ITEMS, max_size=3).map(",".join),
    lambda inner: st.lists(st.builds("{}({})".format, RESOURCES, inner) | ITEMS, max_size=3).map(",".join),
    max_leaves=5,
)
NAMES = st.one_of(
    FIELDS,
    RESOURCES,
    st.builds("{}.{}".format, st.sampled_from(["director", "actor", "film", "part", "x"]), FIELDS),
)
VALUES = st.sampled_from(
    ["eq.1", "eq.x", "not.eq.1", "gt.1990", "is.null", "not.is.null", "is.true", "in.(1,2)", "in.()",
     "like.A*", "cs.{old}", "ov.[1,2)", "fts.cat", "fts(simple).a b", "eq(any).{1,2}", "like(all).{*}",
     "isdistinct.1", "1", ""]
)  # fmt: skip
LEAVES = st.builds("{}.{}".format, FIELDS | RESOURCES, VALUES)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        "{}({})".format, st.sampled_from(["and", "or", "not.and"]), st.lists(inner, max_size=3).map(",".join)
    ),
    max_leaves=4,
)
ORDERS = st.lists(
    st.builds(
        "{}{}".format,
        st.one_of(FIELDS, st.sampled_from(["director(name)", "actor(name)", "lead(name)", "x(id)"])),
        st.sampled_from(["", ".desc", ".asc.nullslast", ".nullsfirst", ".up"]),
    ),
    max_size=2,
).map(",".join)
PARAMETERS = st.one_of(
    st.builds("select={}".format, SELECTS),
    st.builds("{}={}".format, NAMES, VALUES),
    st.builds("or=({})".format, TREES),
    st.builds("{}order={}".format, st.sampled_from(["", "", "director.", "actor."]), ORDERS),
    st.builds("{}limit={}".format, st.sampled_from(["", "actor.", "director."]), st.integers(-1, 3)),
    st.builds("{}offset={}".format, st.sampled_from(["", "actor."]), st.integers(-1, 3)),
)
TABLES = st.sampled_from(["film", "film", "director", "part", "film_brief", "paint", "sale", "nothing"])
FORMS = st.sampled_from(
    ["application/json", "application/json", "text/csv", "application/x-ndjson",
     "application/vnd.pgrst.object+json", "application/vnd.pgrst.array+json;nulls=stripped"]
)  # fmt: skip
COUNTS = st.sampled_from(["", "", "count=exact", "count=planned", "count=estimated"])

EXPECTED_STATUSES = {200, 206, 300, 400, 404, 406, 416}
"""Statuses of valid requests and of explained errors."""


@given(
    table=TABLES,
    parameters=st.lists(PARAMETERS, max_size=4).map("&".join),
    accept=FORMS,
    prefer=COUNTS,
    method=st.sampled_from(["GET", "GET", "HEAD"]),
)
async def test_random_request_succeeds_or_fails_with_a_reason(
    features: Service, table: str, parameters: str, accept: str, prefer: str, method: str
) -> None:
    """No request may cause SQL that PostgreSQL cannot parse."""
    headers = {"accept": accept, **({"prefer": prefer} if prefer else {})}
    response = await features.rest(method, f"{table}?{parameters}", headers=headers)
    assert response.status in EXPECTED_STATUSES, response.text
    if response.status >= 300 and method == "GET":
        assert set(response.body) == {"code", "message", "details", "hint"}
        is_tsquery_error = "tsquery" in response.body["message"]  # a syntax error in the request
        assert is_tsquery_error or response.body["code"] not in (
            "42601",
            "42P01",
            "42702",
            "42P10",
            "XX000",
        ), response.text
