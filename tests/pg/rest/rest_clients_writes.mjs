// Calls that insert, update and delete rows.
import { chile, gives, ids, names, refused } from "./rest_clients_promises.mjs";

const peru = { id: 5, name: "Peru", note: null };
const mali = { id: 6, name: "Mali", note: "hot" };
const created = "2024-01-01T00:00:00+00:00";
const done = gives(null, { status: 204 });
const inserted = (data, more = {}) => gives(data, { status: 201, ...more });
const tooMany = refused(
  400,
  "PGRST124",
  "Query result exceeds max-affected preference constraint",
  "The query affects 4 rows",
);

// Return the result of a call and the rows of the table after it.
const then = async (db, request) => {
  const given = await request;
  const { data } = await db.from("country").select("id, name").gt("id", 2).order("id");
  return { given, left: data.map(({ id, name }) => `${id} ${name}`) };
};
const leaves = (given, ...left) => ({ given, left });

const inserting = [
  [
    "insert",
    (db) => then(db, db.from("country").insert({ id: 5, name: "Peru" })),
    leaves(inserted(null), "3 Nepal", "4 null", "5 Peru"),
  ],
  ["insert and select", (db) => db.from("country").insert({ id: 5, name: "Peru" }).select(), inserted([peru])],
  [
    "insert of several rows",
    (db) => then(db, db.from("country").insert([peru, mali])),
    leaves(inserted(null), "3 Nepal", "4 null", "5 Peru", "6 Mali"),
  ],
  [
    "insert of several rows that differ in their columns",
    (db) => db.from("country").insert([{ id: 5, name: "Peru" }, { id: 6, note: "x" }]).select(),
    inserted([peru, { id: 6, name: null, note: "x" }]),
  ],
  [
    "insert of several rows of which one is there",
    (db) =>
      then(
        db,
        db.from("country").insert([
          { id: 5, name: "Peru" },
          { id: 1, name: "Mali" },
        ]),
      ),
    leaves(
      refused(
        409,
        "23505",
        'duplicate key value violates unique constraint "country_pkey"',
        "Key (id)=(1) already exists.",
      ),
      "3 Nepal",
      "4 null",
    ),
  ],
  [
    "insert with columns' defaults",
    (db) => db.from("task").insert([{ title: "a", done: true }, { title: "b" }], { defaultToNull: false }).select(),
    inserted([
      { id: 4, title: "a", tags: [], done: true, created },
      { id: 5, title: "b", tags: [], done: null, created },
    ]),
  ],
  [
    "insert counted",
    (db) => db.from("country").insert([peru, mali], { count: "exact" }),
    inserted(null, { count: 2 }),
  ],
  [
    "insert counted and selected",
    (db) => db.from("country").insert([peru, mali], { count: "exact" }).select("id"),
    inserted(ids(5, 6), { count: 2 }),
  ],
  ["insert of one", (db) => db.from("country").insert(peru).select("name").single(), inserted({ name: "Peru" })],
  [
    "insert with related rows",
    (db) => db.from("instrument").insert({ id: 9, section_id: 3, name: "tuba" }).select("name, section(name)"),
    inserted([{ name: "tuba", section: { name: "brass" } }]),
  ],
  [
    "insert into columns with blanks in their names",
    (db) => db.from("concert hall").insert([{ id: 3, "seat count": 40 }]).select(),
    inserted([{ id: 3, "seat count": 40 }]),
  ],
  [
    "insert of arrays and JSON",
    (db) => db.from("player").insert({ id: 9, name: "Li", address: { tags: ["a", { b: 1 }] } }).select("address"),
    inserted([{ address: { tags: ["a", { b: 1 }] } }]),
  ],
  [
    "insert rolled back",
    (db) => then(db, db.from("country").insert(peru).select().rollback()),
    leaves(inserted([peru]), "3 Nepal", "4 null"),
  ],
  [
    "insert as CSV",
    (db) => db.from("country").insert([peru, mali]).select("id, name").csv(),
    inserted("id,name\n5,Peru\n6,Mali"),
  ],
  ["insert of nothing", (db) => then(db, db.from("country").insert([])), leaves(inserted(null), "3 Nepal", "4 null")],
  [
    "insert of two rows where one is asked for",
    (db) => then(db, db.from("country").insert([peru, mali]).select().single()),
    leaves(
      refused(406, "PGRST116", "Cannot coerce the result to a single JSON object", "The result contains 2 rows"),
      "3 Nepal",
      "4 null",
    ),
  ],
  [
    "insert of an unknown column",
    (db) => db.from("country").insert({ id: 9, nme: "x" }),
    refused(400, "PGRST204", "Could not find the 'nme' column of 'country' in the schema cache"),
  ],
  [
    "insert of a reference to nothing",
    (db) => db.from("instrument").insert({ id: 9, section_id: 77, name: "gong" }),
    refused(
      409,
      "23503",
      'insert or update on table "instrument" violates foreign key constraint "instrument_section_id_fkey"',
      'Key (section_id)=(77) is not present in table "section".',
    ),
  ],
  [
    "insert of null where it is forbidden",
    (db) => db.from("section").insert({ id: 9 }),
    refused(
      400,
      "23502",
      'null value in column "name" of relation "section" violates not-null constraint',
      "Failing row contains (9, null).",
    ),
  ],
];

const upserting = [
  [
    "upsert of a row that is there",
    (db) => db.from("country").upsert({ id: 3, name: "India" }).select(),
    gives([{ id: 3, name: "India", note: "high" }]),
  ],
  ["upsert of a new row", (db) => db.from("country").upsert(peru).select(), inserted([peru])],
  [
    "upsert of several rows",
    (db) => then(db, db.from("country").upsert([{ id: 4, name: "Fiji" }, { id: 5, name: "Peru" }]).select("id")),
    leaves(inserted(ids(4, 5)), "3 Nepal", "4 Fiji", "5 Peru"),
  ],
  [
    "upsert without result",
    (db) => then(db, db.from("country").upsert({ id: 3, name: "India" })),
    leaves(gives(null), "3 India", "4 null"),
  ],
  [
    "upsert on a unique column",
    (db) => db.from("player").upsert({ id: 1, handle: "ida", name: "I." }, { onConflict: "handle" }).select("id, name"),
    gives([{ id: 1, name: "I." }]),
  ],
  [
    "upsert on two columns",
    (db) =>
      db
        .from("player_ensemble")
        .upsert(
          [
            { player_id: 1, ensemble_id: 1 },
            { player_id: 3, ensemble_id: 1 },
          ],
          { onConflict: "player_id, ensemble_id", ignoreDuplicates: true },
        )
        .select(),
    inserted([{ player_id: 3, ensemble_id: 1 }]),
  ],
  [
    "upsert on another column than the one that conflicts",
    (db) => db.from("player").upsert({ id: 42, handle: "ida", name: "I." }),
    refused(
      409,
      "23505",
      'duplicate key value violates unique constraint "player_handle_key"',
      "Key (handle)=(ida) already exists.",
    ),
  ],
  [
    "upsert that keeps what is there",
    (db) =>
      then(db, db.from("country").upsert([{ id: 3, name: "x" }, { id: 5, name: "Peru" }], { ignoreDuplicates: true })),
    leaves(inserted(null), "3 Nepal", "4 null", "5 Peru"),
  ],
  [
    "upsert with columns' defaults",
    (db) => db.from("task").upsert([{ title: "c" }], { defaultToNull: false, count: "exact" }).select("id, tags"),
    inserted([{ id: 4, tags: [] }], { count: 1 }),
  ],
];

const updating = [
  [
    "update",
    (db) => then(db, db.from("country").update({ name: "Fiji" }).eq("id", 4)),
    leaves(done, "3 Nepal", "4 Fiji"),
  ],
  [
    "update and select",
    (db) => db.from("country").update({ name: "Fiji" }).eq("id", 4).select(),
    gives([{ id: 4, name: "Fiji", note: null }]),
  ],
  ["update of none", (db) => db.from("country").update({ name: "Fiji" }).eq("id", 9).select(), gives([])],
  [
    "update of one",
    (db) => db.from("country").update({ note: "long" }).eq("id", 2).select().single(),
    gives(chile),
  ],
  [
    "update of more than one where one is asked for",
    (db) => then(db, db.from("country").update({ name: "Fiji" }).gt("id", 2).select().single()),
    leaves(
      refused(406, "PGRST116", "Cannot coerce the result to a single JSON object", "The result contains 2 rows"),
      "3 Nepal",
      "4 null",
    ),
  ],
  [
    "update of JSON",
    (db) =>
      db.from("player").update({ address: { street: "Main", no: 9 } }).eq("address->city", '"Lima"').select("address"),
    gives([{ address: { street: "Main", no: 9 } }]),
  ],
  [
    "update counted",
    (db) => db.from("country").update({ note: "n" }, { count: "exact" }).in("id", [1, 2]),
    gives(null, { status: 204, count: 2 }),
  ],
  [
    "update with or",
    (db) => db.from("country").update({ note: "n" }).or("id.eq.1,name.is.null").select("id"),
    gives(ids(1, 4)),
  ],
  [
    "update selected with a related row",
    (db) => db.from("instrument").update({ section_id: 3 }).eq("name", "oboe").select("name, section(name)"),
    gives([{ name: "oboe", section: { name: "brass" } }]),
  ],
  ["update of more than is allowed", (db) => db.from("country").update({ note: "n" }).gt("id", 0).maxAffected(3), tooMany],
  [
    "update of as many as is allowed",
    (db) => db.from("country").update({ note: "n" }).gt("id", 0).maxAffected(4).select("id"),
    gives(ids(1, 2, 3, 4)),
  ],
];

const deleting = [
  ["delete", (db) => then(db, db.from("country").delete().eq("id", 4)), leaves(done, "3 Nepal")],
  [
    "delete and select",
    (db) => db.from("country").delete().eq("id", 4).select(),
    gives([{ id: 4, name: null, note: null }]),
  ],
  ["delete of several rows", (db) => then(db, db.from("country").delete().in("id", [1, 2, 3])), leaves(done, "4 null")],
  [
    "delete counted",
    (db) => db.from("country").delete({ count: "exact" }).gt("id", 1),
    gives(null, { status: 204, count: 3 }),
  ],
  [
    "delete rolled back",
    (db) => then(db, db.from("country").delete().eq("id", 4).select("name").rollback()),
    leaves(gives(names(null)), "3 Nepal", "4 null"),
  ],
  [
    "delete of more than is allowed",
    (db) => then(db, db.from("country").delete().gt("id", 0).maxAffected(1)),
    leaves(tooMany, "3 Nepal", "4 null"),
  ],
  [
    "delete of what is referred to",
    (db) => db.from("section").delete().eq("id", 1),
    refused(
      409,
      "23503",
      'update or delete on table "section" violates foreign key constraint "instrument_section_id_fkey"' +
        ' on table "instrument"',
      'Key (id)=(1) is still referenced from table "instrument".',
    ),
  ],
];

export const changing = true;
export const calls = [...inserting, ...upserting, ...updating, ...deleting];
