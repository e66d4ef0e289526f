// Charts by uPlot, in the colours of the style sheet.

const MIB = 1024 * 1024;
const LEGEND = 42; // and what lies around it
const charts = new Map();

// Lines of each chart: name, series, what a value is divided by (or the series it is a share of), colour.
const MANAGER = {
  load: [
    ["CPU", "system.cpu_usage_percent", 1, "busy"],
    ["memory", "system.memory_used_bytes", "system.memory_total_bytes", "good"],
    ["disk", "system.disk_used_bytes", "system.disk_total_bytes", "plain"],
  ],
  workers: [
    ["load", "system.load_avg_1min", 1, "plain"],
    ["workers", "worker_pool.workers_active", 1, "good"],
    ["busy", "worker_pool.workers_executing", 1, "busy"],
  ],
  disk: [
    ["read", "system.disk_io_read_bytes_per_sec", MIB, "good"],
    ["write", "system.disk_io_write_bytes_per_sec", MIB, "busy"],
  ],
  network: [
    ["in", "system.network_rx_bytes_per_sec", MIB, "good"],
    ["out", "system.network_tx_bytes_per_sec", MIB, "busy"],
  ],
  ipc: [
    ["p50", "ipc.fetch_p50_latency_us", 1, "good"],
    ["p95", "ipc.fetch_p95_latency_us", 1, "busy"],
  ],
  crashes: [["crashes", "worker_pool.workers_crashes_per_hour", 1, "bad"]],
};

export function startCharts() {
  if (!document.querySelector("[data-chart]")) return;
  document.addEventListener("console:data", ({ detail }) => take(detail));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.addEventListener("resize", redraw);
  const panel = document.querySelector("[data-series]");
  if (panel) {
    panel.querySelector("[data-window]").addEventListener("change", () => load(panel));
    load(panel);
  }
}

function take({ name, value }) {
  if (name === "throughput") {
    const lines = [["ended", value.ended, "busy"], ["failed", value.failed, "bad"]];
    draw("throughput", value.at, lines);
  } else if (name === "sampled") {
    const panel = document.querySelector("[data-series]");
    if (panel) load(panel);
  }
}

async function load(panel) {
  const window_ = panel.querySelector("[data-window]").value;
  const answer = await fetch(`${panel.dataset.series}?window=${encodeURIComponent(window_)}`);
  if (!answer.ok) return;
  const { at, series } = await answer.json();
  panel.querySelector("[data-none]").hidden = at.length > 0;
  for (const [name, lines] of Object.entries(MANAGER)) {
    draw(name, at, lines.map(([label, key, by, tone]) => [label, column(series, key, by, at), tone]));
  }
}

function column(series, key, by, at) {
  const values = series[key] ?? at.map(() => null);
  if (typeof by === "number") return values.map((value) => (value === null ? null : value / by));
  const whole = series[by] ?? [];
  return values.map((value, place) => (value === null || !whole[place] ? null : (100 * value) / whole[place]));
}

function draw(name, at, lines) {
  charts.set(name, { ...charts.get(name), at, lines });
  const place = document.querySelector(`[data-chart="${name}"]`);
  if (!place || !globalThis.uPlot) return;
  const data = [at, ...lines.map(([, values]) => values)];
  const chart = charts.get(name);
  if (chart.plot) {
    chart.plot.setData(data);
    return;
  }
  chart.plot = new globalThis.uPlot(options(place, lines), data, place);
}

function redraw() {
  for (const [name, chart] of charts) {
    chart.plot?.destroy();
    delete chart.plot;
    draw(name, chart.at, chart.lines);
  }
}

/** The day where the axis is longer than one, else the time. */
function clock(moments) {
  const isLong = moments.at(-1) - moments[0] > 2 * 86400;
  const form = isLong ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit", hour12: false };
  const words = new Intl.DateTimeFormat(undefined, form);
  return (moment) => words.format(new Date(moment * 1000));
}

function options(place, lines) {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const axis = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  return {
    width: Math.max(200, place.clientWidth),
    height: Math.max(100, place.clientHeight - LEGEND),
    cursor: { y: false, drag: { x: false, y: false } },
    scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, (high ?? 0) * 1.1)] } },
    axes: [{ ...axis, values: (_, moments) => moments.map(clock(moments)) }, { ...axis, size: 44 }],
    series: [
      {},
      ...lines.map(([label, , tone]) => ({
        label,
        stroke: colour(`${tone}-fill`),
        width: 1.5,
        points: { show: false },
        value: (_, value) => (value === null || value === undefined ? "–" : value.toFixed(value < 10 ? 2 : 0)),
      })),
    ],
  };
}
