import { createContext, useContext } from "react";
import type { Endpoint, EventType, Management } from "./api";
import type { Filters } from "./filters";

/** State of the chosen scope, shared by all parts of the page. */
export interface WorkspaceValue {
  management: Management;
  endpoints: Endpoint[];
  types: EventType[];
  /** Whether the token has write permission. */
  writable: boolean;
  /** Whether the token may set signing secrets, and so create endpoints. */
  secrets: boolean;
  /** Reload the endpoints. */
  reload: () => void;
  /** Show the deliveries that match these filters. */
  listDeliveries: (filters: Partial<Filters>) => void;
}

export const Workspace = createContext<WorkspaceValue | null>(null);

export function useWorkspace(): WorkspaceValue {
  const found = useContext(Workspace);
  if (!found) throw new Error("useWorkspace needs a Workspace.Provider");
  return found;
}
