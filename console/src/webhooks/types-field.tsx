import { useId, useState } from "react";
import type { EventType } from "./api";

type TypesFieldProps = { types: Pick<EventType, "type" | "description">[]; chosen: string[]; onChange: (chosen: string[]) => void };

/** Selects all or some event types of the catalogue. */
export function TypesField({ types, chosen, onChange }: TypesFieldProps) {
  const [text, setText] = useState("");
  const name = useId();
  const all = chosen.includes("*");
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  // An endpoint may have types that were removed from the catalogue.
  const [lost] = useState(() => chosen.filter((each) => each !== "*" && !types.some(({ type }) => type === each)));
  const listed = [...types, ...lost.map((type) => ({ type, description: "No longer in the catalogue." }))];
  const found = listed.filter(({ type, description }) => words.every((word) => `${type} ${description}`.toLowerCase().includes(word)));
  const turn = (type: string) => onChange(chosen.includes(type) ? chosen.filter((each) => each !== type) : [...chosen, type]);
  return (
    <fieldset className="types-field">
      <legend>Event types</legend>
      <div className="field-row">
        <label className="check"><input type="radio" name={name} checked={all} onChange={() => onChange(["*"])} /> All, including future types</label>
        <label className="check"><input type="radio" name={name} checked={!all} onChange={() => onChange(chosen.filter((type) => type !== "*"))} /> Selected types</label>
      </div>
      {!all && (
        <>
          <input type="search" aria-label="Search event types" placeholder="Search" value={text} onChange={(event) => setText(event.target.value)} />
          <div className="type-list" tabIndex={0} role="group" aria-label={`Event types, ${chosen.length} chosen`}>
            {found.map(({ type, description }) => (
              <label key={type} className="type">
                <input type="checkbox" checked={chosen.includes(type)} onChange={() => turn(type)} />
                <span><code>{type}</code><small>{description}</small></span>
              </label>
            ))}
            {found.length === 0 && <p className="hint">No types match.</p>}
          </div>
        </>
      )}
    </fieldset>
  );
}
