import { useMemo, type AnchorHTMLAttributes, type MouseEvent } from "react";
import { makeStore, useStore } from "../kit/store";

const BASE = "/console";

const here = () => location.pathname + location.search;
const address = makeStore(here());
addEventListener("popstate", () => address.set(here()));

/** The current page: the part of the URL after /console/, or "". */
export function usePage(): string {
  return useStore(address).split("?")[0]!.slice(BASE.length).split("/")[1] ?? "";
}

export function addressOf(page: string, parameters: Parameters = {}): string {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value));
  return `${BASE}/${page}${query.size > 0 ? `?${query}` : ""}`;
}

function enter(next: string, replace: boolean): void {
  history[replace ? "replaceState" : "pushState"](null, "", next);
  address.set(here());
}

export function goTo(page: string, { replace = false, parameters = {} as Parameters } = {}): void {
  enter(addressOf(page, parameters), replace);
}

/** The page's parameters in the URL. They never contain keys or tokens. */
export type Parameters = Record<string, string>;

export function useParameters(): Parameters {
  const query = useStore(address).split("?")[1];
  return useMemo(() => Object.fromEntries(new URLSearchParams(query)), [query]);
}

/** Change parameters of the URL ("" removes one). This adds a history entry, unless ``replace`` is set. */
export function setParameters(changed: Parameters, { replace = false } = {}): void {
  const parameters = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changed)) {
    if (value) parameters.set(name, value);
    else parameters.delete(name);
  }
  const next = location.pathname + (parameters.size > 0 ? `?${parameters}` : "");
  if (next !== here()) enter(next, replace);
}

type LinkProps = AnchorHTMLAttributes<HTMLAnchorElement> & { page: string; parameters?: Parameters };

export function PageLink({ page, parameters = {}, ...rest }: LinkProps) {
  const open = (event: MouseEvent) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    goTo(page, { parameters });
  };
  return <a href={addressOf(page, parameters)} onClick={open} {...rest} />;
}
