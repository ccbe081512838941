import { useEffect, useRef, type ReactNode, type SyntheticEvent } from "react";

/** ``labelledBy`` is the id of the dialog's heading. */
type ModalProps = { className?: string; labelledBy: string; onClose: () => void; children: ReactNode };

/** A modal dialog; Escape closes it, and the focus goes back to where it was. */
export function Modal({ className, labelledBy, onClose, children }: ModalProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  // A browser closes the dialog itself and says so later. A dialog that was opened in between would be closed in its place.
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
