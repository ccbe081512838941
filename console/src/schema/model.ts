import { useEffect, useState } from "react";
import { useStore } from "../kit/store";
import { identity, identityHeaders } from "../shell/identity";

/** What the daemon says of the schema as one role sees it: /console/data/schema. */
export interface Schema {
  role: string;
  /** Whether grants, policies and problems are told, which is so for service_role alone. */
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
  rest: { name: string; profile: string | null; methods: string[] };
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

/** What tells tables apart. */
export type TableId = string;

export function idOf({ schema, name }: { schema: string; name: string }): TableId {
  return JSON.stringify([schema, name]);
}

export function endsOf({ from, to }: Relationship): [TableId, TableId] {
  return [idOf({ schema: from.schema, name: from.table }), idOf({ schema: to.schema, name: to.table })];
}

/** How a table is called: its schema is named where there are several. */
export function labelOf(schema: Schema, table: { schema: string; name: string }): string {
  const several = schema.tables.some((each) => each.schema !== schema.tables[0]?.schema);
  return several ? `${table.schema}.${table.name}` : table.name;
}

/** A table and those that a key relates to it. */
export function neighbourhood(schema: Schema, id: TableId): Set<TableId> {
  const found = new Set([id]);
  for (const [from, to] of schema.relationships.map(endsOf)) {
    if (from === id) found.add(to);
    if (to === id) found.add(from);
  }
  return found;
}

/** The tables of which a name, a column or a name in an API has the text in it. */
export function search(schema: Schema, text: string): Table[] {
  const wanted = text.trim().toLowerCase();
  const has = (table: Table) =>
    [`${table.schema}.${table.name}`, table.graphql?.type, ...table.columns.flatMap((each) => [each.name, each.graphql])]
      .some((name) => name?.toLowerCase().includes(wanted));
  return schema.tables.filter(has);
}

type Loaded = { schema: Schema | null; problem: string };

/** The schema as the console's role sees it. */
export function useSchema(): Loaded {
  const who = useStore(identity);
  const [loaded, setLoaded] = useState<Loaded>({ schema: null, problem: "" });
  useEffect(() => {
    const controller = new AbortController();
    setLoaded({ schema: null, problem: "" });
    load(identityHeaders(who), controller.signal).then(
      (schema) => setLoaded({ schema, problem: "" }),
      (error: Error) => controller.signal.aborted || setLoaded({ schema: null, problem: error.message }),
    );
    return () => controller.abort();
  }, [who]);
  return loaded;
}

async function load(headers: Record<string, string>, signal: AbortSignal): Promise<Schema> {
  const response = await fetch("/console/data/schema", { headers, signal });
  if (response.ok) return (await response.json()) as Schema;
  const { message, hint } = (await response.json()) as { message: string; hint: string | null };
  throw new Error(hint ? `${message}. ${hint}` : message);
}
