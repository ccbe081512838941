import { supabase, type Same } from "./client.js";

const { data } = await supabase
  .from("film")
  .select("title, director!film_director_id_fkey(name), second:director!co_director_id(name, born)");
true satisfies Same<
  NonNullable<typeof data>,
  { title: string; director: { name: string }; second: { name: string; born: string | null } | null }[]
>;

const { data: roles } = await supabase.from("role").select("part, film(title, mood), actor(name)").single();
const title: string = roles!.film.title;
const actor: string = roles!.actor.name;

const { data: sequel } = await supabase.from("film").select("title, sequel_of(title), later:film!sequel_of(title)");
true satisfies Same<
  NonNullable<typeof sequel>,
  { title: string; sequel_of: { title: string } | null; later: { title: string }[] }[]
>;

// @ts-expect-error: the co-director may be missing
data![0].second.name;
// @ts-expect-error: one row is not an array
roles!.film[0];
const ambiguous = await supabase.from("film").select("title, director(name)");
// @ts-expect-error: two keys reference the director
ambiguous.data![0].director.name;
const unrelated = await supabase.from("actor").select("name, passport(number)");
// @ts-expect-error: there is no such relationship
unrelated.data![0].passport.number;
