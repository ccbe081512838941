import type { ComponentType } from "react";
import type { Settings } from "./shell/settings";

/** A page of the console: its address is /console/PATH, and its code is loaded when it is first shown. */
export interface Page {
  path: string;
  title: string;
  load: () => Promise<{ default: ComponentType }>;
  /** Whether this project has such a page; without it, every project has. */
  offered?: (settings: Settings) => boolean;
}

/** In the order of the navigation; the first one is where the console opens. */
export const PAGES: Page[] = [
  { path: "graphql", title: "GraphQL", load: () => import("./graphql/page") },
  { path: "rest", title: "REST", load: () => import("./rest/page") },
  { path: "rows", title: "Rows", load: () => import("./rows/page") },
  { path: "schema", title: "Schema", load: () => import("./schema/page") },
  { path: "webhooks", title: "Webhooks", load: () => import("./webhooks/page"), offered: ({ webhooks }) => webhooks },
  { path: "health", title: "Health", load: () => import("./health/page") },
];
