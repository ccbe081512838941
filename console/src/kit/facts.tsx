import type { ReactNode } from "react";
import "./facts.css";

/** ``large``: use a large font for the values. */
type FactsProps = { className: string; large?: boolean; children: ReactNode };

/** Names with short values below them, in a row that wraps. */
export function Facts({ className, large, children }: FactsProps) {
  return <dl className={`facts ${className}`} data-large={large || undefined}>{children}</dl>;
}

/** Names and values, one pair per line. */
export function Terms({ children }: { children: ReactNode }) {
  return <dl className="terms">{children}</dl>;
}

/** A name and its value. */
export function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
