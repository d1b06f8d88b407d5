// Curves over steps, by uPlot; the numbers are in a table too, for who does not see them.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { type Curve, joined } from "./curves";
import { number } from "./format";

const COLORS = ["--curve-1", "--curve-2", "--curve-3", "--curve-4", "--curve-5"];
const DASHES: (number[] | undefined)[] = [undefined, [6, 4], [2, 3], [8, 3, 2, 3], [1, 4]];
const HEIGHT_PX = 200;

// What the legend says: the value under the pointer, else the last one.
export function shown(plot: uPlot, index: number, value: number | null | undefined, words: (value: number) => string): string {
  const given = plot.cursor.idx == null ? (plot.data[index] as (number | null)[] | undefined)?.findLast((one) => one !== null) : value;
  return given == null ? "–" : words(given);
}

export function Chart({ column, curves, dark }: { column: string; curves: Curve[]; dark: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const names = curves.map((curve) => curve.name).join("\0");
  useEffect(() => {
    const element = box.current!;
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => style.getPropertyValue(name).trim();
    const axis = { stroke: color("--text-2"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") } };
    plot.current = new uPlot({
      width: element.clientWidth, height: HEIGHT_PX, scales: { x: { time: false } },
      axes: [{ ...axis, label: "step", labelSize: 18 }, { ...axis, size: 60, values: (_, ticks) => ticks.map(number) }],
      series: [{ label: "step", value: (plot, step) => shown(plot, 0, step, number) }, ...curves.map((curve, index) => ({
        label: curve.name, stroke: color(COLORS[index % COLORS.length]!), width: 2, dash: DASHES[index % DASHES.length],
        spanGaps: true, value: (plot: uPlot, value: number | null) => shown(plot, index + 1, value, number),
      }))],
    }, joined(curves, column) as uPlot.AlignedData, element);
    const seen = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
    seen.observe(element);
    return () => { seen.disconnect(); plot.current?.destroy(); plot.current = null; };
  }, [names, column, dark]);
  useEffect(() => plot.current?.setData(joined(curves, column) as uPlot.AlignedData), [curves]);
  const last = curves[0]?.columns[column]?.findLast((value) => value !== null);
  return (
    <figure class="chart">
      <figcaption>{column}{last !== undefined && last !== null ? <b> {number(last)}</b> : null}</figcaption>
      <div ref={box} role="img" aria-label={`${column} over steps${last !== undefined && last !== null ? `, last ${number(last)}` : ""}`} />
    </figure>
  );
}
