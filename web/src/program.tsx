// The form that starts a program: what `gangline run -n N -- PROGRAM` does, with the command line beside it.
import { useState } from "preact/hooks";
import { Copy } from "./actions";
import { startLine } from "./format";
import { type Done, act } from "./live";
import type { Cluster } from "./types";

interface Field {
  id: string;
  title: string;
  hint?: string;
  number?: { min: number };
  class?: string;
}

const FIELDS: Field[] = [
  { id: "program", title: "Program", class: "long" },
  { id: "ranks", title: "Ranks", number: { min: 1 } },
  { id: "folder", title: "Working directory", class: "long" },
  { id: "name", title: "Name", hint: "chosen for you" },
  { id: "nodes", title: "Nodes", hint: "one", number: { min: 1 } },
  { id: "gpus_per_rank", title: "GPUs for each rank", hint: "none", number: { min: 0 } },
];
const IMAGE: Field = { id: "image", title: "Image", hint: "of the pods, with what the program needs", class: "long" };

// What a number breaks while it is typed; the most ranks are the server's word. Empty where nothing is wrong.
export function broken(id: string, values: Record<string, string>, ranksMax: number): string {
  const value = Number(values[id] || "1");
  if (id === "ranks" && !(Number.isInteger(value) && value >= 1 && value <= ranksMax)) return `A run has 1 to ${ranksMax} ranks. A job of more is written as a file.`;
  if (id === "nodes" && !(Number.isInteger(value) && value >= 1 && value <= Number(values.ranks || "1"))) return `There are 1 to ${values.ranks || 1} nodes: each has a rank at least.`;
  if (id === "gpus_per_rank" && !(Number.isInteger(value) && value >= 0)) return "A rank has 0 GPUs or more.";
  return "";
}

// A word as a shell takes it for one.
const quoted = (word: string): string => (/^[\w./:@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

export function Program({ cluster, open }: { cluster: Cluster | null; open: (key: string) => void }) {
  const [values, setValues] = useState<Record<string, string>>({ program: "python train.py", ranks: "2" });
  const [done, setDone] = useState<Done | null>(null);
  const [busy, setBusy] = useState(false);
  if (cluster && !cluster.files)
    return (
      <section>
        <h2>From a command</h2>
        <p class="quiet">This page runs in the cluster, and your program lies on your machine: start it there.</p>
        <Copy text={startLine(cluster)} />
      </section>
    );
  const fields = cluster?.local === false ? [...FIELDS, IMAGE] : FIELDS;
  const folder = values.folder || cluster?.folder || "";
  const word = (id: string, option: string) => (values[id] ? ` ${option} ${quoted(values[id]!)}` : "");
  const command = `${folder ? `cd ${quoted(folder)} && ` : ""}gangline run${cluster?.options ?? ""} -n ${values.ranks || 1}`
    + word("name", "--name") + word("nodes", "--nodes") + word("gpus_per_rank", "--gpus-per-rank") + word("image", "--image") + ` -- ${values.program}`;
  const start = async () => {
    setBusy(true);
    setDone(null);
    const body: Record<string, unknown> = {};
    for (const { id, number } of fields) if (values[id]) body[id] = number ? Number(values[id]) : values[id];
    const answer = await act("start", { program: "", ...body });
    setBusy(false);
    setDone(answer);
    if (answer.ok && answer.key) open(answer.key);
  };
  const bound = (id: string) => broken(id, values, cluster?.ranksMax ?? Infinity);
  const problems = (id: string): string[] => {
    const found = bound(id);
    return found ? [found] : (done?.errors ?? []).filter((error) => error.path === id).map((error) => error.message);
  };
  return (
    <section>
      <h2>From a command</h2>
      <form class="fields" noValidate onSubmit={(event) => { event.preventDefault(); void start(); }}>
        {fields.map(({ id, title, hint, number, class: type }) => (
          <div>
            <label for={`field-${id}`}>{title}</label>
            <input id={`field-${id}`} class={type} type={number ? "number" : "text"} min={number?.min} spellcheck={false} autocomplete="off" list={undefined}
              placeholder={id === "folder" ? cluster?.folder : hint} value={values[id] ?? ""} aria-invalid={problems(id).length > 0} aria-describedby={problems(id).length > 0 ? `problem-${id}` : undefined}
              onInput={(event) => setValues({ ...values, [id]: event.currentTarget.value })} />
            {problems(id).length > 0 && <p class="problem" id={`problem-${id}`} role="alert">{problems(id).join("\n")}</p>}
          </div>
        ))}
        {done && !done.ok && <p class="problem" role="alert">{done.message}</p>}
        <p class="buttons"><button type="submit" class="primary" disabled={busy || fields.some(({ id }) => bound(id))}>{busy ? "Starting …" : "Start"}</button></p>
      </form>
      <p class="quiet">{cluster?.local === false ? "The folder goes to the cluster with it." : "It runs with your files, and with the environment of the terminal that opened this page."} It goes on when the page is closed. The same in a terminal:</p>
      <Copy text={command} />
    </section>
  );
}
