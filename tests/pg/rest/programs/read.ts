import { rest, supabase, type Mood, type Same } from "./client.js";

const { data } = await supabase.from("film").select("id, title, length, mood, tags, stars");
true satisfies Same<
  NonNullable<typeof data>,
  { id: number; title: string; length: string | null; mood: Mood; tags: string[]; stars: number | null }[]
>;

const cast = await rest.from("film").select("name:title, id::text, facts->budget, facts->>motto").single();
const name: string = cast.data!.name;
const id: string = cast.data!.id;
const motto: string = cast.data!.motto;

await rest.from("film").select("*").eq("mood", "calm").gt("stars", 3).in("id", [1, 2]).order("title");
const { data: released } = await rest.from("film").select("length").not("length", "is", null).maybeSingle();

// @ts-expect-error: the table has no such column
const missing: string = data![0].missing;
// @ts-expect-error: a nullable column
const length: string = data![0].length;
// @ts-expect-error: not a label of the enum
await rest.from("film").select("*").eq("mood", "bored");
// @ts-expect-error: not a number
await rest.from("film").select("*").eq("id", "one");
// @ts-expect-error: no such table
await rest.from("films").select("*");

const unknown = await rest.from("film").select("id, rating");
// @ts-expect-error: the result is an error
unknown.data![0].rating.toFixed();
