import { useEffect, useRef } from "react";
import SwaggerUI, { type Rendered, type Sent, type System } from "swagger-ui-dist/swagger-ui-es-bundle.js";
import "swagger-ui-dist/swagger-ui.css";
import { useStore } from "../kit/store";
import { identity, identityHeaders } from "../shell/identity";
import { theme } from "../shell/theme";
import type { Description } from "./description";
import { REST } from "./request";
import "./viewer.css";

const LAYOUT = "ConsoleLayout";

/** A layout with only the operations, because the console has its own heading and identity dialog. */
function ownLayout({ React: { createElement } }: System) {
  const show = ({ getComponent }: Rendered) => {
    const parts = ["SvgAssets", "errors", "FilterContainer", "operations", "Models"];
    return createElement("div", { className: "swagger-ui" }, ...parts.map((name) =>
      createElement("div", { className: "wrapper", key: name }, createElement(getComponent(name, name !== "SvgAssets"), null))));
  };
  return { components: { [LAYOUT]: show } };
}

/**
 * Removes the locks and the curl commands, which would show the key and the token, and makes code scrollable by keyboard.
 * Descriptions are comments of the database. They are shown as text, because Markdown may contain images, links and HTML.
 */
function ownParts({ React: { createElement } }: System) {
  const text = () => ({ source, className = "" }: { source?: unknown; className?: string }) =>
    typeof source === "string" && source ? createElement("p", { className: `${className} comment` }, source) : null;
  const nothing = () => () => null;
  const scrolled = (original: unknown) => (properties: object) =>
    createElement("div", { className: "scrolled", tabIndex: 0, role: "group", "aria-label": "Code" }, createElement(original, properties));
  return { wrapComponents: { Markdown: text, authorizeOperationBtn: nothing, RequestSnippets: nothing, curl: nothing, HighlightCode: scrolled } };
}

/** Maximum number of paths for which all operations are expanded. */
const MOST_OPEN = 60;

/** The OpenAPI description. Operations run as the console's role. */
export default function Viewer({ description, profile }: { description: Description; profile: string | null }) {
  const place = useRef<HTMLDivElement>(null);
  const current = useStore(theme);
  useEffect(() => {
    SwaggerUI({
      // A copy, because Swagger UI freezes its input. Requests go to the console's origin, not to the public URL.
      spec: { ...structuredClone(description), servers: [{ url: REST.slice(0, -1) }] },
      domNode: place.current!,
      deepLinking: false,
      validatorUrl: null,
      docExpansion: Object.keys(description.paths).length > MOST_OPEN ? "none" : "list",
      defaultModelsExpandDepth: 0,
      displayRequestDuration: true,
      filter: true,
      requestInterceptor: (request) => asCaller(request, profile),
      layout: LAYOUT,
      plugins: [ownLayout, ownParts],
    });
  }, [description, profile]);
  useEffect(() => {
    document.documentElement.classList.toggle("dark-mode", current === "dark");
    return () => document.documentElement.classList.remove("dark-mode");
  }, [current]);
  return (
    <section className="description panel" aria-labelledby="operations-title">
      <h2 id="operations-title" className="visually-hidden">Operations</h2>
      <div ref={place} />
    </section>
  );
}

function asCaller(request: Sent, profile: string | null): Sent {
  const reads = request.method === "GET" || request.method === undefined;
  const schema = profile === null ? {} : { [reads ? "Accept-Profile" : "Content-Profile"]: profile };
  return { ...request, headers: { ...request.headers, ...schema, ...identityHeaders(identity.get()) } };
}
