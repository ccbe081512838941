import { makeStore } from "../kit/store";

/** Who is signed in to the webhooks' page.  It stays in this tab: session storage, never a URL. */
export interface Session {
  token: string;
  organization: string;
  projects: string[];
  permissions: string[];
}

const KEY = "dataapi.webhooks";

function stored(): Session | null {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Session | null;
  } catch {
    return null;
  }
}

export const session = makeStore<Session | null>(stored());

export function signIn(next: Session): void {
  sessionStorage.setItem(KEY, JSON.stringify(next));
  session.set(next);
}

export function signOut(): void {
  sessionStorage.removeItem(KEY);
  session.set(null);
}

export function mayWrite(permissions: string[]): boolean {
  return permissions.includes("webhooks:write");
}
