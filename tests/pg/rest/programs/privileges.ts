import { rest, type Database, type Same } from "./client.js";

type Public = Database["public"]["Tables"];
true satisfies Same<keyof Public["director"]["Row"], "id" | "name" | "born" | "notes" | "initials">;
await rest.from("untouched").select("id");
await rest.from("log").insert({ line: "started" });

// @ts-expect-error: the role may not read this column
type Password = Public["director"]["Row"]["password"];
// @ts-expect-error: nor write it
await rest.from("director").insert({ name: "Andrei", password: "secret" });
// @ts-expect-error: the role may not use this table
await rest.from("invisible").select("id");
// @ts-expect-error: the role may not insert into this table
await rest.from("untouched").insert({ id: 1 });
// @ts-expect-error: not even a row of defaults
await rest.from("untouched").insert({});
// @ts-expect-error: the role may not update this table
await rest.from("log").update({ line: "stopped" }).eq("id", 1);
const log = await rest.from("log").select("line");
// @ts-expect-error: the role may not read this column
log.data![0].line.trim();
const hidden = await rest.from("film").select("id, invisible(id)");
// @ts-expect-error: relationships to hidden tables are absent
hidden.data![0].invisible[0].id;
