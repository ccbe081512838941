import { useEffect, useRef, useState, type ReactNode } from "react";
import { createPortal } from "react-dom";
import { Icon } from "../kit/icon";
import { makeStore, useStore } from "../kit/store";
import { keepInTab, keptInTab } from "../kit/tab";
import { usePage } from "../shell/router";
import { find, onChange } from "./screen";
import { STEPS, type Credentials, type Step } from "./steps";
import "./tour.css";

/** Progress, stored in the tab. After the last step, ``step`` is the number of steps. */
interface Progress {
  open: boolean;
  step: number;
}

const KEY = "dataapi.tour";

/** Null until the user starts or skips the tour. */
const progress = makeStore(keptInTab<Progress>(KEY));

/** Whether the user has chosen the step on this page. Otherwise, the panel does not take the focus. */
let chosen = false;

function change(next: Progress): void {
  keepInTab(KEY, next);
  progress.set(next);
}

function goToStep(step: number): void {
  chosen = true;
  change({ open: true, step });
}

function skip(): void {
  change({ step: progress.get()?.step ?? 0, open: false });
  document.getElementById("tour-button")?.focus();
}

/** The guided tour of the demo: a button in the header, and a panel below the page. */
export default function Tour({ credentials }: { credentials: Credentials }) {
  const current = useStore(progress);
  const open = current?.open ?? true;
  const step = current?.step ?? 0;
  const isOver = step >= STEPS.length;
  useEffect(() => {
    if (!open) return;
    const onKey = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !event.defaultPrevented && !usesEscape(event.target as Element)) skip();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [open]);
  return (
    <>
      <button id="tour-button" type="button" className="button tour-button" aria-expanded={open} onClick={() => (open ? skip() : goToStep(isOver ? 0 : step))}>Tour</button>
      {open && createPortal(
        <aside className="tour" aria-label="Guided tour">
          {current === null ? <Invitation /> : isOver ? <End /> : <StepCard key={step} index={step} credentials={credentials} />}
          <button type="button" className="icon-button tour-close" aria-label="Skip the tour" title="Skip the tour (Escape)" onClick={skip}>
            <Icon path="M6 6l12 12M18 6 6 18" size={18} stroke={1.8} />
          </button>
        </aside>,
        document.querySelector(".frame")!,
      )}
    </>
  );
}

/** Whether an element, such as an editor or a dialog, uses Escape itself. */
function usesEscape(element: Element): boolean {
  return element.closest("input, select, textarea, dialog, [role=menu], [role=grid]") !== null;
}

function Invitation() {
  const start = <button type="button" className="button primary" onClick={() => goToStep(0)}>Start the tour</button>;
  return (
    <Card title="New here?" actions={start}>
      In five minutes, the tour shows a query, a mutation under row level security, a live query and a webhook.
    </Card>
  );
}

function End() {
  const actions = (
    <>
      <button type="button" className="button" onClick={() => goToStep(0)}>Start again</button>
      <button type="button" className="button primary" onClick={skip}>Close</button>
    </>
  );
  return (
    <Card title="The end of the tour" actions={actions}>
      Now edit rows on the page Rows, look at the tables on Schema, or read the advisor's finding on Health. You are still signed in as account
      1: the button at the top right changes the role.
    </Card>
  );
}

function StepCard({ index, credentials }: { index: number; credentials: Credentials }) {
  const step = STEPS[index]!;
  const { at, ready, prepare, perform } = useStep(step, credentials);
  const isElsewhere = usePage() !== step.page;
  const action = step.actions[at];
  const next = () => goToStep(index + 1);
  const [label, press]: [string, () => void] =
    !action ? [index + 1 < STEPS.length ? "Next" : "Finish", next] : isElsewhere ? ["Back to this step", prepare] : ["Do it for me", perform];
  // A single button, which keeps the focus.
  const actions = (
    <>
      {action && <button type="button" className="button" onClick={next}>Skip this step</button>}
      <button type="button" className="button primary" disabled={label === "Do it for me" && !ready} onClick={press}>{label}</button>
    </>
  );
  return (
    <Card title={step.title} index={index} actions={actions}>
      {action ? <>{step.about} <strong>{action.text}</strong>{action.extra}</> : step.result}
    </Card>
  );
}

type CardProps = { title: string; index?: number; actions: ReactNode; children: ReactNode };

function Card({ title, index, actions, children }: CardProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    if (chosen) heading.current?.focus();
  }, []);
  return (
    <>
      {index !== undefined && (
        <ol className="tour-steps" aria-label="Steps">
          {STEPS.map((each, at) => (
            <li key={each.title}>
              <button type="button" aria-current={at === index ? "step" : undefined} onClick={() => goToStep(at)}>{at + 1}<span>{` ${each.title}`}</span></button>
            </li>
          ))}
        </ol>
      )}
      <div className="tour-text">
        <h2 ref={heading} tabIndex={-1}>
          {index !== undefined && <span className="visually-hidden">{`Step ${index + 1} of ${STEPS.length}: `}</span>}
          {title}
        </h2>
        <div aria-live="polite">{children}</div>
      </div>
      <div className="actions">{actions}</div>
    </>
  );
}

/**
 * Prepare a step, and mark the button of its current action. ``at`` is the number of finished actions, and ``perform`` presses the
 * button.
 */
function useStep(step: Step, credentials: Credentials): { at: number; ready: boolean; prepare: () => void; perform: () => void } {
  const [at, setAt] = useState(0);
  const [ready, setReady] = useState(false);
  const [round, setRound] = useState(0);
  const perform = useRef(() => {});
  useEffect(() => {
    const controller = new AbortController();
    let finished = 0;
    let performing = false;
    let marked: HTMLButtonElement | null = null;
    let pressed: HTMLButtonElement | null = null;
    let stop = () => {};
    const check = () => {
      const before = finished;
      while (step.actions[finished]?.isDone()) finished += 1;
      if (finished > before) performing = false;
      setAt(finished);
      const target = step.actions[finished]?.target() ?? null;
      if (target !== marked || finished > before) {
        marked?.removeAttribute("data-tour");
        target?.setAttribute("data-tour", "");
        marked = target;
        (target?.closest("main") ? target : find(step.shown))?.scrollIntoView({ block: "nearest" });
      }
      if (performing && target && target !== pressed && !target.disabled) {
        pressed = target;
        target.click();
      }
    };
    perform.current = () => {
      performing = true;
      pressed = null;
      check();
    };
    void step.prepare(credentials, controller.signal).then(
      () => {
        if (controller.signal.aborted) return;
        setReady(true);
        stop = onChange(check);
        check();
      },
      () => undefined, // the user has left the step
    );
    return () => {
      controller.abort();
      stop();
      marked?.removeAttribute("data-tour");
    };
  }, [step, round]);
  return { at, ready, prepare: () => setRound(round + 1), perform: () => perform.current() };
}
