import { Icon } from "../kit/icon";
import { useStore } from "../kit/store";
import { chooseTheme, theme } from "./theme";

const SUN = "M12 4V2m0 20v-2m8-8h2M2 12h2m13.7-5.7 1.4-1.4M4.9 19.1l1.4-1.4m0-11.4L4.9 4.9m14.2 14.2-1.4-1.4M16 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0Z";
const MOON = "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5Z";

export function ThemeSwitch() {
  const current = useStore(theme);
  const other = current === "dark" ? "light" : "dark";
  return (
    <button type="button" className="icon-button" onClick={() => chooseTheme(other)} aria-label={`Use the ${other} theme`} title={`Use the ${other} theme`}>
      <Icon path={current === "dark" ? SUN : MOON} size={18} stroke={1.8} />
    </button>
  );
}
