import { useCallback, useEffect, useRef, useState, type KeyboardEvent, type PointerEvent, type RefObject } from "react";
import type { Point } from "./layout";

/** The view transform: translation and scale. */
export interface View extends Point {
  scale: number;
}

const LEAST = 0.05;
const MOST = 2.5;
/** Minimum scale for showing a table after a search. */
const READABLE = 0.8;
const STEP = 60;
const MOVES: Record<string, Point> = {
  ArrowLeft: { x: STEP, y: 0 },
  ArrowRight: { x: -STEP, y: 0 },
  ArrowUp: { x: 0, y: STEP },
  ArrowDown: { x: 0, y: -STEP },
};

/** Scale a view around a point of the window. */
function zoomed(view: View, factor: number, at: Point): View {
  const scale = Math.min(MOST, Math.max(LEAST, view.scale * factor));
  const ratio = scale / view.scale;
  return { scale, x: at.x - (at.x - view.x) * ratio, y: at.y - (at.y - view.y) * ratio };
}

export type Extent = { width: number; height: number };
export type Area = Point & Extent;
/** Margin in pixels. */
const MARGIN = 16;

/** Fit an area into the window, without enlarging it. */
function filled(area: Area, { width, height }: Extent): View {
  const across = (width - 2 * MARGIN) / Math.max(1, area.width);
  const down = (height - 2 * MARGIN) / Math.max(1, area.height);
  const scale = Math.min(1, Math.max(LEAST, Math.min(across, down)));
  return { scale, x: width / 2 - (area.x + area.width / 2) * scale, y: height / 2 - (area.y + area.height / 2) * scale };
}

/** Moving and scaling a drawing by pointers, the wheel and the keyboard. */
export function useView(window: RefObject<SVGSVGElement | null>, extent: Extent) {
  const [view, setView] = useState<View>({ x: 0, y: 0, scale: 1 });
  const [size, setSize] = useState<Extent>({ width: 0, height: 0 });
  const pointers = useRef(new Map<number, Point>());

  const fit = useCallback(() => {
    const { clientWidth: width = 0, clientHeight: height = 0 } = window.current ?? {};
    setView(filled({ x: 0, y: 0, ...extent }, { width, height }));
  }, [window, extent]);

  const zoom = useCallback((factor: number) => {
    const { clientWidth: width = 0, clientHeight: height = 0 } = window.current ?? {};
    setView((before) => zoomed(before, factor, { x: width / 2, y: height / 2 }));
  }, [window]);

  /** Show the whole area if that is legible, otherwise the center of its most important part. */
  const show = useCallback((area: Area, part: Area) => {
    const whole = filled(area, size);
    setView((before) => {
      if (whole.scale >= READABLE) return whole;
      const scale = Math.max(before.scale, READABLE);
      return { scale, x: size.width / 2 - (part.x + part.width / 2) * scale, y: size.height / 2 - (part.y + part.height / 2) * scale };
    });
  }, [size]);

  useEffect(fit, [fit]);

  useEffect(() => {
    const element = window.current!;
    const observer = new ResizeObserver(() => setSize({ width: element.clientWidth, height: element.clientHeight }));
    observer.observe(element);
    return () => observer.disconnect();
  }, [window]);

  useEffect(() => {
    const element = window.current!;
    const onWheel = (event: WheelEvent) => {
      event.preventDefault();
      const { left, top } = element.getBoundingClientRect();
      const at = { x: event.clientX - left, y: event.clientY - top };
      setView((before) => zoomed(before, Math.exp(-event.deltaY / 500), at));
    };
    // React's wheel listeners are passive and cannot prevent scrolling.
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, [window]);

  const release = (event: PointerEvent) => void pointers.current.delete(event.pointerId);
  const handlers = {
    onPointerDown(event: PointerEvent) {
      pointers.current.set(event.pointerId, { x: event.clientX, y: event.clientY });
    },
    onPointerMove(event: PointerEvent<SVGSVGElement>) {
      const before = pointers.current.get(event.pointerId);
      if (!before) return;
      const now = { x: event.clientX, y: event.clientY };
      const other = [...pointers.current].find(([id]) => id !== event.pointerId)?.[1];
      pointers.current.set(event.pointerId, now);
      const { left, top } = event.currentTarget.getBoundingClientRect();
      const factor = other ? distance(now, other) / Math.max(1, distance(before, other)) : 1;
      const moved = other ? { x: 0, y: 0 } : { x: now.x - before.x, y: now.y - before.y };
      const at = { x: (other ?? now).x - left, y: (other ?? now).y - top };
      setView((last) => zoomed({ ...last, x: last.x + moved.x, y: last.y + moved.y }, factor, at));
    },
    onPointerUp: release,
    onPointerLeave: release,
    onPointerCancel: release,
    onKeyDown(event: KeyboardEvent) {
      const move = MOVES[event.key];
      if (move) setView((before) => ({ ...before, x: before.x + move.x, y: before.y + move.y }));
      else if (event.key === "+" || event.key === "=") zoom(1.25);
      else if (event.key === "-") zoom(0.8);
      else if (event.key === "0") fit();
      else return;
      event.preventDefault();
    },
  };
  return { view, size, fit, zoom, show, handlers };
}

function distance(one: Point, other: Point): number {
  return Math.hypot(one.x - other.x, one.y - other.y);
}
