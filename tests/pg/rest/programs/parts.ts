import type { Mood, Same } from "./client.js";
import { Constants, type CompositeTypes, type Enums, type Json, type Tables } from "./database.js";

true satisfies Same<Enums<"mood">, Mood>;
true satisfies Same<
  CompositeTypes<"place">,
  { street: string | null; floor: number | null; mood: Mood | null }
>;
true satisfies Same<Tables<"film_count">, { director_id: number | null; films: number | null }>;
true satisfies Same<(typeof Constants.public.Enums.mood)[number], Mood>;
const sizes: readonly ["small", "large"] = Constants.studio.Enums.size;
const film = {} as Tables<"film">;
const spot: number | null | undefined = film.spot?.x;
const facts: Json = film.facts;
const state: "on" | "off" | null = film.state;

// @ts-expect-error: not a label
const mood: Enums<"mood"> = "bored";
// @ts-expect-error: no such enum
type Missing = Enums<"weather">;
// @ts-expect-error: no such table
type Wrong = Tables<"films">;
// @ts-expect-error: an enum of a schema that is not exposed has no name
type Hidden = Enums<"secret_state">;
