/**
 * Takes the place of the package react-style-singleton: the same interface, with constructed style sheets,
 * which a Content-Security-Policy without inline styles allows.
 */
import { useEffect } from "react";

export function stylesheetSingleton() {
  let users = 0;
  let sheet: CSSStyleSheet | undefined;
  return {
    add(css: string) {
      if (users++ === 0) {
        sheet = new CSSStyleSheet();
        sheet.replaceSync(css);
        document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
      }
    },
    remove() {
      if (--users === 0) {
        document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
      }
    },
  };
}

export function styleHookSingleton() {
  const shared = stylesheetSingleton();
  return (css: string, dynamic?: boolean) => {
    useEffect(() => {
      shared.add(css);
      return () => shared.remove();
      // Changes are applied only if the styles are dynamic.
    }, [css && dynamic]);
  };
}

export function styleSingleton() {
  const useStyle = styleHookSingleton();
  return function Sheet({ styles, dynamic }: { styles: string; dynamic?: boolean }) {
    useStyle(styles, dynamic);
    return null;
  };
}
