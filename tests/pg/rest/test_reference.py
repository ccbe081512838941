"""The REST dialect (docs/reference/rest.md): behavior that the other test modules do not cover."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from dataapi.settings import TransactionEnd
from support.service import Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.postgres import Database

Headers = dict[str, str]
PUBLIC = {"content-profile": "public"}
VARY = "Accept, Prefer, Range, Accept-Profile, Authorization, apikey"


@pytest.fixture(scope="module")
def undone(reference_database: Database, reactor: Any) -> Iterator[Service]:
    """Serve the database of the REST reference and roll back all changes."""
    end = TransactionEnd.ROLLBACK_ALLOW_OVERRIDE
    with serving(
        reactor, reference_database, db_schemas=("public", "other"), db_plan_enabled=True, db_tx_end=end
    ) as service:
        yield service


async def body_of(reference: Service, target: str, **headers: str) -> Any:
    response = await reference.rest("GET", target, headers=headers)
    assert response.status == 200, response.text
    return response.body


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        # Columns named like parameters must be quoted or used within a logic tree.
        *[
            (f'"{name}"=eq.{value}', [2])
            for name, value in (
                ("select", 2), ("order", "y"), ("limit", 6), ("offset", 7), ("and", 2), ("or", 3), ("not", 4),
                ("columns", 5), ("on_conflict", 8),
            )
        ],
        ("not=eq.4", [2]),
        ('"limit"=gte.5&limit=1&"order"=neq.z&order=id.desc', [2]),
        ("or=(limit.eq.5,and.eq.2)", [1, 2]),
        ("or=(and.eq.2,not.eq.9)", [2]),
        ("not.or=(select.eq.1,order.eq.z)", [2]),
        # Letters of any script need no quotes. Other characters must be quoted or escaped.
        ("naïve ünï=eq.u", [1]),
        ("%22na%C3%AFve%20%C3%BCn%C3%AF%22=eq.u", [1]),
        ('"per%25cent"=eq.p', [1]),
        ('"a(b)"=in.(q,"s")', [1, 2]),
        ('or=("per%25cent".eq.p,"a(b)".eq.s)', [1, 2]),
    ],
)  # fmt: skip
async def test_any_column_can_be_filtered(reference: Service, query: str, ids: list[int]) -> None:
    order = "" if "order=id" in query else "&order=id"
    assert [row["id"] for row in await body_of(reference, f"reserved?select=id&{query}{order}")] == ids


async def test_any_column_can_be_selected_and_ordered_by(reference: Service) -> None:
    target = 'reserved?select=select,limit,"per%25cent",n:naïve ünï&order=order.desc,limit&limit=1'
    assert await body_of(reference, target) == [{"select": 2, "limit": 6, "per%cent": "r", "n": "v"}]


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        # Text search in types other than tsvector, with and without a language.
        ("written=fts.cats", [1]),
        ("written=fts(english).cat", [1]),
        ("kept=plfts(simple).dogs bark", [1]),
        ("kept=phfts.bark dogs", []),
        ("kept->>a=wfts(english).dog -cat", [1]),
        ("said=not.wfts(english).running", [2]),
        ("found=fts(english).cats", [1]),
        ("or=(said.fts(english).run,written.plfts.dog)", [1]),
        # Arrays, JSON and ranges, also in logic trees.
        ("many=cs.{1,2}", [1]),
        ("many=cd.{1,2,3,4}", [1]),
        ("many=ov.{9,3}", [1]),
        ('kept=cs.{"n":[2]}', [1]),
        ("and=(many.cs.{1,2},many.not.ov.{7,8})", [1]),
        ("span=cs.[1,3)", [1]),
        ("span=cd.[5,30)", [2]),
        ("span=adj.[20,30)", [2]),
        ('or=(span.sl."[15,16)",span.sr."[0,5)")', [1, 2]),
        ("span=isdistinct.[1,10)", [2]),
        ("at=isdistinct.2020-01-01T12:00:00Z", [2]),
        ("said=not.isdistinct.", [2]),
        # Quotes and escapes in lists, in any() and all(), and in logic trees.
        ('said=in.("running cats","a,b","c\\"d")', [1]),
        ('said=in.("",x)', [2]),
        ('said=like(any).{"r*","x,*"}', [1]),
        ("said=like(all).{r*,*s}", [1]),
        ("said=not.ilike(any).{R*,x*}", [2]),
        ('and=(said.in.("running cats",x),id.gt(all).{0,-1})', [1]),
        # is.
        ("many=is.not_null", [1]),
        ("many=not.is.not_null", [2]),
        ("or=(many.is.null,many.is.NOT_NULL)", [1, 2]),
    ],
)
async def test_operators_work_on_every_kind_of_column(reference: Service, query: str, ids: list[int]) -> None:
    assert [row["id"] for row in await body_of(reference, f"several?select=id&{query}&order=id")] == ids


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        # Orders by related rows, within embedded resources, and by spread columns.
        (
            "film?select=id,...director(name)&order=director(name).desc.nullslast,id&limit=3",
            [{"id": 5, "name": "Cleo"}, {"id": 3, "name": "Bert"}, {"id": 1, "name": "Ada"}],
        ),
        (
            "director?select=id,film(id,premiere(id))&film.premiere.order=id.desc&id=eq.1&film.order=id",
            [{"id": 1, "film": [
                {"id": 1, "premiere": [{"id": 2}, {"id": 1}]}, {"id": 2, "premiere": [{"id": 3}]},
            ]}],
        ),
        (
            "film?select=id,part(actor(name))&part.order=actor(name).desc&id=eq.1",
            [{"id": 1, "part": [{"actor": {"name": "Yuri"}}, {"actor": {"name": "Xena"}}]}],
        ),
        (
            "film?select=id,...actor(names:name)&actor.order=name.desc&id=eq.1",
            [{"id": 1, "names": ["Yuri", "Xena"]}],
        ),
        # Aggregates within embedded and spread resources, and with casts.
        (
            "director?select=name,film(budget.sum()::int,count())&order=id&limit=2",
            [
                {"name": "Ada", "film": [{"sum": 3001, "count": 2}]},
                {"name": "Bert", "film": [{"sum": None, "count": 1}]},
            ],
        ),
        ("film?select=...director(born.max()),count()", [{"max": "1960-02-02", "count": 5}]),
        ("sale?select=total:amount.sum()::text,n:id.count()", [{"total": "43.0", "n": 5}]),
        # Null filters on resources: alone, with other filters, negated, and with filters on the resource.
        ("director?select=name,film()&film=is.null", [{"name": "Dan"}]),
        (
            "director?select=id,film()&or=(film.is.null,name.eq.Ada)&order=id",
            [{"id": 1}, {"id": 4}],
        ),
        (
            "film?select=id,director()&not.or=(director.is.null,title.eq.Beta)&order=id",
            [{"id": 1}, {"id": 3}, {"id": 5}],
        ),
        (
            "film?select=id,actor(name)&actor.name=eq.Yuri&actor=not.is.null&order=id",
            [{"id": 1, "actor": [{"name": "Yuri"}]}, {"id": 4, "actor": [{"name": "Yuri"}]}],
        ),
        # A computed relationship replaces a foreign key's relationship, even in nested resources.
        (
            "part?select=film(poster(url),lead(name))&film=eq.1&actor=eq.1",
            [{"film": {"poster": {"url": "https://posters.example/alpha.png"}, "lead": {"name": "Xena"}}}],
        ),
        # Relationships of views to tables and views, some of them through junction tables.
        (
            "film_brief?select=id,director_brief(name),actor(name)&id=eq.1&actor.order=id",
            [{"id": 1, "director_brief": {"name": "Ada"}, "actor": [{"name": "Xena"}, {"name": "Yuri"}]}],
        ),
        # Domain representations in function results.
        ("rpc/paints?select=shade&shade=eq.%23ff0000", [{"shade": "#ff0000"}]),
    ],
)  # fmt: skip
async def test_resources_can_be_embedded_in_every_form(
    reference: Service, target: str, expected: Any
) -> None:
    assert await body_of(reference, target) == expected


# ---------------------------------------------------------------- statuses, ranges, preferences


@dataclass(frozen=True)
class Case:
    """A request and the expected response.

    :ivar headers: expected headers, None for a header that must be absent.
    """

    method: str
    target: str
    status: int
    headers: Mapping[str, str | None]
    prefer: str | None = None
    body: Any = None
    sent: Headers = field(default_factory=dict)


SHOWN = "return=representation"
YEAR = {"year": 1}
ONE = {"id": 77, "word": "x"}
TWO = [{"id": 77}, {"id": 78}]
CASES = [
    # Reads with and without a total: complete, partial, empty or beyond the end.
    Case("GET", "film", 200, {"content-range": "0-4/*", "preference-applied": None}),
    Case("GET", "film?limit=2&offset=1", 200, {"content-range": "1-2/*"}),
    Case("GET", "film?limit=0", 200, {"content-range": "*/*"}),
    Case("GET", "film?offset=9", 200, {"content-range": "*/*"}),
    Case("GET", "film?offset=-4", 200, {"content-range": "0-4/*"}),
    Case("GET", "film", 200, {"content-range": "0-4/5", "preference-applied": "count=exact"}, "count=exact"),
    Case("GET", "film?limit=2", 206, {"content-range": "0-1/5"}, "count=exact"),
    Case("HEAD", "film?limit=2&offset=1", 206, {"content-range": "1-2/5"}, "count=exact"),
    Case("HEAD", "film?limit=2&offset=1", 200, {"content-range": "1-2/*"}),
    Case("GET", "film?limit=0", 206, {"content-range": "*/5"}, "count=exact"),
    Case("GET", "film?offset=5", 206, {"content-range": "*/5"}, "count=exact"),
    Case("GET", "film?offset=6", 416, {"content-range": "*/5"}, "count=exact"),
    Case("HEAD", "film?offset=6", 416, {"content-range": "*/5"}, "count=exact"),
    Case("GET", "film?id=eq.0&offset=1", 416, {"content-range": "*/0"}, "count=exact"),
    Case("GET", "film?limit=2", 206, {"content-range": "0-1/5"}, "count=planned"),
    Case("GET", "film?limit=2", 206, {"content-range": "0-1/5"}, "count=estimated"),
    Case("GET", "film?limit=2", 200, {"content-range": "0-1/*", "preference-applied": None}, "count=none"),
    Case("GET", "rpc/films_of?who=1", 200, {"content-range": "0-1/*"}),
    Case("GET", "rpc/films_of?who=1&limit=1", 206, {"content-range": "0-0/2"}, "count=exact"),
    Case("GET", "rpc/films_of?who=1&offset=3", 416, {"content-range": "*/2"}, "count=exact"),
    Case("POST", "rpc/nothing", 204, {"content-range": "0-0/*", "content-type": None}),
    # Changes that return nothing, the location, or the rows.
    Case("POST", "inbox", 201, {"content-range": "*/*", "location": None, "content-type": None}, body=ONE),
    Case("POST", "inbox", 201, {"content-range": "*/1"}, "count=exact, return=minimal", ONE),
    Case("POST", "inbox", 201, {"location": "/inbox?id=eq.77"}, "return=headers-only", ONE),
    Case("POST", "inbox", 201, {"location": None}, "return=headers-only, count=exact", TWO),
    Case("POST", "inbox", 201, {"content-range": "*/2", **PUBLIC}, "return=representation, count=exact", TWO),
    Case("PATCH", "film?year=eq.1995", 204, {"content-range": "0-1/*"}, body=YEAR),
    Case("PATCH", "film?year=eq.1995", 204, {"content-range": "0-1/2"}, "count=exact", YEAR),
    Case("PATCH", "film?year=eq.1995", 200, {"content-range": "0-1/*"}, SHOWN, YEAR),
    Case("PATCH", "film?year=eq.1", 204, {"content-range": "*/*"}, body=YEAR),
    Case("PATCH", "film?year=eq.1", 200, {"content-range": "*/0"}, f"{SHOWN}, count=exact", YEAR),
    Case("DELETE", "sale?region=eq.north", 204, {"content-range": "*/*"}),
    Case("DELETE", "sale?region=eq.north", 204, {"content-range": "*/2"}, "count=exact"),
    Case("DELETE", "sale?region=eq.north", 200, {"content-range": "*/*"}, "return=representation"),
    Case("PUT", "inbox?id=eq.77", 204, {"content-range": None, "content-type": None}, body=ONE),
    Case("PUT", "inbox?id=eq.77", 201, {"preference-applied": SHOWN}, SHOWN, ONE),
    Case("PUT", "unrelated?id=eq.1", 201, {}, SHOWN, {"id": 1}),
    # Applied preferences have a fixed order and are listed only if they have an effect.
    Case(
        "PATCH", "film?id=eq.1", 204,
        {"preference-applied": "missing=default, return=minimal, count=exact, tx=rollback, handling=strict,"
         " timezone=UTC, max-affected=5"},
        "max-affected=5, timezone=UTC, handling=strict, tx=rollback, count=exact, return=minimal,"
        "missing=default",
        YEAR,
    ),
    Case(
        "POST", "inbox", 200,
        {"preference-applied": "resolution=merge-duplicates, return=minimal"},
        "return=minimal, resolution=merge-duplicates, max-affected=1", [],
    ),
    Case(
        "GET", "film", 200, {"preference-applied": "handling=lenient, timezone=UTC"},
        "return=representation, missing=default, resolution=merge-duplicates, handling=lenient, timezone=UTC,"
        "odd",
    ),
    # Methods, schemas, and relation names instead of aliases.
    Case("OPTIONS", "film", 200, {"allow": "OPTIONS,GET,HEAD,POST,PUT,PATCH,DELETE"}),
    Case("OPTIONS", "director_brief", 200, {"allow": "OPTIONS,GET,HEAD"}),
    Case("OPTIONS", "fixed_words", 200, {"allow": "OPTIONS,GET,HEAD"}),
    Case("OPTIONS", "keyless", 200, {"allow": "OPTIONS,GET,HEAD,POST,PATCH,DELETE"}),
    Case("OPTIONS", "rpc/add", 200, {"allow": "OPTIONS,GET,HEAD,POST"}),
    Case("OPTIONS", "rpc/write", 200, {"allow": "OPTIONS,POST"}),
    Case("OPTIONS", "", 200, {"allow": "OPTIONS,GET,HEAD"}),
    Case("GET", "film", 200, {"vary": VARY, "content-location": "/film", **PUBLIC}),
    Case("HEAD", "note", 200, {"content-profile": "other"}, sent={"accept-profile": "other"}),
    Case("HEAD", "film?limit=-1", 416, {"proxy-status": "PostgREST; error=PGRST103"}),
    Case("HEAD", "nowhere", 404, {"proxy-status": "PostgREST; error=PGRST205"}),
    Case("HEAD", "", 200, {"content-type": "application/openapi+json; charset=utf-8"}),
    Case("HEAD", "rpc/add?a=1", 200, {"content-range": "0-0/*"}),
    Case("GET", "film?select=id,boss:director(id)&boss.id=eq.1", 200, {"warning": None}),
]  # fmt: skip


def describe(case: Case) -> str:
    return " ".join(filter(None, (case.method, case.target, case.prefer)))


@pytest.mark.parametrize("case", CASES, ids=describe)
async def test_requests_have_the_documented_status_and_headers(undone: Service, case: Case) -> None:
    headers = {**case.sent, **({"prefer": case.prefer} if case.prefer else {})}
    response = await undone.rest(case.method, case.target, case.body, headers=headers, role="authenticated")
    actual = {name: response.headers.get(name) for name in case.headers}
    assert (response.status, actual) == (case.status, dict(case.headers)), response.text
    if case.method == "HEAD" or case.status == 204:
        assert response.content == b""


@pytest.mark.parametrize(
    ("parameter", "method"),
    [
        ("director.name=eq.Ada", "GET"),
        ("director.or=(name.eq.Ada,id.eq.2)", "GET"),
        ("director.mentor.limit=1&select=id,boss:director(id,mentor(id))", "HEAD"),
        ("director.order=name&id=eq.0", "PATCH"),
    ],
)
async def test_relation_name_instead_of_its_alias_causes_a_warning(
    undone: Service, parameter: str, method: str
) -> None:
    """Requests that use the relation's name still work."""
    select = "" if "select=" in parameter else "&select=id,boss:director(id)"
    body = {"year": 1} if method == "PATCH" else None
    response = await undone.rest(method, f"film?{parameter}{select}", body)
    assert response.status in (200, 204), response.text
    assert response.headers["warning"].startswith('299 dataapi "')
    assert "`director` to `boss`" in response.headers["warning"]


async def test_warning_header_escapes_special_names(reference: Service) -> None:
    target = 'film?select=id,"é\\" \\\\":director(id)&director.id=eq.1'
    response = await reference.rest("GET", target, headers={"accept": "application/x-ndjson"})
    assert (response.status, response.text.count("\n")) == (200, 5)
    assert '`director` to `\\\\xe9\\" \\\\` in' in response.headers["warning"]


# ---------------------------------------------------------------- API keys and client headers


@pytest.mark.parametrize(
    ("headers", "message", "hint"),
    [
        ({"apikey": ""}, "No API key found in request", "No `apikey` request header or url param was found."),
        (
            {"apikey": "sb_publishable_other"},
            "Invalid API key",
            "Use a key from the configuration, or a JWT that `dataapi keys` prints.",
        ),
    ],
)
async def test_missing_or_wrong_key_is_rejected_despite_a_valid_token(
    reference: Service, headers: Headers, message: str, hint: str
) -> None:
    """The body contains only a message and a hint."""
    response = await reference.rest("GET", "film", headers=headers, role="authenticated")
    assert (response.status, response.body) == (401, {"message": message, "hint": hint})


async def test_key_as_bearer_token_is_anonymous(reference: Service) -> None:
    """Clients send the API key as a bearer token if no user has signed in, or as a URL parameter."""
    key = {"authorization": "Bearer sb_publishable_for_tests"}
    assert (await reference.rest("GET", "film?select=id&id=eq.1", headers=key)).body == [{"id": 1}]
    by_url = "film?select=id&id=eq.1&apikey=sb_publishable_for_tests"
    response = await reference.rest("GET", by_url, headers={"apikey": ""})
    assert (response.status, response.body) == (200, [{"id": 1}])
    assert "apikey" not in response.headers["content-location"]


async def test_requests_of_supabase_js_are_accepted(undone: Service) -> None:
    client = {
        "x-client-info": "supabase-js/2.112.2; runtime=node",
        "x-retry-count": "1",
        "traceparent": "00-a-b-01",
    }
    inserted = await undone.rest(
        "POST", 'inbox?columns="id","word"', [ONE, {"id": 78, "word": "y", "extra": 1}],
        headers={**client, "content-profile": "public", "prefer": "count=exact,return=representation"},
    )  # fmt: skip
    assert (inserted.status, inserted.body) == (201, [ONE, {"id": 78, "word": "y"}])
    plan = 'application/vnd.pgrst.plan+text; for="application/json"; options=;'
    explained = await undone.rest("GET", "film?select=*", headers={**client, "accept": plan})
    assert (explained.status, explained.headers["content-type"].partition(";")[0]) == (
        200, "application/vnd.pgrst.plan+text",
    )  # fmt: skip
    called = await undone.rest(
        "HEAD", "rpc/films_of?who=1", headers={**client, "prefer": "count=exact,return=minimal"}
    )
    assert (called.status, called.headers["content-range"]) == (200, "0-1/2")
    listed = await undone.rest(
        "GET", 'film?select=id&title=in.("Gamma, the \\"last\\"",Beta)&order=id', headers=client
    )
    assert listed.body == [{"id": 2}, {"id": 3}]
