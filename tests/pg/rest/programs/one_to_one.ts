import { supabase, type Same } from "./client.js";

const { data } = await supabase.from("director").select("name, passport(number)");
true satisfies Same<NonNullable<typeof data>, { name: string; passport: { number: string } | null }[]>;

const { data: passports } = await supabase.from("passport").select("number, director(name)");
true satisfies Same<NonNullable<typeof passports>, { number: string; director: { name: string } }[]>;

// @ts-expect-error: a director has at most one passport
data![0].passport[0];
