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
  shown: Column[];
}

export interface Line {
  relationship: Relationship;
  ends: [TableId, TableId];
  points: Point[];
}

/** Where everything of the diagram is; the points of boxes are their upper left corners. */
export interface Diagram {
  boxes: Box[];
  lines: Line[];
  width: number;
  height: number;
}

/** Place each group of related tables by itself, and the groups side by side in rows. */
export function place(schema: Schema): Diagram {
  const boxes = new Map(schema.tables.map((table) => [idOf(table), boxOf(schema, table)]));
  const lines = schema.relationships.map((relationship) => ({ relationship, ends: endsOf(relationship), points: [] }));
  return inRows(groups(boxes, lines).map((group) => placeGroup(group.boxes, group.lines)));
}

function boxOf(schema: Schema, table: Table): Box {
  const shown = table.columns.slice(0, MOST_ROWS);
  const label = labelOf(schema, table);
  const widest = Math.max(label.length + 2, ...shown.map(({ name, type }) => name.length + type.length + 6));
  const rows = shown.length + (table.columns.length > MOST_ROWS ? 1 : 0);
  const width = Math.min(360, Math.max(140, Math.ceil(widest * CHARACTER)));
  return { id: idOf(table), table, label, x: 0, y: 0, width, height: HEAD + rows * ROW + 6, shown };
}

type Group = { boxes: Box[]; lines: Line[] };

/** The tables that keys connect, by whatever way, with their keys. */
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

/** The way of a key from a table to itself, below it: the library draws such lines elsewhere where ranks lie sideways. */
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
