// A live log: what is in sight is drawn, search and rank filter are done here. Text is only ever text.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { plural } from "./format";
import type { Live } from "./live";
import type { Instance, LogLine, LogPart } from "./types";

const LINE_PX = 18;
const KEPT_LINES = 20_000;
const SPARE_LINES = 20;

export function Log({ live, jobKey, instances }: { live: Live; jobKey: string; instances: Instance[] }) {
  const chief = instances.find((one) => one.chief)?.name ?? instances[0]?.name ?? "";
  const [pod, setPod] = useState("");
  const [rank, setRank] = useState("");
  const [search, setSearch] = useState("");
  const [follow, setFollow] = useState(true);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(360);
  const [version, setVersion] = useState(0);
  const kept = useRef<{ lines: LogLine[]; dropped: number; ended: boolean; error: string }>({ lines: [], dropped: 0, ended: false, error: "" });
  const box = useRef<HTMLDivElement>(null);
  const shownPod = pod || chief;
  useEffect(() => {
    kept.current = { lines: [], dropped: 0, ended: false, error: "" };
    if (shownPod) live.want({ log: { key: jobKey, pod: shownPod } });
    let frame = 0;
    const stop = live.listen(({ log }: { log?: LogPart }) => {
      if (!log || log.key !== jobKey || log.pod !== shownPod) return;
      const { current } = kept;
      if (log.reset) current.lines = [];
      current.lines.push(...log.lines);
      if (current.lines.length > KEPT_LINES) current.dropped += current.lines.splice(0, current.lines.length - KEPT_LINES).length;
      current.dropped = Math.max(current.dropped, log.dropped);
      current.ended = log.ended;
      current.error = log.error;
      frame ||= requestAnimationFrame(() => { frame = 0; setVersion((at) => at + 1); });
    });
    return () => { stop(); cancelAnimationFrame(frame); live.want({ log: null }); };
  }, [jobKey, shownPod]);
  const ranks = useMemo(() => [...new Set(kept.current.lines.map((line) => line.rank))].filter((one): one is number => one !== null).sort((a, b) => a - b), [version]);
  const lines = useMemo(() => {
    const words = search.toLowerCase();
    return kept.current.lines.filter((line) => (rank === "" || line.rank === Number(rank)) && (!words || line.text.toLowerCase().includes(words)));
  }, [version, rank, search]);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const seen = new ResizeObserver(() => setHeight(element.clientHeight));
    seen.observe(element);
    return () => seen.disconnect();
  }, []);
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, follow]);
  const first = Math.max(0, Math.floor(top / LINE_PX) - SPARE_LINES);
  const shown = lines.slice(first, first + Math.ceil(height / LINE_PX) + 2 * SPARE_LINES);
  return (
    <section class="log" aria-label="Log">
      <div class="bar">
        <label>Pod <select value={shownPod} onChange={(event) => setPod(event.currentTarget.value)}>
          {instances.map((one) => <option value={one.name}>{one.name}</option>)}
        </select></label>
        {ranks.length > 1 && (
          <label>Rank <select value={rank} onChange={(event) => setRank(event.currentTarget.value)}>
            <option value="">all</option>
            {ranks.map((one) => <option value={String(one)}>{one}</option>)}
          </select></label>
        )}
        <input type="search" placeholder="Search the log" aria-label="Search the log" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        <label class="check"><input type="checkbox" checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} /> follow</label>
        <span class="quiet" role="status">
          {plural(lines.length, "line")}{kept.current.dropped ? `, ${kept.current.dropped.toLocaleString("en")} before not kept` : ""}
          {kept.current.ended ? ", ended" : ""}
        </span>
      </div>
      {kept.current.error && <p class="problem" role="alert">{kept.current.error}</p>}
      <div class="lines" ref={box} tabIndex={0} role="log" aria-live="off" aria-label="Lines"
        onScroll={(event) => {
          const element = event.currentTarget;
          setTop(element.scrollTop);
          setFollow(element.scrollTop + element.clientHeight >= element.scrollHeight - LINE_PX);
        }}>
        <div style={{ height: `${lines.length * LINE_PX}px` }}>
          <div style={{ transform: `translateY(${first * LINE_PX}px)` }}>
            {shown.map((line, index) => (
              <div class="line" key={first + index}>
                {line.rank !== null && <span class={`rank rank-${line.rank % 8}`}>[{line.rank}] </span>}{line.text || " "}
              </div>
            ))}
          </div>
        </div>
      </div>
    </section>
  );
}
