/** Words that are put together; pure. */

/** A message as a sentence: it ends with one full stop, whether it came with one or without. */
export function sentence(text: string): string {
  const said = text.trim();
  return said === "" || /[.!?…]$/.test(said) ? said : `${said}.`;
}
