import { useEditorContext } from "@graphiql/react";
import { useEffect } from "react";

/** Gives GraphiQL's editors and tabs what screen readers and the keyboard need and it leaves out. */
export function EditorAccess() {
  const { queryEditor, variableEditor, headerEditor, responseEditor, tabs, activeTabIndex } = useEditorContext({ nonNull: true });
  useEffect(() => {
    const editors = { Operation: queryEditor, Variables: variableEditor, Headers: headerEditor, Answer: responseEditor };
    for (const [name, editor] of Object.entries(editors)) {
      editor?.setOption("screenReaderLabel", name);
      editor?.getScrollerElement().setAttribute("tabindex", "0");
    }
  }, [queryEditor, variableEditor, headerEditor, responseEditor]);
  useEffect(() => {
    // An item with buttons in it cannot be the tab itself: its first button is.
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
