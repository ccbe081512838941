import { sentence } from "../kit/words";
import type { DeliveredEvent, Delivery, Endpoint } from "./api";

export const STATUSES = ["success", "failed", "pending", "skipped"] as const;

export const STATUS_NAMES: Record<Delivery["status"], string> = {
  success: "Delivered",
  failed: "Failed",
  pending: "Pending",
  skipped: "Skipped",
};

/** The kind of a status's badge. */
export const BADGES: Record<Delivery["status"], string> = { success: "good", failed: "error", pending: "warning", skipped: "" };

const ERRORS: Record<string, string> = {
  timeout: "The receiver did not answer within the time limit. Let it answer first, and do the work afterwards.",
  dns: "The host name of the endpoint's URL has no address.",
  refused_address: "The endpoint's URL, or an address of its host, is not allowed: receivers are public unless allow-addresses exempts their network.",
  connect: "No connection to the receiver came about, or it was lost before an answer: nothing may be listening there.",
  tls: "The TLS handshake failed: the receiver's certificate may have expired, or be for another name.",
  protocol: "What the receiver sent is not a complete HTTP response.",
  internal: "The service itself failed; its log says more.",
};

const SKIPPED: Record<string, string> = {
  endpoint_failing: "Nothing was sent: the service had disabled the endpoint, as every attempt had failed for days.",
  payload_deleted: "Nothing was sent: the event's payload was deleted.",
};

const REFUSALS: Record<number, string> = {
  400: "It may verify the signature with another secret than the endpoint's, or over a body that a framework has parsed and written anew, or with a clock that is minutes off.",
  401: "It may expect a header such as Authorization, which the endpoint can send as a custom header, or verify the signature with another secret.",
  403: "A firewall or the receiver refuses the request; a custom header may let it in.",
  404: "Nothing answers at this path: compare it with the receiver's.",
  405: "There is something at this path, but it does not take POST.",
  410: "The receiver says that this address is gone for good.",
  413: "The event is larger than the receiver takes.",
  415: "The receiver does not take application/json.",
  429: "The receiver asks for fewer requests.",
};

/** What came of one attempt, and what to do about it, in plain sentences. */
export function explain(delivery: Delivery, now = Date.now()): string {
  const { status, response_code, error } = delivery;
  if (status === "skipped") return SKIPPED[error ?? ""] ?? "Nothing was sent: the endpoint had been disabled, or a manual retry had delivered the event.";
  if (status === "pending") return pending(delivery, now);
  const took = delivery.duration_ms === null ? "" : ` after ${duration(delivery.duration_ms)}`;
  if (status === "success") return `The receiver answered ${response_code}${took}.`;
  return `${failure(response_code, error, took, delivery.response_headers)} ${whatNext(delivery, now)}`;
}

function failure(code: number, error: string | null, took: string, headers: Delivery["response_headers"]): string {
  if (error !== null) {
    const partly = code ? ` It had begun to answer with ${code}.` : "";
    return `${ERRORS[error] ?? sentence(`It failed with ${error}`)}${partly}`;
  }
  const answered = `The receiver answered ${code}${took}.`;
  if (code >= 300 && code < 400) {
    const location = Object.entries(headers ?? {}).find(([name]) => name.toLowerCase() === "location")?.[1];
    return `${answered} Redirects are not followed: set the endpoint's URL to ${location ? `the address that it leads to, ${location}` : "where it leads"}.`;
  }
  if (REFUSALS[code]) return `${answered} ${REFUSALS[code]}`;
  return code >= 500 ? `${answered} Its own log says why.` : `${answered} Only 2xx counts as received.`;
}

function pending(delivery: Delivery, now: number): string {
  const due = delivery.next_attempt_at === null ? now : Date.parse(delivery.next_attempt_at);
  if (due <= now) return "It is due, or under way.";
  return `Attempt ${delivery.attempt_number} is due at ${clock(delivery.next_attempt_at!)}.`;
}

function whatNext({ next_attempt_at, trigger }: Delivery, now: number): string {
  if (next_attempt_at !== null) return `The next attempt ${Date.parse(next_attempt_at) > now ? "is" : "was"} due at ${clock(next_attempt_at)}.`;
  if (trigger === "test") return "Tests are not repeated.";
  return trigger === "manual" ? "Retries by hand have one attempt." : "No attempt follows; you can retry it by hand.";
}

/** Milliseconds as people read them. */
export function duration(milliseconds: number): string {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  return `${(milliseconds / 1000).toFixed(milliseconds < 10_000 ? 1 : 0).replace(/\.0$/, "")} s`;
}

export function clock(time: string): string {
  return new Date(time).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** Date and time, to the second. */
export function moment(time: string): string {
  return new Date(time).toLocaleString(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** What an endpoint is called in lists: its host and path. */
export function nameOf(endpoint: Pick<Endpoint, "url">): string {
  return endpoint.url.replace(/^https?:\/\//, "").replace(/\/$/, "");
}

/** What the endpoint of a delivery is called, of those that the chosen scope has. */
export function receiverOf(delivery: Pick<Delivery, "endpoint_id" | "endpoint_scope">, endpoints: Endpoint[]): string {
  const found = endpoints.find(({ id }) => id === delivery.endpoint_id);
  if (found) return nameOf(found);
  return delivery.endpoint_scope === "organization" ? "endpoint of the organization" : "deleted endpoint";
}

/** The body that an event is sent as, for people: the bytes that are sent have no blanks. */
export function bodyOf({ id, type, timestamp, payload }: DeliveredEvent): string {
  return JSON.stringify({ id, type, timestamp, payload }, null, 2);
}

/** The headers of an attempt's request.  The signature is made anew for each one, and is not recorded. */
export function requestHeaders(delivery: Delivery, endpoint: Endpoint | undefined): [string, string][] {
  const sent = delivery.attempt_timestamp === null ? "" : String(Math.floor(Date.parse(delivery.attempt_timestamp) / 1000));
  return [
    ...Object.entries(endpoint?.custom_headers ?? {}).map(([name, value]): [string, string] => [name, value ?? "… (hidden)"]),
    ["content-type", "application/json"],
    ["user-agent", "dataapi-webhooks/1"],
    ["webhook-id", delivery.event_id],
    ["webhook-timestamp", sent || "not sent yet"],
    ["webhook-signature", "v1,… (not recorded)"],
  ];
}

/** A text as JSON with line breaks, as it is where it is no JSON. */
export function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
