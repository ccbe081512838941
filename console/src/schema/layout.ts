import { Graph, layout } from "@dagrejs/dagre";
import { endsOf, idOf, labelOf, type Column, type Relationship, type Schema, type Table, type TableId } from "./model";

export const HEAD = 30;
export const ROW = 20;
const MOST_ROWS = 16;
export const CHARACTER = 7.3;
const GAP = 56;

export interface Point {
  x: number;
  y: number;
}

export interface Box extends Point {
  id: TableId;
  table: Table;
  label: string;
  width: number;
  height: number;
  /** The first of the table's columns. */
  columns: Column[];
}

export interface Line {
  relationship: Relationship;
  ends: [TableId, TableId];
  points: Point[];
}

/** The layout of the diagram. Boxes are positioned by their upper left corners. */
export interface Diagram {
  boxes: Box[];
  lines: Line[];
  width: number;
  height: number;
}

/** Lay out each group of related tables separately, and arrange the groups in rows. */
export function place(schema: Schema): Diagram {
  const boxes = new Map(schema.tables.map((table) => [idOf(table), boxOf(schema, table)]));
  const lines = schema.relationships.map((relationship) => ({ relationship, ends: endsOf(relationship), points: [] }));
  return inRows(groups(boxes, lines).map((group) => placeGroup(group.boxes, group.lines)));
}

function boxOf(schema: Schema, table: Table): Box {
  const columns = table.columns.slice(0, MOST_ROWS);
  const label = labelOf(schema, table);
  const widest = Math.max(label.length + 2, ...columns.map(({ name, type }) => name.length + type.length + 6));
  const rows = columns.length + (table.columns.length > MOST_ROWS ? 1 : 0);
  const width = Math.min(360, Math.max(140, Math.ceil(widest * CHARACTER)));
  return { id: idOf(table), table, label, x: 0, y: 0, width, height: HEAD + rows * ROW + 6, columns };
}

type Group = { boxes: Box[]; lines: Line[] };

/** The groups of tables that are connected by keys, directly or indirectly. */
function groups(boxes: Map<TableId, Box>, lines: Line[]): Group[] {
  const neighbours = new Map<TableId, TableId[]>([...boxes.keys()].map((id) => [id, []]));
  for (const { ends: [from, to] } of lines) {
    neighbours.get(from)?.push(to);
    neighbours.get(to)?.push(from);
  }
  const groupOf = new Map<TableId, Group>();
  const found: Group[] = [];
  for (const start of boxes.keys()) {
    if (groupOf.has(start)) continue;
    const group: Group = { boxes: [], lines: [] };
    found.push(group);
    const waiting = [start];
    for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
      if (groupOf.has(id)) continue;
      groupOf.set(id, group);
      group.boxes.push(boxes.get(id)!);
      waiting.push(...neighbours.get(id)!);
    }
  }
  for (const line of lines) groupOf.get(line.ends[0])!.lines.push(line);
  return found;
}

function placeGroup(boxes: Box[], lines: Line[]): Diagram {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: "RL", nodesep: 32, edgesep: 14, ranksep: 72 });
  for (const { id, width, height } of boxes) graph.setNode(id, { width, height });
  lines.forEach(({ ends: [from, to] }, index) => {
    if (from !== to) graph.setEdge(from, to, {}, String(index));
  });
  layout(graph);
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
  const placed = boxes.map((box) => {
    const { x, y } = graph.node(box.id) as Point;
    return { ...box, x: x - box.width / 2, y: y - box.height / 2 };
  });
  const room = heightFor(boxes.reduce((sum, box) => sum + (box.width + GAP) * (box.height + GAP), 0));
  if (height > 2 * room) return folded(placed, lines, room);
  return {
    boxes: placed,
    lines: lines.map((line, index) => {
      if (line.ends[0] === line.ends[1]) return { ...line, points: loop(placed.find(({ id }) => id === line.ends[0])!) };
      const { points } = graph.edge(line.ends[0], line.ends[1], String(index)) as { points: Point[] };
      return { ...line, points };
    }),
    width,
    height,
  };
}

/** The height of a drawing with this area that is slightly wider than high. */
function heightFor(area: number): number {
  return Math.sqrt(area / 1.6);
}

/**
 * A group of many tables in few ranks would become a tall strip, so each rank is folded into columns, in the same order.
 */
function folded(boxes: Box[], lines: Line[], room: number): Diagram {
  const ranks = new Map<number, Box[]>();
  for (const box of boxes) {
    const middle = Math.round(box.x + box.width / 2);
    ranks.set(middle, [...(ranks.get(middle) ?? []), box]);
  }
  const columns = [...ranks].sort(([one], [other]) => one - other).flatMap(([, rank]) => columnsOf(rank, room));
  const whole: Diagram = { boxes: [], lines: [], width: 0, height: Math.max(...columns.map((column) => column.height)) };
  for (const column of columns) {
    const widest = Math.max(...column.boxes.map((box) => box.width));
    let y = (whole.height - column.height) / 2;
    for (const box of column.boxes) {
      whole.boxes.push({ ...box, x: whole.width + (widest - box.width) / 2, y });
      y += box.height + GAP / 2;
    }
    whole.width += widest + GAP;
  }
  whole.width -= GAP;
  const at = new Map(whole.boxes.map((box) => [box.id, box]));
  whole.lines = lines.map((line) => {
    const [from, to] = line.ends.map((id) => at.get(id)!) as [Box, Box];
    return { ...line, points: from === to ? loop(from) : between(from, to) };
  });
  return whole;
}

function columnsOf(rank: Box[], room: number): { boxes: Box[]; height: number }[] {
  const columns: { boxes: Box[]; height: number }[] = [];
  for (const box of [...rank].sort((one, other) => one.y - other.y)) {
    const last = columns.at(-1);
    if (last && last.height + GAP / 2 + box.height <= room) {
      last.boxes.push(box);
      last.height += GAP / 2 + box.height;
    } else columns.push({ boxes: [box], height: box.height });
  }
  return columns;
}

/** The line of a key, from the side of the table that faces the other one. */
function between(from: Box, to: Box): Point[] {
  const leftwards = from.x + from.width / 2 >= to.x + to.width / 2;
  const start = { x: leftwards ? from.x : from.x + from.width, y: from.y + HEAD / 2 };
  const end = { x: leftwards ? to.x + to.width : to.x, y: to.y + HEAD / 2 };
  const out = leftwards ? -GAP / 2 : GAP / 2;
  return [start, { x: start.x + out, y: start.y }, { x: end.x - out, y: end.y }, end];
}

/** The line of a self-reference, below the table. The library misplaces such lines if ranks are horizontal. */
function loop({ x, y, width, height }: Box): Point[] {
  const [left, right, bottom] = [x + width * 0.55, x + width * 0.85, y + height];
  return [{ x: left, y: bottom }, { x: left, y: bottom + 28 }, { x: right, y: bottom + 28 }, { x: right, y: bottom }];
}

function inRows(parts: Diagram[]): Diagram {
  const area = parts.reduce((sum, part) => sum + (part.width + GAP) * (part.height + GAP), 0);
  const limit = Math.max(Math.sqrt(area * 1.6), ...parts.map((part) => part.width));
  const whole: Diagram = { boxes: [], lines: [], width: 0, height: 0 };
  let [x, y, rowHeight] = [0, 0, 0];
  for (const part of [...parts].sort((one, other) => other.height - one.height)) {
    if (x > 0 && x + part.width > limit) [x, y, rowHeight] = [0, y + rowHeight + GAP, 0];
    const moved = <T extends Point>(point: T): T => ({ ...point, x: point.x + x, y: point.y + y });
    whole.boxes.push(...part.boxes.map(moved));
    whole.lines.push(...part.lines.map((line) => ({ ...line, points: line.points.map(moved) })));
    whole.width = Math.max(whole.width, x + part.width);
    whole.height = Math.max(whole.height, y + part.height);
    x += part.width + GAP;
    rowHeight = Math.max(rowHeight, part.height);
  }
  return whole;
}
