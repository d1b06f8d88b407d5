// What can be done with a job: each with the command line that does the same, and asked again where it cannot be undone.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Done, act } from "./live";
import type { Job } from "./types";

interface Ask {
  action: string;
  title: string;
  question: string;
  command: string;
  body: Record<string, unknown>;
  number?: { label: string; value: number };
}

export function Copy({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  return (
    <span class="command">
      <code>{text}</code>
      <button type="button" class="plain" aria-label={`Copy: ${text}`} onClick={() => {
        void navigator.clipboard?.writeText(text);
        setCopied(true);
        setTimeout(() => setCopied(false), 1500);
      }}>{copied ? "copied" : "copy"}</button>
    </span>
  );
}

export function Actions({ job, podsMax, onGone }: { job: Job; podsMax?: number; onGone: () => void }) {
  const [ask, setAsk] = useState<Ask | null>(null);
  const [done, setDone] = useState<Done | null>(null);
  const [count, setCount] = useState(0);
  const [busy, setBusy] = useState(false);
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => { if (ask) dialog.current?.showModal(); else dialog.current?.close(); }, [ask]);
  const { row, commands } = job;
  const over = row.state === "SUCCEEDED" || row.state === "FAILED";
  const body = { key: job.key };
  const choices: (Ask | false)[] = [
    !over && job.suspended === false && { action: "suspend", title: "Suspend", question: `Suspend ${row.name}? Its pods end; it can go on later.`, command: commands.suspend!, body },
    !over && job.suspended === true && { action: "resume", title: "Resume", question: `Let ${row.name} go on?`, command: commands.resume!, body },
    !over && job.scalable !== null && { action: "scale", title: "Scale", question: `How many pods of the role ${job.scalable.role}?`, command: commands.scale!, body: { ...body, role: job.scalable.role }, number: { label: job.scalable.role, value: job.scalable.replicas } },
    !over && commands.restart !== undefined && { action: "restart", title: "Restart", question: `End all pods of ${row.name} and start them again?`, command: commands.restart!, body },
    { action: "delete", title: "Delete", question: `Delete ${row.kind} ${row.namespace}/${row.name} and its pods?`, command: commands.delete!, body },
  ];
  const go = async () => {
    if (!ask) return;
    setBusy(true);
    const answer = await act(ask.action, ask.number ? { ...ask.body, replicas: count } : ask.body);
    setBusy(false);
    setDone(answer);
    setAsk(null);
    if (answer.ok && ask.action === "delete") onGone();
  };
  return (
    <div class="actions">
      {choices.filter((one): one is Ask => one !== false).map((one) => (
        <button type="button" class={one.action === "delete" ? "danger" : ""} onClick={() => { setCount(one.number?.value ?? 0); setDone(null); setAsk(one); }}>{one.title}</button>
      ))}
      {done && <p class={done.ok ? "note" : "problem"} role={done.ok ? "status" : "alert"}>{done.message}</p>}
      <dialog ref={dialog} onClose={() => setAsk(null)} aria-label={ask?.title}>
        {ask && (
          <form method="dialog" onSubmit={(event) => { event.preventDefault(); void go(); }}>
            <p>{ask.question}</p>
            {ask.number && <label>{ask.number.label} <input type="number" min={0} max={podsMax} value={count} onInput={(event) => setCount(Number(event.currentTarget.value))} /></label>}
            <p class="quiet">The same in a terminal:</p>
            <Copy text={ask.number ? ask.command.replace("COUNT", String(count)) : ask.command} />
            <p class="buttons">
              <button type="button" onClick={() => setAsk(null)}>Cancel</button>
              <button type="submit" class={ask.action === "delete" ? "danger" : "primary"} disabled={busy}>{ask.title}</button>
            </p>
          </form>
        )}
      </dialog>
    </div>
  );
}
