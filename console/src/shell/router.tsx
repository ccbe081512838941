import type { AnchorHTMLAttributes, MouseEvent } from "react";
import { makeStore, useStore } from "../kit/store";

const BASE = "/console";

const path = makeStore(location.pathname);
addEventListener("popstate", () => path.set(location.pathname));

/** The page that the address names: the part after /console/, "" for none. */
export function usePage(): string {
  return useStore(path).slice(BASE.length).split("/")[1] ?? "";
}

export function addressOf(page: string): string {
  return `${BASE}/${page}`;
}

export function goTo(page: string, { replace = false } = {}): void {
  history[replace ? "replaceState" : "pushState"](null, "", addressOf(page));
  path.set(location.pathname);
}

type LinkProps = AnchorHTMLAttributes<HTMLAnchorElement> & { page: string };

export function PageLink({ page, ...rest }: LinkProps) {
  const open = (event: MouseEvent) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    goTo(page);
  };
  return <a href={addressOf(page)} onClick={open} {...rest} />;
}
