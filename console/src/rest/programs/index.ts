/** Programs that send the request of the page. */
import { curl } from "./curl";
import type { Sent } from "./parts";
import { postgrest } from "./postgrest";
import { supabase } from "./supabase";

export type { Sent } from "./parts";

export const PROGRAMS: { title: string; write: (sent: Sent) => string }[] = [
  { title: "curl", write: curl },
  { title: "supabase-js", write: supabase },
  { title: "postgrest-py", write: postgrest },
];
