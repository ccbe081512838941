import { Modal } from "../kit/modal";
import { parseTarget } from "./query";
import { tableOf, type Draft } from "./request";

type ConfirmDialogProps = { request: Draft; onConfirm: () => void; onCancel: () => void };

/** Asks before a request changes or deletes all rows of a table. */
export function ConfirmDialog({ request, onConfirm, onCancel }: ConfirmDialogProps) {
  const { path } = parseTarget(request.target);
  const verb = request.method === "DELETE" ? "Delete" : "Change";
  return (
    <Modal labelledBy="confirm-title" onClose={onCancel}>
      <form method="dialog" onSubmit={(event) => (event.preventDefault(), onConfirm())}>
        <h2 id="confirm-title">{`${verb} all rows of ${tableOf(path)}?`}</h2>
        <p>The request has no filter. It will {verb.toLowerCase()} every row that this role may {verb.toLowerCase()}.</p>
        <div className="actions">
          <button type="button" className="button" onClick={onCancel} autoFocus>Cancel</button>
          <button type="submit" className="button danger">{`${verb} all rows`}</button>
        </div>
      </form>
    </Modal>
  );
}
