import { memo, useEffect, useMemo, useRef, useState, type KeyboardEvent, type MouseEvent, type ReactNode } from "react";
import { sortedBy } from "../rest/paging";
import type { Column, Schema, Table } from "../schema/model";
import { PageLink } from "../shell/router";
import { opened, type View } from "./address";
import { equals, fixed, formOf, refusal, type Row, type Value } from "./cells";
import type { Edit } from "./edits";
import type { Found } from "./load";
import { referencesOf, type Reference } from "./references";
import { CellEditor, fitsCell, ValueDialog, type Onward } from "./value-editor";

/** A row of the grid: an existing row with its pending change, or a new row. */
export interface Line {
  id: string;
  /** Its number among all rows, or null if it is not on this page. */
  number: number | null;
  found: Found;
  edit: Edit | undefined;
}

export interface Actions {
  give: (line: Line, name: string, value: Value | undefined) => void;
  remove: (line: Line) => void;
  /** Discard the changes of the row. */
  forget: (line: Line) => void;
  insist: (line: Line) => void;
  sort: (name: string) => void;
}

type GridProps = { schema: Schema; table: Table; columns: Column[]; view: View; lines: Line[]; actions: Actions };

interface Place {
  row: number;
  /** 0 is the row header. */
  column: number;
}

/** The row of column headers. */
const HEADS = -1;
const MOVES: Record<string, [rows: number, columns: number]> = {
  ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
  PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -Infinity], End: [0, Infinity],
};

/** The rows. Arrow keys move between cells, which are edited in place. */
export function Grid({ schema, table, columns, view, lines, actions }: GridProps) {
  const [at, setAt] = useState<Place>({ row: 0, column: 1 });
  /** The edit of the focused cell, in place or in a dialog. */
  const [editing, setEditing] = useState<{ typed: string | null; large: boolean } | null>(null);
  const grid = useRef<HTMLTableElement>(null);
  const moved = useRef(false);
  /** The focused cell before a click. */
  const selectedBefore = useRef("");
  const references = useMemo(() => referencesOf(schema, table), [schema, table]);
  const here: Place = { row: Math.min(at.row, lines.length - 1), column: Math.min(at.column, columns.length) };

  useEffect(() => {
    if (!moved.current || editing) return;
    moved.current = false;
    grid.current?.querySelector<HTMLElement>(`[data-at="${here.row} ${here.column}"]`)?.focus();
  });

  const go = (to: Place) => {
    moved.current = true;
    setEditing(null);
    setAt({ row: Math.max(HEADS, Math.min(lines.length - 1, to.row)), column: Math.max(0, Math.min(columns.length, to.column)) });
  };
  const whyNot = (line: Line, column: Column) => (line.edit?.kind === "delete" ? "This row will be deleted." : fixed(schema, table, column, line.edit?.kind === "insert" ? "INSERT" : "UPDATE"));
  const begin = (line: Line, column: Column, typed: string | null) => {
    const large = whyNot(line, column) !== "" || !fitsCell(column, valueIn(line, column.name));
    if (typed === null || !large) setEditing({ typed: large ? null : typed, large });
  };
  const give = (line: Line, column: Column, value: Value | undefined, onward: Onward) => {
    actions.give(line, column.name, value);
    go({ row: here.row + (onward === "down" ? 1 : 0), column: here.column + (onward === "right" ? 1 : 0) });
  };

  const onKeyDown = (event: KeyboardEvent) => {
    const line = lines[here.row];
    const column = columns[here.column - 1];
    const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
    const move = MOVES[event.key];
    if (editing || !(event.target as Element).closest("[data-at]")) return;
    if (move) {
      const [rows, across] = move;
      go(event.ctrlKey && across ? { row: across < 0 ? 0 : lines.length - 1, column: here.column + across } : { row: here.row + rows, column: here.column + across });
    } else if (!line || here.row === HEADS) return;
    else if (event.key === "Enter" && !isPlain) grid.current?.querySelector<HTMLElement>(`[data-at="${here.row} ${here.column}"] a`)?.click();
    else if (!column) {
      if (event.key !== "Delete" || line.edit || refusal(schema, table, "DELETE")) return;
      actions.remove(line);
    } else if (event.key === "Enter" || event.key === "F2") begin(line, column, null);
    else if (event.key === "Delete" || event.key === "Backspace") {
      if (whyNot(line, column)) return;
      if (line.edit?.kind === "insert") actions.give(line, column.name, undefined);
      else if (column.nullable) actions.give(line, column.name, null);
    } else if (isPlain && event.key.length === 1) begin(line, column, event.key);
    else return;
    event.preventDefault();
  };
  // A second click starts editing, for use without a keyboard.
  const onClick = (event: MouseEvent) => {
    const cell = (event.target as Element).closest<HTMLElement>("[data-at]");
    if (editing || !cell || (event.target as Element).closest("a")) return;
    const [row, column] = cell.dataset.at!.split(" ").map(Number) as [number, number];
    // The action replaces the row's button.
    if (cell.matches("td") && selectedBefore.current === cell.dataset.at) begin(lines[row]!, columns[column - 1]!, null);
    else go({ row, column });
  };
  const onPointerDown = () => (selectedBefore.current = (document.activeElement as HTMLElement | null)?.dataset.at ?? "");

  const current = lines[here.row];
  const column = columns[here.column - 1];
  return (
    <>
      <table className="table rows-grid" role="grid" ref={grid} aria-label={`Rows of ${table.name}`} aria-rowcount={-1} aria-colcount={columns.length + 1}
        onKeyDown={onKeyDown} onClick={onClick} onPointerDown={onPointerDown}>
        <thead>
          <tr>
            <th scope="col" className="corner"><span className="visually-hidden">Row</span></th>
            {columns.map((each, index) => (
              <Head key={each.name} column={each} isKey={table.key.includes(each.name)} direction={sortedBy(view, each.name)} place={`${HEADS} ${index + 1}`}
                focusable={here.row === HEADS && here.column === index + 1} onSort={() => actions.sort(each.name)} />
            ))}
          </tr>
        </thead>
        <tbody>
          {lines.map((line, row) => (
            <GridRow key={line.id} schema={schema} table={table} columns={columns} references={references} line={line} row={row} actions={actions}
              focused={here.row === row ? here.column : null}
              editor={editing && !editing.large && row === here.row && column ? (
                <CellEditor column={column} value={valueIn(line, column.name)} isNew={line.edit?.kind === "insert"} typed={editing.typed}
                  onGive={(value, onward) => give(line, column, value, onward)} onCancel={() => go(here)} />
              ) : null} />
          ))}
        </tbody>
      </table>
      {editing?.large && current && column && (
        <ValueDialog column={column} value={valueIn(current, column.name)} isNew={current.edit?.kind === "insert"} fixed={whyNot(current, column)}
          onGive={(value, onward) => give(current, column, value, onward)} onCancel={() => go(here)} />
      )}
    </>
  );
}

/** The value of a cell: changed or as read. ``undefined`` for a default that is not known yet. */
function valueIn({ edit, found }: Line, name: string): Value | undefined {
  if (edit && name in edit.values) return edit.values[name];
  return edit?.kind === "insert" ? undefined : found.row[name];
}

const SORTED = { asc: "ascending", desc: "descending", "": "none" } as const;

type HeadProps = { column: Column; isKey: boolean; direction: "" | "asc" | "desc"; place: string; focusable: boolean; onSort: () => void };

function Head({ column, isKey, direction, place, focusable, onSort }: HeadProps) {
  return (
    <th scope="col" aria-sort={SORTED[direction]} className={formOf(column) === "number" ? "number" : undefined}>
      <button type="button" className="sorter" data-at={place} tabIndex={focusable ? 0 : -1} onClick={onSort} title={`Sort by ${column.name}`}>{column.name}</button>
      <small>{isKey && <span className="key">key · </span>}{column.type}</small>
      {column.comment && <small className="comment" title={column.comment}>{column.comment}</small>}
    </th>
  );
}

type RowProps = {
  schema: Schema; table: Table; columns: Column[]; references: Reference[]; line: Line; row: number; actions: Actions; focused: number | null; editor: ReactNode;
};

const GridRow = memo(function GridRow({ schema, table, columns, references, line, row, actions, focused, editor }: RowProps) {
  const { edit, number } = line;
  const problem = edit?.problem;
  return (
    <>
      <tr data-state={edit?.kind} aria-rowindex={row + 2}>
        <th scope="row" className="row-head"><RowHead schema={schema} table={table} line={line} actions={actions} place={`${row} 0`} focusable={focused === 0} /></th>
        {columns.map((column, index) => {
          const isFocused = focused === index + 1;
          const readOnly = fixed(schema, table, column, edit?.kind === "insert" ? "INSERT" : "UPDATE");
          return (
            <td key={column.name} data-at={`${row} ${index + 1}`} tabIndex={isFocused ? 0 : -1} aria-readonly={readOnly !== "" || undefined} title={readOnly || undefined}
              className={formOf(column) === "number" ? "number" : undefined} data-changed={(edit && column.name in edit.values) || undefined}>
              {isFocused && editor ? editor : <Cell schema={schema} column={column} line={line} reference={references.find((each) => each.column === column.name)} />}
            </td>
          );
        })}
      </tr>
      {problem && (
        <tr className="trouble">
          <td colSpan={columns.length + 1}>
            <div role="alert">
              <p className="comment">{problem.message}</p>
              {problem.now && (
                <span className="actions">
                  <button type="button" className="button" onClick={() => actions.forget(line)}>Take theirs</button>
                  <button type="button" className="button" onClick={() => actions.insist(line)}>{edit.kind === "delete" ? "Delete it anyway" : "Keep mine"}</button>
                </span>
              )}
            </div>
          </td>
        </tr>
      )}
      {number === null && edit?.kind !== "insert" && <tr className="elsewhere"><td colSpan={columns.length + 1}><span>on another page, or hidden by the filters</span></td></tr>}
    </>
  );
});

type RowHeadProps = { schema: Schema; table: Table; line: Line; actions: Actions; place: string; focusable: boolean };

function RowHead({ schema, table, line, actions, place, focusable }: RowHeadProps) {
  const { edit, number } = line;
  const named = number === null ? (edit?.kind === "insert" ? "the new row" : "the row") : `row ${number}`;
  const common = { type: "button" as const, className: "icon-button", "data-at": place, tabIndex: focusable ? 0 : -1 };
  if (edit) {
    const label = { insert: `Discard ${named}`, change: `Undo the changes of ${named}`, delete: `Keep ${named}` }[edit.kind];
    return <button {...common} onClick={() => actions.forget(line)} aria-label={label} title={label}>↶</button>;
  }
  const why = refusal(schema, table, "DELETE");
  return (
    <>
      <span className="row-number">{number}</span>
      <button {...common} aria-disabled={why !== "" || undefined} onClick={() => why || actions.remove(line)} aria-label={`Delete ${named}`} title={why || `Delete ${named}`}>×</button>
    </>
  );
}

/** Maximum number of characters in a cell. */
const SHOWN = 120;

function Cell({ schema, column, line, reference }: { schema: Schema; column: Column; line: Line; reference: Reference | undefined }) {
  const value = valueIn(line, column.name);
  if (value === undefined) return <span className="nothing">{line.edit?.kind === "insert" ? (column.identity ? "numbered" : column.default !== null ? "default" : column.nullable ? "null" : "required") : "not readable"}</span>;
  if (value === null) return <span className="nothing">null</span>;
  if (value === "") return <span className="nothing">empty</span>;
  const form = formOf(column);
  const text = value.length > SHOWN ? `${value.slice(0, SHOWN)}…` : value;
  const label = line.edit && column.name in line.edit.values ? null : line.found.labels[column.name];
  return (
    <>
      <span className={form === "text" ? undefined : "code"}>{text.replaceAll("\n", "⏎")}</span>
      {form === "bytes" && <small className="nothing"> {(value.length - 2) / 2} bytes</small>}
      {reference && <Link schema={schema} reference={reference} line={line} label={label ?? null} />}
    </>
  );
}

/** A link to the referenced row. */
function Link({ schema, reference: { relationship: { from, to }, target }, line, label }: { schema: Schema; reference: Reference; line: Line; label: Value }) {
  const values: Row = Object.fromEntries(from.columns.map((name) => [name, valueIn(line, name) ?? null]));
  if (Object.values(values).includes(null)) return null;
  const filters = to.columns.map((name, index) => equals(name, values[from.columns[index]!]!));
  return (
    <PageLink className="reference" page="rows" parameters={opened(schema, target, filters)} tabIndex={-1} title={`The row of ${target.name}`}>
      {label ?? "→"}<span className="visually-hidden"> of {target.name}</span>
    </PageLink>
  );
}
