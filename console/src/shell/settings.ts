import { createContext, useContext } from "react";

/** What the daemon says of the project: /console/data/settings. */
export interface Settings {
  project: string;
  version: string;
  schemas: string[];
  keyRequired: boolean;
  publishableKey: string | null;
  anonymousRole: string;
  token: { mintable: boolean; base64: boolean; audience: string | null };
  plans: boolean;
  openapi: boolean;
  documents: boolean;
  documentsOnly: boolean;
  webhooks: boolean;
}

export async function loadSettings(): Promise<Settings> {
  const response = await fetch("/console/data/settings");
  if (!response.ok) throw new Error(`The daemon answered with status ${response.status}.`);
  return (await response.json()) as Settings;
}

const Context = createContext<Settings | null>(null);
export const SettingsProvider = Context.Provider;

export function useSettings(): Settings {
  const settings = useContext(Context);
  if (!settings) throw new Error("useSettings needs a SettingsProvider");
  return settings;
}
