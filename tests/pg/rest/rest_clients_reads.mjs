// Calls that select, order and page rows, and request other formats.
import { chile, gives, ids, nameless, names, nepal, norway, refused } from "./rest_clients_promises.mjs";

const SINGLE = "Cannot coerce the result to a single JSON object";

// Return a response without values that vary between runs.
const plan = async (request, ...patterns) => {
  const { data, error, status } = await request;
  const text = typeof data === "string" ? data : JSON.stringify(data);
  return { error, status, found: patterns.map((pattern) => pattern.test(text)) };
};
const planned = (...found) => ({ error: null, status: 200, found });

const selecting = [
  ["all columns", (db) => db.from("country").select(), gives([norway, chile, nepal, nameless])],
  ["one column", (db) => db.from("country").select("name"), gives(names("Norway", "Chile", "Nepal", null))],
  ["renamed and cast", (db) => db.from("country").select("key:id::text").limit(1), gives([{ key: "1" }])],
  [
    "related rows",
    (db) =>
      db.from("section").select(`
        name,
        instrument (
          name
        )
      `),
    gives([
      { name: "strings", instrument: names("violin", "harp") },
      { name: "woodwinds", instrument: names("flute", "oboe") },
      { name: "brass", instrument: [] },
    ]),
  ],
  [
    "related rows of tables with blanks in their names",
    (db) => db.from("concert hall").select(`"seat count", "grand piano" ( name )`),
    gives([
      { "seat count": 900, "grand piano": names("Black", "White") },
      { "seat count": 250, "grand piano": [] },
    ]),
  ],
  [
    "related rows through a join table",
    (db) => db.from("player").select("name, ensemble ( name )"),
    gives([
      { name: "Ida", ensemble: names("Quartet", "Big Band") },
      { name: "Noel", ensemble: names("Big Band") },
      { name: "Uma", ensemble: [] },
    ]),
  ],
  [
    "one related table twice by column",
    (db) => db.from("letter").select("content, from:sender_id(name), to:receiver_id(name)").limit(1),
    gives([{ content: "👋", from: { name: "Ida" }, to: { name: "Noel" } }]),
  ],
  [
    "one related table twice by constraint",
    (db) =>
      db
        .from("letter")
        .select("from:player!letter_sender_id_fkey(name), to:player!letter_receiver_id_fkey(name)")
        .limit(1),
    gives([{ from: { name: "Ida" }, to: { name: "Noel" } }]),
  ],
  [
    "nested through a join table",
    (db) => db.from("concert").select("number:id, guest:ensemble!concert_guest_fkey ( player ( id, name ) )"),
    gives([
      {
        number: 1,
        guest: {
          player: [
            { id: 1, name: "Ida" },
            { id: 2, name: "Noel" },
          ],
        },
      },
      { number: 2, guest: { player: [{ id: 1, name: "Ida" }] } },
    ]),
  ],
  [
    "filter on a related row",
    (db) => db.from("instrument").select("name, section(*)").eq("section.name", "percussion").limit(2),
    gives([
      { name: "flute", section: null },
      { name: "violin", section: null },
    ]),
  ],
  [
    "count of related rows",
    (db) => db.from("section").select(`*, instrument(count)`),
    gives([
      { id: 1, name: "strings", instrument: [{ count: 2 }] },
      { id: 2, name: "woodwinds", instrument: [{ count: 2 }] },
      { id: 3, name: "brass", instrument: [{ count: 0 }] },
    ]),
  ],
  [
    "count of related rows that a filter leaves",
    (db) => db.from("section").select("name, found:instrument!inner(count)").eq("found.name", "oboe"),
    gives([{ name: "woodwinds", found: [{ count: 1 }] }]),
  ],
  [
    "exact count",
    (db) => db.from("country").select("id", { count: "exact" }),
    gives(ids(1, 2, 3, 4), { count: 4 }),
  ],
  [
    "exact count beside a page",
    (db) => db.from("country").select("id", { count: "exact" }).range(1, 2),
    gives(ids(2, 3), { count: 4, status: 206 }),
  ],
  [
    "exact count alone",
    (db) => db.from("country").select("*", { count: "exact", head: true }),
    gives(null, { count: 4 }),
  ],
  [
    "planned count",
    (db) => db.from("country").select("*", { count: "planned", head: true }),
    gives(null, { count: 4 }),
  ],
  [
    "estimated count",
    (db) => db.from("country").select("*", { count: "estimated", head: true }).gt("id", 0),
    gives(null, { count: 4 }),
  ],
  [
    "JSON member",
    (db) => db.from("player").select("id, name, address->city").limit(1),
    gives([{ id: 1, name: "Ida", city: "Oslo" }]),
  ],
  [
    "inner join",
    (db) => db.from("instrument").select("name, section!inner(name)").eq("section.name", "strings"),
    gives([
      { name: "violin", section: { name: "strings" } },
      { name: "harp", section: { name: "strings" } },
    ]),
  ],
  ["another schema", (db) => db.schema("backstage").from("prop").select("name"), gives(names("Rope", "Mask"))],
  [
    "another schema for the whole client",
    (_, { connect }) => connect({ db: { schema: "backstage" } }).from("prop").select("name"),
    gives(names("Rope", "Mask")),
  ],
  [
    "spread",
    (db) => db.from("instrument").select("name, ...section(part:name)").limit(1),
    gives([{ name: "flute", part: "woodwinds" }]),
  ],
];

const modifying = [
  ["order", (db) => db.from("country").select("id").order("id", { ascending: false }), gives(ids(4, 3, 2, 1))],
  [
    "order with nulls first",
    (db) => db.from("country").select("name").order("name", { nullsFirst: true }).limit(2),
    gives(names(null, "Chile")),
  ],
  [
    "order by two columns",
    (db) => db.from("instrument").select("name").order("section_id").order("name", { ascending: false }),
    gives(names("violin", "harp", "oboe", "flute")),
  ],
  [
    "order by a JSON member",
    (db) => db.from("player").select("name").order("address->>city", { nullsFirst: false }),
    gives(names("Noel", "Ida", "Uma")),
  ],
  [
    "order of related rows",
    (db) =>
      db
        .from("section")
        .select("name, instrument ( name )")
        .order("name", { referencedTable: "instrument", ascending: false }),
    gives([
      { name: "strings", instrument: names("violin", "harp") },
      { name: "woodwinds", instrument: names("oboe", "flute") },
      { name: "brass", instrument: [] },
    ]),
  ],
  [
    "order by a related row",
    (db) =>
      db
        .from("instrument")
        .select("name, part:section ( name )")
        .order("part(name)", { ascending: true })
        .order("name")
        .limit(3),
    gives([
      { name: "harp", part: { name: "strings" } },
      { name: "violin", part: { name: "strings" } },
      { name: "flute", part: { name: "woodwinds" } },
    ]),
  ],
  ["limit", (db) => db.from("country").select("name").limit(1), gives(names("Norway"))],
  [
    "limit of related rows",
    (db) =>
      db.from("section").select("name, instrument ( name )").eq("id", 1).limit(1, { referencedTable: "instrument" }),
    gives([{ name: "strings", instrument: names("violin") }]),
  ],
  ["range", (db) => db.from("country").select("id").range(0, 1), gives(ids(1, 2))],
  [
    "range of related rows",
    (db) =>
      db
        .from("section")
        .select("name, instrument ( name )")
        .eq("id", 1)
        .range(1, 5, { referencedTable: "instrument" }),
    gives([{ name: "strings", instrument: names("harp") }]),
  ],
  ["range past the end", (db) => db.from("country").select("id").range(10, 19), gives([])],
  [
    "counted range past the end",
    (db) => db.from("country").select("id", { count: "exact" }).range(10, 19),
    refused(
      416,
      "PGRST103",
      "Requested range not satisfiable",
      "An offset of 10 was requested, but there are only 4 rows.",
    ),
  ],
  ["single", (db) => db.from("country").select("name").limit(1).single(), gives({ name: "Norway" })],
  [
    "single of none",
    (db) => db.from("country").select().eq("id", 9).single(),
    refused(406, "PGRST116", SINGLE, "The result contains 0 rows"),
  ],
  [
    "single of many",
    (db) => db.from("country").select().single(),
    refused(406, "PGRST116", SINGLE, "The result contains 4 rows"),
  ],
  ["maybeSingle of one", (db) => db.from("country").select().eq("name", "Nepal").maybeSingle(), gives(nepal)],
  ["maybeSingle of none", (db) => db.from("country").select().eq("name", "Peru").maybeSingle(), gives(null)],
  [
    "maybeSingle of many",
    async (db) => (await db.from("country").select().maybeSingle()).error.code,
    "PGRST116",
  ],
  [
    "csv",
    (db) => db.from("country").select().lt("id", 4).csv(),
    gives("id,name,note\n1,Norway,\n2,Chile,long\n3,Nepal,high"),
  ],
  [
    "stripNulls",
    (db) => db.from("country").select().lt("id", 3).stripNulls(),
    gives([{ id: 1, name: "Norway" }, chile]),
  ],
  [
    "stripNulls of one",
    (db) => db.from("country").select().eq("id", 1).single().stripNulls(),
    gives({ id: 1, name: "Norway" }),
  ],
  [
    "explain",
    (db) => plan(db.from("country").select().explain(), /^Aggregate {2}\(cost=/, /Seq Scan on country/),
    planned(true, true),
  ],
  [
    "explain with analyze and verbose",
    (db) =>
      plan(
        db.from("country").select().explain({ analyze: true, verbose: true }),
        /actual time=/,
        /Output: /,
        /Execution Time: /,
      ),
    planned(true, true, true),
  ],
  [
    "explain as JSON",
    (db) => plan(db.from("country").select().explain({ format: "json", buffers: true, analyze: true }), /^\[{"Plan":{/),
    planned(true),
  ],
  [
    "explain of one row",
    (db) => plan(db.from("country").select().eq("id", 1).single().explain(), /on country/),
    planned(true),
  ],
  ["throwOnError", (db) => db.from("country").select("id").limit(1).throwOnError(), gives(ids(1))],
  [
    "throwOnError of an error",
    async (db) => {
      try {
        return await db.from("country").select("nothing").throwOnError();
      } catch (error) {
        return [error.name, error.code, error.message];
      }
    },
    ["PostgrestError", "42703", "column country.nothing does not exist"],
  ],
  ["setHeader", (db) => db.from("country").select("id").limit(1).setHeader("x-mine", "1"), gives(ids(1))],
  ["a refusal for now", (db) => db.rpc("busy_once", undefined, { get: true }), gives("1")],
  [
    "a refusal for now that is not tried again",
    async (db) => {
      const busy = () => db.rpc("busy_once", undefined, { get: true }).retry(false);
      const { error, status } = await busy();
      // The next call succeeds and has no retry count header.
      return [status, error.code, await busy()];
    },
    [503, "BUSY", gives(null)],
  ],
  ["returns", (db) => db.from("country").select("id").limit(1).returns(), gives(ids(1))],
  ["overrideTypes", (db) => db.from("country").select().eq("id", 2).single().overrideTypes(), gives(chile)],
  [
    "a long URL",
    (db) => {
      const many = Array.from({ length: 1500 }, (_, index) => index + 3);
      return db.from("country").select("id").in("id", many);
    },
    gives(ids(3, 4)),
  ],
];

export const calls = [...selecting, ...modifying];
