import { createContext, useContext } from "react";
import type { Endpoint, EventType, Management } from "./api";
import type { Filters } from "./filters";

/** What all parts of the page share, of the chosen organization or project. */
export interface WorkspaceValue {
  management: Management;
  endpoints: Endpoint[];
  types: EventType[];
  /** Whether the token may change anything. */
  writable: boolean;
  /** Whether it may set signing secrets, and so create endpoints. */
  secrets: boolean;
  /** Read the endpoints again. */
  reload: () => void;
  /** Show the deliveries that pass these filters. */
  listDeliveries: (filters: Partial<Filters>) => void;
}

export const Workspace = createContext<WorkspaceValue | null>(null);

export function useWorkspace(): WorkspaceValue {
  const found = useContext(Workspace);
  if (!found) throw new Error("useWorkspace needs a Workspace.Provider");
  return found;
}
