import { makeStore, useStore } from "../kit/store";
import type { TableId } from "../schema/model";
import { NOTHING, type History } from "./edits";

/** Pending changes by table. They are kept when another page is opened, but not when the window is closed. */
const pending = makeStore<Record<TableId, History>>({});

export const pendingOf = (id: TableId): History => pending.get()[id] ?? NOTHING;

export function change(id: TableId, edit: (history: History) => History): void {
  pending.set({ ...pending.get(), [id]: edit(pendingOf(id)) });
}

export const usePending = (): Record<TableId, History> => useStore(pending);

addEventListener("beforeunload", (event) => {
  if (Object.values(pending.get()).some(({ edits }) => edits.length > 0)) event.preventDefault();
});
