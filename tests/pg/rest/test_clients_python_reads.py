"""Selecting, counting, ordering and paging with the Python clients ``postgrest`` and ``supabase``.

The calls are those of the libraries' public documentation, and what it promises is what they must give.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from postgrest import CountMethod
from postgrest.exceptions import APIError
from support.rest_clients import LIBRARIES, Call, check, error, ids, make, names

if TYPE_CHECKING:
    from support.service import Service

NORWAY = {"id": 1, "name": "Norway", "note": None}
CHILE = {"id": 2, "name": "Chile", "note": "long"}
NEPAL = {"id": 3, "name": "Nepal", "note": "high"}
NAMELESS = {"id": 4, "name": None, "note": None}

SELECTING = [
    Call("all columns", lambda db: db.table("country").select("*"), [NORWAY, CHILE, NEPAL, NAMELESS]),
    Call("from_", lambda db: db.from_("country").select(), [NORWAY, CHILE, NEPAL, NAMELESS]),
    Call(
        "one column",
        lambda db: db.table("country").select("name"),
        names("Norway", "Chile", "Nepal", None),
    ),
    Call(
        "several columns as arguments",
        lambda db: db.table("country").select("id", "name").limit(1),
        [{"id": 1, "name": "Norway"}],
    ),
    Call("renamed", lambda db: db.table("country").select("key:id").limit(1), [{"key": 1}]),
    Call("cast", lambda db: db.table("country").select("id::text").limit(1), [{"id": "1"}]),
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
        "related rows of a table with a blank in its name",
        lambda db: db.table("concert hall").select('"seat count", "grand piano"(name)').eq("id", 1),
        [{"seat count": 900, "grand piano": names("Black", "White")}],
    ),
    Call(
        "related rows through a join table",
        lambda db: db.table("player").select("name, ensemble(name)"),
        [
            {"name": "Ida", "ensemble": names("Quartet", "Big Band")},
            {"name": "Noel", "ensemble": names("Big Band")},
            {"name": "Uma", "ensemble": []},
        ],
    ),
    Call(
        "one related table twice by column",
        lambda db: db.table("letter").select("content,from:sender_id(name),to:receiver_id(name)").limit(1),
        [{"content": "👋", "from": {"name": "Ida"}, "to": {"name": "Noel"}}],
    ),
    Call(
        "one related table twice by constraint",
        lambda db: (
            db.table("letter")
            .select("from:player!letter_sender_id_fkey(name), to:player!letter_receiver_id_fkey(name)")
            .limit(1)
        ),
        [{"from": {"name": "Ida"}, "to": {"name": "Noel"}}],
    ),
    Call(
        "nested through a join table",
        lambda db: db.table("concert").select("number:id, guest:ensemble!concert_guest_fkey(player(name))"),
        [
            {"number": 1, "guest": {"player": names("Ida", "Noel")}},
            {"number": 2, "guest": {"player": names("Ida")}},
        ],
    ),
    Call(
        "filter on related rows",
        lambda db: db.table("section").select("name, instrument(*)").eq("instrument.name", "harp"),
        [
            {"name": "strings", "instrument": [{"id": 3, "section_id": 1, "name": "harp"}]},
            {"name": "woodwinds", "instrument": []},
            {"name": "brass", "instrument": []},
        ],
    ),
    Call(
        "count of related rows",
        lambda db: db.table("section").select("*, instrument(count)"),
        [
            {"id": 1, "name": "strings", "instrument": [{"count": 2}]},
            {"id": 2, "name": "woodwinds", "instrument": [{"count": 2}]},
            {"id": 3, "name": "brass", "instrument": [{"count": 0}]},
        ],
    ),
    Call(
        "JSON member",
        lambda db: db.table("player").select("id, address->city").limit(2),
        [{"id": 1, "city": "Oslo"}, {"id": 2, "city": "Lima"}],
    ),
    Call(
        "JSON member as text",
        lambda db: db.table("player").select("level:address->>floor").limit(1),
        [{"level": "3"}],
    ),
    Call(
        "inner join",
        lambda db: db.table("instrument").select("name, section!inner(name)").eq("section.name", "woodwinds"),
        [
            {"name": "flute", "section": {"name": "woodwinds"}},
            {"name": "oboe", "section": {"name": "woodwinds"}},
        ],
    ),
    Call(
        "spread",
        lambda db: db.table("instrument").select("name, ...section(part:name)").limit(1),
        [{"name": "flute", "part": "woodwinds"}],
    ),
    Call(
        "another schema",
        lambda db: db.schema("backstage").table("prop").select("name"),
        names("Rope", "Mask"),
    ),
]

COUNTING = [
    Call(
        "exact count",
        lambda db: db.table("country").select("id", count=CountMethod.exact).limit(2),
        ids(1, 2),
        count=4,
    ),
    Call(
        "planned count",
        lambda db: db.table("country").select("id", count=CountMethod.planned).limit(1),
        ids(1),
        count=4,
    ),
    Call(
        "estimated count",
        lambda db: db.table("country").select("id", count=CountMethod.estimated).limit(1),
        ids(1),
        count=4,
    ),
    Call(
        "count alone",
        lambda db: db.table("country").select("*", count=CountMethod.exact, head=True),
        [],
        count=4,
    ),
    Call(
        "count of what a filter leaves",
        lambda db: db.table("country").select("id", count=CountMethod.exact).gt("id", 2),
        ids(3, 4),
        count=2,
    ),
    Call(
        "count over an inner join",
        lambda db: (
            db.table("section")
            .select("name, instrument!inner(name)", count=CountMethod.exact)
            .eq("instrument.name", "harp")
        ),
        [{"name": "strings", "instrument": names("harp")}],
        count=1,
    ),
]

MODIFIERS = [
    Call("order", lambda db: db.table("country").select("id").order("id", desc=True), ids(4, 3, 2, 1)),
    Call(
        "order with nulls first",
        lambda db: db.table("country").select("name").order("name", nullsfirst=True).limit(2),
        names(None, "Chile"),
    ),
    Call(
        "order by two columns",
        lambda db: db.table("instrument").select("name").order("section_id", desc=True).order("name"),
        names("flute", "oboe", "harp", "violin"),
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
        "order by a related row",
        lambda db: db.table("instrument").select("name, part:section(name)").order("part(name)").order("id"),
        [
            {"name": "violin", "part": {"name": "strings"}},
            {"name": "harp", "part": {"name": "strings"}},
            {"name": "flute", "part": {"name": "woodwinds"}},
            {"name": "oboe", "part": {"name": "woodwinds"}},
        ],
    ),
    Call("limit", lambda db: db.table("country").select("id").limit(1), ids(1)),
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
    Call("range past the end", lambda db: db.table("country").select("id").range(10, 20), []),
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
    Call(
        "single of many",
        lambda db: db.table("country").select("name").single(),
        error=error(
            "PGRST116", "Cannot coerce the result to a single JSON object", "The result contains 4 rows"
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
]

CALLS = [*SELECTING, *COUNTING, *MODIFIERS]


@pytest.mark.parametrize("call", CALLS, ids=str)
async def test_rows_are_read(clients: Service, reactor: Any, call: Call) -> None:
    await check(reactor, clients, call)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_explain_gives_the_plan(clients: Service, reactor: Any, library: str) -> None:
    """As text by default, with what is asked for in it, and as JSON."""
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
async def test_maybe_single_of_many_is_refused(clients: Service, reactor: Any, library: str) -> None:
    with pytest.raises(APIError, match="more than one row"):
        await make(reactor, clients, library, lambda db: db.table("country").select("*").maybe_single())
