/** The management API, as docs/reference/webhooks.md describes it. */

export interface Endpoint {
  id: string;
  url: string;
  enabled: boolean;
  description: string | null;
  event_types: { type: string }[];
  /** Read-only portal links do not get the values. */
  custom_headers: Record<string, string | null>;
  created_at: string;
  updated_at: string;
  max_per_second: number | null;
  failing_since: string | null;
  disabled_reason: "failing" | null;
  disabled_since: string | null;
  previous_secret_until: string | null;
}

export type Status = "pending" | "success" | "failed" | "skipped";

export interface Delivery {
  id: string;
  event_id: string;
  endpoint_id: string;
  /** A project's history includes deliveries to endpoints of the organization. */
  endpoint_scope: "organization" | "project";
  event_type: string;
  status: Status;
  attempt_number: number;
  trigger: "automatic" | "manual" | "test";
  response_code: number;
  response_headers: Record<string, string> | null;
  response_body: string | null;
  error: string | null;
  duration_ms: number | null;
  attempt_timestamp: string | null;
  next_attempt_at: string | null;
  expires_at: string;
  created_at: string;
}

export interface DeliveredEvent {
  id: string;
  type: string;
  timestamp: string;
  payload: Record<string, unknown> | null;
}

export interface EventType {
  type: string;
  description: string;
  example: Record<string, unknown>;
}

export interface DayStatistics {
  day: string;
  endpoint_id: string | null;
  success: number;
  failed: number;
  skipped: number;
  median_ms: number | null;
  slowest_ms: number | null;
}

export interface UrlCheck {
  accepted: boolean;
  code: string | null;
  message: string | null;
}

/** What a token gives access to. ``portal`` is null unless it is the token of a portal link. */
export interface Access {
  organization_slug: string | null;
  projects: string[];
  project_ref: string | null;
  permissions: string[];
  portal: { name: string; color: string | null; signing_secrets: boolean } | null;
}

/** Attributes of a new endpoint. Changes omit what stays the same. */
export interface EndpointAttributes {
  url: string;
  event_types: { type: string }[];
  signing_secret: string;
  grace_seconds: number;
  max_per_second: number | null;
  description: string | null;
  custom_headers: Record<string, string>;
  enabled: boolean;
}

export interface Queued {
  event_id: string;
  delivery_id: string;
}

/** A page of deliveries, with the URLs of its neighbors. */
export interface DeliveryPage {
  deliveries: Delivery[];
  newer: string | null;
  older: string | null;
}

export interface Issue {
  code: string;
  message: string;
  meta?: { pointer?: string; parameter?: string };
}

/** An error of the management API. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly issues: Issue[],
    readonly retryAfter: number | null,
  ) {
    super(message);
  }
}

interface Resource<T> {
  attributes: T;
}

interface Answer<T> {
  data: T;
  links?: Record<string, string | null>;
}

async function call<T>(token: string, method: string, path: string, body: unknown, signal?: AbortSignal): Promise<Answer<T>> {
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  const type: Record<string, string> = body === undefined ? {} : { "Content-Type": "application/json" };
  const headers = { Authorization: `Bearer ${token}`, ...type };
  const response = await fetch(path, { method, headers, signal: signal ?? null, cache: "no-store", ...sent });
  if (response.ok) return (await response.json()) as Answer<T>;
  throw await refusal(response);
}

async function refusal(response: Response): Promise<Refusal> {
  const retryAfter = Number(response.headers.get("retry-after")) || null;
  const document = (await response.json().catch(() => null)) as { error?: { code: string; message: string; issues?: Issue[] } } | null;
  const { code, message, issues } = document?.error ?? { code: "", message: `The daemon responded with status ${response.status}.` };
  return new Refusal(response.status, code, message, issues ?? [], retryAfter);
}

/** What a token gives access to. */
export async function readAccess(token: string): Promise<Access> {
  return (await call<Resource<Access>>(token, "GET", "/v2/access", undefined)).data.attributes;
}

/** The operations of one scope: an organization or a project. */
export class Management {
  constructor(
    private readonly token: string,
    readonly base: string,
  ) {}

  private async list<T>(path: string, signal?: AbortSignal): Promise<T[]> {
    const { data } = await call<Resource<T>[]>(this.token, "GET", this.base + path, undefined, signal);
    return data.map(({ attributes }) => attributes);
  }

  private async one<T>(method: string, path: string, type?: string, attributes?: unknown, signal?: AbortSignal): Promise<T> {
    const body = type === undefined ? undefined : { data: { type, attributes } };
    return (await call<Resource<T>>(this.token, method, this.base + path, body, signal)).data.attributes;
  }

  /** All endpoints: a scope has at most 50. */
  endpoints(signal?: AbortSignal): Promise<Endpoint[]> {
    return this.list("/endpoints?page[limit]=100", signal);
  }

  eventTypes(signal?: AbortSignal): Promise<EventType[]> {
    return this.list("/event-types", signal);
  }

  statistics(since: string, signal?: AbortSignal): Promise<DayStatistics[]> {
    return this.list(`/statistics?filter[since]=${since}`, signal);
  }

  create(attributes: Partial<EndpointAttributes>): Promise<Endpoint> {
    return this.one("POST", "/endpoints", "endpoint", attributes);
  }

  change(id: string, attributes: Partial<EndpointAttributes>): Promise<Endpoint> {
    return this.one("PATCH", `/endpoints/${id}`, "endpoint", attributes);
  }

  remove(id: string): Promise<Endpoint> {
    return this.one("DELETE", `/endpoints/${id}`);
  }

  test(id: string, type: string): Promise<Queued> {
    return this.one("POST", `/endpoints/${id}/test`, "event", type ? { type } : {});
  }

  recover(id: string, since: string, until: string | null): Promise<{ matched: number }> {
    return this.one("POST", `/endpoints/${id}/recover`, "recovery", until ? { since, until } : { since });
  }

  checkUrl(url: string, signal?: AbortSignal): Promise<UrlCheck> {
    return this.one("POST", "/url-check", "url_check", { url }, signal);
  }

  delivery(id: string, signal?: AbortSignal): Promise<Delivery & { event: DeliveredEvent }> {
    return this.one("GET", `/deliveries/${id}`, undefined, undefined, signal);
  }

  retry(id: string): Promise<Queued> {
    return this.one("POST", `/deliveries/${id}/retry`);
  }

  /** A page of deliveries, by its path below the scope, or by the link of a neighbor. */
  async deliveries(address: string, signal?: AbortSignal): Promise<DeliveryPage> {
    const path = address.startsWith("/v2/") ? address : this.base + address;
    const { data, links } = await call<Resource<Delivery>[]>(this.token, "GET", path, undefined, signal);
    const deliveries = data.map(({ attributes }) => attributes);
    return { deliveries, newer: links?.prev ?? null, older: links?.next ?? null };
  }
}
