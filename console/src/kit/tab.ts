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
    // There is no more room, or none at all: it lasts as long as the page.
    forgetInTab(name);
  }
}

export function forgetInTab(name: string): void {
  try {
    sessionStorage.removeItem(name);
  } catch {
    // A frame whose storage the browser blocks keeps nothing.
  }
}
