import { useRef, useState } from "react";
import { Notice } from "../kit/notice";
import { setParameters } from "../shell/router";
import type { Delivery } from "./api";
import { DeliveryDialog } from "./delivery-dialog";
import { addressOf, NO_FILTERS, parametersOf, RANGES, type Filters, type Range } from "./filters";
import { duration, moment, nameOf, receiverOf, STATUS_NAMES, STATUSES } from "./outcome";
import { StatusBadge } from "./parts";
import { useEvery, useLoad } from "./use-load";
import { useWorkspace } from "./workspace";

/** Polling interval in milliseconds while a delivery is pending. */
const EVERY = 3000;

/** The filtered deliveries, newest first, and the opened delivery. */
export function Deliveries({ filters, opened }: { filters: Filters; opened: string }) {
  const { management } = useWorkspace();
  const key = JSON.stringify(filters);
  const first = () => ({ key, at: Date.now(), address: "" });
  const [asked, setAsked] = useState(first);
  // The period of the first page is relative to the time of the request. Other pages are links.
  const current = asked.key === key ? asked : first();
  if (current !== asked) setAsked(current);
  const address = current.address || addressOf(filters, current.at);
  const { value: page, problem, reload } = useLoad(address, (signal) => management.deliveries(address, signal));
  // The previous page is shown until the next one is loaded.
  const before = useRef(page);
  if (page) before.current = page;
  const latest = page ?? before.current;
  useEvery(EVERY, page?.deliveries.some(({ status }) => status === "pending") ?? false, reload);
  const turn = (to: string) => setAsked({ ...current, address: to });
  return (
    <>
      <FilterBar filters={filters} onRefresh={() => setAsked(first())} reload={reload} />
      {problem && <Notice kind="error" title="The deliveries cannot be listed">{problem}</Notice>}
      <div className="panel deliveries" aria-busy={!page && !problem}>
        {latest && latest.deliveries.length > 0 && <List deliveries={latest.deliveries} onOpen={(delivery) => setParameters({ delivery })} />}
        {latest?.deliveries.length === 0 && <p className="empty soft">No deliveries match these filters.</p>}
        {!latest && !problem && <p className="empty soft" role="status">Loading…</p>}
      </div>
      <nav className="pager" aria-label="Pages of deliveries">
        <button type="button" className="button" disabled={!page?.newer} onClick={() => turn(page!.newer!)}>Newer</button>
        <button type="button" className="button" disabled={!page?.older} onClick={() => turn(page!.older!)}>Older</button>
      </nav>
      {opened && (
        <DeliveryDialog
          id={opened}
          onClose={() => {
            setParameters({ delivery: "" }, { replace: true });
            reload();
          }}
        />
      )}
    </>
  );
}

type FilterBarProps = { filters: Filters; onRefresh: () => void; reload: () => void };

function FilterBar({ filters, onRefresh, reload }: FilterBarProps) {
  const { endpoints, types } = useWorkspace();
  const change = (part: Partial<Filters>) => setParameters(parametersOf({ ...filters, ...part }));
  // Typing a time changes it many times.
  const changeTime = (part: Partial<Filters>) => setParameters(parametersOf({ ...filters, ...part }), { replace: true });
  return (
    <form className="filters" role="search" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
      <label className="field">
        <span>Endpoint</span>
        <select value={filters.endpoint} onChange={(event) => change({ endpoint: event.target.value })}>
          <option value="">All</option>
          {endpoints.map((each) => <option key={each.id} value={each.id}>{nameOf(each)}</option>)}
        </select>
      </label>
      <label className="field">
        <span>Status</span>
        <select value={filters.status} onChange={(event) => change({ status: event.target.value as Filters["status"] })}>
          <option value="">All</option>
          {STATUSES.map((each) => <option key={each} value={each}>{STATUS_NAMES[each]}</option>)}
        </select>
      </label>
      <label className="field">
        <span>Type</span>
        <select value={filters.type} onChange={(event) => change({ type: event.target.value })}>
          <option value="">All</option>
          {types.map(({ type }) => <option key={type} value={type}>{type}</option>)}
        </select>
      </label>
      <label className="field">
        <span>Time</span>
        <select value={filters.range} onChange={(event) => change({ range: event.target.value as Range })}>
          {Object.entries(RANGES).map(([range, name]) => <option key={range} value={range}>{name}</option>)}
        </select>
      </label>
      {filters.range === "custom" && (
        <>
          <label className="field"><span>From</span><input type="datetime-local" value={filters.since} onChange={(event) => changeTime({ since: event.target.value })} /></label>
          <label className="field"><span>To</span><input type="datetime-local" value={filters.until} onChange={(event) => changeTime({ until: event.target.value })} /></label>
        </>
      )}
      <div className="filter-actions">
        <button type="button" className="button" onClick={() => setParameters(parametersOf(NO_FILTERS))}>Reset</button>
        <button
          type="button"
          className="button"
          onClick={() => {
            onRefresh();
            reload();
          }}
        >
          Refresh
        </button>
      </div>
    </form>
  );
}

function List({ deliveries, onOpen }: { deliveries: Delivery[]; onOpen: (id: string) => void }) {
  const { endpoints } = useWorkspace();
  return (
    <div className="table-scroll" tabIndex={0} role="region" aria-label="Deliveries">
      {/* Explicit roles, because narrow windows display the cells as a list. */}
      <table className="table" role="table">
        <thead role="rowgroup">
          <tr role="row">
            {["Type", "Status", "Endpoint", "Response"].map((name) => <th key={name} scope="col">{name}</th>)}
            <th scope="col" className="number">Duration</th>
            <th scope="col">Attempt</th>
            <th scope="col">Time</th>
          </tr>
        </thead>
        <tbody role="rowgroup">
          {deliveries.map((each) => (
            <tr key={each.id} role="row" onClick={() => onOpen(each.id)}>
              <td role="cell">
                <button type="button" className="link" onClick={(event) => { event.stopPropagation(); onOpen(each.id); }}>{each.event_type}</button>
              </td>
              <td role="cell"><StatusBadge status={each.status} /></td>
              <td role="cell">{receiverOf(each, endpoints)}</td>
              <td role="cell">{each.error ?? (each.response_code || "")}</td>
              <td role="cell" className="number">{each.duration_ms === null ? "" : duration(each.duration_ms)}</td>
              <td role="cell">{each.trigger === "automatic" ? each.attempt_number : each.trigger}</td>
              <td role="cell">{moment(each.attempt_timestamp ?? each.created_at)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
