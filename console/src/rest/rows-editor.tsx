import { useState } from "react";
import { Fact, Terms } from "../kit/facts";
import type { Schema, Table } from "../schema/model";
import { useSettings } from "../shell/settings";
import { Filters } from "./filters";
import { JsonPath } from "./json-path";
import { aggregatesOf } from "./operators";
import { Part } from "./part";
import { everything, keyOf, pathOf, quoted, type Embed, type Rows, type Term } from "./query";
import { relatedTo, type Related } from "./relations";
import { NameSelect, sourceOf, type Source } from "./source";

interface RowsEditorProps {
  rows: Rows;
  source: Source;
  schema: Schema | null;
  /** Whether rows can be filtered (not in inserts). */
  filters?: boolean;
  /** Whether the request reads, so that rows can be ordered and limited. */
  reads: boolean;
  /** Whether the response contains rows. */
  answers: boolean;
  /** Name of the rows for screen readers. */
  label: string;
  onChange: (rows: Rows) => void;
}

/** Columns, related tables, filters, order and limits of a table and its embedded tables. */
export function RowsEditor({ rows, source, schema, filters = true, reads, answers, label, onChange }: RowsEditorProps) {
  const change = (part: Partial<Rows>) => onChange({ ...rows, ...part });
  return (
    <>
      {answers && <Columns columns={rows.columns} source={source} label={label} onChange={(columns) => change({ columns })} />}
      {filters && <Filters {...{ rows, source, label }} onChange={change} />}
      {reads && (
        <>
          <Order order={rows.order} source={source} label={label} onChange={(order) => change({ order })} />
          <div className="field-row">
            <label className="field"><span>Limit</span><input type="number" min={0} value={rows.limit} placeholder="none" aria-label={`Limit of ${label}`} onChange={(event) => change({ limit: event.target.value })} /></label>
            <label className="field"><span>Offset</span><input type="number" min={0} value={rows.offset} placeholder="0" aria-label={`Offset of ${label}`} onChange={(event) => change({ offset: event.target.value })} /></label>
          </div>
        </>
      )}
      {answers && <Embeds {...{ rows, source, schema, reads, label }} onChange={(embeds) => change({ embeds })} />}
    </>
  );
}

// ---------------------------------------------------------------- columns

const AGGREGATE = /\b(sum|avg|min|max|count)\(\)/;

type ColumnsProps = { columns: string[]; source: Source; label: string; onChange: (columns: string[]) => void };

function Columns({ columns, source, label, onChange }: ColumnsProps) {
  const { aggregates } = useSettings();
  const [further, setFurther] = useState("");
  const known = source.columns.map(({ name }) => name);
  const listed = [...known, ...columns.filter((name) => name !== "*" && !known.includes(name))];
  const isAll = columns.includes("*") || (columns.length > 0 && columns.length === source.all.length && source.all.every((name) => columns.includes(name)));
  const toggle = (name: string) => {
    if (columns.includes(name)) onChange(columns.filter((each) => each !== name));
    else onChange([...columns.filter((each) => each !== "*"), name]);
  };
  const add = (item: string) => {
    // An aggregate groups by all other selected columns. By default, all columns are selected.
    const others = AGGREGATE.test(item) && isAll ? [] : columns;
    if (item && !columns.includes(item)) onChange([...others, item]);
  };
  const addFurther = () => {
    add(further.trim());
    setFurther("");
  };
  return (
    <Part
      title="Columns"
      action={aggregates && (
        <select value="" onChange={(event) => add(event.target.value)} aria-label={`Add an aggregate of ${label}`}>
          <option value="">Aggregate…</option>
          <option>count()</option>
          {source.columns.map(({ name, type }) => (
            <optgroup key={name} label={name}>{aggregatesOf(type).map((each) => <option key={each}>{`${name}.${each}()`}</option>)}</optgroup>
          ))}
        </select>
      )}
    >
      <div className="chips">
        <Chip name="all" checked={isAll} onChange={() => onChange(isAll ? [] : source.all)} />
        {listed.map((name) => <Chip key={name} name={name} code checked={columns.includes(name)} onChange={() => toggle(name)} />)}
      </div>
      <Comments source={source} />
      <div className="adder">
        <input className="code" value={further} onChange={(event) => setFurther(event.target.value)} placeholder="alias:column->key::type" aria-label={`Further column of ${label}`} spellCheck={false}
          onKeyDown={(event) => event.key === "Enter" && (event.preventDefault(), addFurther())} />
        <button type="button" className="button" onClick={addFurther} disabled={!further.trim()}>Add<span className="visually-hidden"> the column</span></button>
      </div>
    </Part>
  );
}

/** Comments of the columns in the database. */
function Comments({ source: { columns } }: { source: Source }) {
  const commented = columns.filter(({ comment }) => comment);
  if (commented.length === 0) return null;
  return (
    <details className="comments">
      <summary>Column comments</summary>
      <Terms>{commented.map(({ name, comment }) => <Fact key={name} name={name}><span className="comment">{comment}</span></Fact>)}</Terms>
    </details>
  );
}

type ChipProps = { name: string; checked: boolean; code?: boolean; onChange: () => void };

function Chip({ name, checked, code, onChange }: ChipProps) {
  return (
    <label className={code ? "chip code" : "chip"}>
      <input type="checkbox" checked={checked} onChange={onChange} />
      {name}
    </label>
  );
}

// ---------------------------------------------------------------- embedded tables

type EmbedsProps = Pick<RowsEditorProps, "rows" | "source" | "schema" | "reads" | "label"> & { onChange: (embeds: Embed[]) => void };

function Embeds({ rows: { embeds }, source, schema, reads, label, onChange }: EmbedsProps) {
  const related = schema && source.table ? relatedTo(schema, source.table) : [];
  if (related.length === 0 && embeds.length === 0) return null;
  const idOf = ({ name, hint }: { name: string; hint: string }) => JSON.stringify([name, hint]);
  const add = (id: string) => {
    const found = related.find((each) => idOf(each) === id);
    if (found) onChange([...embeds, embedding(found, embeds)]);
  };
  const replace = (at: number, embed: Embed | null) => onChange(embeds.flatMap((each, index) => (index === at ? (embed ?? []) : each)));
  return (
    <Part
      title="Related tables"
      action={related.length > 0 && (
        <select value="" onChange={(event) => add(event.target.value)} aria-label={`Add a table related to ${label}`}>
          <option value="">Add…</option>
          {related.map((each) => <option key={`${idOf(each)}${each.how}`} value={idOf(each)}>{`${each.name} (${each.how})`}</option>)}
        </select>
      )}
    >
      {embeds.map((embed, at) => (
        <EmbedEditor key={at} embed={embed} schema={schema} reads={reads} table={targetOf(embed, related, schema, source)} onChange={(next) => replace(at, next)} />
      ))}
    </Part>
  );
}

function embedding({ name, hint, table }: Related, embeds: Embed[]): Embed {
  const taken = new Set(embeds.map(keyOf));
  let alias = "";
  for (let number = 2; taken.has(alias || quoted(name)); number++) alias = quoted(`${name}_${number}`);
  return { alias, name: quoted(name), hint: hint && quoted(hint), join: "", spread: false, rows: { ...everything(), columns: sourceOf(table).all } };
}

function targetOf({ name, hint }: Embed, related: Related[], schema: Schema | null, source: Source): Table | undefined {
  const named = related.filter((each) => quoted(each.name) === name);
  const found = named.find((each) => quoted(each.hint) === hint) ?? named[0];
  return found?.table ?? schema?.tables.find((each) => quoted(each.name) === name && each.schema === source.table?.schema);
}

type EmbedEditorProps = { embed: Embed; schema: Schema | null; reads: boolean; table: Table | undefined; onChange: (embed: Embed | null) => void };

function EmbedEditor({ embed, schema, reads, table, onChange }: EmbedEditorProps) {
  const key = keyOf(embed);
  return (
    <fieldset className="embed">
      <legend className="code">{key}</legend>
      <button type="button" className="icon-button remove" onClick={() => onChange(null)} aria-label={`Remove ${key}`} title={`Remove ${key}`}>×</button>
      <div className="field-row">
        <label className="field"><span>Name in the response</span><input className="code" value={embed.alias} placeholder={embed.name} spellCheck={false} onChange={(event) => onChange({ ...embed, alias: event.target.value.replace(/[^\p{L}\p{N}_]/gu, "_") })} /></label>
        <label className="field">
          <span>Rows without a match</span>
          <select value={embed.join} onChange={(event) => onChange({ ...embed, join: event.target.value as Embed["join"] })}>
            <option value="">are shown</option>
            <option value="left">are shown (!left)</option>
            <option value="inner">are omitted (!inner)</option>
          </select>
        </label>
      </div>
      <label className="check"><input type="checkbox" checked={embed.spread} onChange={() => onChange({ ...embed, spread: !embed.spread })} />Merge its columns into the row</label>
      <RowsEditor rows={embed.rows} source={sourceOf(table)} schema={schema} reads={reads} answers label={key} onChange={(rows) => onChange({ ...embed, rows })} />
    </fieldset>
  );
}

// ---------------------------------------------------------------- order

type OrderProps = { order: Term[]; source: Source; label: string; onChange: (order: Term[]) => void };

function Order({ order, source, label, onChange }: OrderProps) {
  const next = source.columns.find(({ name }) => !order.some((term) => term.name === name))?.name ?? "id";
  const replace = (at: number, term: Term | null) => onChange(order.flatMap((each, index) => (index === at ? (term ?? []) : each)));
  return (
    <Part title="Order" action={<button type="button" className="button plain" onClick={() => onChange([...order, { name: next, direction: "asc", nulls: "" }])}>Add<span className="visually-hidden"> an order of {label}</span></button>}>
      {order.map((term, at) => {
        const named = `order ${at + 1} of ${label}`;
        const { column } = pathOf(term.name);
        return (
          <div className="term" role="group" aria-label={named} key={at}>
            <NameSelect name={column} source={source} related={[]} label={`Column of ${named}`} onChange={(name) => replace(at, { ...term, name })} />
            <select aria-label={`Direction of ${named}`} value={term.direction || "asc"} onChange={(event) => replace(at, { ...term, direction: event.target.value })}>
              <option value="asc">asc</option>
              <option value="desc">desc</option>
            </select>
            <select aria-label={`Nulls of ${named}`} value={term.nulls} onChange={(event) => replace(at, { ...term, nulls: event.target.value })}>
              <option value="">nulls …</option>
              <option value="nullsfirst">nulls first</option>
              <option value="nullslast">nulls last</option>
            </select>
            <button type="button" className="icon-button remove" onClick={() => replace(at, null)} aria-label={`Remove ${named}`} title="Remove">×</button>
            <JsonPath name={term.name} type={source.columns.find(({ name }) => name === column)?.type} label={named} onChange={(name) => replace(at, { ...term, name })} />
          </div>
        );
      })}
    </Part>
  );
}
