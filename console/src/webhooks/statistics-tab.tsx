import { useState } from "react";
import { Fact, Facts } from "../kit/facts";
import { Notice } from "../kit/notice";
import { Chart } from "./chart";
import { duration } from "./outcome";
import { byDay, byEndpoint, dayName, DAYS, lastDays, percent, successRate, type EndpointTotals } from "./statistics";
import { useLoad } from "./use-load";
import { useWorkspace } from "./workspace";

/** Charts of the attempts in the last days. */
export function Statistics() {
  const { management, endpoints } = useWorkspace();
  const [now] = useState(Date.now);
  const days = lastDays(now);
  const { value, problem } = useLoad(management.base, (signal) => management.statistics(`${days[0]}T00:00:00Z`, signal));
  if (problem) return <Notice kind="error" title="The statistics cannot be read">{problem}</Notice>;
  const records = byDay(value ?? [], days);
  const totals = byEndpoint(value ?? [], endpoints);
  const all = totals.reduce((sum, each) => ({ success: sum.success + each.success, failed: sum.failed + each.failed, skipped: sum.skipped + each.skipped }), { success: 0, failed: 0, skipped: 0 });
  const rate = successRate(all);
  const labels = days.map(dayName);
  return (
    <div className="statistics" aria-busy={value === null}>
      <Facts className="panel" large>
        <Fact name={`Attempts in ${DAYS} days`}>{(all.success + all.failed).toLocaleString()}</Fact>
        <Fact name="Succeeded">{rate === null ? "–" : percent(rate)}</Fact>
        <Fact name="Failed">{all.failed.toLocaleString()}</Fact>
        <Fact name="Skipped">{all.skipped.toLocaleString()}</Fact>
      </Facts>
      <div className="charts">
        <Chart
          title="Deliveries by outcome"
          about="Attempts by the day (UTC) on which they were created."
          labels={labels}
          form="bars"
          write={(each) => each.toLocaleString()}
          series={[
            { name: "Delivered", colour: 1, values: records.map(({ success }) => success) },
            { name: "Failed", colour: 2, values: records.map(({ failed }) => failed) },
            { name: "Skipped", colour: 4, values: records.map(({ skipped }) => skipped) },
          ]}
        />
        <Chart
          title="Latency"
          about="Duration of attempts, on a logarithmic scale."
          labels={labels}
          form="lines"
          write={duration}
          series={[
            { name: "Median", colour: 1, values: records.map(({ median_ms }) => median_ms) },
            { name: "95th percentile", colour: 3, values: records.map(({ slowest_ms }) => slowest_ms) },
          ]}
        />
      </div>
      <Failures totals={totals} />
    </div>
  );
}

/** A table of failures by endpoint, with bars. */
function Failures({ totals }: { totals: EndpointTotals[] }) {
  const { listDeliveries } = useWorkspace();
  const most = Math.max(1, ...totals.map(({ failed }) => failed));
  return (
    <section className="panel failures" aria-label="Failures per endpoint">
      <h2>Failures per endpoint</h2>
      {totals.length === 0 ? <p className="soft">There are no endpoints.</p> : (
        <div className="table-scroll" tabIndex={0} role="region" aria-label="Failures per endpoint, as a table">
          <table className="table">
            <thead>
              <tr>
                <th scope="col">Endpoint</th>
                <th scope="col" className="number">Failed</th>
                <th scope="col"><span className="visually-hidden">As a bar</span></th>
                <th scope="col" className="number">Delivered</th>
                <th scope="col" className="number">Succeeded</th>
              </tr>
            </thead>
            <tbody>
              {totals.map((each) => {
                const rate = successRate(each);
                return (
                  <tr key={each.id}>
                    <td><button type="button" className="link" onClick={() => listDeliveries({ endpoint: each.id, status: "failed" })}>{each.name}</button></td>
                    <td className="number">{each.failed.toLocaleString()}</td>
                    <td className="bar-cell"><span className="failure-bar" style={{ width: `${(each.failed / most) * 100}%` }} /></td>
                    <td className="number">{each.success.toLocaleString()}</td>
                    <td className="number">{rate === null ? "–" : percent(rate)}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
