import { useId, type ReactNode } from "react";
import { Icon } from "../kit/icon";
import { Modal } from "../kit/modal";

type DialogProps = { title: string; onClose: () => void; wide?: boolean; children: ReactNode };

/** A modal dialog with a title and a close button. */
export function Dialog({ title, onClose, wide, children }: DialogProps) {
  const heading = useId();
  return (
    <Modal className={wide ? "hooks-dialog wide" : "hooks-dialog"} labelledBy={heading} onClose={onClose}>
      <div className="dialog-top">
        <h2 id={heading}>{title}</h2>
        <button type="button" className="icon-button" aria-label="Close" onClick={onClose}>
          <Icon path="M6 6l12 12M18 6 6 18" size={18} stroke={1.8} />
        </button>
      </div>
      {children}
    </Modal>
  );
}
