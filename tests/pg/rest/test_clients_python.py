"""Methods of the Python clients ``postgrest`` and ``supabase``, as their public documentation shows them.

The other REST tests cover the server's rules.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from postgrest import CountMethod
from postgrest.exceptions import APIError
from postgrest.types import ReturnMethod
from support.rest_clients import LIBRARIES, RESTORE, Call, check, error, ids, make, names, titles
from support.service import token

if TYPE_CHECKING:
    from support.service import Service

NORWAY = {"id": 1, "name": "Norway", "note": None}
CHILE = {"id": 2, "name": "Chile", "note": "long"}
NEPAL = {"id": 3, "name": "Nepal", "note": "high"}
NAMELESS = {"id": 4, "name": None, "note": None}
EMERALD = {"id": 1, "room": "Emerald", "during": '["2024-01-01 13:00:00","2024-01-01 15:00:00")'}
TOPAZ = {"id": 2, "room": "Topaz", "during": '["2024-01-02 09:00:00","2024-01-02 10:00:00")'}
MINIMAL = ReturnMethod.minimal
COUNTRIES = "select id, name from country where id > 2 order by id"
PERU = {"id": 5, "name": "Peru", "note": None}
MALI = {"id": 6, "name": "Mali", "note": "hot"}
TOO_MANY = error(
    "PGRST124", "Query result exceeds max-affected preference constraint", "The query affects 4 rows"
)
FIRST_ROWS = [(3, "Nepal"), (4, None)]

CALLS = [
    Call("all columns", lambda db: db.table("country").select("*"), [NORWAY, CHILE, NEPAL, NAMELESS]),
    Call(
        "several columns as arguments",
        lambda db: db.table("country").select("id", "name").limit(1),
        [{"id": 1, "name": "Norway"}],
    ),
    Call("renamed", lambda db: db.table("country").select("key:id").limit(1), [{"key": 1}]),
    Call(
        "related rows",
        lambda db: db.table("section").select("name, instrument(name)"),
        [
            {"name": "strings", "instrument": names("violin", "harp")},
            {"name": "woodwinds", "instrument": names("flute", "oboe")},
            {"name": "brass", "instrument": []},
        ],
    ),
    Call(
        "another schema",
        lambda db: db.schema("backstage").table("prop").select("name"),
        names("Rope", "Mask"),
    ),
    Call(
        "exact count",
        lambda db: db.table("country").select("id", count=CountMethod.exact).limit(2),
        ids(1, 2),
        count=4,
    ),
    Call(
        "count without rows",
        lambda db: db.table("country").select("*", count=CountMethod.exact, head=True),
        [],
        count=4,
    ),
    Call(
        "count of filtered rows",
        lambda db: db.table("country").select("id", count=CountMethod.exact).gt("id", 2),
        ids(3, 4),
        count=2,
    ),
    Call(
        "order with nulls first",
        lambda db: db.table("country").select("name").order("name", nullsfirst=True).limit(2),
        names(None, "Chile"),
    ),
    Call(
        "order of related rows",
        lambda db: (
            db.table("section")
            .select("name, instrument(name)")
            .eq("id", 1)
            .order("name", desc=False, foreign_table="instrument")
        ),
        [{"name": "strings", "instrument": names("harp", "violin")}],
    ),
    Call(
        "limit of related rows",
        lambda db: db.table("section").select("name, instrument(name)").limit(1, foreign_table="instrument"),
        [
            {"name": "strings", "instrument": names("violin")},
            {"name": "woodwinds", "instrument": names("flute")},
            {"name": "brass", "instrument": []},
        ],
    ),
    Call("offset", lambda db: db.table("country").select("id").order("id").offset(3), ids(4)),
    Call("range", lambda db: db.table("country").select("id").range(1, 2), ids(2, 3)),
    Call(
        "range of related rows",
        lambda db: (
            db.table("section")
            .select("name, instrument(name)")
            .eq("id", 1)
            .range(1, 1, foreign_table="instrument")
        ),
        [{"name": "strings", "instrument": names("harp")}],
    ),
    Call("single", lambda db: db.table("country").select("name").eq("id", 1).single(), {"name": "Norway"}),
    Call(
        "single of none",
        lambda db: db.table("country").select("name").eq("id", 9).single(),
        error=error(
            "PGRST116", "Cannot coerce the result to a single JSON object", "The result contains 0 rows"
        ),
    ),
    Call("maybe_single of one", lambda db: db.table("country").select("*").eq("id", 2).maybe_single(), CHILE),
    Call("maybe_single of none", lambda db: db.table("country").select("*").eq("id", 9).maybe_single(), None),
    Call(
        "csv",
        lambda db: db.table("country").select("*").lt("id", 3).csv(),
        "id,name,note\n1,Norway,\n2,Chile,long",
    ),
    Call(
        "strip_nulls",
        lambda db: db.table("country").select("*").lt("id", 3).strip_nulls(),
        [{"id": 1, "name": "Norway"}, CHILE],
    ),
    Call(
        "strip_nulls of one",
        lambda db: db.table("country").select("*").eq("id", 1).strip_nulls().single(),
        {"id": 1, "name": "Norway"},
    ),
    Call("eq", lambda db: db.table("country").select("*").eq("name", "Chile"), [CHILE]),
    Call("lte", lambda db: db.table("country").select("*").lte("id", 1), [NORWAY]),
    Call("ilike", lambda db: db.table("country").select("*").ilike("name", "%N%"), [NORWAY, NEPAL]),
    Call("like_all_of", lambda db: db.table("verse").select("id").like_all_of("line", "%cat%,%sat%"), ids(1)),
    Call("like_any_of", lambda db: db.table("verse").select("id").like_any_of("line", "A %,No %"), ids(1, 3)),
    Call(
        "ilike_all_of",
        lambda db: db.table("verse").select("id").ilike_all_of("line", "%CAT%,%FAT%"),
        ids(1, 2),
    ),
    Call(
        "ilike_any_of", lambda db: db.table("verse").select("id").ilike_any_of("line", "a %,no %"), ids(1, 3)
    ),
    Call("is_ None", lambda db: db.table("country").select("*").is_("name", None), [NAMELESS]),
    Call("in_", lambda db: db.table("country").select("*").in_("name", ["Nepal", "Chile"]), [CHILE, NEPAL]),
    Call(
        "in_ with commas, quotes and brackets",
        lambda db: db.table("verse").select("id").in_("line", ['Birds (two), "three": four.', "x"]),
        ids(4),
    ),
    Call("in_ with nothing", lambda db: db.table("country").select("*").in_("id", []), []),
    Call(
        "contains of an array",
        lambda db: db.table("task").select("title").contains("tags", ["is:open", "priority:low"]),
        titles("Tune"),
    ),
    Call(
        "contains of a range",
        lambda db: db.table("booking").select("*").contains("during", "[2024-01-01 13:00, 2024-01-01 13:30)"),
        [EMERALD],
    ),
    Call(
        "contains of JSON",
        lambda db: db.table("player").select("name").contains("address", {"city": "Oslo"}),
        names("Ida"),
    ),
    Call(
        "contained_by of JSON",
        lambda db: db.table("player").select("name").contained_by("address", {"city": "Lima", "x": 1}),
        names("Noel", "Uma"),
    ),
    Call(
        "range_gt",
        lambda db: (
            db.table("booking").select("*").range_gt("during", ["2024-01-02 08:00", "2024-01-02 09:00"])
        ),
        [TOPAZ],
    ),
    Call(
        "range_gte",
        lambda db: (
            db.table("booking").select("*").range_gte("during", ["2024-01-02 08:30", "2024-01-02 09:30"])
        ),
        [TOPAZ],
    ),
    Call(
        "range_lt",
        lambda db: (
            db.table("booking").select("*").range_lt("during", ["2024-01-01 15:00", "2024-01-01 16:00"])
        ),
        [EMERALD],
    ),
    Call(
        "range_lte",
        lambda db: (
            db.table("booking").select("*").range_lte("during", ["2024-01-01 14:00", "2024-01-01 16:00"])
        ),
        [EMERALD],
    ),
    Call(
        "range_adjacent",
        lambda db: (
            db.table("booking").select("*").range_adjacent("during", ["2024-01-01 12:00", "2024-01-01 13:00"])
        ),
        [EMERALD],
    ),
    Call(
        "overlaps of an array",
        lambda db: db.table("task").select("title").overlaps("tags", ["is:closed", "severity:high"]),
        titles("Tune"),
    ),
    Call(
        "overlaps of a range",
        lambda db: db.table("booking").select("*").overlaps("during", "[2024-01-01 12:45, 2024-01-01 13:15)"),
        [EMERALD],
    ),
    Call(
        "text_search",
        lambda db: (
            db.table("verse").select("id").text_search("line", "'fat' & 'cat'", options={"config": "english"})
        ),
        ids(1, 2),
    ),
    Call(
        "text_search plain",
        lambda db: (
            db.table("verse")
            .select("id")
            .text_search("line", "fat cat", options={"type": "plain", "config": "english"})
        ),
        ids(1, 2),
    ),
    Call("fts", lambda db: db.table("verse").select("id").fts("line", "cats | dogs"), ids(1, 2, 3)),
    Call("match", lambda db: db.table("country").select("*").match({"id": 2, "name": "Chile"}), [CHILE]),
    Call("not_ is_", lambda db: db.table("country").select("*").not_.is_("note", "null"), [CHILE, NEPAL]),
    Call("not_ in_", lambda db: db.table("country").select("*").not_.in_("id", [1, 2, 4]), [NEPAL]),
    Call("or_", lambda db: db.table("country").select("*").or_("id.eq.2,name.eq.Nepal"), [CHILE, NEPAL]),
    Call(
        "or_ on related rows",
        lambda db: (
            db.table("section")
            .select("name, instrument!inner(name)")
            .or_("name.eq.violin,name.eq.zither", reference_table="instrument")
        ),
        [{"name": "strings", "instrument": names("violin")}],
    ),
    Call(
        "filter",
        lambda db: db.table("country").select("*").filter("name", "in", '("Nepal","Peru")'),
        [NEPAL],
    ),
    Call(
        "insert",
        lambda db: db.table("country").insert({"id": 5, "name": "Peru"}),
        [PERU],
        leaves=(COUNTRIES, [*FIRST_ROWS, (5, "Peru")]),
    ),
    Call(
        "insert without result",
        lambda db: db.table("country").insert({"id": 5, "name": "Peru"}, returning=MINIMAL),
        [],
        leaves=(COUNTRIES, [*FIRST_ROWS, (5, "Peru")]),
    ),
    Call(
        "insert of several rows that differ in their columns",
        lambda db: db.table("country").insert([{"id": 5, "name": "Peru"}, {"id": 6, "note": "x"}]),
        [PERU, {"id": 6, "name": None, "note": "x"}],
    ),
    Call(
        "insert with columns' defaults",
        lambda db: db.table("task").insert(
            [{"title": "a", "done": True}, {"title": "b", "tags": ["x"]}], default_to_null=False
        ),
        [
            {"id": 4, "title": "a", "tags": [], "done": True, "created": "2024-01-01T00:00:00+00:00"},
            {"id": 5, "title": "b", "tags": ["x"], "done": None, "created": "2024-01-01T00:00:00+00:00"},
        ],
    ),
    Call(
        "insert counted",
        lambda db: db.table("country").insert([PERU, MALI], count=CountMethod.exact),
        [PERU, MALI],
        count=2,
    ),
    Call(
        "insert selected",
        lambda db: db.table("country").insert(PERU).select("name"),
        [{"name": "Peru"}],
    ),
    Call("insert of one", lambda db: db.table("country").insert(PERU).select("*").single(), PERU),
    Call(
        "insert into another schema",
        lambda db: db.schema("backstage").table("prop").insert({"id": 3, "name": "Lamp"}),
        [{"id": 3, "name": "Lamp"}],
    ),
    Call("insert of nothing", lambda db: db.table("country").insert([]), [], leaves=(COUNTRIES, FIRST_ROWS)),
    Call(
        "upsert",
        lambda db: db.table("country").upsert({"id": 3, "name": "India"}),
        [{"id": 3, "name": "India", "note": "high"}],
        leaves=(COUNTRIES, [(3, "India"), (4, None)]),
    ),
    Call(
        "upsert on a unique column",
        lambda db: db.table("player").upsert({"id": 1, "handle": "ida", "name": "I."}, on_conflict="handle"),
        [{"id": 1, "name": "I.", "handle": "ida", "address": {"city": "Oslo", "floor": 3}}],
    ),
    Call(
        "upsert that ignores duplicates",
        lambda db: db.table("country").upsert([{"id": 3, "name": "x"}, PERU], ignore_duplicates=True),
        [PERU],
        leaves=(COUNTRIES, [(3, "Nepal"), (4, None), (5, "Peru")]),
    ),
    Call(
        "upsert without result",
        lambda db: db.table("country").upsert({"id": 3, "name": "India"}, returning=MINIMAL),
        [],
        leaves=(COUNTRIES, [(3, "India"), (4, None)]),
    ),
    Call(
        "update",
        lambda db: db.table("country").update({"name": "Fiji"}).eq("id", 4),
        [{"id": 4, "name": "Fiji", "note": None}],
        leaves=(COUNTRIES, [(3, "Nepal"), (4, "Fiji")]),
    ),
    Call(
        "update without result",
        lambda db: db.table("country").update({"name": "Fiji"}, returning=MINIMAL).gt("id", 2),
        [],
        leaves=(COUNTRIES, [(3, "Fiji"), (4, "Fiji")]),
    ),
    Call(
        "update counted",
        lambda db: db.table("country").update({"note": "n"}, count=CountMethod.exact).in_("id", [1, 2]),
        [{"id": 1, "name": "Norway", "note": "n"}, {"id": 2, "name": "Chile", "note": "n"}],
        count=2,
    ),
    Call(
        "update of more than is allowed",
        lambda db: db.table("country").update({"note": "n"}).gt("id", 0).max_affected(3),
        error=TOO_MANY,
        leaves=("select count(note) from country", [(2,)]),
    ),
    Call(
        "delete",
        lambda db: db.table("country").delete().eq("id", 4),
        [{"id": 4, "name": None, "note": None}],
        leaves=(COUNTRIES, [(3, "Nepal")]),
    ),
    Call(
        "delete without result",
        lambda db: db.table("country").delete(returning=MINIMAL).eq("id", 4),
        [],
        leaves=(COUNTRIES, [(3, "Nepal")]),
    ),
    Call(
        "delete of more than is allowed",
        lambda db: db.table("country").delete().gt("id", 0).max_affected(1),
        error=TOO_MANY,
        leaves=(COUNTRIES, FIRST_ROWS),
    ),
    Call(
        "insert of an existing key",
        lambda db: db.table("country").insert({"id": 1, "name": "Peru"}),
        error=error(
            "23505",
            'duplicate key value violates unique constraint "country_pkey"',
            "Key (id)=(1) already exists.",
        ),
    ),
    Call("rpc", lambda db: db.rpc("hello_world", {}), "Hello world"),
    Call("rpc with an argument", lambda db: db.rpc("echo", {"say": "👋"}), "👋"),
    Call("rpc with an array", lambda db: db.rpc("add_one_each", {"arr": [1, 2, 3]}), [2, 3, 4]),
    Call("rpc of rows", lambda db: db.rpc("list_countries", {}), [NORWAY, CHILE, NEPAL, NAMELESS]),
    Call("rpc filtered", lambda db: db.rpc("list_countries", {}).eq("id", 1).single(), NORWAY),
    Call("rpc by GET", lambda db: db.rpc("echo", {"say": "a b"}, get=True), "a b"),
    Call("rpc by GET with an array", lambda db: db.rpc("add_one_each", {"arr": [1, 2]}, get=True), [2, 3]),
    Call(
        "rpc counted",
        lambda db: db.rpc("list_countries", {}, count=CountMethod.exact).limit(1),
        [NORWAY],
        count=4,
    ),
    Call(
        "rpc by HEAD",
        lambda db: db.rpc("list_countries", {}, count=CountMethod.exact, head=True),
        [],
        count=4,
    ),
    Call("rpc of another schema", lambda db: db.schema("backstage").rpc("whisper", {"word": "SHH"}), "shh"),
    Call("rpc with maybe_single", lambda db: db.rpc("list_countries", {}).eq("id", 9).maybe_single(), None),
    Call(
        "unknown table",
        lambda db: db.table("contry").select("*"),
        error=error(
            "PGRST205",
            "Could not find the table 'public.contry' in the schema cache",
            hint="Perhaps you meant the table 'public.country'",
        ),
    ),
    Call(
        "function that raises a status",
        lambda db: db.rpc("refuse_politely", {}),
        error=error("PT402", "Payment required", "Two tickets", "Pay"),
    ),
    Call(
        "code of an error without body",
        lambda db: db.table("contry").select("*", head=True),
        error=error("PGRST205", "Not Found"),
    ),
]


@pytest.mark.parametrize("call", CALLS, ids=str)
async def test_documented_calls_return_documented_results(clients: Service, reactor: Any, call: Call) -> None:
    clients.database.execute(RESTORE)
    await check(reactor, clients, call)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_explain_returns_the_plan(clients: Service, reactor: Any, library: str) -> None:
    text = await make(reactor, clients, library, lambda db: db.table("country").select("*").explain())
    assert re.search(r"Seq Scan on country .*\(cost=", text)
    text = await make(
        reactor,
        clients,
        library,
        lambda db: db.table("country").select("*").explain(analyze=True, verbose=True),
    )
    assert "actual time" in text
    assert "Output: " in text
    response = await make(
        reactor, clients, library, lambda db: db.table("country").select("*").explain(format="json")
    )
    assert "Plan" in response.data[0]


@pytest.mark.parametrize("library", LIBRARIES)
async def test_maybe_single_rejects_several_rows(clients: Service, reactor: Any, library: str) -> None:
    with pytest.raises(APIError, match="more than one row"):
        await make(reactor, clients, library, lambda db: db.table("country").select("*").maybe_single())


@pytest.mark.parametrize("library", LIBRARIES)
async def test_503_response_is_retried(clients: Service, reactor: Any, library: str) -> None:
    """The caller sees no error if the retry succeeds, and the server receives the retry count."""
    response = await make(reactor, clients, library, lambda db: db.rpc("busy_once", {}, get=True))
    assert response.data == "1"


async def test_token_of_the_signed_in_user_is_sent(clients: Service, reactor: Any) -> None:
    """``auth`` and the option for headers send the user's token together with the project's key."""
    signed = token("authenticated")
    response = await make(reactor, clients, "postgrest", lambda db: db.auth(signed).rpc("whoami", {}))
    assert response.data == "authenticated a user of authenticated"
    header = {"Authorization": f"Bearer {signed}"}
    response = await make(reactor, clients, "supabase", lambda db: db.rpc("whoami"), **header)
    assert response.data == "authenticated a user of authenticated"


@pytest.mark.parametrize("library", LIBRARIES)
async def test_unknown_key_is_rejected(clients: Service, reactor: Any, library: str) -> None:
    with pytest.raises(APIError) as raised:
        await make(reactor, clients, library, lambda db: db.table("country").select("*"), apikey="nobody's")
    assert raised.value.message == "Invalid API key"
