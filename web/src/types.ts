// What the page's server sends over its one connection; src/gangline/page/ makes each of these.

export type State = "RUNNING" | "PENDING" | "QUEUING" | "SUSPENDED" | "SUCCEEDED" | "FAILED" | "CANCELLED" | "LOST"; // the last two of runs alone

export interface Progress {
  step: number;
  steps: number;
  rate?: number;
  unit?: string;
  loss?: number;
  eta_s?: number;
}

export interface JobRow {
  key: string; // KIND/NAMESPACE/NAME
  kind: string;
  namespace: string;
  name: string;
  state: State;
  reason: string;
  created: string;
  ended: string;
  gpus: number;
  allocated: number;
  node: string;
  progress?: Progress;
}

export interface JobsWindow {
  total: number;
  all: number;
  first: number;
  rows: JobRow[];
}

export interface Instance {
  name: string;
  status: string;
  chief: boolean;
  gpus: number;
  node: string;
  ip: string;
  restarts: number;
  created: string;
}

export interface LastLine {
  pod: string;
  rank: number | null;
  text: string;
}

export interface JobEvent {
  type: string;
  reason: string;
  message: string;
  about: string;
  time: string;
  count: number;
}

export interface Condition {
  type: string;
  status: string;
  reason: string;
  message: string;
  time: string;
}

export interface Job {
  key: string;
  gone?: boolean;
  row: JobRow;
  instances: Instance[];
  conditions: Condition[];
  events: JobEvent[];
  explain: string;
  placement: string;
  manifest: string;
  lines: LastLine[]; // the last of each pod, or of each rank of it
  commands: Record<string, string>;
  scalable: { role: string; replicas: number } | null;
  suspended: boolean | null;
}

export type Columns = Record<string, (number | null)[]>;

export interface Series {
  key: string;
  columns: Columns;
}

export interface LogLine {
  rank: number | null;
  text: string;
}

export interface LogPart {
  key: string;
  pod: string;
  reset: boolean;
  dropped: number;
  lines: LogLine[];
  ended: boolean;
  error: string;
}

export interface Gpu {
  index: number;
  uuid: string;
  healthy: boolean;
  holder: string;
  owner: string;
}

export interface NodeRow {
  name: string;
  status: string;
  role: string;
  model: string;
  kind: string; // real, simulated, or empty
  total: number;
  allocated: number;
  chooser: string;
  gpus: Gpu[];
  links: string[][];
  holders: { name: string; namespace: string; requested: number }[];
  free: { pairs: number; quads: number; whole: boolean };
}

export interface QueueRow {
  place: number; // as the explanation says, with the times below; 0 where it was not asked yet
  queue: string;
  mayStart: string;
  mayStartAbout: string;
  mayStartByNineOfTen: string;
  key: string;
  gang: string;
  pods: number;
  priority: number;
  since: string;
  reason: string;
  message: string;
}

export interface Use {
  time: number[];
  used: (number | null)[]; // null where nobody looked
  total: (number | null)[];
  noted: boolean; // by the cluster, whether or not a page was open
}

export interface Nodes {
  rows: NodeRow[];
  queue: QueueRow[];
  use: Use;
}

export interface RunRow {
  id: string;
  key: string; // of its job, while that is there
  name: string;
  namespace: string;
  status: string;
  command: string;
  started: string;
  duration_s: number;
  last: string;
  reason: string;
  lacks: string; // why nobody knows what it reported last
}

export interface Cluster {
  title: string;
  local: boolean;
  files: boolean; // whether the page runs where the user's files are
  folder: string; // of the terminal that opened it
  user: string; // who signed in; empty where nobody had to
  simulated: boolean;
  namespace: string;
  version: string;
  gpus: { total: number; used: number };
  counts: Record<string, number>;
  forbidden: string[];
  unreachable: string;
  options: string;
  ranksMax: number; // of one run
  podsMax: number; // of one role
}

export interface Message {
  cluster?: Cluster;
  jobs?: JobsWindow;
  job?: Job;
  series?: Series;
  log?: LogPart;
  nodes?: Nodes;
  runs?: { rows: RunRow[] };
  error?: { title: string; message: string };
}

export interface Wants {
  jobs?: { filter: string; states: string[]; sort: string; first: number; count: number } | null;
  job?: string | null;
  log?: { key: string; pod: string } | null;
  nodes?: boolean;
  runs?: boolean;
  overlays?: string[];
}
