import { useCallback, useEffect, useRef, useState } from "react";
import { Refusal } from "./api";
import { signOut } from "./session";

export interface Loaded<T> {
  value: T | null;
  problem: string;
  /** Load again, and keep the previous value in the meantime. */
  reload: () => void;
}

/**
 * The result of a request, loaded again whenever ``key`` changes. Results for previous keys are ignored, and an invalid token
 * signs out.
 */
export function useLoad<T>(key: string, load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const [found, setFound] = useState<{ key: string; value: T | null; problem: string }>({ key, value: null, problem: "" });
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    const controller = new AbortController();
    latest.current(controller.signal).then(
      (value) => controller.signal.aborted || setFound({ key, value, problem: "" }),
      (error: Error) => {
        if (controller.signal.aborted) return;
        if (error instanceof Refusal && error.status === 401) signOut("Your token has expired or was revoked. Sign in with another one.");
        setFound((before) => ({ key, value: before.key === key ? before.value : null, problem: error.message }));
      },
    );
    return () => controller.abort();
  }, [key, round]);
  const reload = useCallback(() => setRound((before) => before + 1), []);
  return { value: found.key === key ? found.value : null, problem: found.key === key ? found.problem : "", reload };
}

/** Call a function at an interval in milliseconds while ``on``, unless the page is hidden. */
export function useEvery(milliseconds: number, on: boolean, call: () => void): void {
  const latest = useRef(call);
  latest.current = call;
  useEffect(() => {
    if (!on) return;
    const timer = setInterval(() => document.hidden || latest.current(), milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds, on]);
}
