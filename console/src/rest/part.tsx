import { useId, type ReactNode } from "react";

type PartProps = { title: string; children?: ReactNode; action?: ReactNode };

/** A part of the form, with an optional action. */
export function Part({ title, children, action }: PartProps) {
  const id = useId();
  return (
    <section className="part" role="group" aria-labelledby={id}>
      <header><h2 id={id}>{title}</h2>{action}</header>
      {children}
    </section>
  );
}
