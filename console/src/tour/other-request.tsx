import { useState } from "react";
import { Refused, refusalOf } from "../kit/data";
import { makeStore } from "../kit/store";
import { sentence } from "../kit/words";
import { identity, identityHeaders } from "../shell/identity";

/** The data of the subscription. */
export interface Post {
  blogPostCollection: { edges: { node: { id: string; claps: string } }[] };
}

/** The number of claps in the last request, or null. */
export const sentClaps = makeStore<number | null>(null);

const PATH = "/rest/v1/blog_post?title=eq.One%20round%20trip";

/** A second request, which changes a row of the open subscription. ``shown`` returns the number of claps in the result. */
export function OtherRequest({ shown }: { shown: () => number }) {
  const [claps] = useState(() => shown() + 1);
  const [problem, setProblem] = useState("");
  const send = async () => {
    setProblem("");
    sentClaps.set(claps); // the result may arrive before the response
    try {
      const headers = { "Content-Type": "application/json", ...identityHeaders(identity.get()) };
      const response = await fetch(PATH, { method: "PATCH", headers, body: JSON.stringify({ claps }) });
      if (!response.ok) throw await refusalOf(response);
    } catch (error) {
      setProblem(error instanceof Refused ? sentence(error.message) : String(error));
    }
  };
  return (
    <div className="tour-request">
      <code>PATCH {decodeURIComponent(PATH)} {JSON.stringify({ claps })}</code>
      <button type="button" className="button" onClick={() => void send()}>Send the request</button>
      {problem && <span role="alert">{problem}</span>}
    </div>
  );
}
