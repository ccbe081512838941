import { useEffect, useState } from "react";
import { identity, identityHeaders, type Identity } from "../shell/identity";
import { useStore } from "./store";

/** Why an answer has no data, by the message and the hint that it has. */
async function reasonOf(response: Response): Promise<string> {
  try {
    const { message, hint } = (await response.json()) as { message: string; hint?: string | null };
    return hint ? `${message}. ${hint}` : message;
  } catch {
    return `The daemon answered with status ${response.status}.`;
  }
}

/** What the daemon says to the console's own pages alone: /console/data/NAME, as whoever is given. */
export async function loadData<T>(name: string, who?: Identity, signal?: AbortSignal): Promise<T> {
  const response = await fetch(`/console/data/${name}`, { headers: who ? identityHeaders(who) : {}, signal });
  if (!response.ok) throw new Error(await reasonOf(response));
  return (await response.json()) as T;
}

export interface Loaded<T> {
  data: T | null;
  problem: string;
}

interface Options {
  /** Milliseconds after which it is asked again; without it, only a new role asks again. */
  every?: number;
  /** Whether nothing is asked. */
  skip?: boolean;
}

/** Data of the console as its role sees it. A problem of asking again leaves what was known. */
export function useData<T>(name: string, { every, skip = false }: Options = {}): Loaded<T> {
  const who = useStore(identity);
  const [loaded, setLoaded] = useState<Loaded<T>>({ data: null, problem: "" });
  useEffect(() => {
    setLoaded({ data: null, problem: "" });
    if (skip) return;
    const controller = new AbortController();
    const ask = () =>
      loadData<T>(name, who, controller.signal).then(
        (data) => setLoaded({ data, problem: "" }),
        (error: Error) => controller.signal.aborted || setLoaded(({ data }) => ({ data, problem: error.message })),
      );
    void ask();
    const timer = every && setInterval(ask, every);
    return () => {
      clearInterval(timer);
      controller.abort();
    };
  }, [name, who, every, skip]);
  return loaded;
}
