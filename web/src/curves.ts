// Curves of several runs as uPlot wants them. Pure.
import type { Columns } from "./types";

export interface Curve {
  name: string;
  columns: Columns;
}

// Puts several runs over one axis of steps: what one has no value for stays empty.
export function joined(curves: Curve[], column: string): (number | null)[][] {
  const steps = [...new Set(curves.flatMap((curve) => curve.columns.step ?? []))].filter((step): step is number => step !== null).sort((a, b) => a - b);
  const places = new Map(steps.map((step, index) => [step, index]));
  return [steps, ...curves.map((curve) => {
    const values: (number | null)[] = new Array(steps.length).fill(null);
    (curve.columns.step ?? []).forEach((step, index) => {
      if (step !== null) values[places.get(step)!] = curve.columns[column]?.[index] ?? null;
    });
    return values;
  })];
}
