import { rest, supabase, type Mood, type Same } from "./client.js";

const sum = await supabase.rpc("add", { a: 1 });
true satisfies Same<NonNullable<typeof sum.data>, number>;
await supabase.rpc("add", { a: 1, b: null });

const films = await rest.rpc("films_of", { name: "Andrei" }).select("title, role(part)").gt("stars", 3).limit(1);
true satisfies Same<NonNullable<typeof films.data>, { title: string; role: { part: string | null }[] }[]>;
const all = await rest.rpc("films_of", { name: "Andrei", min_stars: 2 });
const title: string = all.data![0].title;

const newest = await rest.rpc("newest_film");
const newestTitle: string = newest.data!.title;
const only = await rest.rpc("only_film");
const onlyTitle: string = only.data![0].title;
const one = await rest.rpc("only_film").select("title").single();
true satisfies Same<NonNullable<typeof one.data>, { title: string }>;

const days = await rest.rpc("statistics", { since: "2024-01-01" }).select("day");
true satisfies Same<NonNullable<typeof days.data>, { day: string }[]>;
const moods = await rest.rpc("moods");
true satisfies Same<NonNullable<typeof moods.data>, Mood[]>;

const long = await rest.rpc("describe", { id: 1, long: true });
const short = await rest.rpc("describe", { id: 1 });
const plain = await rest.rpc("describe");
true satisfies Same<NonNullable<typeof short.data>, string>;
true satisfies Same<NonNullable<typeof plain.data>, number>;
// @ts-expect-error: this overload returns JSON
const text: string = long.data;

await rest.rpc("archive", { before: "2020-01-01" });
await rest.rpc("import", { reels: [1, 2] });
const unclear = await rest.rpc("unclear", { id: 1 });
true satisfies NonNullable<typeof unclear.data>["error"];
// @ts-expect-error: the request fails, because both overloads match
unclear.data satisfies number | null;
// @ts-expect-error: an argument is required
await rest.rpc("add", { b: 1 });
// @ts-expect-error: not a number
await rest.rpc("add", { a: "one" });
// @ts-expect-error: no such function
await rest.rpc("subtract", { a: 1 });
// @ts-expect-error: the role may not execute it
await rest.rpc("guarded");
// @ts-expect-error: rows of the function's table have no such column
all.data![0].year;
// @ts-expect-error: results do not include computed fields
all.data![0].title_length;
