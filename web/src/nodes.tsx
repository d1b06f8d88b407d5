// Nodes with their GPUs and links, the queue, and how much was in use.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { shown } from "./chart";
import { lasted, mayBe, moment, plural, ticks } from "./format";
import type { Live } from "./live";
import type { Gpu, NodeRow, Nodes as NodesValue, Use as UseValue } from "./types";

const CELL = 30;
const USE_PX = 160;
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000]; // there are no half GPUs
const WIDTH: Record<string, number> = { NV: 2.5, PIX: 1.2, PXB: 1, PHB: 0.8 };

// Links are drawn around a circle: thick for NVLink, thin for PCIe; none where only the socket's bus joins two.
function Links({ node }: { node: NodeRow }) {
  const count = node.gpus.length;
  const radius = 62;
  const at = (index: number): [number, number] => {
    const angle = (2 * Math.PI * index) / count - Math.PI / 2;
    return [80 + radius * Math.cos(angle), 80 + radius * Math.sin(angle)];
  };
  const lines = [];
  for (let a = 0; a < count; a++)
    for (let b = a + 1; b < count; b++) {
      const link = node.links[a]?.[b] ?? "";
      const kind = link.startsWith("NV") ? "NV" : link;
      const width = WIDTH[kind];
      if (!width) continue;
      const [x1, y1] = at(a);
      const [x2, y2] = at(b);
      const lanes = link.startsWith("NV") ? Number(link.slice(2)) || 1 : 1;
      lines.push(<line x1={x1} y1={y1} x2={x2} y2={y2} class={link.startsWith("NV") ? "nvlink" : "pcie"} stroke-width={Math.min(width + (lanes - 1) * 0.5, 4)}><title>{`GPU ${node.gpus[a]!.index} – ${node.gpus[b]!.index}: ${link}`}</title></line>);
    }
  return (
    <svg viewBox="0 0 160 160" class="links" role="img" aria-label={`Links between the ${count} GPUs of ${node.name}`}>
      {lines}
      {node.gpus.map((gpu, index) => {
        const [x, y] = at(index);
        return <g class={gpuClass(gpu)}><circle cx={x} cy={y} r={11} /><text x={x} y={y + 4} text-anchor="middle">{gpu.index}</text></g>;
      })}
    </svg>
  );
}

const gpuClass = (gpu: Gpu): string => (gpu.healthy ? (gpu.holder ? "gpu held" : "gpu free") : "gpu sick");

function Grid({ node }: { node: NodeRow }) {
  return (
    <div class="gpus" style={{ gridTemplateColumns: `repeat(auto-fill, minmax(${CELL}px, 1fr))` }}>
      {node.gpus.map((gpu) => (
        <span class={gpuClass(gpu)} title={`GPU ${gpu.index} ${gpu.uuid}: ${gpu.healthy ? gpu.holder || "free" : "unhealthy"}`}>
          {gpu.index}<span aria-hidden="true">{gpu.healthy ? (gpu.holder ? "■" : "□") : "✗"}</span>
          <span class="sr">{gpu.healthy ? (gpu.holder ? `held by ${gpu.holder}` : "free") : "unhealthy"}</span>
        </span>
      ))}
    </div>
  );
}

function Use({ use, dark }: { use: UseValue; dark: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = box.current!;
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => style.getPropertyValue(name).trim();
    const axis = { stroke: color("--text-2"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") } };
    const plot = new uPlot({
      width: element.clientWidth, height: USE_PX, axes: [{ ...axis, space: 70, values: (_, splits, __, ___, step) => ticks(splits, step) }, { ...axis, size: 46, incrs: WHOLE }], scales: { y: { range: (_, __, max) => [0, Math.max(max, 1)] } },
      series: [
        { label: "at", value: (plot, second) => shown(plot, 0, second, (at) => moment(new Date(at * 1000), new Date())) },
        { label: "in use", stroke: color("--curve-1"), fill: color("--curve-fill"), width: 2, points: { show: false }, value: (plot, count) => shown(plot, 1, count, String) },
        { label: "GPUs", stroke: color("--text-2"), dash: [4, 4], points: { show: false }, value: (plot, count) => shown(plot, 2, count, String) },
      ],
    }, [use.time, use.used, use.total], element);
    const seen = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: USE_PX }));
    seen.observe(element);
    return () => { seen.disconnect(); plot.destroy(); };
  }, [use.time.length, use.time.at(-1), dark]);
  return <div ref={box} role="img" aria-label={`GPUs in use over the last hours, now ${use.used.at(-1) ?? 0} of ${use.total.at(-1) ?? 0}`} />;
}

// From when on it is known, and who looked.
function known(use: UseValue): string {
  const first = use.time[0];
  if (first === undefined) return use.noted ? "no sample yet" : "known from now on, while this page's server runs";
  const since = moment(new Date(first * 1000), new Date());
  return use.noted ? `since ${since}, six hours at most` : `since ${since}, when this page's server began to look`;
}

export function Nodes({ live, dark, now }: { live: Live; dark: boolean; now: number }) {
  const [nodes, setNodes] = useState<NodesValue | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const stop = live.listen((message) => {
      if (message.nodes) { setNodes(message.nodes); setProblem(""); }
      if (message.error?.title === "nodes") setProblem(message.error.message);
    });
    live.want({ nodes: true });
    return () => { stop(); live.want({ nodes: false }); };
  }, []);
  if (!nodes && problem) return <div class="page"><h1 class="sr">Nodes</h1><p class="problem" role="alert">{problem}</p></div>;
  if (!nodes) return <div class="empty" role="status"><p>Reading nodes …</p></div>;
  const hasGpus = nodes.rows.some((node) => node.total > 0);
  return (
    <div class="page">
      <h1 class="sr">Nodes</h1>
      {problem && <p class="problem" role="alert">{problem} What is below was read before.</p>}
      {hasGpus && <section><h2>In use <small>{known(nodes.use)}</small></h2><Use use={nodes.use} dark={dark} /></section>}
      <section>
        <h2>Queue <small>{plural(nodes.queue.length, "gang")} waiting</small></h2>
        {nodes.queue.length === 0 ? <p class="quiet">Nothing waits for room.</p> : (
          <div class="scroll"><table class="small">
            <thead><tr><th scope="col" class="figure">Place</th><th scope="col">Job</th><th scope="col" class="figure">Pods</th><th scope="col" class="figure">Priority</th><th scope="col" class="figure">Waits</th><th scope="col">May start</th><th scope="col">Why</th></tr></thead>
            <tbody>{nodes.queue.map((one) => (
              <tr><td class="figure">{one.place || "–"}{one.queue && <span class="quiet"> in {one.queue}</span>}</td><td class="name">{one.key ? <a href={`#/job/${one.key}`}>{one.gang}</a> : one.gang}</td><td class="figure">{one.pods}</td><td class="figure">{one.priority}</td><td class="figure">{lasted(one.since, "", now)}</td><td class="moments">{mayBe(one.mayStart, one.mayStartAbout, one.mayStartByNineOfTen, now)}</td><td class="sentence">{one.message || one.reason}</td></tr>
            ))}</tbody>
          </table></div>
        )}
      </section>
      <section>
        <h2>Nodes <small>{nodes.rows.length}</small></h2>
        <div class="cards">
          {nodes.rows.map((node) => (
            <article class="card" aria-label={`Node ${node.name}`}>
              <h3>{node.name} <small>{node.status}{node.model ? ` · ${node.model}` : ""}</small></h3>
              {node.kind === "simulated" && <p class="badge">simulated GPUs</p>}
              <p class="quiet">{node.total ? `${node.allocated} of ${plural(node.total, "GPU")} held` : "no GPUs"}
                {node.gpus.length > 0 && ` · free: ${plural(node.free.pairs, "pair")}, ${plural(node.free.quads, "quad")}${node.free.whole ? ", whole node" : ""}`}</p>
              {node.gpus.length > 1 && node.gpus.length <= 16 && node.links.length > 0 && <Links node={node} />}
              {node.gpus.length > 0 && <Grid node={node} />}
              {node.total > 0 && node.gpus.length === 0 && <p class="quiet">Which GPU a pod has, the node's own device plugin chooses and does not tell.</p>}
              {node.holders.length > 0 && <ul>{node.holders.map((one) => <li>{one.namespace}/{one.name}: {one.requested}</li>)}</ul>}
            </article>
          ))}
        </div>
      </section>
    </div>
  );
}
