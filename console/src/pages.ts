import type { ComponentType } from "react";
import type { Settings } from "./shell/settings";

/** A page of the console at /console/PATH. Its code is loaded when it is first shown. */
export interface Page {
  path: string;
  title: string;
  load: () => Promise<{ default: ComponentType }>;
  /** Whether the page is available for this project (default: always). */
  offered?: (settings: Settings) => boolean;
}

/** In navigation order. The first one is the start page. */
export const PAGES: Page[] = [
  { path: "graphql", title: "GraphQL", load: () => import("./graphql/page") },
  { path: "rest", title: "REST", load: () => import("./rest/page") },
  { path: "rows", title: "Rows", load: () => import("./rows/page") },
  { path: "schema", title: "Schema", load: () => import("./schema/page") },
  { path: "webhooks", title: "Webhooks", load: () => import("./webhooks/page"), offered: ({ webhooks }) => webhooks },
  { path: "health", title: "Health", load: () => import("./health/page") },
];
