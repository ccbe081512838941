/** Reading and using the console's pages from outside, as a user does. */

/** A CodeMirror editor. */
interface Editor {
  getValue(): string;
  setValue(text: string): void;
}

/** The first element of the page that matches a selector and contains a text. */
export function find<T extends HTMLElement = HTMLElement>(selector: string, text = ""): T | null {
  return [...document.querySelectorAll<T>(selector)].find((each) => each.textContent.includes(text)) ?? null;
}

/** Call a function after each change of the page. Return a function that stops this. */
export function onChange(call: () => void): () => void {
  const observer = new MutationObserver(call);
  observer.observe(document.body, { subtree: true, childList: true, characterData: true, attributeFilter: ["aria-label", "disabled"] });
  return () => observer.disconnect();
}

/** Wait until a function returns something else than null or false. Rejects on abort. */
export function appears<T>(search: () => T | null | false, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const check = () => {
      const found = search();
      if (found === null || found === false) return;
      stop();
      resolve(found);
    };
    const stop = onChange(check);
    signal.addEventListener("abort", () => {
      stop();
      reject(signal.reason as Error);
    });
    if (signal.aborted) reject(signal.reason as Error);
    else check();
  });
}

/** Type a text into a field that React controls. */
export function fill(field: HTMLInputElement, text: string): void {
  Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")!.set!.call(field, text);
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

function editorIn(part: string): Editor | null {
  return find<HTMLElement & { CodeMirror?: Editor }>(`${part} .CodeMirror`)?.CodeMirror ?? null;
}

const TAB = ".graphiql-tab-button";

/** Show a named operation in a tab of GraphiQL. */
export async function showOperation(text: string, signal: AbortSignal): Promise<void> {
  const name = /\w+ (\w+)/.exec(text)![1]!;
  const isCurrent = () => find(`.graphiql-tab-active ${TAB}`)?.textContent === name;
  const editor = await appears(() => editorIn(".graphiql-query-editor"), signal);
  if (!isCurrent()) {
    const existing = [...document.querySelectorAll<HTMLElement>(TAB)].find((each) => each.textContent === name);
    (existing ?? find(".graphiql-tab-add"))?.click();
    await new Promise((resolve) => setTimeout(resolve)); // GraphiQL changes the tab with the next rendering
  }
  if (editor.getValue() !== text) editor.setValue(text);
  // GraphiQL runs the operation that it has parsed last.
  await appears(isCurrent, signal);
}

/** The data in GraphiQL's result, or null. */
export function shownData<T>(): Partial<T> | null {
  try {
    return (JSON.parse(editorIn(".result-window")?.getValue() ?? "") as { data?: Partial<T> }).data ?? null;
  } catch {
    return null;
  }
}
