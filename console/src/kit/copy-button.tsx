import { useEffect, useState } from "react";

type CopyButtonProps = { text: string; label?: string };

/** Copies a text. Hidden if the browser has no clipboard, as for pages of other hosts without TLS. */
export function CopyButton({ text, label }: CopyButtonProps) {
  const [copied, setCopied] = useState<string | null>(null);
  useEffect(() => {
    const timer = copied === null ? undefined : setTimeout(() => setCopied(null), 2000);
    return () => clearTimeout(timer);
  }, [copied]);
  if (!navigator.clipboard) return null;
  return (
    <button type="button" className="button copy" onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(text))} aria-label={label && `Copy: ${label}`}>
      <span aria-live="polite">{copied === text ? "Copied" : "Copy"}</span>
    </button>
  );
}
