import { Component, lazy, Suspense, useEffect, useRef, useState, type ComponentType, type ReactNode } from "react";
import { loadData } from "../kit/data";
import { Notice } from "../kit/notice";
import { useStore } from "../kit/store";
import { PAGES, type Page } from "../pages";
import icon from "./icon.svg";
import { assume, choosing, identity, nameOf } from "./identity";
import { IdentityDialog } from "./identity-dialog";
import { goTo, PageLink, usePage } from "./router";
import { SettingsProvider, useSettings, type Settings } from "./settings";
import { ThemeSwitch } from "./theme-switch";

const Tour = lazy(() => import("../tour/tour"));

const loaded = new Map<Page, ComponentType>();

function componentOf(page: Page): ComponentType {
  let found = loaded.get(page);
  if (!found) loaded.set(page, (found = lazy(page.load)));
  return found;
}

/** The console: loads the settings, then shows the current page. */
export function Shell() {
  const [settings, setSettings] = useState<Settings | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    loadData<Settings>("settings").then((found) => {
      if (!identity.get().apiKey && found.publishableKey) {
        assume({ ...identity.get(), apiKey: found.publishableKey });
      }
      setSettings(found);
    }, (error: Error) => setProblem(error.message));
  }, []);
  if (problem) return <Notice kind="error" title="The console cannot reach the daemon">{problem}</Notice>;
  if (!settings) return <div className="waiting" role="status">Loading…</div>;
  return (
    <SettingsProvider value={settings}>
      <Frame />
    </SettingsProvider>
  );
}

function Frame() {
  const settings = useSettings();
  const path = usePage();
  const main = useRef<HTMLElement>(null);
  const pages = PAGES.filter((page) => page.offered?.(settings) ?? true);
  const page = pages.find((each) => each.path === path);
  useEffect(() => {
    if (path === "" && pages[0]) goTo(pages[0].path, { replace: true });
  }, [path]);
  useEffect(() => {
    // On narrow screens the navigation scrolls.
    document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    document.title = `${page ? `${page.title} · ` : ""}${settings.project}`;
  }, [page]);
  const Content = page && componentOf(page);
  return (
    <div className="frame">
      <a className="skip" href="#main" onClick={() => main.current?.focus()}>Skip to the page</a>
      <header className="top">
        <div className="brand">
          <img src={icon} alt="" width="26" height="26" />
          <span className="project" title="Project">{settings.project}</span>
        </div>
        <nav aria-label="Pages">
          {pages.map((each) => (
            <PageLink key={each.path} page={each.path} aria-current={each === page ? "page" : undefined}>
              {each.title}
            </PageLink>
          ))}
        </nav>
        <div className="tools">
          {settings.tour && <Suspense><Tour credentials={settings.tour} /></Suspense>}
          <IdentityButton />
          <ThemeSwitch />
        </div>
      </header>
      <main id="main" ref={main} tabIndex={-1} data-page={path}>
        {Content ? (
          <PageBoundary key={path}>
            <Suspense fallback={<div className="waiting" role="status">Loading…</div>}>
              <Content />
            </Suspense>
          </PageBoundary>
        ) : path !== "" && (
          <Notice kind="info" title="Page not found">Choose a page in the navigation above.</Notice>
        )}
      </main>
    </div>
  );
}

function IdentityButton() {
  const current = useStore(identity);
  const { keyRequired } = useSettings();
  const missing = keyRequired && !current.apiKey;
  const open = useStore(choosing);
  useEffect(() => choosing.set(missing), []);
  return (
    <>
      <button type="button" className="identity" data-kind={current.kind} onClick={() => choosing.set(true)} aria-haspopup="dialog">
        <span className="dot" aria-hidden="true" />
        <span className="visually-hidden">Calling as </span>
        {missing ? "Enter a key" : nameOf(current)}
      </button>
      {open && <IdentityDialog onClose={() => choosing.set(false)} />}
    </>
  );
}

/** Shows an error instead of a page that failed. The navigation keeps working. */
class PageBoundary extends Component<{ children: ReactNode }, { problem: Error | null }> {
  state = { problem: null as Error | null };

  static getDerivedStateFromError(problem: Error) {
    return { problem };
  }

  render() {
    const { problem } = this.state;
    if (!problem) return this.props.children;
    return <Notice kind="error" title="The page cannot be shown">{problem.message}</Notice>;
  }
}
