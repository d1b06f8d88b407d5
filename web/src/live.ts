// The one connection to the page's server: what is wanted goes up, what is so comes down. It comes back by itself.
import { key } from "./key";
import type { Message, Wants } from "./types";

// "link" and "sign-in" say how one comes in who has no session; "proxy" that the proxy that signs users in knows this one
// no more, "refused" that the cluster does not take the token that it sends.
export type Link = "opening" | "open" | "lost" | "full" | "link" | "sign-in" | "refused" | "proxy";

const PAUSE_FIRST_MS = 250;
const PAUSE_MAX_MS = 10_000;
const SIGNED_OUT = 4401; // the server's word for "no session"
const FULL = 4429; // and for "too many pages are open"

export class Live {
  private socket: WebSocket | null = null;
  private wants: Wants = {};
  private listeners = new Set<(message: Message) => void>();
  private pause = PAUSE_FIRST_MS;
  private isAway = false; // a proxy in front wants a new sign-in
  private timer = 0;

  constructor(private onLink: (link: Link) => void) {
    this.connect();
    addEventListener("online", () => this.socket ?? this.connect());
  }

  want(change: Wants): void {
    this.wants = { ...this.wants, ...change };
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(change));
  }

  // With another key, or none: another user may be in.
  again(): void {
    if (!this.socket) return this.connect();
    this.pause = PAUSE_FIRST_MS;
    this.socket.close();
  }

  listen(listener: (message: Message) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private connect(): void {
    clearTimeout(this.timer);
    const socket = openSocket("live");
    this.socket = socket;
    let isTold = false; // a server that has no room takes the socket, too, and closes it
    socket.onopen = () => socket.send(JSON.stringify(this.wants));
    socket.onmessage = (event) => {
      if (!isTold) {
        isTold = true;
        this.isAway = false;
        this.pause = PAUSE_FIRST_MS;
        this.onLink("open");
      }
      const message = JSON.parse(event.data as string) as Message;
      for (const listener of this.listeners) listener(message);
    };
    socket.onclose = (event) => {
      this.socket = null;
      if (event.code === SIGNED_OUT) return this.onLink(event.reason === "sign-in" || event.reason === "refused" ? event.reason : "link");
      if (event.code === FULL) this.onLink("full");
      else {
        if (!this.isAway) this.onLink("lost");
        void isTurnedAway().then((away) => {
          if (away === this.isAway || this.socket?.readyState === WebSocket.OPEN) return;
          this.isAway = away;
          this.onLink(away ? "proxy" : "lost");
        });
      }
      this.timer = setTimeout(() => this.connect(), this.pause);
      this.pause = Math.min(2 * this.pause, PAUSE_MAX_MS);
    };
  }
}

// A socket that is refused says not why: whether a proxy in front wants the user to sign in again, a request tells.
async function isTurnedAway(): Promise<boolean> {
  try {
    const answer = await fetch("/", { redirect: "manual" });
    return answer.type === "opaqueredirect" || answer.status === 401 || answer.status === 403;
  } catch {
    return false;
  }
}

// A browser sets no headers on a socket: the key stands behind the protocol's name.
export function openSocket(path: string): WebSocket {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  return new WebSocket(`${scheme}://${location.host}/${path}`, key() ? ["gangline", key()] : ["gangline"]);
}

export interface Done {
  ok: boolean;
  message: string;
  key?: string; // of the job that was made, or of the session
  errors?: { line: number; path: string; message: string }[];
}

export const act = (action: string, body: Record<string, unknown>): Promise<Done> => ask(`/do/${action}`, body);

export async function ask(path: string, body: Record<string, unknown>): Promise<Done> {
  try {
    const answer = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Gangline": key() || "-" },
      body: JSON.stringify(body),
    });
    return (await answer.json()) as Done;
  } catch {
    return { ok: false, message: "The page's server does not answer." };
  }
}
