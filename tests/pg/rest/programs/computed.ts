import { rest, supabase, type Same } from "./client.js";

const { data } = await supabase.from("film").select("title, title_length").order("title_length");
true satisfies Same<NonNullable<typeof data>, { title: string; title_length: number | null }[]>;

const { data: people } = await supabase.from("actor").select("*");
true satisfies Same<NonNullable<typeof people>, { id: number; name: string }[]>;
const { data: initials } = await supabase.from("director").select("initials").single();
const text: string | null = initials!.initials;

const { data: related } = await rest.from("film").select("id, sequels(title, mood), original(title)").single();
true satisfies Same<
  NonNullable<typeof related>,
  { id: number; sequels: { title: string; mood: "calm" | "it's \"tense\"" }[]; original: { title: string } | null }
>;
const { data: boss } = await rest.from("film").select("boss(name)");
true satisfies Same<NonNullable<typeof boss>, { boss: { name: string } | null }[]>;

const { data: ada } = await rest.rpc("initials", { person: people![0] });
const called: string | null = ada;

const { data: stars } = await supabase.from("film").select("*").single();
// @ts-expect-error: "*" does not include computed fields
stars!.title_length;
// @ts-expect-error: a row may have no original
related!.original.title;
// @ts-expect-error: a computed field cannot be inserted
await rest.from("actor").insert({ id: 1, name: "Ada", initials: "A" });
const { data: length } = await rest.rpc("title_length", { "": stars! as never });
// @ts-expect-error: the argument has no name, so the function cannot be called
length satisfies number | null;
