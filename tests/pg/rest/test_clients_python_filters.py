"""Every filter of the Python clients ``postgrest`` and ``supabase``.

The calls are those of the libraries' public documentation, and what it promises is what they must give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.rest_clients import Call, check, ids, names, titles

if TYPE_CHECKING:
    from support.service import Service

NORWAY = {"id": 1, "name": "Norway", "note": None}
CHILE = {"id": 2, "name": "Chile", "note": "long"}
NEPAL = {"id": 3, "name": "Nepal", "note": "high"}
NAMELESS = {"id": 4, "name": None, "note": None}
EMERALD = {"id": 1, "room": "Emerald", "during": '["2024-01-01 13:00:00","2024-01-01 15:00:00")'}
TOPAZ = {"id": 2, "room": "Topaz", "during": '["2024-01-02 09:00:00","2024-01-02 10:00:00")'}

CALLS = [
    Call("eq", lambda db: db.table("country").select("*").eq("name", "Chile"), [CHILE]),
    Call("neq", lambda db: db.table("country").select("*").neq("name", "Chile"), [NORWAY, NEPAL]),
    Call("gt", lambda db: db.table("country").select("*").gt("id", 2), [NEPAL, NAMELESS]),
    Call("gte", lambda db: db.table("country").select("*").gte("id", 3), [NEPAL, NAMELESS]),
    Call("lt", lambda db: db.table("country").select("*").lt("id", 2), [NORWAY]),
    Call("lte", lambda db: db.table("country").select("*").lte("id", 1), [NORWAY]),
    Call("like", lambda db: db.table("country").select("*").like("name", "%or%"), [NORWAY]),
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
    Call("is_ null", lambda db: db.table("country").select("*").is_("name", "null"), [NAMELESS]),
    Call("is_ None", lambda db: db.table("country").select("*").is_("name", None), [NAMELESS]),
    Call("is_ true", lambda db: db.table("task").select("title").is_("done", True), titles("Tune")),
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
        "contains with a comma",
        lambda db: db.table("task").select("title").contains("tags", ["a, b"]),
        titles("Rehearse"),
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
        "contained_by of an array",
        lambda db: db.table("task").select("title").contained_by("tags", ["is:open", "severity:low", "a, b"]),
        titles("Rehearse", "Rest"),
    ),
    Call(
        "contained_by of a range",
        lambda db: (
            db.table("booking").select("*").contained_by("during", "[2024-01-02 00:00, 2024-01-03 00:00)")
        ),
        [TOPAZ],
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
    Call(
        "text_search phrase",
        lambda db: (
            db.table("verse")
            .select("id")
            .text_search("line", "fat cat", options={"type": "phrase", "config": "english"})
        ),
        ids(1),
    ),
    Call(
        "text_search as on the web",
        lambda db: (
            db.table("verse")
            .select("id")
            .text_search("line", "bird -dogs", options={"type": "web_search", "config": "english"})
        ),
        ids(4),
    ),
    Call("fts", lambda db: db.table("verse").select("id").fts("line", "cats | dogs"), ids(1, 2, 3)),
    Call("match", lambda db: db.table("country").select("*").match({"id": 2, "name": "Chile"}), [CHILE]),
    Call("not_ is_", lambda db: db.table("country").select("*").not_.is_("note", "null"), [CHILE, NEPAL]),
    Call("not_ in_", lambda db: db.table("country").select("*").not_.in_("id", [1, 2, 4]), [NEPAL]),
    Call("or_", lambda db: db.table("country").select("*").or_("id.eq.2,name.eq.Nepal"), [CHILE, NEPAL]),
    Call(
        "or_ with and",
        lambda db: db.table("country").select("*").or_("id.gt.3,and(id.eq.1,name.eq.Norway)"),
        [NORWAY, NAMELESS],
    ),
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
        "or_ with lists of both kinds",
        lambda db: db.table("task").select("title").or_('id.in.(3,9),tags.cs.{"a, b"}'),
        titles("Rehearse", "Rest"),
    ),
    Call(
        "filter",
        lambda db: db.table("country").select("*").filter("name", "in", '("Nepal","Peru")'),
        [NEPAL],
    ),
    Call(
        "filter on related rows",
        lambda db: (
            db.table("section")
            .select("name, instrument!inner(name)")
            .filter("instrument.name", "eq", "flute")
        ),
        [{"name": "woodwinds", "instrument": names("flute")}],
    ),
    Call(
        "eq on a JSON member",
        lambda db: db.table("player").select("name").eq("address->>city", "Lima"),
        names("Noel"),
    ),
    Call(
        "two filters on one column",
        lambda db: db.table("country").select("*").gte("id", 2).lt("id", 4),
        [CHILE, NEPAL],
    ),
    Call(
        "a filter on a text that looks like an operator",
        lambda db: db.table("letter").select("id").eq("content", 'Later, "soon"'),
        ids(2),
    ),
]


@pytest.mark.parametrize("call", CALLS, ids=str)
async def test_a_filter_leaves_the_rows_that_are_promised(clients: Service, reactor: Any, call: Call) -> None:
    """With the values that the library writes into the URL."""
    await check(reactor, clients, call)
