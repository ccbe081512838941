import { supabase, type Same } from "./client.js";

const query = supabase
  .from("film")
  .select("title, second:director!film_co_director_id_fkey!inner(name), role!inner(part)")
  .eq("role.part", "lead");
const { data } = await query;
true satisfies Same<
  NonNullable<typeof data>,
  { title: string; second: { name: string }; role: { part: string | null }[] }[]
>;

const { data: left } = await supabase.from("film").select("second:director!film_co_director_id_fkey(name)");
// @ts-expect-error: without an inner join, the row may be missing
left![0].second.name;
