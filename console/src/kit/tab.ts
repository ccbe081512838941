/** Values in the tab's session storage. */

/** Return a stored value, or null. */
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
    // Storage is full or blocked: the value lasts as long as the page.
    forgetInTab(name);
  }
}

export function forgetInTab(name: string): void {
  try {
    sessionStorage.removeItem(name);
  } catch {
    // The browser may block storage in frames.
  }
}
