/** Required contrast of text (WCAG, level AA), with a margin for backgrounds that are not pure white or black. */
const READABLE = 5;
const WHITE = "#ffffff";
/** The lightest background in the dark theme. */
const DARK = "#222731";

const COLOR = /^#[0-9a-f]{6}$/;

function channels(color: string): number[] {
  return [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
}

function luminance(color: string): number {
  const [red, green, blue] = channels(color).map((channel) => {
    const part = channel / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** The contrast of two colors, from 1 to 21. */
export function contrast(one: string, other: string): number {
  const [dark, bright] = [luminance(one), luminance(other)].toSorted((a, b) => a - b) as [number, number];
  return (bright + 0.05) / (dark + 0.05);
}

/** Mix a color with black (0) or white (255); ``part`` is from 0 to 1. */
function mixed(color: string, end: 0 | 255, part: number): string {
  return `#${channels(color).map((each) => Math.round(each + (end - each) * part).toString(16).padStart(2, "0")).join("")}`;
}

/** The closest shade of a color that is readable on a background. */
export function readable(color: string, ground: string, end: 0 | 255): string {
  for (let part = 0; part < 1; part += 0.05) {
    const shade = mixed(color, end, part);
    if (contrast(shade, ground) >= READABLE) return shade;
  }
  return mixed(color, end, 1);
}

/** CSS variables for a brand color, for both themes. */
export function shades(color: string): Record<string, string> {
  const light = readable(color, WHITE, 0);
  const dark = readable(color, DARK, 255);
  return {
    "--brand": color,
    "--accent": `light-dark(${light}, ${dark})`,
    "--accent-strong": `light-dark(${mixed(light, 0, 0.2)}, ${mixed(dark, 255, 0.2)})`,
    "--on-accent": `light-dark(${WHITE}, #10151c)`,
    "--accent-soft": "color-mix(in oklab, var(--accent) 14%, var(--panel))",
  };
}

/** Apply a brand color to the page, or restore the default. */
export function paint(color: string | null): void {
  const { style } = document.documentElement;
  const chosen = color !== null && COLOR.test(color) ? shades(color) : {};
  for (const name of Object.keys(shades("#000000"))) style.removeProperty(name);
  for (const [name, value] of Object.entries(chosen)) style.setProperty(name, value);
}
