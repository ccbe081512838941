import { makeStore } from "../kit/store";
import { forgetInTab, keepInTab, keptInTab } from "../kit/tab";
import { readAccess, type Access } from "./api";

/** Who is signed in to the webhooks' page.  It stays in this tab: session storage, never a URL. */
export interface Session extends Access {
  token: string;
}

/** Console and portal share an origin, and may share a tab one after the other. */
const KEY = document.documentElement.dataset.page === "portal" ? "dataapi.portal" : "dataapi.webhooks";

export const session = makeStore(keptInTab<Session>(KEY));

/** Learn what a token gives access to, and sign in with it unless ``refuse`` says why not. */
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

/** Why the last session ended, "" where somebody ended it. */
export const ended = makeStore("");

export function signOut(reason = ""): void {
  forgetInTab(KEY);
  ended.set(reason);
  session.set(null);
}

export function mayWrite({ permissions }: Access): boolean {
  return permissions.includes("webhooks:write");
}

/** Whether endpoints may be created and secrets changed, both of which show the secret. */
export function maySetSecrets(access: Access): boolean {
  return mayWrite(access) && (access.portal?.signing_secrets ?? true);
}
