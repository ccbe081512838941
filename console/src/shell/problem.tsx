import type { ReactNode } from "react";
import { Refused } from "../kit/data";
import { Notice } from "../kit/notice";
import { sentence } from "../kit/words";
import { adviceOn } from "./advice";
import { ChooseRole } from "./choose-role";

type ProblemProps = { title?: string; error: Error; children?: ReactNode };

/** An error, with advice if another key, token or role would avoid it. */
export function Problem({ title, error, children }: ProblemProps) {
  const { status, code, hint } = error instanceof Refused ? error : { status: 0, code: "", hint: "" };
  return (
    <Notice kind="error" {...(title ? { title } : {})}>
      <p>{sentence(error.message)} {!adviceOn(status, code) && sentence(hint)} {children}</p>
      <Advice status={status} code={code} />
    </Notice>
  );
}

/** Advice for status 401, with a button that opens the identity dialog. */
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
