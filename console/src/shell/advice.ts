/** Advice on rejections that another key, token or role would avoid. */

const TOKEN = "Paste the complete token again, or get a new one from the issuer of this project's tokens.";

/** Advice by error code. Errors about the API key have no code. */
const ADVICE: Record<string, string> = {
  "": "Enter the project's publishable API key (sb_publishable_…). The daemon rejects secret keys from browsers.",
  PGRST301: `The token was not issued for this project, or was not copied completely. ${TOKEN}`,
  PGRST302: "A token is required. Choose a signed-in user or service_role.",
  PGRST303: `The token has expired, is not valid yet, or is for another service. ${TOKEN}`,
  "22023": "The token's role does not exist in the database. Use a token with another role.",
  "42501": "This requires a token. Choose a role with the privilege.",
};

/** Return advice for status 401, or "" for other statuses. */
export function adviceOn(status: number, code: string): string {
  return status === 401 ? (ADVICE[code] ?? "Choose another key, token or role.") : "";
}
