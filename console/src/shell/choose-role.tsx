import type { ReactNode } from "react";
import { choosing } from "./identity";

/** Opens the identity dialog. */
export function ChooseRole({ children = "Choose the role" }: { children?: ReactNode }) {
  return <button type="button" className="button" onClick={() => choosing.set(true)} aria-haspopup="dialog">{children}</button>;
}
