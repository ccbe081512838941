import { createContext, useContext } from "react";

/** What the daemon says of the project: /console/data/settings. */
export interface Settings {
  project: string;
  version: string;
  schemas: string[];
  keyRequired: boolean;
  publishableKey: string | null;
  token: { mintable: boolean; base64: boolean; audience: string | null };
  plans: boolean;
  /** Whether answers can be kept open. */
  live: boolean;
  aggregates: boolean;
  /** What ends a transaction, null where a request cannot say so. */
  transactionEnd: "commit" | "rollback" | null;
  openapi: boolean;
  documents: boolean;
  documentsOnly: boolean;
  webhooks: boolean;
  receivers: boolean;
}

const Context = createContext<Settings | null>(null);
export const SettingsProvider = Context.Provider;

export function useSettings(): Settings {
  const settings = useContext(Context);
  if (!settings) throw new Error("useSettings needs a SettingsProvider");
  return settings;
}
