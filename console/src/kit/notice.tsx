import type { ReactNode } from "react";

type NoticeProps = { kind: "info" | "good" | "warning" | "error"; title?: string; children?: ReactNode };

/** A message in the page. */
export function Notice({ kind, title, children }: NoticeProps) {
  return (
    <div className="notice" data-kind={kind} role={kind === "error" ? "alert" : "note"}>
      {title && <strong>{title}</strong>}
      <div>{children}</div>
    </div>
  );
}
