"""Inserting, updating and deleting with the Python clients ``postgrest`` and ``supabase``.

The calls are those of the libraries' public documentation, and what it promises is what they must give.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
from postgrest import CountMethod
from postgrest.types import ReturnMethod
from support.rest_clients import RESTORE, Call, check, error

if TYPE_CHECKING:
    from support.service import Service

MINIMAL = ReturnMethod.minimal

COUNTRIES = "select id, name from country where id > 2 order by id"
FIRST_ROWS = [(3, "Nepal"), (4, None)]
PERU = {"id": 5, "name": "Peru", "note": None}
MALI = {"id": 6, "name": "Mali", "note": "hot"}
TOO_MANY = error(
    "PGRST124", "Query result exceeds max-affected preference constraint", "The query affects 4 rows"
)


INSERTING = [
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
        "insert of several rows",
        lambda db: db.table("country").insert([PERU, MALI]),
        [PERU, MALI],
        leaves=(COUNTRIES, [*FIRST_ROWS, (5, "Peru"), (6, "Mali")]),
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
    Call(
        "insert with related rows",
        lambda db: (
            db.table("instrument")
            .insert({"id": 9, "section_id": 3, "name": "tuba"})
            .select("name, section(name)")
        ),
        [{"name": "tuba", "section": {"name": "brass"}}],
    ),
    Call("insert of one", lambda db: db.table("country").insert(PERU).select("*").single(), PERU),
    Call(
        "insert of arrays and JSON",
        lambda db: db.table("player").insert({"id": 9, "name": "Li", "address": {"tags": ["a", {"b": 1}]}}),
        [{"id": 9, "name": "Li", "handle": None, "address": {"tags": ["a", {"b": 1}]}}],
    ),
    Call(
        "insert of a date",
        lambda db: db.table("task").insert({"title": "t", "created": date(2024, 5, 6)}).select("created"),
        [{"created": "2024-05-06T00:00:00+00:00"}],
    ),
    Call(
        "insert into a column with a blank in its name",
        lambda db: db.table("concert hall").insert([{"id": 3, "seat count": 40}]),
        [{"id": 3, "seat count": 40}],
    ),
    Call(
        "insert into another schema",
        lambda db: db.schema("backstage").table("prop").insert({"id": 3, "name": "Lamp"}),
        [{"id": 3, "name": "Lamp"}],
    ),
    Call("insert of nothing", lambda db: db.table("country").insert([]), [], leaves=(COUNTRIES, FIRST_ROWS)),
]

UPSERTING = [
    Call(
        "upsert",
        lambda db: db.table("country").upsert({"id": 3, "name": "India"}),
        [{"id": 3, "name": "India", "note": "high"}],
        leaves=(COUNTRIES, [(3, "India"), (4, None)]),
    ),
    Call("upsert of a new row", lambda db: db.table("country").upsert(PERU), [PERU]),
    Call(
        "upsert of several rows",
        lambda db: db.table("country").upsert([{"id": 4, "name": "Fiji"}, {"id": 5, "name": "Peru"}]),
        [{"id": 4, "name": "Fiji", "note": None}, PERU],
        leaves=(COUNTRIES, [(3, "Nepal"), (4, "Fiji"), (5, "Peru")]),
    ),
    Call(
        "upsert on a unique column",
        lambda db: db.table("player").upsert({"id": 1, "handle": "ida", "name": "I."}, on_conflict="handle"),
        [{"id": 1, "name": "I.", "handle": "ida", "address": {"city": "Oslo", "floor": 3}}],
    ),
    Call(
        "upsert on another column than the one that conflicts",
        lambda db: db.table("player").upsert({"id": 42, "handle": "ida", "name": "I."}),
        error=error(
            "23505",
            'duplicate key value violates unique constraint "player_handle_key"',
            "Key (handle)=(ida) already exists.",
        ),
    ),
    Call(
        "upsert that keeps what is there",
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
        "upsert with columns' defaults",
        lambda db: db.table("task").upsert([{"title": "c"}, {"id": 1, "title": "d"}], default_to_null=False),
        [
            {"id": 4, "title": "c", "tags": [], "done": None, "created": "2024-01-01T00:00:00+00:00"},
            {
                "id": 1,
                "title": "d",
                "tags": ["is:open", "severity:high", "priority:low"],
                "done": True,
                "created": "2024-01-01T00:00:00+00:00",
            },
        ],
    ),
]

UPDATING = [
    Call(
        "update",
        lambda db: db.table("country").update({"name": "Fiji"}).eq("id", 4),
        [{"id": 4, "name": "Fiji", "note": None}],
        leaves=(COUNTRIES, [(3, "Nepal"), (4, "Fiji")]),
    ),
    Call(
        "update of none",
        lambda db: db.table("country").update({"name": "Fiji"}).eq("id", 9),
        [],
        leaves=(COUNTRIES, FIRST_ROWS),
    ),
    Call(
        "update without result",
        lambda db: db.table("country").update({"name": "Fiji"}, returning=MINIMAL).gt("id", 2),
        [],
        leaves=(COUNTRIES, [(3, "Fiji"), (4, "Fiji")]),
    ),
    Call(
        "update of JSON",
        lambda db: (
            db.table("player").update({"address": {"street": "Main", "no": 9}}).eq("address->>city", "Lima")
        ),
        [{"id": 2, "name": "Noel", "handle": "noel", "address": {"street": "Main", "no": 9}}],
    ),
    Call(
        "update selected",
        lambda db: db.table("country").update({"name": "Fiji"}).eq("id", 4).select("name"),
        [{"name": "Fiji"}],
    ),
    Call(
        "update counted",
        lambda db: db.table("country").update({"note": "n"}, count=CountMethod.exact).in_("id", [1, 2]),
        [{"id": 1, "name": "Norway", "note": "n"}, {"id": 2, "name": "Chile", "note": "n"}],
        count=2,
    ),
    Call(
        "update to null",
        lambda db: db.table("country").update({"name": None}).eq("id", 3),
        [{"id": 3, "name": None, "note": "high"}],
    ),
    Call(
        "update with or_",
        lambda db: db.table("country").update({"note": "n"}).or_("id.eq.1,name.is.null").select("id"),
        [{"id": 1}, {"id": 4}],
    ),
    Call(
        "update of more than is allowed",
        lambda db: db.table("country").update({"note": "n"}).gt("id", 0).max_affected(3),
        error=TOO_MANY,
        leaves=("select count(note) from country", [(2,)]),
    ),
]

DELETING = [
    Call(
        "delete",
        lambda db: db.table("country").delete().eq("id", 4),
        [{"id": 4, "name": None, "note": None}],
        leaves=(COUNTRIES, [(3, "Nepal")]),
    ),
    Call(
        "delete of several rows",
        lambda db: db.table("country").delete().in_("id", [3, 4]).select("id"),
        [{"id": 3}, {"id": 4}],
        leaves=(COUNTRIES, []),
    ),
    Call(
        "delete without result",
        lambda db: db.table("country").delete(returning=MINIMAL).eq("id", 4),
        [],
        leaves=(COUNTRIES, [(3, "Nepal")]),
    ),
    Call(
        "delete counted",
        lambda db: db.table("letter").delete(count=CountMethod.exact).gte("id", 1).select("id"),
        [{"id": 1}, {"id": 2}],
        count=2,
    ),
    Call(
        "delete of as many as is allowed",
        lambda db: db.table("country").delete().eq("id", 4).max_affected(1).select("id"),
        [{"id": 4}],
    ),
    Call(
        "delete of more than is allowed",
        lambda db: db.table("country").delete().gt("id", 0).max_affected(1),
        error=TOO_MANY,
        leaves=(COUNTRIES, FIRST_ROWS),
    ),
    Call(
        "function that deletes",
        lambda db: db.rpc("forget_countries", {}).select("id"),
        [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}],
        leaves=(COUNTRIES, []),
    ),
    Call(
        "function that deletes more than is allowed",
        lambda db: db.rpc("forget_countries", {}).max_affected(1),
        error=TOO_MANY,
        leaves=(COUNTRIES, FIRST_ROWS),
    ),
]

REFUSED = [
    Call(
        "insert of a key that is there",
        lambda db: db.table("country").insert({"id": 1, "name": "Peru"}),
        error=error(
            "23505",
            'duplicate key value violates unique constraint "country_pkey"',
            "Key (id)=(1) already exists.",
        ),
    ),
    Call(
        "insert of a reference to nothing",
        lambda db: db.table("instrument").insert({"id": 9, "section_id": 77, "name": "gong"}),
        error=error(
            "23503",
            'insert or update on table "instrument" violates foreign key constraint'
            ' "instrument_section_id_fkey"',
            'Key (section_id)=(77) is not present in table "section".',
        ),
    ),
    Call(
        "insert of null where it is forbidden",
        lambda db: db.table("section").insert({"id": 9}),
        error=error(
            "23502",
            'null value in column "name" of relation "section" violates not-null constraint',
            "Failing row contains (9, null).",
        ),
    ),
    Call(
        "insert of an unknown column",
        lambda db: db.table("country").insert({"id": 9, "nme": "x"}),
        error=error("PGRST204", "Could not find the 'nme' column of 'country' in the schema cache"),
    ),
    Call(
        "insert of several rows with an unknown column",
        lambda db: db.table("country").insert([{"id": 9, "nme": "x"}]),
        error=error("PGRST204", "Could not find the 'nme' column of 'country' in the schema cache"),
    ),
    Call(
        "delete of what is referred to",
        lambda db: db.table("section").delete().eq("id", 1),
        error=error(
            "23503",
            'update or delete on table "section" violates foreign key constraint "instrument_section_id_fkey"'
            ' on table "instrument"',
            'Key (id)=(1) is still referenced from table "instrument".',
        ),
    ),
    Call(
        "upsert on columns without a constraint",
        lambda db: db.table("country").upsert(PERU, on_conflict="note"),
        error=error(
            "42P10", "there is no unique or exclusion constraint matching the ON CONFLICT specification"
        ),
    ),
]

CALLS = [*INSERTING, *UPSERTING, *UPDATING, *DELETING, *REFUSED]


@pytest.mark.parametrize("call", CALLS, ids=str)
async def test_rows_are_written(clients: Service, reactor: Any, call: Call) -> None:
    clients.database.execute(RESTORE)
    await check(reactor, clients, call)
