import { useEffect, useState } from "react";
import { identity, identityHeaders, type Identity } from "../shell/identity";
import { useStore } from "./store";

/** An answer without data: which status and code it has, and why. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string,
  ) {
    super(message);
  }
}

/** Why an answer has no data, as it says itself. */
export async function refusalOf(response: Response): Promise<Refused> {
  try {
    const { code, message, hint } = (await response.json()) as { code?: string; message: string; hint?: string | null };
    return new Refused(response.status, code ?? "", message, hint ?? "");
  } catch {
    return new Refused(response.status, "", `The daemon answered with status ${response.status}.`, "");
  }
}

/** What the daemon says to the console's own pages alone: /console/data/NAME, as whoever is given. */
export async function loadData<T>(name: string, who?: Identity, signal?: AbortSignal): Promise<T> {
  const response = await fetch(`/console/data/${name}`, { headers: who ? identityHeaders(who) : {}, signal });
  if (!response.ok) throw await refusalOf(response);
  return (await response.json()) as T;
}

export interface Loaded<T> {
  data: T | null;
  problem: Error | null;
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
  const [loaded, setLoaded] = useState<Loaded<T>>({ data: null, problem: null });
  useEffect(() => {
    setLoaded({ data: null, problem: null });
    if (skip) return;
    const controller = new AbortController();
    const ask = () =>
      loadData<T>(name, who, controller.signal).then(
        (data) => setLoaded({ data, problem: null }),
        (error: Error) => controller.signal.aborted || setLoaded(({ data }) => ({ data, problem: error })),
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
