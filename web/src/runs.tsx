// What ran: what this machine keeps, jobs that are gone too; of a cluster the jobs that are over and still there.
import { useEffect, useState } from "preact/hooks";
import { duration, lasted } from "./format";
import { StateWord } from "./jobs";
import type { Live } from "./live";
import type { Cluster, RunRow, State } from "./types";

// What is kept, and what is not: nobody should look here for a run that is gone.
function Kept({ cluster }: { cluster: Cluster | null }) {
  if (!cluster || cluster.local) return null;
  return (
    <p class="quiet">
      {cluster.files && "Runs that began on this machine are kept on it. "}
      {cluster.files ? "Of other jobs that are over" : "Of jobs that are over"} you see what the cluster still has: a result goes with its job, a log and its curves with the pods.
      {!cluster.files && <> Nothing is kept beside it; what you start with <code>gangline run --context</code> is kept on your machine too.</>}
    </p>
  );
}

function Name({ run }: { run: RunRow }) {
  const name = <>{run.name} <span class="quiet">{run.id.slice(0, 8)}</span></>;
  return run.key ? <a href={`#/job/${run.key}`}>{name}</a> : name;
}

export function Runs({ live, cluster, now }: { live: Live; cluster: Cluster | null; now: number }) {
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
      <Kept cluster={cluster} />
      <div class="bar"><input type="search" placeholder="Filter runs" aria-label="Filter runs" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} /></div>
      {shown.length === 0 ? <div class="empty"><p>{runs.length ? "No run matches." : cluster?.local === false ? "No job that is over is there." : "No runs are kept yet."}</p></div> : (
        <div class="scroll"><table class="small">
          <thead><tr><th scope="col">Name</th><th scope="col">Result</th><th scope="col" class="figure">Ago</th><th scope="col" class="figure">Took</th><th scope="col">Last</th><th scope="col">Command</th></tr></thead>
          <tbody>{shown.map((run) => (
            <tr>
              <td class="name"><Name run={run} /></td>
              <td title={run.reason}><StateWord state={run.status as State} /></td>
              <td class="figure">{lasted(run.started, "", now)}</td>
              <td class="figure">{duration(run.duration_s)}</td>
              <td class="sentence">{run.last || <span class="quiet">{run.lacks}</span>}</td>
              <td class="sentence"><code>{run.command}</code></td>
            </tr>
          ))}</tbody>
        </table></div>
      )}
    </div>
  );
}
