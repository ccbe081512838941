import { makeStore, useStore } from "../kit/store";
import type { TableId } from "../schema/model";
import { NOTHING, type History } from "./edits";

/** What is not saved yet, by table; it lasts as long as the window, whatever page is shown in it. */
const pending = makeStore<Record<TableId, History>>({});

export const pendingOf = (id: TableId): History => pending.get()[id] ?? NOTHING;

export function change(id: TableId, edit: (history: History) => History): void {
  pending.set({ ...pending.get(), [id]: edit(pendingOf(id)) });
}

export const usePending = (): Record<TableId, History> => useStore(pending);

addEventListener("beforeunload", (event) => {
  if (Object.values(pending.get()).some(({ edits }) => edits.length > 0)) event.preventDefault();
});
