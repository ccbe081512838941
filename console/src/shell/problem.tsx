import type { ReactNode } from "react";
import { Refused } from "../kit/data";
import { Notice } from "../kit/notice";
import { sentence } from "../kit/words";
import { adviceOn } from "./advice";
import { ChooseRole } from "./choose-role";

type ProblemProps = { title?: string; error: Error; children?: ReactNode };

/** An error, and what to do about it where another key, token or role would mend it. */
export function Problem({ title, error, children }: ProblemProps) {
  const { status, code, hint } = error instanceof Refused ? error : { status: 0, code: "", hint: "" };
  return (
    <Notice kind="error" {...(title ? { title } : {})}>
      <p>{sentence(error.message)} {!adviceOn(status, code) && sentence(hint)} {children}</p>
      <Advice status={status} code={code} />
    </Notice>
  );
}

/** What to do about a status of 401, with the button that does it; nothing for others. */
export function Advice({ status, code }: { status: number; code: string }) {
  const advice = adviceOn(status, code);
  if (!advice) return null;
  return (
    <>
      <p>{advice}</p>
      <ChooseRole>Change the key or token</ChooseRole>
    </>
  );
}
