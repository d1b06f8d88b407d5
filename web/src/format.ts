// Numbers and times as people read them. Pure.
import type { Progress, State } from "./types";

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

// When something may be: at a time that is sure, or about one that runs of the past make likely.
export function mayBe(sure: string, about: string, late: string, now: number): string {
  const at = (time: string) => {
    const moment = new Date(time);
    const isNear = Math.abs(moment.getTime() - now) < 86_400_000;
    return moment.toLocaleString("en-GB", isNear ? { hour: "2-digit", minute: "2-digit" } : { dateStyle: "medium", timeStyle: "short" });
  };
  if (sure) return at(sure);
  if (!about) return "–";
  return `about ${at(about)}${late ? `, 9 of 10 by ${at(late)}` : ""}`;
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
};

export const plural = (count: number, word: string): string =>
  `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
