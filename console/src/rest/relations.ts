import { idOf, type Relationship, type Schema, type Table } from "../schema/model";

/** A table that can be embedded in another. */
export interface Related {
  /** Identifies the relationship: the table's name, with a hint if there are several. */
  name: string;
  hint: string;
  table: Table;
  /** Kind of relationship: "to one", "to many", or the joining table. */
  how: string;
}

/** The tables that can be embedded in a table, by name. */
export function relatedTo(schema: Schema, table: Table): Related[] {
  const found = [...direct(schema, table), ...throughJunctions(schema, table)];
  const alone = (each: Related) => found.filter(({ name }) => name === each.name).length === 1;
  return found
    .map((each) => (alone(each) ? { ...each, hint: "" } : each))
    .sort((one, other) => one.name.localeCompare(other.name));
}

function direct(schema: Schema, table: Table): Related[] {
  return schema.relationships.flatMap((each) => [
    ...(starts(each, table) ? reach(schema, table, each, "to") : []),
    ...(ends(each, table) && !starts(each, table) ? reach(schema, table, each, "from") : []),
  ]);
}

function reach(schema: Schema, table: Table, relationship: Relationship, end: "from" | "to"): Related[] {
  const other = tableAt(schema, relationship[end]);
  if (!other || other.schema !== table.schema || other === table) return [];
  const how = end === "to" ? `by ${relationship.from.columns.join(", ")}` : relationship.unique ? "to one" : "to many";
  return [{ name: other.name, hint: relationship.name, table: other, how }];
}

/** Tables related through a join table. */
function throughJunctions(schema: Schema, table: Table): Related[] {
  return schema.relationships.flatMap((first) => {
    const junction = ends(first, table) && tableAt(schema, first.from);
    if (!junction || !isInKey(junction, first)) return [];
    return schema.relationships
      .filter((second) => second !== first && starts(second, junction) && isInKey(junction, second))
      .flatMap((second) => reach(schema, table, second, "to"))
      .map((each) => ({ ...each, hint: junction.name, how: `through ${junction.name}` }));
  });
}

const tableAt = (schema: Schema, end: Relationship["from"]) =>
  schema.tables.find((each) => each.schema === end.schema && each.name === end.table);
const starts = ({ from }: Relationship, table: Table) => idOf({ schema: from.schema, name: from.table }) === idOf(table);
const ends = ({ to }: Relationship, table: Table) => idOf({ schema: to.schema, name: to.table }) === idOf(table);
const isInKey = (junction: Table, { from }: Relationship) => from.columns.every((name) => junction.key.includes(name));
