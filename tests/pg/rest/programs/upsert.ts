import { rest, type Same } from "./client.js";

const { data } = await rest
  .from("film")
  .upsert({ id: 1, title: "Solaris", director_id: 1 }, { onConflict: "id" })
  .select("id, words");
true satisfies Same<NonNullable<typeof data>, { id: number; words: number | null }[]>;
await rest.from("role").upsert([{ film_id: 1, actor_id: 1, part: null }], { ignoreDuplicates: true });

// @ts-expect-error: a key column is required
await rest.from("role").upsert({ film_id: 1 });
// @ts-expect-error: the role may not write to this table
await rest.from("untouched").upsert({ id: 1 });
