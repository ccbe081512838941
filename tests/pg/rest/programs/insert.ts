import { rest, type Database, type Same } from "./client.js";
import type { Tables, TablesInsert } from "./database.js";

await rest.from("film").insert({ title: "Solaris", director_id: 1 });
await rest.from("film").insert([
  { id: 7, title: "Mirror", director_id: 1, mood: "calm", place: { street: "Main", floor: null, mood: null } },
  { title: "Stalker", director_id: 1, facts: { reels: [1, 2] }, tags: [], code: "s" },
]);
const { data } = await rest.from("actor").insert({ id: 1, name: "Ada" }).select("name").single();
true satisfies Same<NonNullable<typeof data>, { name: string }>;

const film: TablesInsert<"film"> = { title: "Nostalgia", director_id: 2 };
await rest.from("film").insert(film);

// @ts-expect-error: the title is required
await rest.from("film").insert({ director_id: 1 });
// @ts-expect-error: a generated column
await rest.from("film").insert({ title: "Ivan", director_id: 1, words: 4 });
// @ts-expect-error: an identity that is always generated
await rest.from("director").insert({ id: 1, name: "Andrei" });
// @ts-expect-error: not null
await rest.from("film").insert({ title: null, director_id: 1 });
// @ts-expect-error: no such column
await rest.from("film").insert({ title: "Ivan", director_id: 1, year: 1962 });
// @ts-expect-error: not a label of the enum
await rest.from("film").insert({ title: "Ivan", director_id: 1, mood: "bored" });
const row = {} as Tables<"film">;
// @ts-expect-error: a row contains generated columns
await rest.from("film").insert(row);
true satisfies Same<Database["public"]["Tables"]["film"]["Insert"]["words"], undefined>;
