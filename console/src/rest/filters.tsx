import { JsonPath } from "./json-path";
import { isChosen, kindOf, operatorsFor, typeAt, WORDS } from "./operators";
import { Part } from "./part";
import { keyOf, pathOf, type Filter, type Logic, type Rows } from "./query";
import { NameSelect, type Source } from "./source";

interface FiltersProps {
  rows: Rows;
  source: Source;
  label: string;
  onChange: (part: Pick<Rows, "filters"> | Pick<Rows, "logic">) => void;
}

/** The filters of rows, and combinations of several. */
export function Filters({ rows: { filters, logic, embeds }, source, label, onChange }: FiltersProps) {
  const names = source.columns.map(({ name }) => name);
  const add = () => onChange({ filters: [...filters, { name: names[0] ?? "id", negated: false, operator: "eq", modifier: "", value: "" }] });
  const addLogic = () => onChange({ logic: [...logic, { word: "or", negated: false, text: `(${names[0] ?? "id"}.eq.1,${names[1] ?? names[0] ?? "id"}.is.null)` }] });
  const replace = <T,>(list: T[], at: number, next: T | null): T[] => list.flatMap((each, index) => (index === at ? (next === null ? [] : [next]) : [each]));
  return (
    <Part
      title="Filters"
      action={(
        <span className="actions">
          <button type="button" className="button plain" onClick={add}>Add<span className="visually-hidden"> a filter of {label}</span></button>
          <button type="button" className="button plain" onClick={addLogic}>Any of…<span className="visually-hidden"> several filters of {label}</span></button>
        </span>
      )}
    >
      {filters.map((filter, at) => (
        <FilterRow key={at} filter={filter} source={source} related={embeds.map(keyOf)} label={`filter ${at + 1} of ${label}`} onChange={(next) => onChange({ filters: replace(filters, at, next) })} />
      ))}
      {logic.map((each, at) => (
        <LogicRow key={at} logic={each} label={`combination ${at + 1} of ${label}`} onChange={(next) => onChange({ logic: replace(logic, at, next) })} />
      ))}
    </Part>
  );
}

type FilterRowProps = { filter: Filter; source: Source; related: string[]; label: string; onChange: (filter: Filter | null) => void };

function FilterRow({ filter, source, related, label, onChange }: FilterRowProps) {
  const { name, negated, operator, modifier, value } = filter;
  const { column } = pathOf(name);
  const columnType = source.columns.find((each) => each.name === column)?.type;
  const type = typeAt(name, columnType);
  const offered = operatorsFor(type, filter);
  const listed = offered.find((each) => isChosen(each, filter));
  const choose = (code: string) => {
    const [chosen = "eq", next = ""] = code.split(" ");
    const from = plainOf(filter);
    onChange({ ...filter, operator: chosen, modifier: next, value: chosen === "is" ? (WORDS.includes(from) ? from : "null") : chosen === "in" ? `(${from})` : from });
  };
  return (
    <div className="filter" role="group" aria-label={label}>
      <NameSelect name={column} source={source} related={related} label={`Column of ${label}`} onChange={(next) => onChange({ ...filter, name: next })} />
      <select aria-label={`Operator of ${label}`} value={`${operator} ${modifier}`} onChange={(event) => choose(event.target.value)}>
        {!listed && <option value={`${operator} ${modifier}`}>{modifier ? `${operator}(${modifier})` : operator}</option>}
        {offered.map((each) => (
          <option key={`${each.name} ${each.modifier}`} value={`${each.name} ${each.modifier}`}>{`${each.modifier ? `${each.name}(${each.modifier})` : each.name} · ${each.title}`}</option>
        ))}
      </select>
      <button type="button" className="icon-button remove" onClick={() => onChange(null)} aria-label={`Remove ${label}`} title="Remove">×</button>
      <JsonPath name={name} type={columnType} label={label} onChange={(next) => onChange({ ...filter, name: next })} />
      <label className="check not"><input type="checkbox" checked={negated} onChange={() => onChange({ ...filter, negated: !negated })} />not</label>
      {operator === "is" ? (
        <select className="value" aria-label={`Value of ${label}`} value={value} onChange={(event) => onChange({ ...filter, value: event.target.value })}>
          {[...new Set([value, ...WORDS])].map((word) => <option key={word}>{word}</option>)}
        </select>
      ) : (
        <input className="value code" aria-label={`Value of ${label}`} value={plainOf(filter)} placeholder={listed?.example || (type && kindOf(type) === "array" ? "{a,b}" : "value")} spellCheck={false}
          onChange={(event) => onChange({ ...filter, value: operator === "in" ? `(${event.target.value})` : event.target.value })} />
      )}
    </div>
  );
}

/** A value as typed. The value of `in` is shown without parentheses. */
function plainOf({ operator, value }: Filter): string {
  return operator === "in" && value.startsWith("(") && value.endsWith(")") ? value.slice(1, -1) : value;
}

function LogicRow({ logic, label, onChange }: { logic: Logic; label: string; onChange: (logic: Logic | null) => void }) {
  const { word, negated, text } = logic;
  return (
    <div className="filter" role="group" aria-label={label}>
      <select aria-label={`Kind of ${label}`} value={word} onChange={(event) => onChange({ ...logic, word: event.target.value as Logic["word"] })}>
        <option value="or">any of (or)</option>
        <option value="and">all of (and)</option>
      </select>
      <label className="check not"><input type="checkbox" checked={negated} onChange={() => onChange({ ...logic, negated: !negated })} />not</label>
      <button type="button" className="icon-button remove" onClick={() => onChange(null)} aria-label={`Remove ${label}`} title="Remove">×</button>
      <input className="value code whole" aria-label={`Filters of ${label}`} value={text} spellCheck={false} onChange={(event) => onChange({ ...logic, text: event.target.value })} />
    </div>
  );
}
