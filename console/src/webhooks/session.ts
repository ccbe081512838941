import { makeStore } from "../kit/store";
import { forgetInTab, keepInTab, keptInTab } from "../kit/tab";

/** Who is signed in to the webhooks' page.  It stays in this tab: session storage, never a URL. */
export interface Session {
  token: string;
  organization: string;
  projects: string[];
  permissions: string[];
}

const KEY = "dataapi.webhooks";

export const session = makeStore(keptInTab<Session>(KEY));

export function signIn(next: Session): void {
  keepInTab(KEY, next);
  session.set(next);
}

export function signOut(): void {
  forgetInTab(KEY);
  session.set(null);
}

export function mayWrite(permissions: string[]): boolean {
  return permissions.includes("webhooks:write");
}
