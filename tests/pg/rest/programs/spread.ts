import { supabase, type Same } from "./client.js";

const { data } = await supabase.from("role").select("part, ...film(title), ...actor(actor_name:name)");
true satisfies Same<NonNullable<typeof data>, { part: string | null; title: string; actor_name: string }[]>;

const many = await supabase.from("film").select("title, ...role(part)");
true satisfies Same<NonNullable<typeof many.data>, { title: string; part: (string | null)[] }[]>;

// @ts-expect-error: the members of a spread resource are those of the row
data![0].film.title;
// @ts-expect-error: the spread of many rows is an array
const part: string | null = many.data![0].part;
