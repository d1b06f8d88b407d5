// A table of any length of which only the rows in sight exist. Rows all have one height.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export const ROW_PX = 34;
export const HIGH_ROW_PX = 56; // two lines
const SPARE_ROWS = 12;

export interface Head {
  id: string;
  title: string;
  sortable?: boolean;
  class?: string;
}

interface Props {
  label: string;
  heads: Head[];
  total: number;
  first: number; // of `rows` within the whole
  rows: { key: string; cells: ComponentChildren[] }[];
  sort: string;
  rowPx: number;
  selected: number; // index within the whole
  onSort: (id: string) => void;
  onWindow: (first: number, count: number) => void;
  onOpen: (key: string) => void;
  onSelect: (index: number) => void;
}

export function Table(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const { rowPx } = props;
  const count = Math.ceil(height / rowPx) + 2 * SPARE_ROWS;
  const first = Math.max(0, Math.floor(top / rowPx) - SPARE_ROWS);
  useEffect(() => props.onWindow(first, count), [first, count]);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const seen = new ResizeObserver(() => setHeight(element.clientHeight));
    seen.observe(element);
    return () => seen.disconnect();
  }, []);
  useEffect(() => {
    const element = box.current;
    if (!element || props.selected < 0) return;
    const at = props.selected * rowPx;
    if (at < element.scrollTop) element.scrollTop = at;
    else if (at + 2 * rowPx > element.scrollTop + element.clientHeight)
      element.scrollTop = at + 2 * rowPx - element.clientHeight;
  }, [props.selected]);
  return (
    <div class="table" ref={box} style={{ "--row-height": `${rowPx}px` }} onScroll={(event) => setTop(event.currentTarget.scrollTop)} tabIndex={0}
      role="region" aria-label={props.label}>
      <table aria-rowcount={props.total + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {props.heads.map((head) => {
              const up = props.sort === head.id;
              const down = props.sort === `-${head.id}`;
              return (
                <th key={head.id} class={head.class} scope="col"
                  aria-sort={up ? "ascending" : down ? "descending" : undefined}>
                  {head.sortable === false ? head.title : (
                    <button type="button" onClick={() => props.onSort(up ? `-${head.id}` : head.id)}>
                      {head.title}<span aria-hidden="true">{up ? " ↑" : down ? " ↓" : ""}</span>
                    </button>
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          <tr class="filler" aria-hidden="true" style={{ height: `${props.first * rowPx}px` }} />
          {props.rows.map((row, index) => {
            const place = props.first + index;
            return (
              <tr key={row.key} aria-rowindex={place + 2} class={place === props.selected ? "selected" : ""}
                onClick={() => { props.onSelect(place); props.onOpen(row.key); }}>
                {row.cells.map((cell, at) => <td class={props.heads[at]?.class}>{cell}</td>)}
              </tr>
            );
          })}
          <tr class="filler" aria-hidden="true"
            style={{ height: `${Math.max(0, props.total - props.first - props.rows.length) * rowPx}px` }} />
        </tbody>
      </table>
    </div>
  );
}
