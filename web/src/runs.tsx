// What ran on this machine, jobs that are gone too.
import { useEffect, useState } from "preact/hooks";
import { duration, lasted } from "./format";
import type { Live } from "./live";
import type { RunRow } from "./types";

export function Runs({ live, now }: { live: Live; now: number }) {
  const [runs, setRuns] = useState<RunRow[] | null>(null);
  const [filter, setFilter] = useState("");
  useEffect(() => {
    const stop = live.listen((message) => message.runs && setRuns(message.runs.rows));
    live.want({ runs: true });
    return () => { stop(); live.want({ runs: false }); };
  }, []);
  if (!runs) return <div class="empty" role="status"><p>Reading runs …</p></div>;
  const shown = runs.filter((run) => `${run.name} ${run.command} ${run.status}`.toLowerCase().includes(filter.toLowerCase()));
  return (
    <div class="page">
      <h1 class="sr">Runs</h1>
      <div class="bar"><input type="search" placeholder="Filter runs" aria-label="Filter runs" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} /></div>
      {shown.length === 0 ? <div class="empty"><p>{runs.length ? "No run matches." : "No runs are kept yet."}</p></div> : (
        <div class="scroll"><table class="small">
          <thead><tr><th scope="col">Name</th><th scope="col">Result</th><th scope="col" class="figure">Ago</th><th scope="col" class="figure">Took</th><th scope="col">Last</th><th scope="col">Command</th></tr></thead>
          <tbody>{shown.map((run) => <tr><td>{run.name} <span class="quiet">{run.id.slice(0, 8)}</span></td><td title={run.reason}>{run.status.toLowerCase()}</td><td class="figure">{lasted(run.started, "", now)}</td><td class="figure">{duration(run.duration_s)}</td><td>{run.last}</td><td><code>{run.command}</code></td></tr>)}</tbody>
        </table></div>
      )}
    </div>
  );
}
