// Calls of functions, errors, keys and the OpenAPI description.
import { chile, gives, ids, nameless, names, nepal, norway, refused } from "./rest_clients_promises.mjs";

const UNKNOWN_FUNCTION =
  "Searched for the function public.hello_word without parameters or with a single unnamed json/jsonb parameter," +
  " but no matches were found in the schema cache.";
const get = { get: true };

const functions = [
  ["rpc", (db) => db.rpc("hello_world"), gives("Hello world")],
  ["rpc with an argument", (db) => db.rpc("echo", { say: "👋" }), gives("👋")],
  ["rpc with an array", (db) => db.rpc("add_one_each", { arr: [1, 2, 3] }), gives([2, 3, 4])],
  ["rpc with JSON", (db) => db.rpc("total", { bill: { a: 1.5, b: 2 } }), gives(3.5)],
  ["rpc without result", (db) => db.rpc("do_nothing"), gives(null, { status: 204 })],
  ["rpc of rows", (db) => db.rpc("list_countries"), gives([norway, chile, nepal, nameless])],
  ["rpc filtered", (db) => db.rpc("list_countries").eq("id", 1).single(), gives(norway)],
  ["rpc selected", (db) => db.rpc("list_countries").select("name").limit(1), gives(names("Norway"))],
  [
    "rpc ordered",
    (db) => db.rpc("list_countries").order("id", { ascending: false }).range(0, 1),
    gives([nameless, nepal]),
  ],
  ["rpc of one row", (db) => db.rpc("country_named", { wanted: "Chile" }), gives(chile)],
  ["rpc of one row that is not there", (db) => db.rpc("list_countries").eq("id", 9).maybeSingle(), gives(null)],
  ["rpc by GET", (db) => db.rpc("hello_world", undefined, get), gives("Hello world")],
  ["rpc by GET with an argument", (db) => db.rpc("echo", { say: "a b&c" }, get), gives("a b&c")],
  ["rpc by GET with an array", (db) => db.rpc("add_one_each", { arr: [1, 2] }, get), gives([2, 3])],
  [
    "rpc counted",
    (db) => db.rpc("list_countries", {}, { count: "exact" }).limit(1),
    gives([norway], { count: 4, status: 206 }),
  ],
  ["rpc counted alone", (db) => db.rpc("list_countries", {}, { count: "exact", head: true }), gives(null, { count: 4 })],
  [
    "rpc counted with an object",
    // The argument cannot be part of a URL, so the client sends a POST.
    async (db) => (await db.rpc("found", { wanted: { name: "Chile" } }, { count: "exact", head: true })).count,
    1,
  ],
  ["rpc of another schema", (db) => db.schema("backstage").rpc("whisper", { word: "SHH" }), gives("shh")],
  ["rpc that deletes", (db) => db.rpc("forget_countries").select("id"), gives(ids(1, 2, 3, 4))],
  [
    "rpc of one who is signed in",
    (_, { signIn }) => signIn().rpc("whoami"),
    gives("authenticated a user of authenticated"),
  ],
  ["rpc as CSV", (db) => db.rpc("list_countries").lt("id", 2).csv(), gives("id,name,note\n1,Norway,")],
  [
    "rpc that deletes more than is allowed",
    (db) => db.rpc("forget_countries").maxAffected(1),
    refused(
      400,
      "PGRST124",
      "Query result exceeds max-affected preference constraint",
      "The query affects 4 rows",
    ),
  ],
];

const errors = [
  [
    "unknown table",
    (db) => db.from("contry").select(),
    refused(
      404,
      "PGRST205",
      "Could not find the table 'public.contry' in the schema cache",
      null,
      "Perhaps you meant the table 'public.country'",
    ),
  ],
  [
    "unknown column",
    (db) => db.from("country").select("nothing"),
    refused(400, "42703", "column country.nothing does not exist"),
  ],
  [
    "unknown relationship",
    (db) => db.from("country").select("player(name)"),
    refused(
      400,
      "PGRST200",
      "Could not find a relationship between 'country' and 'player' in the schema cache",
      "Searched for a foreign key relationship between 'country' and 'player' in the schema 'public'," +
        " but no matches were found.",
    ),
  ],
  [
    "more than one relationship",
    async (db) => {
      const { error, status, statusText } = await db.from("letter").select("player(name)");
      return [status, statusText, error.code, error.message, error.details.map(({ cardinality }) => cardinality)];
    },
    [
      300,
      "Multiple Choices",
      "PGRST201",
      "Could not embed because more than one relationship was found for 'letter' and 'player'",
      ["many-to-one", "many-to-one"],
    ],
  ],
  [
    "value of another type",
    (db) => db.from("country").select().eq("id", "one"),
    refused(400, "22P02", 'invalid input syntax for type bigint: "one"'),
  ],
  [
    "forbidden table",
    (db) => db.from("vault").select(),
    refused(401, "42501", "permission denied for table vault"),
  ],
  [
    "forbidden table for one who is signed in",
    (_, { signIn }) => signIn().from("vault").select(),
    refused(403, "42501", "permission denied for table vault"),
  ],
  [
    "unknown schema",
    (db) => db.schema("attic").from("prop").select(),
    refused(
      406,
      "PGRST106",
      "Invalid schema: attic",
      null,
      "Only the following schemas are exposed: public, backstage",
    ),
  ],
  [
    "unknown function",
    (db) => db.rpc("hello_word"),
    refused(
      404,
      "PGRST202",
      "Could not find the function public.hello_word without parameters in the schema cache",
      UNKNOWN_FUNCTION,
      "Perhaps you meant to call the function public.hello_world",
    ),
  ],
  [
    "function that raises",
    (db) => db.rpc("refuse"),
    refused(400, "P0001", "Out of tune", "The oboe", "Give an A"),
  ],
  [
    "function that raises a status",
    (db) => db.rpc("refuse_politely"),
    refused(402, "PT402", "Payment required", "Two tickets", "Pay"),
  ],
  [
    "function that writes, by GET",
    (db) => db.rpc("forget_countries", {}, get),
    refused(405, "25006", "cannot execute DELETE in a read-only transaction"),
  ],
  [
    "aggregates that are switched off",
    (db) => db.from("instrument").select("id.sum()"),
    refused(400, "PGRST123", "Use of aggregate functions is not allowed"),
  ],
  [
    "form of results that is unknown",
    async (db) => {
      const { error, status } = await db.from("country").select().setHeader("Accept", "image/png");
      return [status, error.code, error.message];
    },
    [406, "PGRST107", "None of these media types are available: image/png"],
  ],
  [
    "unknown key",
    async (_, { connect }) => {
      const { error, status, statusText } = await connect({ key: "sb_publishable_of_nobody" }).from("country").select();
      return [status, statusText, error.message];
    },
    [401, "Unauthorized", "Invalid API key"],
  ],
  [
    "token that is none",
    async (_, { connect }) => {
      const client = connect({ accessToken: async () => "a.b.c" });
      const { error, status } = await client.from("country").select();
      return [status, error.code];
    },
    [401, "PGRST301"],
  ],
];

const description = [
  [
    "getOpenApiSpec",
    async (db) => {
      const { data, error, status } = await db.schema("public").getOpenApiSpec();
      return { error, status, swagger: data.swagger, paths: ["/country", "/rpc/echo", "/prop"].map((at) => at in data.paths) };
    },
    { error: null, status: 200, swagger: "2.0", paths: [true, true, false] },
  ],
];

export const changing = true;
export const calls = [...functions, ...errors, ...description];
