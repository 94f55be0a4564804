// A line over versions, as SVG: enough for a few dozen points, readable by a screen reader through its title.
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 360, HEIGHT = 170, LEFT = 44, RIGHT = 12, TOP = 12, BOTTOM = 26;

function part(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export function plot(title, points, format = (v) => v.toFixed(2)) {
  const known = points.filter((p) => p.y !== null && p.y !== undefined && Number.isFinite(p.y));
  const figure = document.createElement("figure");
  figure.className = "card";
  figure.style.margin = 0;
  const caption = document.createElement("figcaption");
  caption.textContent = title;
  figure.append(caption);
  if (!known.length) {
    const none = document.createElement("p");
    none.className = "quiet";
    none.textContent = "Nothing measured yet.";
    figure.append(none);
    return figure;
  }
  const xs = known.map((p) => p.x), ys = known.map((p) => p.y);
  let low = Math.min(...ys), high = Math.max(...ys);
  if (low === high) { low -= 0.5; high += 0.5; }
  const first = Math.min(...xs), span = Math.max(1, Math.max(...xs) - first);
  const at = (p) => [
    LEFT + ((p.x - first) / span) * (WIDTH - LEFT - RIGHT),
    TOP + (1 - (p.y - low) / (high - low)) * (HEIGHT - TOP - BOTTOM),
  ];
  const svg = part("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", width: "100%" });
  svg.append(part("title", {}, `${title}: ${known.map((p) => `version ${p.x} ${format(p.y)}`).join(", ")}`));
  svg.append(part("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }));
  for (const [value, y] of [[high, TOP + 4], [low, HEIGHT - BOTTOM]]) {
    svg.append(part("text", { x: LEFT - 6, y, "text-anchor": "end" }, format(value)));
  }
  svg.append(part("polyline", { class: "line", points: known.map((p) => at(p).join(",")).join(" ") }));
  for (const p of known) {
    const [x, y] = at(p);
    svg.append(part("circle", { cx: x, cy: y, r: 3.5 }));
    svg.append(part("text", { x, y: HEIGHT - 8, "text-anchor": "middle" }, `v${p.x}`));
  }
  figure.append(svg);
  return figure;
}
