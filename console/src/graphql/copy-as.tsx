import { CopyIcon, ToolbarMenu, useEditorContext } from "@graphiql/react";
import { identity } from "../shell/identity";
import { SNIPPETS, type Operation } from "./snippets";

/** A menu that copies the editor's operation as a program. */
export function CopyAs() {
  const { queryEditor, variableEditor } = useEditorContext({ nonNull: true });
  const operation = (): Operation => {
    const { apiKey, token } = identity.get();
    return {
      url: `${location.origin}/graphql/v1`,
      apiKey,
      query: queryEditor?.getValue() ?? "",
      variables: parsed(variableEditor?.getValue() ?? ""),
      withToken: token !== "",
    };
  };
  if (!navigator.clipboard) return null;
  return (
    <ToolbarMenu label="Copy as a program" button={<CopyIcon className="graphiql-toolbar-icon" aria-hidden="true" />}>
      {SNIPPETS.map(({ title, write }) => (
        <ToolbarMenu.Item key={title} onSelect={() => void navigator.clipboard.writeText(write(operation()))}>
          {`Copy as ${title}`}
        </ToolbarMenu.Item>
      ))}
    </ToolbarMenu>
  );
}

/** Return the variables, or none if the text is not valid JSON. */
function parsed(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return {};
  }
}
