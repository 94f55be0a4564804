// Curves by uPlot, with axes that say what is true: a share goes from 0 to 100 %, a divergence starts at 0, versions are whole numbers.
import { el } from "./dom.js";
import uPlot from "./vendor/uplot.js";

const HEIGHT = 210;
const DECIMALS = 5; // that an axis has room for
const FEW = 40; // points up to which each is drawn

/** What a colour of the stylesheet is at the moment (light or dark). */
function colour(name) {
  const probe = el("span", { class: `probe-${name}`, hidden: true });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
const faint = (rgb, share) => rgb.replace(/rgba?\(([^,)]+),([^,)]+),([^,)]+).*\)/, `rgba($1,$2,$3, ${share})`);

/** The labels of an axis: no power of ten beside decimals, if the decimals fit. */
function alike(ticks, format) {
  const texts = ticks.map(format), powers = texts.filter((text) => text.includes("e")).length;
  const digits = ticks.length > 1 ? Math.ceil(-Math.log10(Math.abs(ticks[1] - ticks[0])) - 1e-9) : DECIMALS + 1;
  return powers && digits <= DECIMALS ? ticks.map((v) => (v === 0 ? "0" : v.toFixed(digits))) : texts;
}

/** The values that are no gaps. */
const known = (values) => values.filter((v) => v !== null && v !== undefined && Number.isFinite(v));

/**
 * A figure. `data`: {x: [], y: [], low?: [], high?: []} (low and high: a band around y).
 * `range(min, max)` → the ends of the y axis; `format` for y, `label` for x; `one`: what a point is called in words.
 */
export function plot({ title, data, range, format = (v) => v.toFixed(2), label = String, one = "step", whole = true }) {
  const place = el("div", { class: "plot" }), table = el("tbody");
  const summary = el("p", { class: "quiet summary" });
  const figure = el("figure", { class: "card", "aria-label": title }, el("figcaption", {}, title), place, summary,
    el("details", { class: "fold" }, el("summary", {}, "As figures"), el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `${title}, as figures` }, el("table", {}, table))));
  let chart = null, shown = data;
  const clean = (values) => values.map((v) => (v === null || v === undefined || !Number.isFinite(v) ? null : v));
  const columns = (d) => [d.x, clean(d.y), ...(d.low ? [clean(d.low), clean(d.high)] : [])];
  const words = (d) => {
    const points = d.x.map((x, i) => [x, d.y[i]]).filter(([, y]) => known([y]).length);
    table.replaceChildren(...points.map(([x, y]) => el("tr", {}, el("th", { scope: "row" }, label(x)), el("td", {}, format(y)))));
    figure.lastElementChild.hidden = !points.length;
    if (!points.length) return "Nothing measured yet.";
    const [, last] = points.at(-1), [, first] = points[0];
    return points.length === 1 ? `${format(last)} (one ${one})` : `${format(first)} → ${format(last)} over ${points.length} ${one}s`;
  };
  function build() {
    chart?.destroy();
    chart = null;
    const text = words(shown);
    summary.textContent = text;
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", `${title}: ${text}`);
    if (!known(shown.y).length || !place.clientWidth) { place.hidden = !known(shown.y).length; return; }
    place.hidden = false;
    const ink = colour("quiet"), line = colour("accent"), grid = colour("line");
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "12px system-ui, sans-serif" };
    chart = new uPlot({
      width: place.clientWidth, height: HEIGHT, legend: { show: false }, cursor: { show: false }, padding: [12, 14, 0, 0],
      scales: {
        x: { time: false, range: (u, min, max) => (min === max ? [min - 1, max + 1] : [min, max]) },
        y: { range: (u, min, max) => range?.(min, max) ?? spread(min, max) },
      },
      axes: [
        { ...axis, incrs: whole ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] : undefined, values: (u, ticks) => ticks.map((v) => (Number.isInteger(v) && v >= Math.min(...shown.x) && v <= Math.max(...shown.x) ? label(v) : "")) },
        { ...axis, size: 58, values: (u, ticks) => alike(ticks, format) },
      ],
      series: [{},
        { stroke: line, width: 2, spanGaps: true, points: { show: known(shown.y).length <= FEW, size: 7, fill: line } },
        ...(shown.low ? [{ stroke: "transparent", points: { show: false } }, { stroke: "transparent", points: { show: false } }] : [])],
      bands: shown.low ? [{ series: [3, 2], fill: faint(line, 0.18) }] : [],
    }, columns(shown), place);
  }
  const watch = new ResizeObserver(() => { if (!chart || chart.width !== place.clientWidth) build(); });
  watch.observe(place);
  const theme = matchMedia("(prefers-color-scheme: dark)");
  theme.addEventListener("change", build);
  return {
    node: figure,
    update(next) {
      const few = known(shown.y).length <= FEW === known(next.y).length <= FEW;
      shown = next;
      if (!chart || !few) { build(); return; }
      const text = words(next);
      summary.textContent = text;
      place.setAttribute("aria-label", `${title}: ${text}`);
      chart.setData(columns(next));
    },
    close() { watch.disconnect(); theme.removeEventListener("change", build); chart?.destroy(); },
  };
}

function spread(min, max) {
  if (min === null || max === null) return [0, 1];
  const room = (max - min) * 0.1 || Math.abs(max) * 0.1 || 0.5;
  return [min - room, max + room];
}

export const ranges = {
  share: () => [0, 1],
  fromZero: (min, max) => [0, (max || 1) * 1.1],
  around: (middle) => (min, max) => spread(Math.min(min ?? middle, middle), Math.max(max ?? middle, middle)),
};

/** Where a share lies with 95 % (Wilson): [low, high]. */
export function wilson(good, count) {
  if (!count) return [null, null];
  const z = 1.96, p = good / count, d = 1 + z * z / count;
  const middle = (p + z * z / (2 * count)) / d, half = (z / d) * Math.sqrt(p * (1 - p) / count + z * z / (4 * count * count));
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}
