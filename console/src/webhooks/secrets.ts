/** A new signing secret: 24 random bytes in the format of Standard Webhooks. */
export function newSecret(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(24));
  return `whsec_${btoa(String.fromCharCode(...bytes))}`;
}

/** Why a text is not a valid signing secret, or "" (docs/reference/webhooks.md, Secrets). */
export function secretProblem(text: string): string {
  if (text.length < 8 || text.length > 64) return "A signing secret must have 8 to 64 characters.";
  return /^[\x01-\x7f]*$/.test(text) ? "" : "A signing secret may contain only ASCII characters.";
}
