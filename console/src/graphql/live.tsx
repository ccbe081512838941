import { Kind, OperationTypeNode, parse, print, type DocumentNode, type OperationDefinitionNode } from "graphql";
import { eventsOf, streams } from "../kit/events";
import { makeStore, useStore } from "../kit/store";

/** Whether live mode is on, and what changed in the last result. */
export const live = makeStore<{ on: boolean; changed: string[] | null; at: string }>({ on: false, changed: null, at: "" });

export interface Operation {
  query?: string;
  operationName?: string | null;
}

/** Return the operation as a subscription if it is one, or if it is a query in live mode. */
export function asSubscription<T extends Operation>(asked: T): T | null {
  let document: DocumentNode;
  try {
    document = parse(asked.query ?? "");
  } catch {
    return null;
  }
  const isChosen = (node: OperationDefinitionNode) => !asked.operationName || node.name?.value === asked.operationName;
  const chosen = document.definitions.find((node) => node.kind === Kind.OPERATION_DEFINITION && isChosen(node)) as OperationDefinitionNode | undefined;
  if (!chosen || chosen.operation === OperationTypeNode.MUTATION) return null;
  if (chosen.operation === OperationTypeNode.SUBSCRIPTION) return asked;
  if (!live.get().on) return null;
  const definitions = document.definitions.map((node) => (node === chosen ? { ...chosen, operation: OperationTypeNode.SUBSCRIPTION } : node));
  return { ...asked, query: print({ ...document, definitions }) };
}

const following = new Set<AbortController>();

/** End all subscriptions. GraphiQL does not end them when it is removed from the page. */
export function endSubscriptions(): void {
  for (const controller of following) controller.abort();
}

/** Yield the results of a subscription, which `respond` sends. */
export async function* follow(respond: (signal: AbortSignal) => Promise<Response>): AsyncGenerator<object> {
  const controller = new AbortController();
  following.add(controller);
  let before: unknown;
  try {
    const response = await respond(controller.signal);
    if (!streams(response)) {
      yield (await response.json()) as object;
      return;
    }
    for await (const { name, data } of eventsOf(response)) {
      if (name === "complete") return;
      const result = JSON.parse(data) as { data?: unknown };
      const changed = before === undefined ? null : changes(before, result.data, "");
      live.set({ ...live.get(), changed, at: new Date().toLocaleTimeString() });
      before = result.data;
      yield result;
    }
  } catch (error) {
    if (!controller.signal.aborted) throw error;
  } finally {
    following.delete(controller);
    controller.abort();
  }
}

/** The paths of differences between two values. */
function changes(before: unknown, after: unknown, path: string): string[] {
  if (Object.is(before, after)) return [];
  if (typeof before !== "object" || typeof after !== "object" || !before || !after) return [path || "data"];
  const names = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...names].flatMap((name) => changes((before as Record<string, unknown>)[name], (after as Record<string, unknown>)[name], path ? `${path}.${name}` : name));
}

const MOST = 5;

export function LiveSwitch() {
  const { on } = useStore(live);
  return (
    <label className="check live-switch" title="Keep the query open, and show each new result">
      <input type="checkbox" checked={on} onChange={() => live.set({ on: !on, changed: null, at: "" })} />Live
    </label>
  );
}

export function LiveChanges() {
  const { changed, at } = useStore(live);
  if (!changed) return null;
  const more = changed.length > MOST ? ` and ${changed.length - MOST} more` : "";
  return (
    <p className="live-changes" role="status">
      {`Changed at ${at}: `}
      <code>{changed.slice(0, MOST).join(", ")}</code>
      {more}
    </p>
  );
}
