// A shell beside a rank or in a pod, in a terminal of the page; it ends with the page.
import { useEffect, useRef, useState } from "preact/hooks";
import { Copy } from "./actions";
import { openSocket } from "./live";
import type { End } from "./terminal";
import type { Job } from "./types";

export function Shell({ job, dark }: { job: Job; dark: boolean }) {
  const [where, setWhere] = useState("rank");
  const [rank, setRank] = useState("0");
  const [open, setOpen] = useState<Record<string, string> | null>(null);
  const [turn, setTurn] = useState(0);
  const [end, setEnd] = useState<End | null>(null);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    let close = () => {};
    let gone = false;
    void import("./terminal").then(({ openTerminal }) => {
      if (!gone) close = openTerminal(box.current!, openSocket(`shell?${new URLSearchParams(open)}`), setEnd);
    }, () => setEnd({ error: "The terminal could not be loaded: the page's server does not answer." }));
    return () => { gone = true; close(); };
  }, [open, dark]);
  const start = () => { setEnd(null); setTurn(turn + 1); setOpen({ job: job.key, ...(where === "rank" ? { rank } : { pod: where }) }); };
  return (
    <section class="shell" aria-label="Shell">
      <form class="bar" onSubmit={(event) => { event.preventDefault(); start(); }}>
        <label>In <select aria-label="Where" value={where} onChange={(event) => setWhere(event.currentTarget.value)}>
          <option value="rank">the pod of a rank</option>
          {job.instances.map((one) => <option value={one.name}>{one.name}</option>)}
        </select></label>
        {where === "rank" && <label>Rank <input type="number" min={0} required value={rank} onInput={(event) => setRank(event.currentTarget.value)} /></label>}
        <button type="submit" class="primary">{open && !end ? "Open anew" : "Open a shell"}</button>
        {open && !end && <button type="button" onClick={() => { setOpen(null); setEnd(null); }}>Close</button>}
      </form>
      <p class="quiet">It runs with your rights, sees what the program sees, and ends when the page is closed. The same in a terminal:</p>
      <Copy text={where === "rank" ? job.commands.shell!.replace("--rank 0", `--rank ${rank || 0}`) : job.commands.shell!.replace("--rank 0", `--instance ${where}`)} />
      {end && <p class={end.error ? "problem" : "note"} role={end.error ? "alert" : "status"}>{end.error ?? `The shell has ended with exit code ${end.exit}.`}</p>}
      {open && <div class="console" ref={box} key={`${turn} ${dark}`} />}
    </section>
  );
}
