import { identityHeaders, type Identity } from "../shell/identity";
import { hasBody, headersOf, REST, type Draft } from "./request";

/** What came of a request. */
export interface Answer {
  status: number;
  reason: string;
  /** From sending to the end of the body. */
  milliseconds: number;
  bytes: number;
  headers: [string, string][];
  text: string;
  /** The body, where it is JSON. */
  json: unknown;
  /** Of `Content-Range`: which rows these are, and of how many, where they were counted. */
  range: string | null;
  total: number | null;
}

export async function send(draft: Draft, who: Identity, accept: string, signal: AbortSignal): Promise<Answer> {
  const begun = performance.now();
  const response = await fetch(REST + draft.target, {
    method: draft.method,
    headers: { Accept: accept, ...headersOf(draft), ...identityHeaders(who) },
    body: hasBody(draft) ? draft.body : null,
    cache: "no-store",
    signal,
  });
  const text = await response.text();
  const [range, total] = (response.headers.get("content-range") ?? "").split("/");
  return {
    status: response.status,
    reason: response.statusText,
    milliseconds: performance.now() - begun,
    bytes: new TextEncoder().encode(text).length,
    headers: [...response.headers],
    text,
    json: response.headers.get("content-type")?.includes("json") ? parsed(text) : undefined,
    range: range && range !== "*" ? range : null,
    total: total && total !== "*" ? Number(total) : null,
  };
}

type Reviver = (name: string, value: unknown, context?: { source?: string }) => unknown;

/** Parse JSON, with numbers that JavaScript would round as the text that they are. */
function parsed(text: string): unknown {
  const exact: Reviver = (_name, value, context) =>
    typeof value === "number" && context?.source && !Number.isSafeInteger(value) && String(value) !== context.source ? context.source : value;
  try {
    return JSON.parse(text, exact as (name: string, value: unknown) => unknown);
  } catch {
    return undefined;
  }
}
