// The list of jobs: filter, sort, choose; what each is doing, in one line.
import { useEffect, useRef, useState } from "preact/hooks";
import { SYMBOLS, duration, lasted, number, plural, share, startLine } from "./format";
import type { Live } from "./live";
import { TELEPHONE, useMedia } from "./media";
import { HIGH_ROW_PX, type Head, ROW_PX, Table } from "./table";
import type { Cluster, JobRow, JobsWindow, State } from "./types";

const STATES: State[] = ["RUNNING", "PENDING", "SUSPENDED", "SUCCEEDED", "FAILED"];

export function StateWord({ state }: { state: State }) {
  return <span class={`state ${state.toLowerCase()}`}><span aria-hidden="true">{SYMBOLS[state]} </span>{state.toLowerCase()}</span>;
}

// How far a job is; in `oneLine` what does not fit is left out, from the end.
export function Bar({ row, oneLine = false }: { row: JobRow; oneLine?: boolean }) {
  const part = share(row.progress);
  if (!row.progress) return null;
  const { step, steps, rate, unit, eta_s } = row.progress;
  const words = [
    steps ? `${Math.round((part ?? 0) * 100)} %` : `step ${step}`,
    eta_s && row.state === "RUNNING" ? `${duration(eta_s)} left` : "",
    rate ? `${number(rate)} ${unit ?? "items"}/s` : "",
  ].filter(Boolean);
  return (
    <span class="progress" title={words.join(" · ")}>
      {part !== null && <progress value={part} max={1} aria-label={`progress of ${row.name}`} />}
      {oneLine ? <span class="words">{words.map((word) => <span>{word}</span>)}</span> : <span>{words.join(" · ")}</span>}
    </span>
  );
}

function What({ row }: { row: JobRow }) {
  return (
    <span class="both">
      <Bar row={row} oneLine />
      {row.reason && <span class="reason" title={row.reason}>{row.reason}</span>}
      {!row.progress && !row.reason && <span class="quiet">–</span>}
    </span>
  );
}

interface Props {
  live: Live;
  jobs: JobsWindow | null;
  cluster: Cluster | null;
  now: number;
  open: (key: string) => void;
}

export function Jobs({ live, jobs, cluster, now, open }: Props) {
  const [filter, setFilter] = useState("");
  const [states, setStates] = useState<string[]>([]);
  const [sort, setSort] = useState("-created");
  const [place, setPlace] = useState({ first: 0, count: 60 });
  const [selected, show] = useState(-1);
  const chosen = useRef(-1); // at once, however fast one types
  const setSelected = (at: number) => { chosen.current = at; show(at); };
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    live.want({ jobs: { filter, states, sort, ...place } });
  }, [filter, states, sort, place.first, place.count]);
  useEffect(() => () => live.want({ jobs: null }), []);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement || event.ctrlKey || event.metaKey) {
        if (event.key === "Escape") (event.target as HTMLElement).blur();
        return;
      }
      const last = (jobs?.total ?? 0) - 1;
      if (event.key === "/") { event.preventDefault(); field.current?.focus(); }
      else if (event.key === "j" || event.key === "ArrowDown") { event.preventDefault(); setSelected(Math.min(chosen.current + 1, last)); }
      else if (event.key === "k" || event.key === "ArrowUp") { event.preventDefault(); setSelected(Math.max(chosen.current - 1, 0)); }
      else if (event.key === "Enter" && chosen.current >= 0 && document.activeElement?.tagName !== "BUTTON") {
        const row = jobs?.rows[chosen.current - jobs.first];
        if (row) open(row.key);
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [jobs]);
  const toggle = (state: string) =>
    setStates(states.includes(state) ? states.filter((one) => one !== state) : [...states, state]);
  const isNarrow = useMedia(TELEPHONE);
  const manyNamespaces = new Set(jobs?.rows.map((row) => row.namespace)).size > 1;
  const heads: Head[] = [
    { id: "name", title: "Name" },
    { id: "state", title: "State" },
    { id: "progress", title: "Progress, or why not", sortable: false, class: "what" }, // below the name on a telephone
    { id: "gpus", title: "GPUs", class: "figure" },
    { id: "node", title: "Node", class: "wider" },
    { id: "created", title: "For", class: "figure" },
  ];
  const rows = (jobs?.rows ?? []).map((row) => ({
    key: row.key,
    cells: [
      <a href={`#/job/${row.key}`} title={`${row.kind} ${row.namespace}/${row.name}`} onClick={(event) => event.stopPropagation()}>
        {manyNamespaces && <span class="quiet">{row.namespace}/</span>}{row.name}
        <span class="kind"> {row.kind}</span>{isNarrow && <What row={row} />}
      </a>,
      <StateWord state={row.state} />,
      !isNarrow && <What row={row} />,
      row.gpus ? (row.state === "RUNNING" || row.state === "PENDING" ? `${row.allocated}/${row.gpus}` : row.gpus) : "–",
      row.node || "–",
      lasted(row.created, row.ended, now),
    ],
  }));
  return (
    <section class="fill">
      <h1 class="sr">Jobs</h1>
      <form class="bar" role="search" onSubmit={(event) => event.preventDefault()}>
        <input ref={field} type="search" placeholder="Filter by name, kind, node, reason ( / )" aria-label="Filter jobs"
          value={filter} onInput={(event) => { setFilter(event.currentTarget.value); setSelected(-1); }} />
        <span class="chips" role="group" aria-label="States">
          {STATES.map((state) => (
            <button type="button" key={state} class="chip" aria-pressed={states.includes(state)} onClick={() => toggle(state)}>
              <span aria-hidden="true">{SYMBOLS[state]} </span>{state.toLowerCase()} <b>{cluster?.counts[state] ?? 0}</b>
            </button>
          ))}
        </span>
        <span class="quiet" role="status">{jobs && jobs.total !== jobs.all ? `${jobs.total.toLocaleString("en")} of ${plural(jobs.all, "job")}` : plural(jobs?.all ?? 0, "job")}</span>
      </form>
      {!jobs ? <div class="empty" role="status"><p>Reading jobs …</p></div> : jobs.all === 0 ? (
        <div class="empty">
          <p>{cluster?.forbidden.length ? "No jobs that you may see." : "No jobs yet."}</p>
          <p><code>{startLine(cluster)}</code> starts one, and so does <a href="#/new">New</a>.</p>
        </div>
      ) : jobs.total === 0 ? (
        <div class="empty"><p>No job matches. <button type="button" onClick={() => { setFilter(""); setStates([]); }}>Show all</button></p></div>
      ) : (
        <Table label="Jobs" heads={heads} total={jobs.total} first={jobs.first} rows={rows} sort={sort} rowPx={isNarrow ? HIGH_ROW_PX : ROW_PX} selected={selected}
          onSort={setSort} onWindow={(first, count) => setPlace({ first, count })} onOpen={open} onSelect={setSelected} />
      )}
    </section>
  );
}
