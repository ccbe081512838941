import { sentence } from "../kit/words";
import type { DeliveredEvent, Delivery, Endpoint } from "./api";

export const STATUSES = ["success", "failed", "pending", "skipped"] as const;

export const STATUS_NAMES: Record<Delivery["status"], string> = {
  success: "Delivered",
  failed: "Failed",
  pending: "Pending",
  skipped: "Skipped",
};

/** The kind of badge for each status. */
export const BADGES: Record<Delivery["status"], string> = { success: "good", failed: "error", pending: "warning", skipped: "" };

const ERRORS: Record<string, string> = {
  timeout: "The receiver did not respond in time. It should respond first, and process the event afterwards.",
  dns: "The host name of the endpoint's URL does not resolve.",
  refused_address: "The endpoint's URL or the address of its host is not allowed. Receivers need public addresses, unless allow-addresses exempts their network.",
  connect: "The connection to the receiver failed, or was lost before the response. The receiver may not be running.",
  tls: "The TLS handshake failed. The receiver's certificate may have expired or be for another name.",
  protocol: "The receiver did not send a complete HTTP response.",
  internal: "Internal error of the service. See its log.",
};

const SKIPPED: Record<string, string> = {
  endpoint_failing: "Not sent: the service had disabled the endpoint because all attempts had failed for days.",
  payload_deleted: "Not sent: the payload of the event was deleted.",
};

const REFUSALS: Record<number, string> = {
  400: "The receiver may verify the signature with a different secret, with a body that a framework has parsed and serialized again, or with a clock that is minutes off.",
  401: "The receiver may expect a header such as Authorization, which you can add as a custom header, or verify the signature with a different secret.",
  403: "A firewall or the receiver rejects the request. A custom header may help.",
  404: "There is nothing at this path. Compare it with the receiver's path.",
  405: "This path does not accept POST.",
  410: "The receiver reports that this URL is gone permanently.",
  413: "The event is too large for the receiver.",
  415: "The receiver does not accept application/json.",
  429: "The receiver limits the rate of requests.",
};

/** Explain the outcome of an attempt, with advice. */
export function explain(delivery: Delivery, now = Date.now()): string {
  const { status, response_code, error } = delivery;
  if (status === "skipped") return SKIPPED[error ?? ""] ?? "Not sent: the endpoint was disabled, or a manual retry has delivered the event.";
  if (status === "pending") return pending(delivery, now);
  const took = delivery.duration_ms === null ? "" : ` after ${duration(delivery.duration_ms)}`;
  if (status === "success") return `The receiver responded with ${response_code}${took}.`;
  return `${failure(response_code, error, took, delivery.response_headers)} ${whatNext(delivery, now)}`;
}

function failure(code: number, error: string | null, took: string, headers: Delivery["response_headers"]): string {
  if (error !== null) {
    const partly = code ? ` The response had started with status ${code}.` : "";
    return `${ERRORS[error] ?? sentence(`It failed with ${error}`)}${partly}`;
  }
  const answered = `The receiver responded with ${code}${took}.`;
  if (code >= 300 && code < 400) {
    const location = Object.entries(headers ?? {}).find(([name]) => name.toLowerCase() === "location")?.[1];
    return `${answered} Redirects are not followed. Set the endpoint's URL to ${location ?? "the new location"}.`;
  }
  if (REFUSALS[code]) return `${answered} ${REFUSALS[code]}`;
  return code >= 500 ? `${answered} See the receiver's log.` : `${answered} Only 2xx responses count as delivered.`;
}

function pending(delivery: Delivery, now: number): string {
  const due = delivery.next_attempt_at === null ? now : Date.parse(delivery.next_attempt_at);
  if (due <= now) return "The attempt is due or in progress.";
  return `Attempt ${delivery.attempt_number} is due at ${clock(delivery.next_attempt_at!)}.`;
}

function whatNext({ next_attempt_at, trigger }: Delivery, now: number): string {
  if (next_attempt_at !== null) return `The next attempt ${Date.parse(next_attempt_at) > now ? "is" : "was"} due at ${clock(next_attempt_at)}.`;
  if (trigger === "test") return "Tests are not retried.";
  return trigger === "manual" ? "Manual retries have one attempt." : "There are no more attempts. You can retry the delivery manually.";
}

/** Format milliseconds. */
export function duration(milliseconds: number): string {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  return `${(milliseconds / 1000).toFixed(milliseconds < 10_000 ? 1 : 0).replace(/\.0$/, "")} s`;
}

export function clock(time: string): string {
  return new Date(time).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** Format date and time. */
export function moment(time: string): string {
  return new Date(time).toLocaleString(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** The name of an endpoint in lists: its host and path. */
export function nameOf(endpoint: Pick<Endpoint, "url">): string {
  return endpoint.url.replace(/^https?:\/\//, "").replace(/\/$/, "");
}

/** The name of a delivery's endpoint. */
export function receiverOf(delivery: Pick<Delivery, "endpoint_id" | "endpoint_scope">, endpoints: Endpoint[]): string {
  const found = endpoints.find(({ id }) => id === delivery.endpoint_id);
  if (found) return nameOf(found);
  return delivery.endpoint_scope === "organization" ? "endpoint of the organization" : "deleted endpoint";
}

/** The body of an event's deliveries, indented. The body that is sent has no whitespace. */
export function bodyOf({ id, type, timestamp, payload }: DeliveredEvent): string {
  return JSON.stringify({ id, type, timestamp, payload }, null, 2);
}

/** The request headers of an attempt. Each has its own signature, which is not recorded. */
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

/** Indent JSON. Return other texts unchanged. */
export function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
