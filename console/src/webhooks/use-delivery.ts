import type { DeliveredEvent, Delivery } from "./api";
import { useEvery, useLoad, type Loaded } from "./use-load";
import { useWorkspace } from "./workspace";

/** Polling intervals in milliseconds, for an attempt that is due or in progress, and for one that is due later. */
const SOON = 500;
const LATER = 3000;

/** A delivery with its event, polled until its attempt has finished. */
export function useDelivery(id: string): Loaded<Delivery & { event: DeliveredEvent }> {
  const { management } = useWorkspace();
  const found = useLoad(id, (signal) => management.delivery(id, signal));
  const due = Date.parse(found.value?.next_attempt_at ?? "") || 0;
  useEvery(due - Date.now() > LATER ? LATER : SOON, found.value?.status === "pending", found.reload);
  return found;
}
