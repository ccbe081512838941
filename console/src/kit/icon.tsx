type IconProps = { path: string; size?: number; stroke?: number };

/** A decorative icon, hidden from screen readers. */
export function Icon({ path, size = 24, stroke = 1.5 }: IconProps) {
  return (
    <svg viewBox="0 0 24 24" width={size} height={size} fill="none" stroke="currentColor" strokeWidth={stroke} strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
      <path d={path} />
    </svg>
  );
}
