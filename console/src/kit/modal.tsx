import { useEffect, useRef, type ReactNode, type SyntheticEvent } from "react";

/** ``labelledBy``: id of the dialog's heading. */
type ModalProps = { className?: string; labelledBy: string; onClose: () => void; children: ReactNode };

/** A modal dialog. Escape closes it and restores the focus. */
export function Modal({ className, labelledBy, onClose, children }: ModalProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  // The browser would close the dialog and fire ``close`` later, which could close another dialog opened in between.
  const cancel = (event: SyntheticEvent) => {
    event.preventDefault();
    onClose();
  };
  return (
    <dialog ref={dialog} className={className ? `dialog ${className}` : "dialog"} aria-labelledby={labelledBy} onCancel={cancel} onClose={onClose}>
      {children}
    </dialog>
  );
}
