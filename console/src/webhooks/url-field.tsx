import { useEffect, useId, useState } from "react";
import type { UrlCheck } from "./api";
import { useWorkspace } from "./workspace";

/** Milliseconds after the last key press until the URL is checked. */
const PAUSE = 400;

const ALLOW = "The operator can allow networks with allow-addresses in [webhooks].";

/** The URL of an endpoint, checked while typing. */
export function UrlField({ value, onChange }: { value: string; onChange: (url: string) => void }) {
  const { management } = useWorkspace();
  const [check, setCheck] = useState<(UrlCheck & { url: string }) | null>(null);
  const [problem, setProblem] = useState("");
  const said = useId();
  useEffect(() => {
    if (!value) return;
    const controller = new AbortController();
    const timer = setTimeout(() => {
      management.checkUrl(value, controller.signal).then(
        (found) => {
          setProblem("");
          setCheck({ ...found, url: value });
        },
        (error: Error) => controller.signal.aborted || setProblem(error.message),
      );
    }, PAUSE);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [management, value]);
  const known = check?.url === value ? check : null;
  const refused = known !== null && !known.accepted;
  return (
    <label className="field">
      <span>URL</span>
      <input
        className="code"
        type="text"
        inputMode="url"
        value={value}
        onChange={(event) => onChange(event.target.value)}
        placeholder="https://example.com/hooks"
        aria-invalid={refused || undefined}
        aria-describedby={said}
        autoComplete="off"
        spellCheck={false}
        maxLength={2048}
        required
      />
      <small id={said} role="status" className="said" data-kind={known ? (refused ? "error" : "good") : undefined}>
        {sentence(value, known, problem)}
      </small>
    </label>
  );
}

function sentence(value: string, check: UrlCheck | null, problem: string): string {
  if (!value) return "Deliveries are sent to this URL by POST.";
  if (problem) return `The URL could not be checked: ${problem}`;
  if (!check) return "Checking…";
  if (check.accepted) return "This URL is valid.";
  const hint = check.code?.endsWith("reserved_address") || check.message?.includes("a name, not an address") ? ` ${ALLOW}` : "";
  return `${check.message}.${hint}`;
}
