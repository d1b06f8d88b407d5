// A new job: from a file, checked by the server while one types, or from a command.
import { useEffect, useRef, useState } from "preact/hooks";
import { Copy } from "./actions";
import { type Done, act } from "./live";
import { Program } from "./program";
import type { Cluster } from "./types";

const EXAMPLE = `apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: hello
spec:
  pytorchReplicaSpecs:
    Master:
      template: &pod
        spec:
          containers:
            - name: pytorch
              image: gangline/base
              command: [sh, -c, "echo rank $RANK of $WORLD_SIZE"]
    Worker:
      replicas: 3
      template: *pod
`;
const CHECK_AFTER_MS = 400;

export function New({ cluster, open }: { cluster: Cluster | null; open: (key: string) => void }) {
  const [text, setText] = useState(EXAMPLE);
  const [done, setDone] = useState<Done | null>(null);
  const [busy, setBusy] = useState(false);
  const checked = useRef("");
  useEffect(() => {
    const timer = setTimeout(async () => {
      checked.current = text;
      const answer = await act("check", { manifest: text });
      if (checked.current === text) setDone(answer);
    }, CHECK_AFTER_MS);
    return () => clearTimeout(timer);
  }, [text]);
  const create = async () => {
    setBusy(true);
    const answer = await act("create", { manifest: text });
    setBusy(false);
    setDone(answer);
    if (answer.ok && answer.key) open(answer.key);
  };
  const lines = text.split("\n").length;
  const bad = new Set((done?.errors ?? []).map((error) => error.line));
  return (
    <div class="page two">
      <h1 class="sr">New job</h1>
      <section>
        <h2>From a file</h2>
        <div class="editor">
          <pre class="numbers" aria-hidden="true">{Array.from({ length: lines }, (_, index) => <span class={bad.has(index + 1) ? "bad" : ""}>{`${index + 1}\n`}</span>)}</pre>
          <textarea aria-label="Manifest" spellcheck={false} value={text} rows={Math.max(lines + 1, 18)} onInput={(event) => setText(event.currentTarget.value)} />
        </div>
        {done && !done.ok && <div class="problem" role="alert">
          <p>{done.message}</p>
          {done.errors && done.errors.length > 0 && <ul>{done.errors.map((error) => <li>{error.line ? `line ${error.line}: ` : ""}<code>{error.path}</code> {error.message}</li>)}</ul>}
        </div>}
        {done?.ok && <p class="note" role="status">{done.message}</p>}
        <p class="buttons"><button type="button" class="primary" disabled={busy || !done?.ok} onClick={() => void create()}>Create</button></p>
        <p class="quiet">The same in a terminal: <Copy text={`gangline run${cluster?.options ?? ""} FILE`} /></p>
      </section>
      <Program cluster={cluster} open={open} />
    </div>
  );
}
