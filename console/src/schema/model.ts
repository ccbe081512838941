/** The schema as visible to a role, from /console/data/schema. */
export interface Schema {
  role: string;
  /** Whether grants, policies and problems are included (only for service_role). */
  complete: boolean;
  tables: Table[];
  relationships: Relationship[];
  problems?: Problem[];
  policies?: Policy[];
}

export interface Table {
  schema: string;
  name: string;
  kind: string;
  comment: string | null;
  key: string[];
  unique: string[][];
  columns: Column[];
  /** The statements that the relation supports: INSERT, UPDATE, DELETE. */
  accepts: string[];
  /** `star`: whether `select=*` is permitted, which requires all columns. */
  rest: { name: string; profile: string | null; methods: string[]; star: boolean };
  graphql: { type: string; fields: string[] } | null;
  directives: Record<string, unknown>;
  rowSecurity?: boolean;
  estimatedRows?: number | null;
  grants?: { role: string; privileges: Record<string, string[] | null> }[];
  problems?: Problem[];
}

export interface Column {
  name: string;
  type: string;
  nullable: boolean;
  default: string | null;
  generated: boolean;
  /** Whether it is a view column that cannot be set. */
  derived: boolean;
  identity: string | null;
  comment: string | null;
  privileges: string[];
  graphql: string | null;
}

export interface Relationship {
  name: string;
  from: { schema: string; table: string; columns: string[] };
  to: { schema: string; table: string; columns: string[] };
  unique: boolean;
  origin: "constraint" | "view" | "directive";
  graphql: { from: string | null; to: string | null };
}

export interface Problem {
  place: string;
  message: string;
  clash: boolean;
}

export interface Policy {
  schema: string;
  table: string;
  name: string;
  command: string;
  permissive: boolean;
  roles: string[];
  using: string | null;
  check: string | null;
}

/** The id of a table. */
export type TableId = string;

export function idOf({ schema, name }: { schema: string; name: string }): TableId {
  return JSON.stringify([schema, name]);
}

export function endsOf({ from, to }: Relationship): [TableId, TableId] {
  return [idOf({ schema: from.schema, name: from.table }), idOf({ schema: to.schema, name: to.table })];
}

/** The name of a table, with its schema if there are several. */
export function labelOf(schema: Schema, table: { schema: string; name: string }): string {
  const several = schema.tables.some((each) => each.schema !== schema.tables[0]?.schema);
  return several ? `${table.schema}.${table.name}` : table.name;
}

/** The ids of a table and its related tables. */
export function neighbourhood(schema: Schema, id: TableId): Set<TableId> {
  const found = new Set([id]);
  for (const [from, to] of schema.relationships.map(endsOf)) {
    if (from === id) found.add(to);
    if (to === id) found.add(from);
  }
  return found;
}

/** A schema reduced to some tables. */
export function partOf(schema: Schema, ids: Set<TableId>): Schema {
  return {
    ...schema,
    tables: schema.tables.filter((table) => ids.has(idOf(table))),
    relationships: schema.relationships.filter((each) => endsOf(each).every((id) => ids.has(id))),
  };
}

/** The tables with a text in their name, columns or API names. */
export function search(schema: Schema, text: string): Table[] {
  const needle = text.trim().toLowerCase();
  const has = (table: Table) =>
    [`${table.schema}.${table.name}`, table.graphql?.type, ...table.columns.flatMap((each) => [each.name, each.graphql])]
      .some((name) => name?.toLowerCase().includes(needle));
  return schema.tables.filter(has);
}
