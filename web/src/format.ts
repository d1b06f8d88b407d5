// Numbers and times as people read them. Pure.
import type { Cluster, Progress, State } from "./types";

export function duration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return "–";
  const s = Math.floor(seconds);
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${s % 60 ? ` ${s % 60}s` : ""}`;
  if (s < 86_400) return `${Math.floor(s / 3600)}h${Math.floor((s % 3600) / 60) ? ` ${Math.floor((s % 3600) / 60)}m` : ""}`;
  return `${Math.floor(s / 86_400)}d${Math.floor((s % 86_400) / 3600) ? ` ${Math.floor((s % 86_400) / 3600)}h` : ""}`;
}

export function lasted(created: string, ended: string, now: number): string {
  if (!created) return "–";
  const end = ended ? Date.parse(ended) : now;
  return duration((end - Date.parse(created)) / 1000);
}

const two = (value: number): string => String(value).padStart(2, "0");

// Days and times of the user's own zone, as ISO 8601 writes them: no country reads them in another way.
export const day = (at: Date): string => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
export const clock = (at: Date): string => `${two(at.getHours())}:${two(at.getMinutes())}`;

// A moment near another one: the time alone where both are of one day.
export const moment = (at: Date, near: Date): string => (day(at) === day(near) ? clock(at) : `${day(at)} ${clock(at)}`);

// What stands under the ticks of an axis of time, in seconds: the day once, and again where it changes.
export function ticks(seconds: number[], step: number): string[] {
  return seconds.map((second, index) => {
    const at = new Date(second * 1000);
    const time = step < 60 ? `${clock(at)}:${two(at.getSeconds())}` : clock(at);
    const before = index > 0 ? new Date(seconds[index - 1]! * 1000) : null;
    return before && day(before) === day(at) ? time : `${time}\n${day(at)}`;
  });
}

// When something may be: at a time that is sure, or about one that runs of the past make likely.
export function mayBe(sure: string, about: string, late: string, now: number): string {
  const at = (time: string) => moment(new Date(time), new Date(now));
  if (sure) return at(sure);
  if (!about) return "–";
  const by = late && at(late) !== at(about) ? `, 9 of 10 by ${moment(new Date(late), new Date(about))}` : "";
  return `about ${at(about)}${by}`;
}

export function number(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e7)) return value.toExponential(2);
  if (size >= 100) return value.toLocaleString("en", { maximumFractionDigits: 0 });
  return String(Number(value.toPrecision(4)));
}

export function share(progress: Progress | undefined): number | null {
  if (!progress?.steps) return null;
  return Math.max(0, Math.min(1, progress.step / progress.steps));
}

export const SYMBOLS: Record<State, string> = {
  RUNNING: "▶",
  PENDING: "◌",
  QUEUING: "◌",
  SUSPENDED: "‖",
  SUCCEEDED: "✓",
  FAILED: "✗",
  CANCELLED: "⊘",
  LOST: "?",
};

export const plural = (count: number, word: string): string =>
  `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

// The line that starts a program of the user's, typed on a machine that has it. A cluster needs an image to run it in.
export function startLine(cluster: Pick<Cluster, "local" | "options"> | null): string {
  const there = cluster ? `${cluster.options}${cluster.local ? "" : " --image IMAGE"}` : "";
  return `gangline run${there} -n 4 -- python train.py`;
}
