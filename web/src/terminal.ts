// A terminal over a socket of the page: xterm.js, kept within the page's own rules. Loaded when one is opened.
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";

const SCROLLBACK_LINES = 5000;

export interface End {
  exit?: number;
  error?: string;
}

// Shows what comes by a socket in an element; the answer closes both.
export function openTerminal(element: HTMLElement, socket: WebSocket, onEnd: (end: End) => void): () => void {
  const terminal = new Terminal({
    scrollback: SCROLLBACK_LINES, screenReaderMode: true, theme: colors(),
    fontFamily: getComputedStyle(element).fontFamily, fontSize: 13,
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(element);
  fit.fit();
  socket.binaryType = "arraybuffer";
  const encoder = new TextEncoder();
  const send = (data: string | Uint8Array<ArrayBuffer>) => { if (socket.readyState === WebSocket.OPEN) socket.send(data); };
  const tellSize = () => send(JSON.stringify({ columns: terminal.cols, rows: terminal.rows }));
  let end: End = { error: "The connection is lost, and the shell has ended." };
  socket.onopen = () => { tellSize(); terminal.focus(); };
  socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
    if (typeof data === "string") end = JSON.parse(data) as End;
    else terminal.write(new Uint8Array(data));
  };
  socket.onclose = () => { terminal.options.disableStdin = true; onEnd(end); };
  terminal.onData((data) => send(encoder.encode(data)));
  terminal.onBinary((data) => send(Uint8Array.from(data, (one) => one.charCodeAt(0))));
  terminal.onResize(tellSize);
  const seen = new ResizeObserver(() => fit.fit());
  seen.observe(element);
  return () => {
    seen.disconnect();
    socket.onclose = null;
    socket.close();
    terminal.dispose();
  };
}

function colors() {
  const style = getComputedStyle(document.documentElement);
  const color = (name: string) => style.getPropertyValue(name).trim();
  return { background: color("--panel"), foreground: color("--text"), cursor: color("--accent"), selectionBackground: color("--accent-bg") };
}

// The page's policy lets no script add style elements or style attributes, and xterm.js makes both. The same rules
// are allowed as sheets and properties of the document's own model, so that is what elements made from here on write.
// (Its option `documentOverride` does not reach all of its parts.)
const create = document.createElement.bind(document);
document.createElement = (name: string, options?: ElementCreationOptions): HTMLElement => {
  const made = create(name === "style" ? "template" : name, options); // even an empty style element is refused
  if (name === "style") {
    const sheet = new CSSStyleSheet();
    document.adoptedStyleSheets.push(sheet);
    Object.defineProperty(made, "textContent", { set: (text: string) => sheet.replaceSync(text) });
    made.remove = () => {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
      Element.prototype.remove.call(made);
    };
  } else if (name === "span") {
    made.setAttribute = (attribute, value) => {
      if (attribute === "style") made.style.cssText = value;
      else Element.prototype.setAttribute.call(made, attribute, value);
    };
  }
  return made;
};
