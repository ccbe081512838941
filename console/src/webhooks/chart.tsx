import { useEffect, useRef, useState, type ReactNode } from "react";
import { powers, short, ticks } from "./statistics";

/** A series of a chart. null is a gap. */
export interface Series {
  name: string;
  /** Number of its color in tokens.css. */
  colour: 1 | 2 | 3 | 4;
  values: (number | null)[];
}

type ChartProps = {
  title: string;
  about: string;
  labels: string[];
  series: Series[];
  form: "bars" | "lines";
  /** Formats a value with its unit. */
  write: (value: number) => string;
};

const HEIGHT = 200;
const TOP = 8;
const BOTTOM = 22;
const LEFT = 52;

/** A chart by day, with stacked bars or lines, a legend, and a table of the values. */
export function Chart({ title, about, labels, series, form, write }: ChartProps) {
  return (
    <figure className="panel chart">
      <figcaption>
        <h2>{title}</h2>
        <p className="hint">{about}</p>
        <ul className="legend" aria-hidden="true">
          {series.map(({ name, colour }) => <li key={name} data-colour={colour}>{name}</li>)}
        </ul>
      </figcaption>
      <Measured>{(width) => <Drawing width={width} title={title} labels={labels} series={series} form={form} write={write} />}</Measured>
      <details>
        <summary>As a table</summary>
        <div className="table-scroll" tabIndex={0} role="region" aria-label={`${title}, as a table`}>
          <table className="table">
            <thead>
              <tr><th scope="col">Day</th>{series.map(({ name }) => <th key={name} scope="col" className="number">{name}</th>)}</tr>
            </thead>
            <tbody>
              {labels.map((label, day) => (
                <tr key={label}>
                  <th scope="row">{label}</th>
                  {series.map(({ name, values }) => <td key={name} className="number">{valueAt(values, day) === null ? "–" : write(valueAt(values, day)!)}</td>)}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}

function valueAt(values: (number | null)[], day: number): number | null {
  return values[day] ?? null;
}

/** Renders its content for the available width, so that texts keep their size. The height is fixed to avoid layout shifts. */
function Measured({ children }: { children: (width: number) => ReactNode }) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  return <div ref={box} className="drawing" style={{ height: HEIGHT }}>{width > 0 && children(width)}</div>;
}

type DrawingProps = Pick<ChartProps, "title" | "labels" | "series" | "form" | "write"> & { width: number };

function Drawing({ width, title, labels, series, form, write }: DrawingProps) {
  const marks = form === "bars" ? stackMarks(labels, series) : lineMarks(series);
  const part = form === "bars" ? (value: number) => value / marks.at(-1)! : logarithmic(marks);
  const step = (width - LEFT) / labels.length;
  const y = (value: number) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - part(value));
  const x = (day: number) => LEFT + step * (day + 0.5);
  const every = Math.ceil(52 / step);
  return (
    <svg width={width} height={HEIGHT} role="img" aria-label={`${title}: ${series.map(({ name }) => name).join(", ")} by day; the table below has the values`}>
      {marks.map((mark) => (
        <g key={mark} className="mark">
          <line x1={LEFT} x2={width} y1={y(mark)} y2={y(mark)} />
          <text x={LEFT - 8} y={y(mark) + 4} textAnchor="end">{form === "bars" ? short(mark) : write(mark)}</text>
        </g>
      ))}
      {labels.map((label, day) => (labels.length - 1 - day) % every === 0 && (
        <text key={label} x={x(day)} y={HEIGHT - 5} textAnchor="middle">{label}</text>
      ))}
      {form === "bars" ? <Bars labels={labels} series={series} x={x} y={y} width={Math.min(28, step * 0.66)} write={write} /> : <Lines series={series} x={x} y={y} labels={labels} write={write} />}
    </svg>
  );
}

function stackMarks(labels: string[], series: Series[]): number[] {
  return ticks(Math.max(...labels.map((_, day) => series.reduce((sum, { values }) => sum + (values[day] ?? 0), 0))));
}

/** Lines use a logarithmic scale, because durations differ by orders of magnitude. */
function lineMarks(series: Series[]): number[] {
  const values = series.flatMap((each) => each.values.filter((value) => value !== null));
  return values.length ? powers(Math.min(...values), Math.max(...values)) : powers(10, 1000);
}

function logarithmic(marks: number[]): (value: number) => number {
  const [first, last] = [Math.log10(marks[0]!), Math.log10(marks.at(-1)!)];
  return (value) => (Math.log10(Math.max(marks[0]!, value)) - first) / (last - first);
}

type PlotProps = Pick<ChartProps, "labels" | "series" | "write"> & { x: (day: number) => number; y: (value: number) => number };

function Bars({ labels, series, x, y, width, write }: PlotProps & { width: number }) {
  return labels.map((label, day) => {
    let below = 0;
    return (
      <g key={label} className="bar">
        <title>{`${label}: ${series.map(({ name, values }) => `${name} ${write(values[day] ?? 0)}`).join(", ")}`}</title>
        <rect className="target" x={x(day) - width * 0.75} width={width * 1.5} y={TOP} height={HEIGHT - TOP - BOTTOM} />
        {series.map(({ name, colour, values }) => {
          const value = values[day] ?? 0;
          const [bottom, top] = [y(below), y(below + value)];
          below += value;
          return value > 0 && <rect key={name} data-colour={colour} x={x(day) - width / 2} width={width} y={top} height={Math.max(1, bottom - top)} />;
        })}
      </g>
    );
  });
}

function Lines({ labels, series, x, y, write }: PlotProps) {
  return series.map(({ name, colour, values }) => (
    <g key={name} className="line" data-colour={colour}>
      {runs(values).map((run) => <polyline key={run[0]} points={run.map((day) => `${x(day)},${y(values[day]!)}`).join(" ")} />)}
      {values.map((value, day) => value !== null && (
        <circle key={day} cx={x(day)} cy={y(value)} r="3.5"><title>{`${labels[day]}: ${name} ${write(value)}`}</title></circle>
      ))}
    </g>
  ));
}

/** Runs of consecutive days with values. */
function runs(values: (number | null)[]): number[][] {
  const found: number[][] = [];
  values.forEach((value, day) => {
    if (value === null) return;
    if (day > 0 && values[day - 1] !== null && found.length) found.at(-1)!.push(day);
    else found.push([day]);
  });
  return found;
}
