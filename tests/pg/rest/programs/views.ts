import { rest, type Same } from "./client.js";

const { data } = await rest.from("film_title").select("title, director!film_director_id_fkey(name)");
true satisfies Same<
  NonNullable<typeof data>,
  { title: string | null; director: { name: string } | null }[]
>;
const { data: counts } = await rest.from("film_count").select("films, director_list(name)");
const films: number | null = counts![0].films;
const { data: roles } = await rest.from("role").select("part, film_title(title)").single();
const title: string | null | undefined = roles!.film_title.title;

await rest.from("film_title").insert({ title: "Solaris", director_id: 1 });
await rest.from("film_title").update({ title: "Solaris" }).eq("id", 1);

// @ts-expect-error: columns of views may be null
const text: string = data![0].title;
// @ts-expect-error: no column of the view
await rest.from("film_title").insert({ title: "Solaris", mood: "calm" });
// @ts-expect-error: the view cannot be written
await rest.from("film_count").insert({ films: 1 });
