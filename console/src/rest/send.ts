import { eventsOf, streams } from "../kit/events";
import { identityHeaders, type Identity } from "../shell/identity";
import { hasBody, headersOf, REST, type Draft } from "./request";

/** The response to a request. */
export interface Answer {
  status: number;
  reason: string;
  /** Milliseconds from sending to the end of the body. */
  milliseconds: number;
  bytes: number;
  headers: [string, string][];
  text: string;
  /** The body, if it is JSON. */
  json: unknown;
  /** The range and total of `Content-Range`. */
  range: string | null;
  total: number | null;
}

function request(draft: Draft, who: Identity, accept: string, signal: AbortSignal): Promise<Response> {
  return fetch(REST + draft.target, {
    method: draft.method,
    headers: { Accept: accept, ...headersOf(draft), ...identityHeaders(who) },
    body: hasBody(draft) ? draft.body : null,
    cache: "no-store",
    signal,
  });
}

export async function send(draft: Draft, who: Identity, accept: string, signal: AbortSignal): Promise<Answer> {
  const begun = performance.now();
  const response = await request(draft, who, accept, signal);
  return answerOf(response, await response.text(), performance.now() - begun);
}

/** Yield the current response of a live query and all later ones, until aborted. */
export async function* follow(draft: Draft, who: Identity, signal: AbortSignal): AsyncGenerator<Answer> {
  let begun = performance.now();
  const response = await request(draft, who, "text/event-stream, application/json;q=0.9", signal);
  if (!streams(response)) {
    yield answerOf(response, await response.text(), performance.now() - begun);
    return;
  }
  for await (const { name, data } of eventsOf(response)) {
    if (name === "reconnect") throw new Error("The daemon is stopping. Send the request again");
    const answer = answerOf(response, data, performance.now() - begun, true);
    yield name === "snapshot" ? answer : { ...answer, status: 500, reason: name };
    begun = performance.now();
  }
}

function answerOf(response: Response, text: string, milliseconds: number, isJson = response.headers.get("content-type")?.includes("json")): Answer {
  const [range, total] = (response.headers.get("content-range") ?? "").split("/");
  return {
    status: response.status,
    reason: response.statusText,
    milliseconds,
    bytes: new TextEncoder().encode(text).length,
    headers: [...response.headers],
    text,
    json: isJson ? parsed(text) : undefined,
    range: range && range !== "*" ? range : null,
    total: total && total !== "*" ? Number(total) : null,
  };
}

type Reviver = (name: string, value: unknown, context?: { source?: string }) => unknown;

/** Parse JSON. Numbers that JavaScript would round become strings. */
function parsed(text: string): unknown {
  const exact: Reviver = (_name, value, context) =>
    typeof value === "number" && context?.source && !Number.isSafeInteger(value) && String(value) !== context.source ? context.source : value;
  try {
    return JSON.parse(text, exact as (name: string, value: unknown) => unknown);
  } catch {
    return undefined;
  }
}
