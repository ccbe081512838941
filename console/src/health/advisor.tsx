import { CopyButton } from "../kit/copy-button";
import { useData } from "../kit/data";
import { Problem } from "../shell/problem";
import "./advisor.css";

/** A finding of the advisor, from /console/data/advice. */
interface Finding {
  check: string;
  kind: keyof typeof KINDS;
  title: string;
  object: string;
  why: string;
  fix: string;
  docs: string;
}

/** How the findings of a kind are marked. */
const KINDS = { security: "error", data: "warning", speed: "info" };

/** Risks and performance problems in the schema, by check. Only service_role may load it. */
export function Advisor() {
  const { data, problem } = useData<{ findings: Finding[] }>("advice");
  return (
    <section aria-label="Advisor" className="advisor">
      <h2>Advisor</h2>
      <p className="hint">Risks and performance problems in the schema that the APIs expose, as reported by <code>dataapi advise</code>.</p>
      {problem && <Problem title="The schema cannot be checked" error={problem} />}
      {data && data.findings.length === 0 && <p className="soft">Nothing found.</p>}
      {data && byCheck(data.findings).map((findings) => <Check key={findings[0]!.check} findings={findings} />)}
    </section>
  );
}

function Check({ findings }: { findings: Finding[] }) {
  const { kind, title, docs } = findings[0]!;
  return (
    <details className="panel">
      <summary>
        <span className="badge" data-kind={KINDS[kind]}>{kind}</span> {title} <span className="soft">({findings.length})</span>
      </summary>
      <p className="hint">Explained in <code>{docs}</code></p>
      <ul>
        {findings.map((each) => (
          <li key={`${each.object} ${each.why}`}>
            <p><code>{each.object}</code> {each.why}</p>
            <div className="fix">
              <pre tabIndex={0} role="region" aria-label={`Fix of ${each.object}`}>{each.fix}</pre>
              <CopyButton text={each.fix} label={`fix of ${each.object}`} />
            </div>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** The findings of each check, in the order of the findings. */
function byCheck(findings: Finding[]): Finding[][] {
  const groups = new Map<string, Finding[]>();
  for (const finding of findings) groups.set(finding.check, [...(groups.get(finding.check) ?? []), finding]);
  return [...groups.values()];
}
