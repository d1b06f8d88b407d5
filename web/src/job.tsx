// One job: how it stands, its ranks, curves, log, placement, events, file.
import { useEffect, useState } from "preact/hooks";
import { Actions, Copy } from "./actions";
import { Chart } from "./chart";
import type { Curve } from "./curves";
import { lasted } from "./format";
import { Bar, StateWord } from "./jobs";
import type { Live } from "./live";
import { Log } from "./log";
import { Shell } from "./shell";
import type { Cluster, Job as JobValue, LastLine, RunRow, Series } from "./types";

const TABS = ["Overview", "Log", "Placement", "Events", "Manifest", "Shell"] as const;
const NOT_CURVES = new Set(["step", "steps", "eta_s", "ranks", "time"]);

interface Props {
  live: Live;
  jobKey: string;
  cluster: Cluster | null;
  dark: boolean;
  now: number;
  back: () => void;
}

// Of a pod with several ranks each has a line of its own below.
const lastOf = (lines: LastLine[], pod: string): string => {
  const own = lines.filter((one) => one.pod === pod);
  return own.length === 1 ? own[0]!.text : "";
};

function Ranks({ lines }: { lines: LastLine[] }) {
  const ranks = lines.filter((one) => one.rank !== null);
  if (ranks.length < 2) return null;
  return (
    <>
      <h2>Ranks</h2>
      <div class="scroll ranks" tabIndex={0} role="region" aria-label="Ranks"><table class="small">
        <thead><tr><th scope="col" class="figure">Rank</th><th scope="col">Last line</th></tr></thead>
        <tbody>{ranks.map((one) => <tr><td class="figure">{one.rank}</td><td class="sentence"><code>{one.text}</code></td></tr>)}</tbody>
      </table></div>
    </>
  );
}

export function Job({ live, jobKey, cluster, dark, now, back }: Props) {
  const [job, setJob] = useState<JobValue | null>(null);
  const [series, setSeries] = useState<Record<string, Series>>({});
  const [runs, setRuns] = useState<RunRow[]>([]);
  const [overlays, setOverlays] = useState<string[]>([]);
  const [tab, setTab] = useState<(typeof TABS)[number]>("Overview");
  useEffect(() => {
    setJob(null);
    setSeries({});
    setOverlays([]);
    const stop = live.listen((message) => {
      if (message.job?.key === jobKey) setJob(message.job);
      if (message.series) setSeries((before) => ({ ...before, [message.series!.key]: message.series! }));
      if (message.runs) setRuns(message.runs.rows);
    });
    live.want({ job: jobKey, runs: true });
    return () => { stop(); live.want({ job: null, runs: false, overlays: [] }); };
  }, [jobKey]);
  useEffect(() => live.want({ overlays }), [overlays]);
  if (!job) return <div class="empty" role="status"><p>Reading {jobKey} …</p></div>;
  if (job.gone) return <div class="empty"><p>{jobKey} is not there any more.</p><p><a href="#/">All jobs</a> · <a href="#/runs">Runs of the past</a></p></div>;
  const { row } = job;
  const others = runs.filter((run) => run.name && run.key !== jobKey && !run.lacks);
  const own = series[jobKey];
  const curves: Curve[] = [
    ...(own ? [{ name: row.name, columns: own.columns }] : []),
    ...overlays.map((id) => ({ name: runs.find((run) => run.id === id)?.name ?? id, columns: series[`run/${id}`]?.columns ?? {} })),
  ];
  const columns = [...new Set(curves.flatMap((curve) => Object.keys(curve.columns)))].filter((name) => !NOT_CURVES.has(name));
  return (
    <article class="job">
      <header>
        <p class="crumbs"><button type="button" class="plain" onClick={back}>← Jobs</button></p>
        <h1>{row.name} <small>{row.kind} · {row.namespace}</small></h1>
        <p class="facts">
          <StateWord state={row.state} /> <span>for {lasted(row.created, row.ended, now)}</span>
          {row.gpus > 0 && <span>{row.gpus} GPUs{cluster?.simulated ? " (simulated)" : ""}</span>}
          <Bar row={row} />
        </p>
        {row.reason && <p class={row.state === "FAILED" ? "problem" : "why-box"}>{row.reason}</p>}
        <Actions job={job} podsMax={cluster?.podsMax} onGone={back} />
      </header>
      <div class="tabs" role="tablist" aria-label="Parts of the job">
        {TABS.map((name) => <button type="button" role="tab" id={`tab-${name}`} aria-selected={tab === name} aria-controls="tabpanel" onClick={() => setTab(name)}>{name}</button>)}
      </div>
      <div id="tabpanel" role="tabpanel" aria-labelledby={`tab-${tab}`} tabIndex={0} class="panel">
        {tab === "Overview" && (
          <>
            <h2>Pods</h2>
            <div class="scroll"><table class="small">
              <thead><tr><th scope="col">Pod</th><th scope="col">State</th><th scope="col">Node</th><th scope="col" class="figure">GPUs</th><th scope="col" class="figure">Restarts</th><th scope="col" class="figure">Age</th><th scope="col">Last line</th></tr></thead>
              <tbody>{job.instances.map((one) => (
                <tr><td class="name">{one.name}{one.chief && <span class="quiet"> chief</span>}</td><td>{one.status}</td><td class="time">{one.node || "–"}</td><td class="figure">{one.gpus || "–"}</td><td class="figure">{one.restarts}</td><td class="figure">{lasted(one.created, "", now)}</td><td class="sentence"><code>{lastOf(job.lines, one.name)}</code></td></tr>
              ))}</tbody>
            </table></div>
            {job.instances.length === 0 && <p class="quiet">No pods now.</p>}
            <Ranks lines={job.lines} />
            <h2>Curves</h2>
            {columns.length === 0 && <p class="quiet">Nothing is reported. <code>session.progress</code> of <code>gangline.train</code> draws curves here.</p>}
            {others.length > 0 && columns.length > 0 && (
              <details><summary>Compare with runs of the past</summary>
                <div class="overlays">{others.slice(0, 30).map((run) => (
                  <label class="check"><input type="checkbox" checked={overlays.includes(run.id)} onChange={(event) => setOverlays(event.currentTarget.checked ? [...overlays, run.id].slice(-4) : overlays.filter((one) => one !== run.id))} /> {run.name} <span class="quiet">{run.id.slice(0, 8)} {run.last}</span></label>
                ))}</div>
              </details>
            )}
            <div class="charts">{columns.map((name) => <Chart key={name} column={name} curves={curves} dark={dark} />)}</div>
          </>
        )}
        {tab === "Log" && <Log live={live} jobKey={jobKey} instances={job.instances} />}
        {tab === "Placement" && (
          <>
            <h2>Why, and where</h2>
            <pre class="text">{job.explain || "Nothing to explain."}</pre>
            {job.placement && <><h2>Ring and predicted step</h2><pre class="text">{job.placement}</pre></>}
            <Copy text={job.commands.explain!} />
          </>
        )}
        {tab === "Events" && (
          <>
            <h2>Conditions</h2>
            <div class="scroll"><table class="small"><thead><tr><th scope="col">Type</th><th scope="col">Status</th><th scope="col">Reason</th><th scope="col">Message</th></tr></thead>
              <tbody>{job.conditions.map((one) => <tr><td>{one.type}</td><td>{one.status}</td><td>{one.reason}</td><td class="sentence">{one.message}</td></tr>)}</tbody></table></div>
            <h2>Events</h2>
            <div class="scroll"><table class="small"><thead><tr><th scope="col">Ago</th><th scope="col">Type</th><th scope="col">Reason</th><th scope="col">About</th><th scope="col">Message</th></tr></thead>
              <tbody>{job.events.map((one) => <tr class={one.type === "Warning" ? "warning" : ""}><td class="time" title={one.time}>{lasted(one.time, "", now)}</td><td>{one.type}{one.count > 1 ? ` ×${one.count}` : ""}</td><td>{one.reason}</td><td>{one.about}</td><td class="sentence">{one.message}</td></tr>)}</tbody></table></div>
            {job.events.length === 0 && <p class="quiet">No events are kept.</p>}
          </>
        )}
        {tab === "Manifest" && <><Copy text={job.commands.manifest!} /><pre class="text">{job.manifest}</pre></>}
        {tab === "Shell" && <Shell job={job} dark={dark} />}
      </div>
    </article>
  );
}
