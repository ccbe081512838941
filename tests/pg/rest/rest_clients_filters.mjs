// Calls with every filter.
import {
  chile, emerald, gives, ids, nameless, names, nepal, norway, titles, topaz,
} from "./rest_clients_promises.mjs";

const countries = (db) => db.from("country").select();
const verses = (db) => db.from("verse").select("id");
const tasks = (db) => db.from("task").select("title");
const bookings = (db) => db.from("booking").select();
const english = { config: "english" };

export const calls = [
  ["eq", (db) => countries(db).eq("name", "Chile"), gives([chile])],
  ["neq", (db) => countries(db).neq("name", "Chile"), gives([norway, nepal])],
  ["gt", (db) => countries(db).gt("id", 2), gives([nepal, nameless])],
  ["gte", (db) => countries(db).gte("id", 3), gives([nepal, nameless])],
  ["lt", (db) => countries(db).lt("id", 2), gives([norway])],
  ["lte", (db) => countries(db).lte("id", 2), gives([norway, chile])],
  ["like", (db) => countries(db).like("name", "%or%"), gives([norway])],
  ["likeAllOf", (db) => verses(db).likeAllOf("line", ["%cat%", "%sat%"]), gives(ids(1))],
  ["likeAnyOf", (db) => verses(db).likeAnyOf("line", ["A %", "No %"]), gives(ids(1, 3))],
  ["ilike", (db) => countries(db).ilike("name", "%N%"), gives([norway, nepal])],
  ["ilikeAllOf", (db) => verses(db).ilikeAllOf("line", ["%CAT%", "%FAT%"]), gives(ids(1, 2))],
  ["ilikeAnyOf", (db) => verses(db).ilikeAnyOf("line", ["a %", "no %"]), gives(ids(1, 3))],
  ["regexMatch", (db) => countries(db).regexMatch("name", "^N.*l$"), gives([nepal])],
  ["regexIMatch", (db) => countries(db).regexIMatch("name", "^n(e|o)"), gives([norway, nepal])],
  ["is null", (db) => countries(db).is("name", null), gives([nameless])],
  ["is true", (db) => tasks(db).is("done", true), gives(titles("Tune"))],
  ["is false", (db) => tasks(db).is("done", false), gives(titles("Rehearse"))],
  ["isDistinct", (db) => countries(db).isDistinct("note", "high"), gives([norway, chile, nameless])],
  ["in", (db) => countries(db).in("name", ["Nepal", "Chile"]), gives([chile, nepal])],
  [
    "in with a comma",
    (db) => verses(db).in("line", ["No dogs, but one bird", "x", "x"]),
    gives(ids(3)),
  ],
  ["in with nothing", (db) => countries(db).in("id", []), gives([])],
  ["notIn", (db) => countries(db).notIn("id", [1, 2]), gives([nepal, nameless])],
  ["contains of an array", (db) => tasks(db).contains("tags", ["is:open", "priority:low"]), gives(titles("Tune"))],
  [
    "contains of a range",
    (db) => bookings(db).contains("during", "[2024-01-01 13:00, 2024-01-01 13:30)"),
    gives([emerald]),
  ],
  [
    "contains of JSON",
    (db) => db.from("player").select("name").contains("address", { city: "Oslo" }),
    gives(names("Ida")),
  ],
  [
    "containedBy of an array",
    (db) => tasks(db).containedBy("tags", ["is:open", "severity:high", "priority:low", "x"]),
    gives(titles("Tune", "Rest")),
  ],
  [
    "containedBy of a range",
    (db) => bookings(db).containedBy("during", "[2024-01-02 00:00, 2024-01-03 00:00)"),
    gives([topaz]),
  ],
  [
    "containedBy of JSON",
    (db) => db.from("player").select("name").containedBy("address", { city: "Lima", x: 1 }),
    gives(names("Noel", "Uma")),
  ],
  ["rangeGt", (db) => bookings(db).rangeGt("during", "[2024-01-02 08:00, 2024-01-02 09:00)"), gives([topaz])],
  ["rangeGte", (db) => bookings(db).rangeGte("during", "[2024-01-02 08:30, 2024-01-02 09:30)"), gives([topaz])],
  ["rangeLt", (db) => bookings(db).rangeLt("during", "[2024-01-01 15:00, 2024-01-01 16:00)"), gives([emerald])],
  ["rangeLte", (db) => bookings(db).rangeLte("during", "[2024-01-01 14:00, 2024-01-01 16:00)"), gives([emerald])],
  [
    "rangeAdjacent",
    (db) => bookings(db).rangeAdjacent("during", "[2024-01-01 12:00, 2024-01-01 13:00)"),
    gives([emerald]),
  ],
  ["overlaps of an array", (db) => tasks(db).overlaps("tags", ["is:closed", "severity:high"]), gives(titles("Tune"))],
  [
    "overlaps of a range",
    (db) => bookings(db).overlaps("during", "[2024-01-01 12:45, 2024-01-01 13:15)"),
    gives([emerald]),
  ],
  ["textSearch", (db) => verses(db).textSearch("line", `'fat' & 'cat'`, english), gives(ids(1, 2))],
  ["textSearch without options", (db) => verses(db).textSearch("line", "cats | dogs"), gives(ids(1, 2, 3))],
  [
    "textSearch plain",
    (db) => verses(db).textSearch("line", `'fat' & 'cat'`, { type: "plain", ...english }),
    gives(ids(1, 2)),
  ],
  [
    "textSearch phrase",
    (db) => verses(db).textSearch("line", `'fat' & 'cat'`, { type: "phrase", ...english }),
    gives(ids(1)),
  ],
  [
    "textSearch as on the web",
    (db) => verses(db).textSearch("line", `bird or "fat cat"`, { type: "websearch", ...english }),
    gives(ids(1, 3, 4)),
  ],
  ["match", (db) => countries(db).match({ id: 2, name: "Chile" }), gives([chile])],
  ["not is", (db) => countries(db).not("note", "is", null), gives([chile, nepal])],
  ["not in", (db) => countries(db).not("id", "in", "(1,2,4)"), gives([nepal])],
  ["not contains", (db) => tasks(db).not("tags", "cs", '{"is:open"}'), gives(titles("Rest"))],
  ["or", (db) => countries(db).or("id.eq.2,name.eq.Nepal"), gives([chile, nepal])],
  ["or with and", (db) => countries(db).or("id.gt.3,and(id.eq.1,name.eq.Norway)"), gives([norway, nameless])],
  [
    "or with lists of both kinds and a blank",
    (db) => tasks(db).or('id.in.(3,9), tags.cs.{"a, b"}'),
    gives(titles("Rehearse", "Rest")),
  ],
  [
    "or on related rows",
    (db) =>
      db
        .from("section")
        .select("name, instrument!inner ( name )")
        .or("section_id.eq.1,name.eq.guzheng", { referencedTable: "instrument" }),
    gives([{ name: "strings", instrument: names("violin", "harp") }]),
  ],
  ["filter", (db) => countries(db).filter("name", "in", '("Nepal","Peru")'), gives([nepal])],
  [
    "filter on related rows",
    (db) => db.from("section").select("name, instrument!inner ( name )").filter("instrument.name", "eq", "flute"),
    gives([{ name: "woodwinds", instrument: names("flute") }]),
  ],
  ["filter of a JSON member", (db) => db.from("player").select("name").gt("address->floor", 2), gives(names("Ida"))],
  ["two filters on one column", (db) => countries(db).gte("id", 2).lt("id", 4), gives([chile, nepal])],
  [
    "related rows that are not there",
    (db) => db.from("section").select("name, instrument()").is("instrument", null),
    gives(names("brass")),
  ],
  ["a text with signs", (db) => db.from("letter").select("id").eq("content", 'Later, "soon"'), gives(ids(2))],
  ["a sign beyond ASCII", (db) => db.from("letter").select("id").eq("content", "👋"), gives(ids(1))],
];
