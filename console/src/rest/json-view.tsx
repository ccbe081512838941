import { memo, type ReactElement, type ReactNode } from "react";

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\],]/g;
const INDENT = "  ";
/** Maximum number of characters for syntax highlighting. */
const LONGEST = 200_000;

/** Indented and highlighted JSON. Numbers stay as they were sent. */
export const JsonView = memo(function JsonView({ text }: { text: string }) {
  return <pre className="json code" tabIndex={0} role="region" aria-label="JSON">{text.length > LONGEST ? text : pieces(text)}</pre>;
});

/** Indented JSON. Numbers stay as they were sent. */
export function indented(text: string): string {
  return text.length > LONGEST ? text : pieces(text).map((each) => (typeof each === "string" ? each : (each as ReactElement<{ children: string }>).props.children)).join("");
}

function pieces(text: string): ReactNode[] {
  const found: ReactNode[] = [];
  let depth = 0;
  let before = "";
  const line = () => `\n${INDENT.repeat(depth)}`;
  for (const [token, string, colon] of text.matchAll(TOKEN)) {
    const closes = token === "}" || token === "]";
    if (closes) depth -= 1;
    if (closes ? before !== "{" && before !== "[" : before === "{" || before === "[" || before === ",") found.push(line());
    if (token === "{" || token === "[") depth += 1;
    if (/^[{}[\],]$/.test(token)) found.push(token);
    else if (colon) found.push(<span key={found.length} data-token="name">{string}</span>, ": ");
    else found.push(<span key={found.length} data-token={string ? "string" : /^[tfn]/.test(token) ? "keyword" : "number"}>{token}</span>);
    before = token;
  }
  return found;
}
