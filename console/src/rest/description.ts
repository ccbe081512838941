import { useEffect, useState } from "react";
import { refusalOf } from "../kit/data";
import { useStore } from "../kit/store";
import { identity, identityHeaders } from "../shell/identity";

/** A JSON Schema. */
interface Value {
  $ref?: string;
  type?: string | string[];
  items?: Value;
  anyOf?: Value[];
  oneOf?: Value[];
  properties?: Record<string, Value>;
  required?: string[];
  format?: string;
}

interface Operation {
  requestBody?: { content: Record<string, { schema: Value }> };
  responses: Record<string, { content?: Record<string, { schema: Value }> }>;
}

/** The members of an OpenAPI description that the page uses. */
export interface Description {
  paths: Record<string, Record<string, Operation>>;
}

/** A function that can be called over REST. */
export interface Callable {
  name: string;
  methods: string[];
  arguments: { name: string; type: string; required: boolean }[];
  /** The columns of its result: the name of a table, or names of columns. */
  table: string | null;
  columns: string[];
  returnsRows: boolean;
}

const PREFIX = "/rpc/";

/** The functions of a description, by name. */
export function functionsOf({ paths }: Description): Callable[] {
  return Object.entries(paths)
    .filter(([path]) => path.startsWith(PREFIX))
    .map(([path, operations]) => callable(decodeURIComponent(path.slice(PREFIX.length)), operations));
}

function callable(name: string, operations: Record<string, Operation>): Callable {
  const { requestBody, responses } = operations.post!;
  const accepted = variantsOf(requestBody?.content["application/json"]?.schema).flatMap((each) =>
    Object.entries(each.properties ?? {}).map(([argument, value]) => ({
      name: argument,
      type: typeOf(value),
      required: each.required?.includes(argument) ?? false,
    })),
  );
  const answered = variantsOf(responses["200"]?.content?.["application/json"]?.schema);
  const list = answered.find((each) => each.type === "array");
  const row = list?.items ?? answered[0];
  return {
    name,
    methods: Object.keys(operations).map((method) => method.toUpperCase()),
    // Overloads may have the same arguments.
    arguments: accepted.filter((each, index) => accepted.findIndex((other) => other.name === each.name) === index),
    table: variantsOf(row).find((each) => each.$ref)?.$ref?.replace("#/components/schemas/", "") ?? null,
    columns: Object.keys(row?.properties ?? {}),
    returnsRows: Boolean(list),
  };
}

function variantsOf(schema: Value | undefined): Value[] {
  if (!schema) return [];
  return schema.anyOf ?? schema.oneOf ?? [schema];
}

function typeOf({ type, format }: Value): string {
  const [first = "any"] = [type ?? "any"].flat();
  return format ?? first;
}

type Loaded = { description: Description | null; problem: Error | null };

/** The OpenAPI description of a schema for the current role, or null until loaded. */
export function useDescription(offered: boolean, profile: string | null): Loaded {
  const who = useStore(identity);
  const [loaded, setLoaded] = useState<Loaded>({ description: null, problem: null });
  useEffect(() => {
    const controller = new AbortController();
    setLoaded({ description: null, problem: null });
    if (!offered) return;
    load({ ...identityHeaders(who), ...(profile ? { "Accept-Profile": profile } : {}) }, controller.signal).then(
      (description) => setLoaded({ description, problem: null }),
      (error: Error) => controller.signal.aborted || setLoaded({ description: null, problem: error }),
    );
    return () => controller.abort();
  }, [who, offered, profile]);
  return loaded;
}

async function load(headers: Record<string, string>, signal: AbortSignal): Promise<Description> {
  const response = await fetch("/rest/v1/?openapi=3.1", { headers: { Accept: "application/openapi+json", ...headers }, signal });
  if (!response.ok) throw await refusalOf(response);
  return (await response.json()) as Description;
}
