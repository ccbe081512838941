import { createContext, useContext } from "react";

/** Settings of the project, from /console/data/settings. */
export interface Settings {
  project: string;
  version: string;
  schemas: string[];
  keyRequired: boolean;
  publishableKey: string | null;
  token: { mintable: boolean; base64: boolean; audience: string | null };
  plans: boolean;
  /** Whether live queries are enabled. */
  live: boolean;
  aggregates: boolean;
  /** How transactions end by default, or null if requests cannot override it. */
  transactionEnd: "commit" | "rollback" | null;
  openapi: boolean;
  documents: boolean;
  documentsOnly: boolean;
  webhooks: boolean;
  receivers: boolean;
  /** Tokens of the demo's guided tour, for a user and for webhooks. */
  tour?: { user: string; webhooks: string };
}

const Context = createContext<Settings | null>(null);
export const SettingsProvider = Context.Provider;

export function useSettings(): Settings {
  const settings = useContext(Context);
  if (!settings) throw new Error("useSettings needs a SettingsProvider");
  return settings;
}
