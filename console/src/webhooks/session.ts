import { makeStore } from "../kit/store";
import { forgetInTab, keepInTab, keptInTab } from "../kit/tab";
import { readAccess, type Access } from "./api";

/** The session of the webhooks page. It is stored in this tab's session storage, never in a URL. */
export interface Session extends Access {
  token: string;
}

/** Console and portal share an origin, and may be opened in the same tab one after the other. */
const KEY = document.documentElement.dataset.page === "portal" ? "dataapi.portal" : "dataapi.webhooks";

export const session = makeStore(keptInTab<Session>(KEY));

/** Load what a token gives access to, and sign in unless ``refuse`` returns a reason. */
export async function signInWith(token: string, refuse: (found: Access) => string): Promise<void> {
  const found = await readAccess(token);
  const problem = refuse(found);
  if (problem) throw new Error(problem);
  signIn({ ...found, token });
}

function signIn(next: Session): void {
  keepInTab(KEY, next);
  session.set(next);
}

/** Why the last session ended, or "" if the user signed out. */
export const ended = makeStore("");

export function signOut(reason = ""): void {
  forgetInTab(KEY);
  ended.set(reason);
  session.set(null);
}

export function mayWrite({ permissions }: Access): boolean {
  return permissions.includes("webhooks:write");
}

/** Whether endpoints may be created and secrets changed. Both show the secret. */
export function maySetSecrets(access: Access): boolean {
  return mayWrite(access) && (access.portal?.signing_secrets ?? true);
}
