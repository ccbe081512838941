/** Text helpers. */

/** Return a message with a period at its end. */
export function sentence(text: string): string {
  const said = text.trim();
  return said === "" || /[.!?…]$/.test(said) ? said : `${said}.`;
}
