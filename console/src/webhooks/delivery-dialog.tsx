import { useState } from "react";
import { Fact, Facts } from "../kit/facts";
import { Notice } from "../kit/notice";
import { Attempt } from "./attempt";
import { Dialog } from "./dialog";
import { moment, receiverOf } from "./outcome";
import { inWords } from "./test-dialog";
import { useDelivery } from "./use-delivery";
import { useEvery, useLoad } from "./use-load";
import { useWorkspace } from "./workspace";

/** Polling interval in milliseconds while an attempt is pending. */
const EVERY = 1500;

/** All attempts to deliver an event to an endpoint, oldest first. */
export function DeliveryDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const { management, endpoints, writable } = useWorkspace();
  const [problem, setProblem] = useState("");
  const delivery = useDelivery(id);
  const event = delivery.value?.event;
  const attempts = useLoad(event?.id ?? "", async (signal) =>
    event ? (await management.deliveries(`/deliveries?page[size]=100&filter[event_id]=${event.id}`, signal)).deliveries.reverse() : null,
  );
  // All attempts are shown together, or only the opened one if they cannot be listed.
  const listed = attempts.value ?? (delivery.value && attempts.problem ? [delivery.value] : []);
  const last = listed.at(-1);
  useEvery(EVERY, listed.some(({ status }) => status === "pending"), attempts.reload);
  const endpoint = endpoints.find((each) => each.id === delivery.value?.endpoint_id);
  const retry = () => {
    setProblem("");
    management.retry(last!.id).then(attempts.reload, (error: Error) => setProblem(inWords(error)));
  };
  return (
    <Dialog title={event?.type ?? "Delivery"} onClose={onClose} wide>
      <div className="dialog-body">
        {delivery.problem && <Notice kind="error" title="The delivery cannot be read">{delivery.problem}</Notice>}
        {listed.length === 0 && !delivery.problem && <p className="hint" role="status">Loading…</p>}
        {delivery.value && event && listed.length > 0 && (
          <>
            <Facts className="about">
              <Fact name="Endpoint"><code>{receiverOf(delivery.value, endpoints)}</code></Fact>
              <Fact name="Event"><code>{event.id}</code></Fact>
              <Fact name="Raised">{moment(event.timestamp)}</Fact>
              <Fact name="Kept until">{moment(listed.at(-1)?.expires_at ?? delivery.value.expires_at)}</Fact>
            </Facts>
            <ol className="timeline" aria-label="Attempts">
              {listed.map((each) => (
                <li key={each.id} data-status={each.status}><Attempt delivery={each} event={event} endpoint={endpoint} open={each.id === last?.id} /></li>
              ))}
            </ol>
            {problem && <Notice kind="error">{problem}</Notice>}
          </>
        )}
        <div className="actions">
          <button type="button" className="button" onClick={onClose}>Close</button>
          {writable && last && endpoint && (
            <button type="button" className="button primary" disabled={last.status === "pending" || !endpoint.enabled} onClick={retry}>Retry now</button>
          )}
        </div>
      </div>
    </Dialog>
  );
}
