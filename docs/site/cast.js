// Plays asciicast files (version 2) in <div class="cast" data-src="…">: a terminal of the few sequences that our programs write. No library.
const BASE = ["#222b33", "#e5645f", "#5fbf77", "#d9b44a", "#5b9bd9", "#b584d6", "#4fb8b8", "#d5dde5", "#6b7a88", "#ff8a80", "#8ee0a2", "#ffd97a", "#8bc1ff", "#d7b3f0", "#86e0e0", "#ffffff"];
const colour = (n) => {
  if (n < 16) return BASE[n];
  if (n > 231) { const v = 8 + 10 * (n - 232); return `rgb(${v},${v},${v})`; }
  const c = [Math.floor((n - 16) / 36), Math.floor((n - 16) / 6) % 6, (n - 16) % 6].map((v) => (v ? 55 + 40 * v : 0));
  return `rgb(${c})`;
};

class Terminal {
  constructor(columns, rows) { this.columns = columns; this.rows = rows; this.lines = [[]]; this.x = 0; this.y = 0; this.style = {}; this.rest = ""; }
  get top() { return Math.max(0, this.lines.length - this.rows); }
  line(y) { while (this.lines.length <= y) this.lines.push([]); return this.lines[y]; }
  write(text) {
    const data = this.rest + text;
    this.rest = "";
    for (let i = 0; i < data.length; i++) {
      const c = data[i];
      if (c === "\x1b") {
        const found = /^\x1b(?:\[([?0-9;]*)([A-Za-z])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78])/.exec(data.slice(i, i + 400));
        if (!found) { if (data.length - i < 400) { this.rest = data.slice(i); return; } continue; }
        if (found[2]) this.control(found[2], found[1]);
        i += found[0].length - 1;
      } else if (c === "\r") this.x = 0;
      else if (c === "\n") { this.y += 1; this.line(this.y); }
      else if (c === "\b") this.x = Math.max(0, this.x - 1);
      else if (c >= " ") {
        const code = data.codePointAt(i), glyph = String.fromCodePoint(code);
        if (code > 0xffff) i += 1;
        if (this.x >= this.columns) { this.x = 0; this.y += 1; }
        const line = this.line(this.y);
        while (line.length < this.x) line.push([" ", {}]);
        line[this.x++] = [glyph, this.style];
      }
    }
  }
  control(kind, given) {
    const n = given.replace("?", "").split(";").map((v) => Number(v || 0)), by = Math.max(1, n[0] || 1);
    if (kind === "m") this.look(n);
    else if (kind === "A") this.y = Math.max(this.top, this.y - by);
    else if (kind === "B") { this.y += by; this.line(this.y); }
    else if (kind === "C") this.x = Math.min(this.columns - 1, this.x + by);
    else if (kind === "D") this.x = Math.max(0, this.x - by);
    else if (kind === "G") this.x = by - 1;
    else if (kind === "H" || kind === "f") { this.y = this.top + by - 1; this.x = Math.max(1, n[1] || 1) - 1; this.line(this.y); }
    else if (kind === "K") { const line = this.line(this.y); if (n[0] === 2) line.length = 0; else if (n[0] === 1) line.fill([" ", {}], 0, this.x + 1); else line.length = Math.min(line.length, this.x); }
    else if (kind === "J") { if (n[0] >= 2) { this.lines = [...this.lines.slice(0, this.top), []]; } else { this.line(this.y).length = Math.min(this.line(this.y).length, this.x); this.lines.length = this.y + 1; } }
  }
  look(n) {
    const s = { ...this.style };
    for (let i = 0; i < n.length; i++) {
      const v = n[i];
      if (v === 0) for (const k of Object.keys(s)) delete s[k];
      else if (v === 1) s.bold = true; else if (v === 2) s.dim = true; else if (v === 3) s.italic = true; else if (v === 4) s.under = true; else if (v === 7) s.turned = true;
      else if (v === 22) { delete s.bold; delete s.dim; } else if (v === 23) delete s.italic; else if (v === 24) delete s.under; else if (v === 27) delete s.turned;
      else if (v >= 30 && v <= 37) s.fore = BASE[v - 30]; else if (v >= 90 && v <= 97) s.fore = BASE[v - 82]; else if (v === 39) delete s.fore;
      else if (v >= 40 && v <= 47) s.back = BASE[v - 40]; else if (v >= 100 && v <= 107) s.back = BASE[v - 92]; else if (v === 49) delete s.back;
      else if (v === 38 || v === 48) {
        const which = v === 38 ? "fore" : "back";
        if (n[i + 1] === 5) { s[which] = colour(n[i + 2]); i += 2; } else if (n[i + 1] === 2) { s[which] = `rgb(${n.slice(i + 2, i + 5)})`; i += 4; }
      }
    }
    this.style = s;
  }
  draw(into) {
    const shown = document.createDocumentFragment();
    for (const line of this.lines.slice(-this.rows)) {
      for (let i = 0; i < line.length;) {
        const style = (line[i] ?? [" ", {}])[1];
        let text = "";
        while (i < line.length && (line[i] ?? [" ", {}])[1] === style) text += (line[i++] ?? [" "])[0];
        const span = document.createElement("span");
        span.textContent = text;
        if (style.fore || style.turned) span.style.color = style.turned ? "#14191f" : style.fore;
        if (style.back || style.turned) span.style.background = style.turned ? style.fore ?? "#d5dde5" : style.back;
        if (style.bold) span.style.fontWeight = "bold";
        if (style.dim) span.style.opacity = ".6";
        if (style.italic) span.style.fontStyle = "italic";
        if (style.under) span.style.textDecoration = "underline";
        shown.append(span);
      }
      shown.append("\n");
    }
    into.replaceChildren(shown);
  }
}

async function load(host) {
  const answer = await fetch(host.dataset.src);
  const [head, ...events] = (await answer.text()).trim().split("\n").map((line) => JSON.parse(line));
  let at = 0, before = 0;
  const played = events.filter((e) => e[1] === "o").map(([time, , text]) => {
    at += Math.min(time - before, head.idle_time_limit ?? Infinity);
    before = time;
    return [at, text];
  });
  const screen = document.createElement("pre"), bar = document.createElement("div"), button = document.createElement("button"), place = document.createElement("input");
  Object.assign(place, { type: "range", min: 0, max: at, step: 0.1, value: at });
  place.setAttribute("aria-label", "Place in the recording");
  button.type = "button";
  bar.className = "cast-bar";
  bar.append(button, place);
  host.replaceChildren(screen, bar);
  let now = at, timer = 0;
  function show(until) {
    const terminal = new Terminal(head.width, head.height);
    for (const [time, text] of played) { if (time > until) break; terminal.write(text); }
    terminal.draw(screen);
    place.value = until;
    button.textContent = timer ? "Pause" : until >= at ? "Play again" : "Play";
  }
  function stop() { clearInterval(timer); timer = 0; }
  function play() {
    let last = performance.now();
    timer = setInterval(() => { const t = performance.now(); now = Math.min(at, now + (t - last) / 1000); last = t; if (now >= at) stop(); show(now); }, 60);
  }
  button.addEventListener("click", () => { if (timer) stop(); else { if (now >= at) now = 0; play(); } show(now); });
  place.addEventListener("input", () => { stop(); now = Number(place.value); show(now); });
  show(now);
}
for (const host of document.querySelectorAll(".cast[data-src]")) load(host).catch((error) => { host.textContent = `The recording cannot be shown: ${error.message}`; });
