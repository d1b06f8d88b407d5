// The form of a page in a cluster: a token goes to the page's server once, and what comes back ends with the tab.
import { useState } from "preact/hooks";
import { Copy } from "./actions";
import { key, signedIn, signedOut } from "./key";
import { ask } from "./live";

export function SignIn({ enter }: { enter: () => void }) {
  const [token, setToken] = useState("");
  const [namespace, setNamespace] = useState("");
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const send = async () => {
    setBusy(true);
    const answer = await ask("/sign-in", { token, namespace });
    setBusy(false);
    if (!answer.ok || !answer.key) return setProblem(answer.message);
    signedIn(answer.key);
    enter();
  };
  return (
    <main class="empty sign-in">
      <h1>Gangline</h1>
      <form class="fields" onSubmit={(event) => { event.preventDefault(); void send(); }}>
        <div><label for="token">Token</label><input id="token" class="long" type="password" autocomplete="off" required aria-describedby="about-token" value={token} onInput={(event) => setToken(event.currentTarget.value)} /></div>
        <div><label for="namespace">Namespace, where you may not see all</label><input id="namespace" class="long" spellcheck={false} autocomplete="off" value={namespace} onInput={(event) => setNamespace(event.currentTarget.value)} /></div>
        {problem && <p class="problem" role="alert">{problem}</p>}
        <p class="buttons"><button type="submit" class="primary" disabled={busy}>{busy ? "Asking the cluster …" : "Sign in"}</button></p>
      </form>
      <p id="about-token">You see and do what your token may. It is kept in the memory of the page's server until you sign out, close the page for a quarter of an hour, or its time is over. Of a service account:</p>
      <Copy text="kubectl -n NAMESPACE create token NAME" />
    </main>
  );
}

// Who is in, and the way out; a proxy that signs users in has one of its own.
export function SignedIn({ user, leave }: { user: string; leave: () => void }) {
  const out = async () => {
    await ask("/sign-out", {});
    signedOut();
    leave();
  };
  return <span class="user"><span class="quiet">{user}</span>{key() && <button type="button" class="plain" onClick={() => void out()}>Sign out</button>}</span>;
}

// The same token, and another namespace.
export function OtherNamespace({ enter }: { enter: () => void }) {
  const [namespace, setNamespace] = useState("");
  const [problem, setProblem] = useState("");
  const send = async () => {
    const answer = await ask("/sign-in", { namespace });
    if (!answer.ok || !answer.key) return setProblem(answer.message);
    signedIn(answer.key);
    enter();
  };
  return (
    <form class="inline" onSubmit={(event) => { event.preventDefault(); void send(); }}>
      <label>Look at namespace <input required spellcheck={false} autocomplete="off" value={namespace} onInput={(event) => setNamespace(event.currentTarget.value)} /></label>
      <button type="submit">Look</button>{problem && <span role="alert"> {problem}</span>}
    </form>
  );
}
