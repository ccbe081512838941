import { PostgrestClient } from "@supabase/postgrest-js";
import { createClient } from "@supabase/supabase-js";
import { supabase, type Database, type Same } from "./client.js";
import type { Enums, Tables, TablesInsert } from "./database.js";

const studio = createClient<Database, "studio">("http://127.0.0.1:8000", "key", { db: { schema: "studio" } });
const { data } = await studio.from("room").select("id, building(name, size)");
true satisfies Same<
  NonNullable<typeof data>,
  { id: number; building: { name: string | null; size: "small" | "large" } }[]
>;
const other = await supabase.schema("studio").from("building").select("size").single();
const size: Enums<{ schema: "studio" }, "size"> = other.data!.size;
const films = await supabase.schema("studio").rpc("films");
const title: string = films.data![0].title;
const largest = await supabase.schema("studio").rpc("largest").select("name");
true satisfies Same<NonNullable<typeof largest.data>, { name: string | null }[]>;

const building: TablesInsert<{ schema: "studio" }, "building"> = { id: 1, size: "small" };
const room: Tables<{ schema: "studio" }, "room"> = { id: 1, building_id: 1, film_id: null };

// @ts-expect-error: no such schema
supabase.schema("hidden");
// @ts-expect-error: a table of the other schema
await supabase.from("room").select("*");
const across = await studio.from("room").select("id, film(title)");
// @ts-expect-error: embedding does not cross schemas
across.data![0].film.title;
// @ts-expect-error: no such table in this schema
type Wrong = Tables<{ schema: "studio" }, "film">;
new PostgrestClient<Database, {}, "studio">("http://127.0.0.1:8000/rest/v1", { schema: "studio" });
