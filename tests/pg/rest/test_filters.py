"""REST filters: every operator selects the same rows as SQL (docs/reference/rest.md, Filters)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.films import ids, ids_where

if TYPE_CHECKING:
    from support.service import Service


CASES = [
    # Comparisons and negations, also of NULL.
    ("id=eq.2", "id = 2"),
    ("year=eq.1995", "year = 1995"),
    ("year=neq.1995", "year <> 1995"),
    ("year=not.eq.1995", "not year = 1995"),
    ("year=gt.1995", "year > 1995"),
    ("year=gte.1995", "year >= 1995"),
    ("year=lt.1995", "year < 1995"),
    ("year=lte.1995", "year <= 1995"),
    ("budget=gt.999.99", "budget > 999.99"),
    ("rating=lt.7.5", "rating < 7.5"),
    ("mood=eq.calm", "mood = 'calm'"),
    ("mood=gt.calm", "mood > 'calm'"),
    ("seen=eq.true", "seen"),
    ('title=eq.Gamma, the "last"', "title = 'Gamma, the \"last\"'"),
    ("title=eq.", "title = ''"),
    # Patterns, in which * means %, and regular expressions.
    ("title=like.A*", "title like 'A%'"),
    ("title=like.*a", "title like '%a'"),
    ("title=like.%25a", "title like '%a'"),
    ("title=like.delta\\_100\\%25", "title like 'delta\\_100\\%'"),
    ("title=ilike.*A", "title ilike '%A'"),
    ("title=not.ilike.*A", "title not ilike '%A'"),
    ("title=match.^[A-E]", "title ~ '^[A-E]'"),
    ("title=imatch.^[a-b]", "title ~* '^[a-b]'"),
    # Lists and quoting.
    ("id=in.(1,3)", "id in (1, 3)"),
    ("id=not.in.(1,3)", "id not in (1, 3)"),
    ("id=in.()", "false"),
    ("id=in.( )", "false"),
    ('title=in.("")', "title = ''"),
    ('title=in.("",Alpha)', "title in ('', 'Alpha')"),
    ('title=not.in.("")', "title <> ''"),
    ('or=(title.in.(""),id.in.())', "title = ''"),
    ("title=in.(Alpha,Beta)", "title in ('Alpha', 'Beta')"),
    ('title=in.("Alpha","Gamma, the \\"last\\"")', "title in ('Alpha', 'Gamma, the \"last\"')"),
    ("year=not.in.(1990)", "year not in (1990)"),
    ("mood=in.(calm,wild)", "mood in ('calm', 'wild')"),
    # is.
    ("year=is.null", "year is null"),
    ("year=not.is.null", "year is not null"),
    ("year=is.not_null", "year is not null"),
    ("year=not.is.not_null", "year is null"),
    ("seen=is.true", "seen is true"),
    ("seen=is.FALSE", "seen is false"),
    ("seen=is.unknown", "seen is unknown"),
    ("seen=not.is.true", "seen is not true"),
    ("year=isdistinct.1995", "year is distinct from 1995"),
    ("year=not.isdistinct.1995", "year is not distinct from 1995"),
    # Any and all of several values.
    ("id=eq(any).{1,4}", "id = any('{1,4}')"),
    ("year=gt(all).{1990,1994}", "year > all('{1990,1994}')"),
    ("year=lte(any).{1990,1994}", "year <= any('{1990,1994}')"),
    ("title=like(any).{A*,B*}", "title like any('{A%,B%}')"),
    ("title=like(all).{*a,B*}", "title like all('{%a,B%}')"),
    ("title=ilike(any).{a*,e*}", "title ilike any('{a%,e%}')"),
    ("title=match(any).{^A,^B}", "title ~ any('{^A,^B}')"),
    ("title=not.imatch(all).{a$,^b}", "not title ~* all('{a$,^b}')"),
    # Arrays, ranges, JSON.
    ("tags=cs.{old}", "tags @> '{old}'"),
    ('tags=cs.{"with, comma"}', "tags @> '{\"with, comma\"}'"),
    ("tags=cd.{short,old,long}", "tags <@ '{short,old,long}'"),
    ("tags=ov.{short,long}", "tags && '{short,long}'"),
    ("tags=not.ov.{short,long}", "not tags && '{short,long}'"),
    ("tags=eq.{long}", "tags = '{long}'"),
    ('data=cs.{"lang": "en"}', 'data @> \'{"lang": "en"}\''),
    ('data=cd.{"lang": null, "a.b": "dot", "x": 1}', 'data <@ \'{"lang": null, "a.b": "dot", "x": 1}\''),
    ("run=ov.[1990-02-15,1990-02-20)", "run && '[1990-02-15,1990-02-20)'"),
    ("run=cs.[1990-01-15,1990-01-16)", "run @> '[1990-01-15,1990-01-16)'"),
    ("run=sl.[1991-01-01,1992-01-01)", "run << '[1991-01-01,1992-01-01)'"),
    ("run=sr.[1980-01-01,1981-01-01)", "run >> '[1980-01-01,1981-01-01)'"),
    ("run=nxr.[1990-01-01,1990-03-01)", "run &< '[1990-01-01,1990-03-01)'"),
    ("run=nxl.[1990-02-01,1990-03-01)", "run &> '[1990-02-01,1990-03-01)'"),
    ("run=adj.[1990-03-01,1990-04-01)", "run -|- '[1990-03-01,1990-04-01)'"),
    # Object members and array elements of JSON values.
    ("data->>lang=eq.en", "data->>'lang' = 'en'"),
    ("data->>lang=is.null", "data->>'lang' is null"),
    ("data->cast->>size=eq.12", "data->'cast'->>'size' = '12'"),
    ("data->cast->size=gt.1", "data->'cast'->'size' > '1'"),
    ("data->years->0=eq.1990", "data->'years'->0 = '1990'"),
    ("data->years->>-1=eq.1991", "data->'years'->>-1 = '1991'"),
    ('data->>"a.b"=eq.dot', "data->>'a.b' = 'dot'"),
    ("data->>lang=in.(en,fr)", "data->>'lang' in ('en', 'fr')"),
    ("raw->>a=eq.1", "raw->>'a' = '1'"),
    ("raw->b->>1=eq.20", "raw->'b'->>1 = '20'"),
    ("frame->>width=eq.16", "(frame).width = 16"),
    ("tags->>0=eq.old", "tags[1] = 'old'"),
    # Text search in a tsvector and in other types.
    ("script=fts.cat", "script @@ to_tsquery('cat')"),
    ("script=fts(english).cats %26 running", "script @@ to_tsquery('english', 'cats & running')"),
    ("script=plfts.dog sleep", "script @@ plainto_tsquery('dog sleep')"),
    ("script=phfts(english).cats and dogs", "script @@ phraseto_tsquery('english', 'cats and dogs')"),
    ("script=wfts(english).cat -dog", "script @@ websearch_to_tsquery('english', 'cat -dog')"),
    ("script=not.fts(english).cat", "not script @@ to_tsquery('english', 'cat')"),
    ("plot=fts(english).cats", "to_tsvector('english', plot) @@ to_tsquery('english', 'cats')"),
    ("plot=plfts(simple).the", "to_tsvector('simple', plot) @@ plainto_tsquery('simple', 'the')"),
    ("data->>lang=fts(simple).en", "to_tsvector('simple', data->>'lang') @@ to_tsquery('simple', 'en')"),
    # Computed fields.
    ("headline=eq.ALPHA", "headline(film) = 'ALPHA'"),
    ("headline=like.*A", "headline(film) like '%A'"),
    ("words=fts(simple).cats", "words(film) @@ to_tsquery('simple', 'cats')"),
    # Several filters are combined with AND.
    ("year=gt.1990&year=lt.2001", "year > 1990 and year < 2001"),
    ("year=eq.1995&director=eq.2", "year = 1995 and director = 2"),
    ('"year"=eq.1990', "year = 1990"),
]


@pytest.mark.parametrize(("query", "condition"), CASES)
async def test_filters_select_the_same_rows_as_sql(features: Service, query: str, condition: str) -> None:
    assert await ids(features, query) == ids_where(features, condition)


async def test_filter_cases_have_many_different_results(features: Service) -> None:
    results = {tuple(ids_where(features, condition)) for _, condition in CASES}
    assert len(results) > 15


async def test_special_column_names_can_be_quoted_or_escaped(features: Service) -> None:
    """Characters with a meaning in filters require double quotes. Spaces do not."""
    for query in ("the key=eq.1", '"the key"=eq.1', '"a,b"=eq.comma', '"say \\"hi\\""=eq.quote',
                  '"d.o.t"=eq.dot', '"x->y"=eq.arrow', "the%20key=eq.1"):  # fmt: skip
        response = await features.rest("GET", f"Odd Table?{query}&select=the key")
        assert response.body == [{"the key": 1}], query


async def test_filter_values_are_parsed_with_the_casts_of_a_domain(features: Service) -> None:
    for query, expected in [
        ("shade=eq.%23ff0000", [1]), ("shade=neq.00ff00", [1, 3]), ("shade=in.(ff0000,0000ff)", [1, 3]),
        ("shade=gt.0000ff", [1, 2]), ("shade=isdistinct.00ff00", [1, 3]), ("spare=is.null", [1]),
        ("or=(shade.eq.0000ff,spare.eq.000001)", [2, 3]),
    ]:  # fmt: skip
        response = await features.rest("GET", f"paint?select=id&order=id&{query}")
        assert [row["id"] for row in response.body] == expected, query


async def test_patterns_are_not_cast_to_the_domain(features: Service) -> None:
    """Patterns of ``like`` are used as sent, although the domain has a cast for its values."""
    for query, expected in [
        ("plate=eq.ab 12", [1]), ("plate=like.ab*", [3]), ("plate=ilike.ab*", [1, 3]),
        ("plate=not.like.A*", [3]),
    ]:  # fmt: skip
        response = await features.rest("GET", f"car?select=id&order=id&{query}")
        assert [row["id"] for row in response.body] == expected, query


async def test_domains_over_tsvector_are_searched_directly(features: Service) -> None:
    for query, expected in [
        ("long=fts(simple).exits", [1]), ("short=fts(simple).exits", [1]), ("long=fts(english).exits", []),
        ("short=not.plfts(simple).entry", [1]),
    ]:  # fmt: skip
        response = await features.rest("GET", f"sign?select=id&{query}")
        assert [row["id"] for row in response.body] == expected, query


async def test_primary_key_reads_share_one_statement(features: Service) -> None:
    first = await features.rest("GET", "film?id=eq.1&select=title")
    second = await features.rest("GET", "film?id=eq.4&select=title")
    assert (first.body, second.body) == ([{"title": "Alpha"}], [{"title": "delta_100%"}])
    [one], [other] = first.messages, second.messages
    assert one.statements[0].statement is other.statements[0].statement
    assert "Alpha" not in one.statements[0].statement.text
    assert one.statements[0].values == ("1",)


HOSTILE = [
    "'; drop table film; --", "$1", "%s", "\\", '"', "{", "(", "a'b", "\u2028", "\U0001f600", "1 or 1=1",
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE)
async def test_hostile_values_are_treated_as_data(features: Service, value: str) -> None:
    headers = {"prefer": "count=exact"}
    for query in (f"title=eq.{escaped(value)}", f"data->>{escaped(quoted(value))}=eq.x",
                  f"or=(title.eq.{escaped(quoted(value))})", f"title=in.({escaped(quoted(value))})",
                  f"title=eq(any).{{{escaped(quoted(value))}}}"):  # fmt: skip
        response = await features.rest("GET", f"film?{query}", headers=headers)
        assert (response.status, response.body) == (200, []), response.text
    assert features.database.execute("select count(*) from film") == [(5,)]


def escaped(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


NO_OPERATOR = (
    "No operator matches the given name and argument types. You might need to add explicit type casts."
)
REFUSALS: list[tuple[str, int, dict[str, Any]]] = [
    ("id=0", 400, {
        "code": "PGRST100", "message": '"failed to parse filter (0)" (line 1, column 1)', "hint": None,
        "details": 'unexpected "0" expecting "not" or operator (eq, gt, ...)',
    }),
    ("id=eqq.5", 400, {
        "code": "PGRST100", "message": '"failed to parse filter (eqq.5)" (line 1, column 4)', "hint": None,
        "details": 'unexpected "q" expecting operator (eq, gt, ...)',
    }),
    ("id=in.3,4", 400, {
        "code": "PGRST100", "message": '"failed to parse filter (in.3,4)" (line 1, column 4)', "hint": None,
        "details": 'unexpected "3" expecting "("',
    }),
    ("seen=is.maybe", 400, {
        "code": "PGRST100", "message": '"failed to parse filter (is.maybe)" (line 1, column 4)', "hint": None,
        "details": 'unexpected "m" expecting isVal: (null, not_null, true, false, unknown)',
    }),
    ("nope=eq.1", 400, {
        "code": "42703", "message": "column film.nope does not exist", "hint": None, "details": None,
    }),
    ("id=eq.x", 400, {
        "code": "22P02", "message": 'invalid input syntax for type integer: "x"', "hint": None,
        "details": None,
    }),
    ("plot=fts(klingon).x", 400, {
        "code": "42704", "message": 'text search configuration "klingon" does not exist', "hint": None,
        "details": None,
    }),
    ("plot=fts(0).x", 400, {
        "code": "42704", "message": 'text search configuration "0" does not exist', "hint": None,
        "details": None,
    }),
    ("id=like.1*", 404, {
        "code": "42883", "message": "operator does not exist: integer ~~ unknown", "hint": NO_OPERATOR,
        "details": None,
    }),
    ("data->>cast->size=eq.1", 404, {
        "code": "42883", "message": "operator does not exist: text -> unknown", "hint": NO_OPERATOR,
        "details": None,
    }),
    ("data->>years->>0=eq.1", 404, {
        "code": "42883", "message": "operator does not exist: text ->> integer", "hint": NO_OPERATOR,
        "details": None,
    }),
    ("nowhere.id=eq.1", 400, {
        "code": "PGRST108", "message": "'nowhere' is not an embedded resource in this request",
        "hint": "Verify that 'nowhere' is included in the 'select' query parameter.", "details": None,
    }),
]  # fmt: skip


@pytest.mark.parametrize(("query", "status", "body"), REFUSALS)
async def test_invalid_filters_are_rejected(
    features: Service, query: str, status: int, body: dict[str, Any]
) -> None:
    response = await features.rest("GET", f"film?{query}")
    assert (response.status, response.body) == (status, body)
