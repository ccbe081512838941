import { makeStore } from "../kit/store";

export type Theme = "light" | "dark";
export type ThemeChoice = Theme | "system";

const KEY = "dataapi.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

function stored(): ThemeChoice {
  try {
    const found = localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : "system";
  } catch {
    // The browser may block storage in frames.
    return "system";
  }
}

function resolved(choice: ThemeChoice): Theme {
  if (choice !== "system") return choice;
  return dark.matches ? "dark" : "light";
}

export const themeChoice = makeStore<ThemeChoice>(stored());
/** The theme in effect. */
export const theme = makeStore<Theme>(resolved(themeChoice.get()));

function apply(): void {
  theme.set(resolved(themeChoice.get()));
  document.documentElement.dataset.theme = theme.get();
}

export function chooseTheme(choice: ThemeChoice): void {
  if (choice === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, choice);
  themeChoice.set(choice);
  apply();
}

dark.addEventListener("change", apply);
apply();
