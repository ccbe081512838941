import { useEditorContext } from "@graphiql/react";
import { useEffect, useRef, useState } from "react";
import { useData } from "../kit/data";
import { Icon } from "../kit/icon";
import { Notice } from "../kit/notice";
import { useStore } from "../kit/store";
import { identity, roleOf } from "../shell/identity";
import { Problem } from "../shell/problem";

/** A persisted document, from /console/data/documents. */
interface StoredDocument {
  id: string;
  text: string;
}

function DocumentsIcon() {
  return <Icon path="M8 3h8l4 4v10H8V3Zm8 0v4h4M8 7H4v14h11v-4" />;
}

function DocumentsPanel() {
  const asked = roleOf(useStore(identity)) === "service_role";
  const { data, problem } = useData<{ documents: StoredDocument[] }>("documents", { skip: !asked });
  return (
    <section className="documents" aria-labelledby="documents">
      <h2 id="documents" className="graphiql-doc-explorer-title">Stored documents</h2>
      {!asked && <Notice kind="info">Choose service_role at the top right to see them.</Notice>}
      {problem && <Problem error={problem} />}
      {data && <List documents={data.documents} />}
    </section>
  );
}

function List({ documents }: { documents: StoredDocument[] }) {
  const { addTab, tabs, queryEditor } = useEditorContext({ nonNull: true });
  const [text, setText] = useState("");
  const opened = useRef<string | null>(null);
  useEffect(() => {
    // Opening a tab clears the editor after rendering.
    if (opened.current !== null) queryEditor?.setValue(opened.current);
    opened.current = null;
  }, [tabs.length, queryEditor]);
  const needle = text.trim().toLowerCase();
  const found = documents.filter((each) => `${each.id}\n${each.text}`.toLowerCase().includes(needle));
  const open = (document: StoredDocument) => {
    opened.current = document.text;
    addTab();
  };
  return (
    <>
      <input type="search" aria-label="Search stored documents" placeholder="Search" value={text} onChange={(event) => setText(event.target.value)} />
      <p className="hint" role="status">{found.length} of {documents.length}</p>
      <ul>
        {found.map((each) => (
          <li key={each.id}>
            <button type="button" onClick={() => open(each)}>
              <code>{each.id}</code>
              <small>{firstOperation(each.text)}</small>
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}

/** The first line of the operation, or of the document. */
function firstOperation(text: string): string {
  const lines = text.split("\n").map((line) => line.trim());
  return lines.find((line) => /^(query|mutation)\b/.test(line)) ?? lines.find((line) => line !== "" && !line.startsWith("#")) ?? "";
}

export const documentsPlugin = { title: "Stored documents", icon: DocumentsIcon, content: DocumentsPanel };
