import { useEffect, useId, useRef, type ReactNode } from "react";
import { Icon } from "../kit/icon";

type DialogProps = { title: string; onClose: () => void; wide?: boolean; children: ReactNode };

/** A modal dialog; Escape closes it, and the focus goes back to where it was. */
export function Dialog({ title, onClose, wide, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog ref={dialog} className={wide ? "dialog hooks-dialog wide" : "dialog hooks-dialog"} aria-labelledby={heading} onClose={onClose}>
      <div className="dialog-top">
        <h2 id={heading}>{title}</h2>
        <button type="button" className="icon-button" aria-label="Close" onClick={onClose}>
          <Icon path="M6 6l12 12M18 6 6 18" size={18} stroke={1.8} />
        </button>
      </div>
      {children}
    </dialog>
  );
}
