import { useCallback, useEffect, useRef, useState, type KeyboardEvent, type PointerEvent, type RefObject } from "react";
import type { Point } from "./layout";

/** How the drawing lies in its window: moved by x and y, and scaled. */
export interface View extends Point {
  scale: number;
}

const LEAST = 0.05;
const MOST = 2.5;
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

type Extent = { width: number; height: number };

/** Moving and scaling a drawing by pointers, the wheel and the keyboard. */
export function useView(window: RefObject<SVGSVGElement | null>, extent: Extent) {
  const [view, setView] = useState<View>({ x: 0, y: 0, scale: 1 });
  const pointers = useRef(new Map<number, Point>());

  const fit = useCallback(() => {
    const { clientWidth: width = 0, clientHeight: height = 0 } = window.current ?? {};
    const room = { width: Math.max(1, extent.width), height: Math.max(1, extent.height) };
    const scale = Math.min(1, Math.max(LEAST, Math.min((width - 32) / room.width, (height - 32) / room.height)));
    setView({ scale, x: (width - room.width * scale) / 2, y: (height - room.height * scale) / 2 });
  }, [window, extent]);

  const zoom = useCallback((factor: number) => {
    const { clientWidth: width = 0, clientHeight: height = 0 } = window.current ?? {};
    setView((before) => zoomed(before, factor, { x: width / 2, y: height / 2 }));
  }, [window]);

  const centre = useCallback((point: Point) => {
    const { clientWidth: width = 0, clientHeight: height = 0 } = window.current ?? {};
    setView((before) => {
      const scale = Math.max(before.scale, 0.6);
      return { scale, x: width / 2 - point.x * scale, y: height / 2 - point.y * scale };
    });
  }, [window]);

  useEffect(fit, [fit]);

  useEffect(() => {
    const element = window.current!;
    const onWheel = (event: WheelEvent) => {
      event.preventDefault();
      const { left, top } = element.getBoundingClientRect();
      const at = { x: event.clientX - left, y: event.clientY - top };
      setView((before) => zoomed(before, Math.exp(-event.deltaY / 500), at));
    };
    // React listens to the wheel passively, which cannot keep the page from scrolling.
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
  return { view, fit, zoom, centre, handlers };
}

function distance(one: Point, other: Point): number {
  return Math.hypot(one.x - other.x, one.y - other.y);
}
