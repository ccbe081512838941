import { memo, useEffect, useMemo, useRef, useState, type RefObject } from "react";
import { foreignColumns } from "./export";
import { CHARACTER, HEAD, ROW, type Box, type Diagram as Placed, type Line, type Point } from "./layout";
import { neighbourhood, type Schema, type TableId } from "./model";
import { useView, type Area } from "./view";

type DiagramProps = {
  schema: Schema;
  drawing: RefObject<SVGSVGElement | null>;
  placed: Placed;
  /** Whether the worker is computing the layout. */
  placing: boolean;
  /** Whether to draw all columns regardless of the view, for export. */
  whole: boolean;
  found: Set<TableId>;
  selected: TableId | null;
  /** The selected table, or null for all. */
  focus: TableId | null;
  onSelect: (id: TableId | null) => void;
};

const NOTHING: Placed = { boxes: [], lines: [], width: 0, height: 0 };

/** Minimum scale for drawing columns. Below it they would be illegible, and thousands are slow to draw. */
const LEGIBLE = 0.4;

/** The layout, computed in a worker, because it is slow for hundreds of tables. The previous layout is used until then. */
export function usePlaced(schema: Schema): { placed: Placed; placing: boolean } {
  const [{ placed, of }, setPlaced] = useState<{ placed: Placed; of: Schema | null }>({ placed: NOTHING, of: null });
  useEffect(() => {
    const worker = new Worker(new URL("./layout.worker.ts", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }: MessageEvent<Placed>) => setPlaced({ placed: data, of: schema });
    worker.postMessage(schema);
    return () => worker.terminate();
  }, [schema]);
  return { placed, placing: of !== schema };
}

/** The diagram of tables and keys. The list of tables is its accessible alternative. */
export function Diagram({ schema, drawing, placed, placing, whole, found, selected, focus, onSelect }: DiagramProps) {
  const { view, size, fit, zoom, show, handlers } = useView(drawing, placed);
  const lit = useMemo(() => (selected ? neighbourhood(schema, selected) : found), [schema, selected, found]);
  const isLegible = ({ x, y, width, height }: Box) => {
    const { scale } = view;
    const [left, top] = [view.x + x * scale, view.y + y * scale];
    return whole || (scale >= LEGIBLE && left < size.width && top < size.height && left + width * scale > 0 && top + height * scale > 0);
  };
  const pressed = useRef<Point>({ x: 0, y: 0 });
  useEffect(() => {
    const box = placed.boxes.find(({ id }) => id === focus);
    if (!box) return;
    const around = neighbourhood(schema, box.id);
    show(extentOf(placed.boxes.filter(({ id }) => around.has(id))), box);
  }, [placed, schema, focus, show]);
  return (
    <div className="diagram" aria-busy={placing}>
      {placing && (
        <div className="placing">
          <label>Placing {schema.tables.length.toLocaleString("en")} tables… <progress /></label>
        </div>
      )}
      <svg
        ref={drawing}
        role="img"
        aria-label={`Diagram of ${schema.tables.length} tables and ${schema.relationships.length} relationships`}
        tabIndex={0}
        {...handlers}
        onPointerDownCapture={(event) => (pressed.current = { x: event.clientX, y: event.clientY })}
        onClick={(event) => {
          const moved = Math.hypot(event.clientX - pressed.current.x, event.clientY - pressed.current.y);
          if (moved > 4) return;
          const box = (event.target as Element).closest("[data-table]");
          onSelect(box?.getAttribute("data-table") ?? null);
        }}
      >
        <defs>
          <marker id="many" viewBox="-12 -7 13 14" markerWidth="13" markerHeight="14" markerUnits="userSpaceOnUse" orient="auto-start-reverse">
            <path className="mark" d="M-11,0 L0,-6 M-11,0 L0,6 M-11,0 L0,0" />
          </marker>
          <marker id="one" viewBox="-12 -7 13 14" markerWidth="13" markerHeight="14" markerUnits="userSpaceOnUse" orient="auto-start-reverse">
            <path className="mark" d="M-8,-6 L-8,6 M-11,0 L0,0" />
          </marker>
        </defs>
        <g data-scene="" transform={`translate(${view.x} ${view.y}) scale(${view.scale})`}>
          {placed.lines.map((line, index) => (
            <Connection key={index} line={line} lit={selected ? line.ends.includes(selected) : line.ends.every((id) => lit.has(id))} />
          ))}
          {placed.boxes.map((box) => (
            <TableBox key={box.id} schema={schema} box={box} legible={isLegible(box)} state={box.id === selected ? "selected" : lit.has(box.id) ? "lit" : "dim"} />
          ))}
        </g>
      </svg>
      <div className="zoom">
        <button type="button" className="button" onClick={() => zoom(1.25)} aria-label="Zoom in">+</button>
        <button type="button" className="button" onClick={() => zoom(0.8)} aria-label="Zoom out">−</button>
        <button type="button" className="button" onClick={fit}>Fit</button>
      </div>
    </div>
  );
}

/** The bounding box of some boxes. */
function extentOf(boxes: Box[]): Area {
  const x = Math.min(...boxes.map((box) => box.x));
  const y = Math.min(...boxes.map((box) => box.y));
  const right = Math.max(...boxes.map((box) => box.x + box.width));
  const bottom = Math.max(...boxes.map((box) => box.y + box.height));
  return { x, y, width: right - x, height: bottom - y };
}

const Connection = memo(function Connection({ line, lit }: { line: Line; lit: boolean }) {
  const { points, relationship } = line;
  return (
    <path
      className="connection"
      data-state={lit ? "lit" : "dim"}
      data-origin={relationship.origin}
      d={smooth(points)}
      markerStart={`url(#${relationship.unique ? "one" : "many"})`}
      markerEnd="url(#one)"
    >
      <title>{`${relationship.from.table} (${relationship.from.columns.join(", ")}) → ${relationship.to.table}`}</title>
    </path>
  );
});

/** A curve through the midpoints of a line's segments, straight at its ends. */
function smooth(points: Point[]): string {
  const [first, ...rest] = points;
  const last = points.at(-1)!;
  const curves = rest.slice(0, -1).map((point, index) => {
    const next = rest[index + 1]!;
    return `Q${point.x},${point.y} ${(point.x + next.x) / 2},${(point.y + next.y) / 2}`;
  });
  return `M${first!.x},${first!.y} ${curves.join(" ")} L${last.x},${last.y}`;
}

type TableBoxProps = { schema: Schema; box: Box; legible: boolean; state: "selected" | "lit" | "dim" };

const TableBox = memo(function TableBox({ schema, box, legible, state }: TableBoxProps) {
  const { table, width, height } = box;
  return (
    <g className="box" data-table={box.id} data-state={state} data-kind={table.kind} transform={`translate(${box.x} ${box.y})`}>
      <rect className="frame-of-table" width={width} height={height} rx="7" />
      <path className="head" d={`M0,${HEAD} V7 Q0,0 7,0 H${width - 7} Q${width},0 ${width},7 V${HEAD} Z`} />
      <text className="title" x="12" y="20">{shortened(box.label, width - 24)}</text>
      {legible && <Columns schema={schema} box={box} />}
    </g>
  );
});

function Columns({ schema, box: { table, width, columns } }: { schema: Schema; box: Box }) {
  const foreign = useMemo(() => foreignColumns(schema, table), [schema, table]);
  const left = table.columns.length - columns.length;
  return (
    <>
      {columns.map((column, index) => {
        const mark = table.key.includes(column.name) ? "key" : foreign.has(column.name) ? "foreign" : "plain";
        const y = HEAD + index * ROW + 17;
        return (
          <g key={column.name}>
            <text className="column" data-mark={mark} x="12" y={y}>{shortened(column.name, width * 0.6)}</text>
            <text className="type" x={width - 12} y={y}>{shortened(column.type, width - 36 - Math.min(column.name.length * CHARACTER, width * 0.6))}</text>
          </g>
        );
      })}
      {left > 0 && <text className="type more" x="12" y={HEAD + columns.length * ROW + 17}>{left} more</text>}
    </>
  );
}

function shortened(text: string, width: number): string {
  const most = Math.max(4, Math.floor(width / CHARACTER));
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
