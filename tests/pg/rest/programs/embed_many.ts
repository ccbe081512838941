import { supabase, type Same } from "./client.js";

const { data } = await supabase.from("film").select("title, cast:role(part, actor(name))");
true satisfies Same<
  NonNullable<typeof data>,
  { title: string; cast: { part: string | null; actor: { name: string } }[] }[]
>;

const through = await supabase.from("film").select("id, actor(name)").order("name", { referencedTable: "actor" });
true satisfies Same<NonNullable<typeof through.data>, { id: number; actor: { name: string }[] }[]>;

const directed = await supabase.from("director").select("name, films:film!film_director_id_fkey(title)").single();
const titles: string[] = directed.data!.films.map((film) => film.title);

// @ts-expect-error: many rows are not one
through.data![0].actor.name;
// @ts-expect-error: the embedded rows have no such column
data![0].cast[0].salary;
