/** CSV files that are safe to open in spreadsheets. */

const FIELD = /("(?:[^"]|"")*"|[^",\r\n]*)(,|\r?\n|$)/y;
const FORMULA = /^[\s]*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]/;
const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i;

/** Prefix texts that a spreadsheet would run as formulas with an apostrophe. Numbers stay unchanged. */
export function withoutFormulas(csv: string): string {
  const parts: string[] = [];
  FIELD.lastIndex = 0;
  while (FIELD.lastIndex < csv.length) {
    const at = FIELD.lastIndex;
    const found = FIELD.exec(csv);
    // Treat the rest after a malformed field as one field.
    if (found === null) return parts.join("") + neutral(csv.slice(at));
    parts.push(neutral(found[1] ?? ""), found[2] ?? "");
  }
  return parts.join("");
}

function neutral(field: string): string {
  const quoted = field.startsWith('"');
  const text = quoted ? field.slice(1, -1) : field;
  if (!FORMULA.test(text) || NUMBER.test(text)) return field;
  return quoted ? `"'${text}"` : `'${text}`;
}
