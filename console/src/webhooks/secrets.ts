/** A new signing secret: 24 random bytes, as Standard Webhooks writes keys. */
export function newSecret(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(24));
  return `whsec_${btoa(String.fromCharCode(...bytes))}`;
}

/** Why a text cannot be a signing secret, "" where it can (docs/reference/webhooks.md, Secrets). */
export function secretProblem(text: string): string {
  if (text.length < 8 || text.length > 64) return "A signing secret has 8 to 64 characters.";
  return /^[\x01-\x7f]*$/.test(text) ? "" : "A signing secret has ASCII characters alone.";
}
