import { useId, useRef, useState, type FormEvent, type KeyboardEvent } from "react";
import { Modal } from "../kit/modal";
import { Notice } from "../kit/notice";
import { indented } from "../rest/json-view";
import type { Column } from "../schema/model";
import { formOf, mistakeIn, type Value } from "./cells";

/** Where the focus moves after editing. */
export type Onward = "down" | "right" | "stay";

interface EditorProps {
  column: Column;
  value: Value | undefined;
  /** Whether the row is new, so that columns may use their defaults. */
  isNew: boolean;
  /** Sets the value. ``undefined`` means the default. */
  onGive: (value: Value | undefined, onward: Onward) => void;
  onCancel: () => void;
}

/** Maximum number of characters to edit in the cell. Longer texts are edited in a dialog. */
const SHORT = 60;

/** Whether a value is edited in its cell. */
export function fitsCell(column: Column, value: Value | undefined): boolean {
  const form = formOf(column);
  if (form === "json" || form === "array" || form === "bytes") return false;
  return (value?.length ?? 0) <= SHORT && !value?.includes("\n");
}

/** Edits a short value in its cell. ``typed`` replaces the old value. */
export function CellEditor({ column, value, isNew, typed, onGive, onCancel }: EditorProps & { typed: string | null }) {
  const [text, setText] = useState(typed ?? value ?? "");
  const [touched, setTouched] = useState(typed !== null);
  const place = useRef<HTMLDivElement>(null);
  const form = formOf(column);
  const give = (onward: Onward) => {
    if (!touched) return onward === "stay" ? onCancel() : onGive(value, onward);
    // An empty input is a valid text, but not a number or time.
    onGive(text === "" && form !== "text" ? null : text, onward);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    event.stopPropagation();
    const onward = ({ Enter: "down", Tab: "right" } as const)[event.key];
    if (event.key === "Escape") onCancel();
    else if (onward && event.target instanceof HTMLInputElement && !event.shiftKey) give(onward);
    else return;
    event.preventDefault();
  };
  const named = `${column.name}, ${column.type}`;
  return (
    <div className="cell-editor" ref={place} onKeyDown={onKeyDown} onBlur={(event) => place.current?.contains(event.relatedTarget) || give("stay")}>
      {form === "boolean" ? (
        <select aria-label={named} autoFocus value={value ?? ""} onKeyDown={(event) => event.key === "Enter" && (event.preventDefault(), onCancel())}
          onChange={(event) => onGive(event.target.value === "" ? null : event.target.value, "stay")}>
          {(column.nullable || value === null || value === undefined) && <option value="">null</option>}
          <option>true</option>
          <option>false</option>
        </select>
      ) : (
        <input className="code" aria-label={named} autoFocus value={text} spellCheck={false} inputMode={form === "number" ? "decimal" : undefined}
          onFocus={(event) => typed === null && event.target.select()} onChange={(event) => (setText(event.target.value), setTouched(true))} />
      )}
      {column.nullable && form !== "boolean" && <button type="button" className="button" onClick={() => onGive(null, "stay")}>null</button>}
      {form === "text" && value === null && <button type="button" className="button" onClick={() => onGive("", "stay")}>empty</button>}
      {isNew && <button type="button" className="button" onClick={() => onGive(undefined, "stay")}>default</button>}
    </div>
  );
}

/** A dialog that shows or edits a value. ``fixed`` is the reason why it is read-only, or "". */
export function ValueDialog({ column, value, isNew, fixed, onGive, onCancel }: EditorProps & { fixed: string }) {
  const form = formOf(column);
  const shown = value && (form === "json" || form === "array") ? indented(value) : (value ?? "");
  const [text, setText] = useState(shown);
  const title = useId();
  const mistake = fixed || text === shown ? "" : mistakeIn(column, text);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (fixed || text === shown) onCancel();
    else if (!mistake) onGive(text, "stay");
  };
  return (
    <Modal className="value-dialog" labelledBy={title} onClose={onCancel}>
      <form onSubmit={submit} onKeyDown={(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && submit(event)}>
        <h2 id={title}><code>{column.name}</code> <span className="badge">{column.type}</span></h2>
        {column.comment && <p className="hint comment">{column.comment}</p>}
        <textarea className="code" rows={14} value={text} readOnly={fixed !== ""} spellCheck={form === "text"} aria-label="Value" aria-invalid={mistake !== ""}
          placeholder={value === null ? "null" : value === undefined ? "default" : "empty"} onChange={(event) => setText(event.target.value)} autoFocus />
        {fixed ? <p className="hint">{fixed}</p> : mistake && <Notice kind="error">{mistake}</Notice>}
        <div className="actions">
          {!fixed && column.nullable && <button type="button" className="button" onClick={() => onGive(null, "stay")}>Set null</button>}
          {!fixed && form === "text" && value === null && <button type="button" className="button" onClick={() => onGive("", "stay")}>Set empty</button>}
          {!fixed && isNew && <button type="button" className="button" onClick={() => onGive(undefined, "stay")}>Use the default</button>}
          <span className="spread" />
          <button type="button" className="button" onClick={onCancel}>{fixed ? "Close" : "Cancel"}</button>
          {!fixed && <button type="submit" className="button primary" disabled={mistake !== ""}>Done</button>}
        </div>
      </form>
    </Modal>
  );
}
