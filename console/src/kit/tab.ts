/** What stays in this tab, in its session storage, until the tab is closed. */

/** What was kept under a name, null for nothing. */
export function keptInTab<T>(name: string): T | null {
  try {
    return JSON.parse(sessionStorage.getItem(name) ?? "null") as T | null;
  } catch {
    return null;
  }
}

export function keepInTab(name: string, value: object): void {
  try {
    sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
    // There is no more room: what is too large lasts as long as the page.
    sessionStorage.removeItem(name);
  }
}

export function forgetInTab(name: string): void {
  sessionStorage.removeItem(name);
}
