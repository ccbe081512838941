// The clients of the programs, and an exact comparison of types.
import { PostgrestClient } from "@supabase/postgrest-js";
import { createClient } from "@supabase/supabase-js";
import type { Database } from "./database.js";

export type { Database };
export const supabase = createClient<Database>("http://127.0.0.1:8000", "key");
export const rest = new PostgrestClient<Database>("http://127.0.0.1:8000/rest/v1");

export type Same<One, Other> =
  (<T>() => T extends One ? 1 : 2) extends <T>() => T extends Other ? 1 : 2 ? true : false;
export type Mood = "calm" | "it's \"tense\"";
