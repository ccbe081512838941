/** What to do about a refusal that another key, token or role mends; pure. */

const TOKEN = "Paste it again, whole, or take a new one from whoever signs this project's tokens.";

/** By the codes of errors; those about the API key have none. */
const ADVICE: Record<string, string> = {
  "": "Enter the project's publishable API key (sb_publishable_…). Secret keys are refused when a browser sends them.",
  PGRST301: `The token is not one of this project's, or not all of it was copied. ${TOKEN}`,
  PGRST302: "Callers without a token are not admitted. Choose a signed-in user or service_role.",
  PGRST303: `The token's time is over or has not come yet, or it is meant for another service. ${TOKEN}`,
  "22023": "The database does not know the token's role. Use a token of another role.",
  "42501": "Callers without a token may not do this. Choose a role that may.",
};

/** One or two sentences for a status of 401, "" for others, which no other key or token mends. */
export function adviceOn(status: number, code: string): string {
  return status === 401 ? (ADVICE[code] ?? "Choose another key, token or role.") : "";
}
