import { rest, type Same } from "./client.js";
import type { TablesUpdate } from "./database.js";

const { data } = await rest.from("film").update({ stars: null, mood: "calm" }).eq("id", 1).select("stars");
true satisfies Same<NonNullable<typeof data>, { stars: number | null }[]>;
const change: TablesUpdate<"film"> = { title: "Solaris" };
await rest.from("film").update(change).eq("id", 1);
await rest.from("film").delete().eq("id", 1).select("title");

// @ts-expect-error: not null
await rest.from("film").update({ title: null }).eq("id", 1);
// @ts-expect-error: a generated column
await rest.from("film").update({ words: 1 }).eq("id", 1);
// @ts-expect-error: an identity that is always generated
await rest.from("director").update({ id: 2 }).eq("id", 1);
// @ts-expect-error: no such column
await rest.from("film").update({ year: 1972 }).eq("id", 1);
