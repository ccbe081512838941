import { useEditorContext } from "@graphiql/react";
import { useEffect } from "react";

/** Adds missing accessibility attributes to GraphiQL's editors and tabs. */
export function EditorAccess() {
  const { queryEditor, variableEditor, headerEditor, responseEditor, tabs, activeTabIndex } = useEditorContext({ nonNull: true });
  useEffect(() => {
    const editors = { Operation: queryEditor, Variables: variableEditor, Headers: headerEditor, Response: responseEditor };
    for (const [name, editor] of Object.entries(editors)) {
      editor?.setOption("screenReaderLabel", name);
      editor?.getScrollerElement().setAttribute("tabindex", "0");
    }
  }, [queryEditor, variableEditor, headerEditor, responseEditor]);
  useEffect(() => {
    // An item that contains buttons cannot have the role tab, so its first button gets it.
    for (const item of document.querySelectorAll(".graphiql-tab")) {
      const selected = item.classList.contains("graphiql-tab-active");
      item.setAttribute("role", "presentation");
      item.removeAttribute("aria-selected");
      const button = item.querySelector(".graphiql-tab-button");
      button?.setAttribute("role", "tab");
      button?.setAttribute("aria-selected", String(selected));
    }
  }, [tabs, activeTabIndex]);
  return null;
}
