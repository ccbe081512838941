import type { ReactNode } from "react";
import "./facts.css";

/** ``large`` is for figures that are read from afar. */
type FactsProps = { className: string; large?: boolean; children: ReactNode };

/** Names with short values below them, side by side as far as there is room. */
export function Facts({ className, large, children }: FactsProps) {
  return <dl className={`facts ${className}`} data-large={large || undefined}>{children}</dl>;
}

/** Names with values beside them, one below the other. */
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
