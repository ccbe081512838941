import { useEffect, useState } from "react";
import { identity, identityHeaders, type Identity } from "../shell/identity";
import { useStore } from "./store";

/** An error response: its status, code and reason. */
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

/** Return the error in a response. */
export async function refusalOf(response: Response): Promise<Refused> {
  try {
    const { code, message, hint } = (await response.json()) as { code?: string; message: string; hint?: string | null };
    return new Refused(response.status, code ?? "", message, hint ?? "");
  } catch {
    return new Refused(response.status, "", `The daemon responded with status ${response.status}.`, "");
  }
}

/** Load /console/data/NAME with the given identity. */
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
  /** Polling interval in milliseconds (default: load again only when the role changes). */
  every?: number;
  /** Whether not to load anything. */
  skip?: boolean;
}

/** Console data for the current role. If polling fails, the previous data is kept. */
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
