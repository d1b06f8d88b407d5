import { render } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { New } from "./create";
import { plural } from "./format";
import { Job } from "./job";
import { Jobs } from "./jobs";
import { type Link, Live } from "./live";
import { DARK, useMedia } from "./media";
import { Nodes } from "./nodes";
import { Runs } from "./runs";
import { OtherNamespace, SignedIn, SignIn } from "./sign_in";
import "./style.css";
import type { Cluster, JobsWindow } from "./types";

const PLACES = [["", "Jobs"], ["nodes", "Nodes"], ["runs", "Runs"], ["new", "New"]] as const;
const KEYS = [["/", "filter"], ["j k", "next, previous job"], ["Enter", "open it"], ["Esc", "back"], ["g j", "jobs"], ["g n", "nodes"], ["g r", "runs"], ["c", "new job"], ["t", "dark or light"], ["?", "these keys"]] as const;
type Theme = "auto" | "light" | "dark";

function Page() {
  const [link, setLink] = useState<Link>("opening");
  const [cluster, setCluster] = useState<Cluster | null>(null);
  const [jobs, setJobs] = useState<JobsWindow | null>(null);
  const [place, setPlace] = useState(location.hash.replace(/^#\/?/, ""));
  const [now, setNow] = useState(Date.now());
  const [help, setHelp] = useState(false);
  const [theme, setTheme] = useState<Theme>((localStorage.getItem("theme") as Theme) ?? "auto");
  const systemDark = useMedia(DARK);
  const live = useMemo(() => new Live(setLink), []);
  const dark = theme === "dark" || (theme === "auto" && systemDark);
  const go = (to: string) => { location.hash = `#/${to}`; };
  useEffect(() => {
    const stop = live.listen((message) => {
      if (message.cluster) setCluster(message.cluster);
      if (message.jobs) setJobs(message.jobs);
    });
    const onHash = () => setPlace(location.hash.replace(/^#\/?/, ""));
    const timer = setInterval(() => setNow(Date.now()), 1000);
    addEventListener("hashchange", onHash);
    return () => { stop(); clearInterval(timer); removeEventListener("hashchange", onHash); };
  }, []);
  useEffect(() => {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    localStorage.setItem("theme", theme);
  }, [theme, dark]);
  useEffect(() => {
    let first = "";
    const onKey = (event: KeyboardEvent) => {
      if (event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement || event.target instanceof HTMLSelectElement || event.ctrlKey || event.metaKey || event.altKey) return;
      const before = first;
      first = "";
      if (event.key === "g") first = "g";
      else if (before === "g" && event.key === "j") go("");
      else if (before === "g" && event.key === "n") go("nodes");
      else if (before === "g" && event.key === "r") go("runs");
      else if (event.key === "c") go("new");
      else if (event.key === "t") setTheme(dark ? "light" : "dark");
      else if (event.key === "?") setHelp((shown) => !shown);
      else if (event.key === "Escape" && !document.querySelector("dialog[open]")) { setHelp(false); if (location.hash.startsWith("#/job/")) go(""); }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [dark]);
  const [head = ""] = place.split("/");
  if (link === "link")
    return <main class="empty"><h1>Gangline</h1><p>This link was used already, or the session is over.</p><p><code>gangline page</code> in a terminal prints a new one.</p></main>;
  if (link === "refused")
    return <main class="empty"><h1>Gangline</h1><p>You are signed in, but the cluster does not take the token that the proxy sends for you.</p><p>Whoever runs the cluster has its API server trust the proxy's provider and client: <code>--oidc-issuer-url</code>, <code>--oidc-client-id</code>.</p><p><button type="button" onClick={() => location.reload()}>Try again</button></p></main>;
  const anew = () => { setCluster(null); setJobs(null); live.again(); };
  if (link === "sign-in") return <SignIn enter={anew} />;
  const open = (key: string) => go(`job/${key}`);
  return (
    <>
      <header class="top">
        <a class="brand" href="#/">Gangline</a>
        <nav aria-label="Places">{PLACES.map(([to, title]) => (
          <a href={`#/${to}`} aria-current={head === to || (to === "" && head === "job") ? "page" : undefined}>{title}</a>
        ))}</nav>
        <span class="where">
          {cluster?.title}
          {cluster?.simulated && <span class="badge">simulated GPUs</span>}
          {cluster && cluster.gpus.total > 0 && <span class="quiet"> {cluster.gpus.used}/{plural(cluster.gpus.total, "GPU")} held</span>}
        </span>
        {cluster?.user && <SignedIn user={cluster.user} leave={anew} />}
        <button type="button" class="plain" aria-label={dark ? "Light" : "Dark"} title="dark or light ( t )" onClick={() => setTheme(dark ? "light" : "dark")}>{dark ? "☀" : "☾"}</button>
        <button type="button" class="plain" aria-label="Keys" title="keys ( ? )" onClick={() => setHelp(!help)}>?</button>
      </header>
      {link === "full" && <p class="banner" role="alert">As many pages are open as this server shows at once. It is tried again.</p>}
      {link === "proxy" && <p class="banner" role="alert">Your sign-in is over. <button type="button" onClick={() => location.reload()}>Sign in again</button></p>}
      {link === "lost" && <p class="banner" role="alert">The connection is lost and tried again. {!cluster?.user && <>Where the page has ended, <code>gangline page</code> in a terminal opens it anew.</>}</p>}
      {cluster?.unreachable && <p class="banner" role="alert">{cluster.unreachable}</p>}
      {cluster && cluster.forbidden.length > 0 && <div class="banner" role="status">You have no right to list {cluster.forbidden.join(", nor ")}: they are not shown. {cluster.user && <OtherNamespace enter={anew} />}</div>}
      {help && <aside class="keys" aria-label="Keys"><dl>{KEYS.map(([key, what]) => <><dt><kbd>{key}</kbd></dt><dd>{what}</dd></>)}</dl></aside>}
      <main>
        {head === "job" ? <Job key={place} live={live} jobKey={place.slice(4)} cluster={cluster} dark={dark} now={now} back={() => go("")} />
          : head === "nodes" ? <Nodes live={live} dark={dark} now={now} />
          : head === "runs" ? <Runs live={live} cluster={cluster} now={now} />
          : head === "new" ? <New cluster={cluster} open={open} />
          : <Jobs live={live} jobs={jobs} cluster={cluster} now={now} open={open} />}
      </main>
    </>
  );
}

render(<Page />, document.getElementById("page")!);
