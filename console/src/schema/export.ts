import { idOf, labelOf, endsOf, type Relationship, type Schema, type Table } from "./model";

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-family", "font-size", "font-weight", "text-anchor"];

/** The whole drawing as a standalone file, in the colors of the theme. */
export function asSvg(drawing: SVGSVGElement, width: number, height: number): string {
  const copy = drawing.cloneNode(true) as SVGSVGElement;
  const originals = drawing.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((element, index) => {
    const style = getComputedStyle(originals[index]!);
    for (const name of PROPERTIES) element.setAttribute(name, style.getPropertyValue(name));
    element.removeAttribute("class");
  });
  copy.querySelector("[data-scene]")?.removeAttribute("transform");
  const margin = 24;
  const box = [-margin, -margin, width + 2 * margin, height + 2 * margin];
  const ground = document.createElementNS(SVG, "rect");
  const sides = Object.entries({ x: box[0], y: box[1], width: box[2], height: box[3] });
  for (const [name, value] of sides) ground.setAttribute(name, String(value));
  ground.setAttribute("fill", getComputedStyle(drawing).backgroundColor);
  copy.prepend(ground);
  for (const { name } of [...copy.attributes]) copy.removeAttribute(name);
  copy.setAttribute("viewBox", box.join(" "));
  copy.setAttribute("width", String(box[2]));
  copy.setAttribute("height", String(box[3]));
  return new XMLSerializer().serializeToString(copy);
}

/** The schema as an entity relationship diagram of Mermaid. */
export function asMermaid(schema: Schema): string {
  const tables = new Map(schema.tables.map((table) => [idOf(table), table]));
  const keys = new Map(schema.tables.map((table) => [idOf(table), foreignColumns(schema, table)]));
  const entities = schema.tables.map((table) => {
    const columns = table.columns.map((column) => {
      const marks = [
        table.key.includes(column.name) && "PK",
        keys.get(idOf(table))!.has(column.name) && "FK",
        !table.key.includes(column.name) && table.unique.some((each) => each.length === 1 && each[0] === column.name) && "UK",
      ].filter(Boolean);
      return `        ${word(column.type)} ${word(column.name)} ${marks.join(", ")}`.trimEnd();
    });
    return [`    ${quoted(labelOf(schema, table))} {`, ...columns, "    }"].join("\n");
  });
  const relations = schema.relationships.map((relationship) => {
    const [from, to] = endsOf(relationship).map((id) => quoted(labelOf(schema, tables.get(id)!)));
    return `    ${to} ${cardinality(relationship, tables.get(endsOf(relationship)[0])!)} ${from} : ${quoted(relationship.from.columns.join(", "))}`;
  });
  return `${["erDiagram", ...entities, ...relations].join("\n")}\n`;
}

/** The columns of a table's foreign keys. */
export function foreignColumns(schema: Schema, table: Table): Set<string> {
  const own = schema.relationships.filter((each) => endsOf(each)[0] === idOf(table));
  return new Set(own.flatMap((each) => each.from.columns));
}

function cardinality({ from, unique }: Relationship, table: Table): string {
  const optional = table.columns.some((column) => column.nullable && from.columns.includes(column.name));
  return `${optional ? "|o" : "||"}--${unique ? "o|" : "o{"}`;
}

function quoted(text: string): string {
  return `"${text.replaceAll('"', "'")}"`;
}

/** Mermaid allows only letters, digits and a few other characters in types and names. */
function word(text: string): string {
  const plain = text.replace(/[^\p{L}\p{N}_()[\]-]+/gu, "_");
  return /^[\p{L}_]/u.test(plain) ? plain : `_${plain}`;
}

/** Download a text as a file. */
export function save(name: string, type: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  URL.revokeObjectURL(address);
}
