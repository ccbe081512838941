import { hasBody, headersOf, REST } from "../request";
import type { Sent } from "./parts";

const quoted = (value: string) => `'${value.replaceAll("'", "'\\''")}'`;

/** The request as a curl command for a POSIX shell. */
export function curl({ draft, origin, apiKey, withToken }: Sent): string {
  const { href } = new URL(REST + draft.target, origin);
  const switches = [/[[\]{}]/.test(href) && "--globoff ", draft.prefer.count && "--include "].filter(Boolean).join("");
  const words = [
    `curl ${switches}${quoted(href)}`,
    ...(draft.method === "GET" || draft.method === "POST" ? [] : [`-X ${draft.method}`]),
    ...(apiKey ? [`-H ${quoted(`apikey: ${apiKey}`)}`] : []),
    ...(withToken ? ['-H "Authorization: Bearer $TOKEN"'] : []),
    ...Object.entries(headersOf(draft)).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`),
    ...(hasBody(draft) ? [`--data-binary ${quoted(draft.body)}`] : []),
  ];
  return words.join(" \\\n  ");
}
