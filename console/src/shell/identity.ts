import { makeStore } from "../kit/store";
import { keepInTab, keptInTab } from "../kit/tab";

/** The identity for API calls. It is stored in this tab's session storage, never in a URL. */
export interface Identity {
  kind: "anonymous" | "user" | "service";
  apiKey: string;
  /** A JWT, "" for none. */
  token: string;
}

const KEY = "dataapi.identity";

export const identity = makeStore<Identity>(keptInTab<Identity>(KEY) ?? { kind: "anonymous", apiKey: "", token: "" });

/** Whether the dialog that chooses an identity is open. */
export const choosing = makeStore(false);

export function assume(next: Identity): void {
  keepInTab(KEY, next);
  identity.set(next);
}

/** The authentication headers of an identity. */
export function identityHeaders({ apiKey, token }: Identity): Record<string, string> {
  return {
    ...(apiKey ? { apikey: apiKey } : {}),
    ...(token ? { Authorization: `Bearer ${token}` } : {}),
  };
}

export type Claims = Record<string, unknown>;

function toBase64Url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const plain = text.trim().replaceAll("-", "+").replaceAll("_", "/");
  return Uint8Array.from(atob(plain), (character) => character.charCodeAt(0));
}

/** The claims of a JWT, or null if it is malformed. */
export function claimsOf(token: string): Claims | null {
  try {
    const part = token.split(".")[1] ?? "";
    return JSON.parse(new TextDecoder().decode(fromBase64(part))) as Claims;
  } catch {
    return null;
  }
}

/** The role of an identity's requests, or null for the anonymous role. */
export function roleOf({ token }: Identity): string | null {
  const role = claimsOf(token)?.role;
  return typeof role === "string" ? role : null;
}

/** Sign claims with HS256 in the browser. The secret is not sent anywhere. */
export async function mint(claims: Claims, secret: string, isBase64: boolean): Promise<string> {
  const utf8 = new TextEncoder();
  const material = isBase64 ? fromBase64(secret) : utf8.encode(secret);
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", material, algorithm, false, ["sign"]);
  const encode = (part: object) => toBase64Url(utf8.encode(JSON.stringify(part)));
  const signed = `${encode({ alg: "HS256", typ: "JWT" })}.${encode(claims)}`;
  const signature = await crypto.subtle.sign("HMAC", key, utf8.encode(signed));
  return `${signed}.${toBase64Url(new Uint8Array(signature))}`;
}

/** The display name of an identity. */
export function nameOf({ kind, token }: Identity): string {
  if (kind === "anonymous") return "Anonymous";
  if (kind === "service") return "service_role";
  const claims = claimsOf(token);
  return String(claims?.email ?? (claims?.sub ? `User ${claims.sub}` : "Signed in"));
}
