import { useId, useState } from "react";
import type { EventType } from "./api";

type TypesFieldProps = { types: Pick<EventType, "type" | "description">[]; chosen: string[]; onChange: (chosen: string[]) => void };

/** Chooses event types from the catalogue: all of them, or some. */
export function TypesField({ types, chosen, onChange }: TypesFieldProps) {
  const [text, setText] = useState("");
  const name = useId();
  const all = chosen.includes("*");
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  // An endpoint can have types that the catalogue has lost.
  const [lost] = useState(() => chosen.filter((each) => each !== "*" && !types.some(({ type }) => type === each)));
  const listed = [...types, ...lost.map((type) => ({ type, description: "Not in the catalogue any more." }))];
  const found = listed.filter(({ type, description }) => words.every((word) => `${type} ${description}`.toLowerCase().includes(word)));
  const turn = (type: string) => onChange(chosen.includes(type) ? chosen.filter((each) => each !== type) : [...chosen, type]);
  return (
    <fieldset className="types-field">
      <legend>Event types</legend>
      <div className="field-row">
        <label className="check"><input type="radio" name={name} checked={all} onChange={() => onChange(["*"])} /> All, also those to come</label>
        <label className="check"><input type="radio" name={name} checked={!all} onChange={() => onChange(chosen.filter((type) => type !== "*"))} /> These</label>
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
            {found.length === 0 && <p className="hint">No type has these words.</p>}
          </div>
        </>
      )}
    </fieldset>
  );
}
