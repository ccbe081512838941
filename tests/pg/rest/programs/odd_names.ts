import { rest, type Database, type Same } from "./client.js";
import { Constants } from "./database.js";

type Odd = Database["public"]["Tables"]["odd \"name\" */"];
true satisfies Same<
  keyof Odd["Row"],
  "a b" | "ü" | "line\nbreak" | "back\\slash" | "`${x}`" | "separ\u2028ator" | '"]: any' | "__proto__" | "class"
>;
await rest.from("odd \"name\" */").insert({ "a b": 1, class: null, "line\nbreak": "x" });
true satisfies Same<(typeof Constants.public.Enums)["odd'; type"], readonly ["a*/b", "\\", ""]>;

// @ts-expect-error: no such column
await rest.from("odd \"name\" */").insert({ "a b": 1, any: null });
