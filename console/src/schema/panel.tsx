import { useEffect, useRef, type ReactNode } from "react";
import { Fact, Terms } from "../kit/facts";
import { change, choose } from "../rest/draft";
import { pathOfTable } from "../rest/request";
import { sourceOf } from "../rest/source";
import { goTo, PageLink } from "../shell/router";
import { endsOf, idOf, labelOf, type Column, type Problem, type Relationship, type Schema, type Table, type TableId } from "./model";

const KINDS: Record<string, string> = {
  ordinary: "table",
  partitioned: "partitioned table",
  materialized_view: "materialized view",
  foreign: "foreign table",
};

type PanelProps = { schema: Schema; table: Table; onSelect: (id: TableId | null) => void };

/** The details of a table. */
export function Panel({ schema, table, onSelect }: PanelProps) {
  const policies = schema.policies?.filter((each) => each.schema === table.schema && each.table === table.name) ?? [];
  const related = schema.relationships.filter((each) => endsOf(each).includes(idOf(table)));
  const panel = useRef<HTMLElement>(null);
  useEffect(() => {
    // On narrow screens the panel is below the diagram.
    if (matchMedia("(max-width: 900px)").matches) panel.current?.scrollIntoView({ block: "start" });
  }, [table]);
  const directives = Object.entries(table.directives);
  return (
    <aside ref={panel} className="details" aria-label={`Table ${table.name}`}>
      <header>
        <h2>{labelOf(schema, table)}</h2>
        <span className="badge">{KINDS[table.kind] ?? table.kind}</span>
        <button type="button" className="icon-button" aria-label="Close" onClick={() => onSelect(null)}>✕</button>
      </header>
      {table.comment && <p>{table.comment}</p>}
      {typeof table.estimatedRows === "number" && table.estimatedRows >= 0 && (
        <p className="soft">About {table.estimatedRows.toLocaleString("en")} rows</p>
      )}
      <Problems problems={table.problems ?? []} />
      <Section title="Columns"><Columns table={table} /></Section>
      {related.length > 0 && (
        <Section title="Relationships">
          <ul>
            {related.map((each, index) => <Related key={index} schema={schema} table={table} relationship={each} onSelect={onSelect} />)}
          </ul>
        </Section>
      )}
      <Section title="GraphQL">
        {table.graphql ? (
          <>
            <p>Type <code>{table.graphql.type}</code></p>
            <ul>{table.graphql.fields.map((field) => <li key={field}><code>{field}</code></li>)}</ul>
          </>
        ) : (
          <p className="soft">No type for this role.</p>
        )}
      </Section>
      <Section title="REST">
        <p className="methods"><code>/rest/v1/{pathOfTable(table.rest.name)}</code> {table.rest.methods.map((method) => <span className="badge" key={method}>{method}</span>)}</p>
        {table.rest.methods.includes("GET") && (
          <p className="actions">
            <button type="button" className="button" onClick={() => buildRequest(table)}>Build a request</button>
            <PageLink className="button" page="rows" parameters={{ table: labelOf(schema, table) }}>Browse its rows</PageLink>
          </p>
        )}
        {table.rest.profile && <p className="hint">With the header <code>Accept-Profile: {table.rest.profile}</code>, or <code>Content-Profile</code> for writes.</p>}
      </Section>
      {directives.length > 0 && (
        <Section title="Directives">
          <Terms>{directives.map(([name, value]) => <Fact key={name} name={name}><code>{JSON.stringify(value)}</code></Fact>)}</Terms>
        </Section>
      )}
      {table.grants && <Section title="Grants"><Grants table={table} /></Section>}
      {schema.complete && (
        <Section title="Policies">
          <p className="hint">Row security is {table.rowSecurity ? "on" : "off"}.</p>
          {policies.map((policy) => (
            <div className="policy" key={policy.name}>
              <p><strong>{policy.name}</strong> <span className="badge">{policy.command}</span>{!policy.permissive && <span className="badge" data-kind="warning">restrictive</span>} for {policy.roles.join(", ")}</p>
              {policy.using && <p>using <code>{policy.using}</code></p>}
              {policy.check && <p>check <code>{policy.check}</code></p>}
            </div>
          ))}
        </Section>
      )}
    </aside>
  );
}

/** Open the page REST with a request for the table's rows. */
function buildRequest(table: Table): void {
  change({ profile: table.rest.profile });
  choose(pathOfTable(table.rest.name), "GET", sourceOf(table).all, { limited: true });
  goTo("rest");
}

function Section({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section>
      <h3>{title}</h3>
      {children}
    </section>
  );
}

/** The same problems as in `dataapi check-config`. */
export function Problems({ problems }: { problems: Problem[] }) {
  return problems.map(({ place, message, clash }) => (
    <div className="notice" data-kind={clash ? "info" : "warning"} role="note" key={`${place} ${message}`}>
      <strong>{place}</strong>
      <div>{message}</div>
    </div>
  ));
}

function Columns({ table }: { table: Table }) {
  const [first = "", ...others] = new Set(table.columns.map(mayOf));
  // Privileges that are the same for all columns are shown once.
  const same = others.length === 0;
  return (
    <>
      {same && <p className="hint">This role may {first || "do nothing with"} each column.</p>}
      <div className="table-scroll" tabIndex={0} role="region" aria-label="Columns">
        <table className="table">
          <thead>
            <tr><th scope="col">Name</th><th scope="col">Type</th><th scope="col">GraphQL</th>{!same && <th scope="col">May</th>}</tr>
          </thead>
          <tbody>
            {table.columns.map((column) => (
              <tr key={column.name}>
                <td>
                  <code>{column.name}</code> {table.key.includes(column.name) && <span className="badge" data-kind="good">key</span>}
                  {column.comment && <p className="hint comment">{column.comment}</p>}
                </td>
                <td><code>{column.type}</code><span className="hint">{nature(column)}</span></td>
                <td>{column.graphql ? <code>{column.graphql}</code> : <span className="soft">none</span>}</td>
                {!same && <td>{mayOf(column)}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function mayOf({ privileges }: Column): string {
  return new Intl.ListFormat("en").format(privileges.map((each) => each.toLowerCase()));
}

function nature({ nullable, generated, identity, default: value }: Column): string {
  const said = [
    !nullable && "not null",
    identity && `identity ${identity}`,
    value !== null && `${generated ? "generated as" : "default"} ${value}`,
  ];
  return said.filter(Boolean).map((part) => ` · ${part}`).join("");
}

type RelatedProps = { schema: Schema; table: Table; relationship: Relationship; onSelect: (id: TableId) => void };

function Related({ schema, table, relationship, onSelect }: RelatedProps) {
  const [from, to] = endsOf(relationship);
  const outgoing = from === idOf(table);
  const other = outgoing ? relationship.to : relationship.from;
  const field = outgoing ? relationship.graphql.from : relationship.graphql.to;
  return (
    <li>
      {outgoing ? "→" : "←"}{" "}
      <button type="button" className="link" onClick={() => onSelect(outgoing ? to : from)}>
        {labelOf(schema, { schema: other.schema, name: other.table })}
      </button>{" "}
      <span className="soft">by {relationship.from.columns.join(", ")}</span>{" "}
      {relationship.origin !== "constraint" && <span className="badge">{relationship.origin}</span>}
      {field && <> as <code>{field}</code></>}
    </li>
  );
}

function Grants({ table }: { table: Table }) {
  if (!table.grants?.length) return <p className="soft">None.</p>;
  return (
    <Terms>
      {table.grants.map(({ role, privileges }) => (
        <Fact key={role} name={role}>
          <code>{Object.entries(privileges).map(([name, columns]) => (columns ? `${name} (${columns.join(", ")})` : name)).join(", ")}</code>
        </Fact>
      ))}
    </Terms>
  );
}
