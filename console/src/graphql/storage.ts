/** Storage for GraphiQL's tabs and history in this browser, without headers, which may contain tokens. */
export const storage = {
  getItem: (key: string) => localStorage.getItem(key),
  removeItem: (key: string) => localStorage.removeItem(key),
  clear: () => localStorage.clear(),
  get length() {
    return localStorage.length;
  },
  setItem(key: string, value: string) {
    localStorage.setItem(key, KEPT_AS_JSON.has(key) ? withoutHeaders(value) : value);
  },
};

const KEPT_AS_JSON = new Set(["graphiql:queries", "graphiql:favorites", "graphiql:tabState"]);

function withoutHeaders(value: string): string {
  return JSON.stringify(JSON.parse(value), (name, part: unknown) => (name === "headers" ? undefined : part));
}
