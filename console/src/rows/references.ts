/** Foreign keys, and labels of the referenced rows. */
import { everything, quoted, type Embed } from "../rest/query";
import type { Column, Relationship, Schema, Table } from "../schema/model";
import { formOf, readable } from "./cells";

export interface Reference {
  /** The column that shows the label: the last one of the key. */
  column: string;
  relationship: Relationship;
  target: Table;
  /** The label's name in the response, or null if it would need more than one small join. */
  label: { alias: string; embed: Embed } | null;
}

const USUAL = ["name", "title", "label", "full_name", "display_name", "username", "email", "subject", "code", "slug"];

/** The foreign keys of a table to readable tables. */
export function referencesOf(schema: Schema, table: Table): Reference[] {
  const own = schema.relationships.filter(({ from }) => from.schema === table.schema && from.table === table.name);
  return own.flatMap((relationship) => {
    const { to, from, name } = relationship;
    const target = schema.tables.find((each) => each.schema === to.schema && each.name === to.table);
    if (!target?.rest.methods.includes("GET")) return [];
    const column = from.columns.at(-1)!;
    // Ambiguous names, or names of a self-reference, cannot identify the relationship.
    const plain = target !== table && target.schema === table.schema && own.filter((each) => each.name === name).length === 1;
    const shown = plain ? labelColumn(target, to.columns) : undefined;
    const alias = `~${name}`;
    return [{ column, relationship, target, label: shown ? { alias, embed: embedding(alias, target, name, shown) } : null }];
  });
}

/** The column that labels a row: a text column that is not part of the key. */
function labelColumn(table: Table, key: string[]): Column | undefined {
  const texts = readable(table).filter((each) => formOf(each) === "text" && !key.includes(each.name));
  return USUAL.map((name) => texts.find((each) => each.name === name)).find(Boolean) ?? texts[0];
}

function embedding(alias: string, target: Table, hint: string, shown: Column): Embed {
  const columns = [`label:${quoted(shown.name)}::text`];
  return { alias: quoted(alias), name: quoted(target.name), hint: quoted(hint), join: "", spread: false, rows: { ...everything(), columns } };
}
