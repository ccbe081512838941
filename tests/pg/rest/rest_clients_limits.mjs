// Calls with a timeout.
import { ids } from "./rest_clients_promises.mjs";

export const calls = [
  [
    "a time limit",
    async (db) => {
      const { error, data } = await db.rpc("nap", { seconds: 30 }).abortSignal(AbortSignal.timeout(150));
      // The pool has only one connection, so the next call succeeds only after the statement was cancelled.
      const after = await db.from("country").select("id").limit(1);
      return { message: error.message, data, after: after.data };
    },
    { message: "TimeoutError: The operation was aborted due to timeout", data: null, after: ids(1) },
  ],
];
