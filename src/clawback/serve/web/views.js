// The five pages. Each is made by `make()`: its parts, what keys do there, and what to stop when it is left.
import { api, el, say, show } from "/app.js";
import { plot } from "/plot.js";

const when = (seconds) => new Date(seconds * 1000).toLocaleString();
const kbd = (...keys) => keys.map((key) => el("kbd", {}, key));
const opinion = (turn) => (turn.reward === null ? "" : `${turn.reward > 0 ? "+" : ""}${turn.reward.toFixed(2)}`);
const sign = (value) => (value > 0 ? "good" : value < 0 ? "bad" : "");
const who = (version) => (version === 0 ? "the base model" : `version ${version}`);

// ------------------------------------------------------------------------------------------------------------ rate

const rate = {
  title: "Rate",
  async make() {
    const [turns, now] = await Promise.all([api("turns?limit=100&rated=no&kind=main"), api("status")]);
    const host = el("div");
    const page = { parts: [el("h1", {}, "What was it worth?"), host], digits: false };
    if (!turns.length) {
      host.append(el("p", { class: "card" }, "Nothing waits for a rating. Talk to your agent, and come back."));
      return page;
    }
    let at = 0, score = null, blind = false, pair = null, asked = 0;
    const waiting = new Map(); // turn → what was chosen and not saved yet

    async function save(quiet = false) {
      const jobs = [...waiting];
      waiting.clear();
      for (const [id, body] of jobs) {
        try {
          const saved = body.better !== undefined
            ? await api("preferences", body) : await api(`turns/${id}/feedback`, body);
          const rated = turns.find((t) => t.id === id);
          rated.done = body.kind ?? "preferred";
          if (!quiet || saved.training_started) {
            say(saved.training_started ? "Enough ratings have come together: training has started." : "Saved.");
          }
        } catch (error) { waiting.set(id, body); say(error.message, true); }
      }
    }
    async function move(by) {
      await save(true); // autosave
      at = Math.min(Math.max(at + by, 0), turns.length - 1);
      score = null;
      pair = null;
      draw();
      ask();
    }
    async function ask() { // both versions, for the prompt that is shown
      if (now.upstream || now.live === 0) return;
      const mine = ++asked;
      try {
        const got = await api("pairs", { turn: turns[at].id, seed: turns[at].id, keep: blind });
        if (mine !== asked) return;
        pair = blind && Math.random() < 0.5 ? got.answers.reverse() : got.answers;
        draw();
      } catch (error) { if (mine === asked) say(error.message, true); }
    }
    function prefer(better) { // of the two that are shown blind
      if (!blind || !pair) return;
      waiting.set(turns[at].id, { better: pair[better].turn, worse: pair[1 - better].turn });
      draw();
    }
    function choose(kind, value = 0) {
      const id = turns[at].id;
      if (kind === "rate") score = value;
      waiting.set(id, kind === "rate" ? { kind, value } : { kind });
      draw();
    }
    function draw() {
      const turn = turns[at], chosen = waiting.get(turn.id);
      const mark = (kind) => String((chosen ?? { kind: turn.done }).kind === kind);
      const slider = el("input", { type: "range", min: 1, max: 10, step: 1, value: score ?? 5, "aria-label": "Score from 1 to 10",
        oninput: (event) => { score = Number(event.target.value); out.textContent = `${score} of 10`; waiting.set(turn.id, { kind: "rate", value: score }); } });
      const out = el("output", { class: "quiet" }, score ? `${score} of 10` : "not scored");
      const card = (title, text) => el("section", { class: "card" }, el("h2", {}, title), el("p", { class: "said" }, text));
      host.replaceChildren(...[
        el("p", { class: "quiet" }, `${at + 1} of ${turns.length} · turn ${turn.id} · ${turn.agent} · ${when(turn.created_at)}${turn.done ? ` · saved: ${turn.done}` : ""}`),
        el("div", { class: "card" }, el("p", { class: "said" }, turn.prompt)),
        el("div", { class: "pair" },
          blind ? null : card("This answer", turn.response),
          (pair ?? []).map((one, i) => card(blind ? `Answer ${"AB"[i]}` : `Asked again: ${who(one.version)}`, one.response))),
        blind && !pair ? el("p", { class: "quiet" }, now.upstream || now.live === 0 ? "There are no two versions to choose from yet." : "Asking both versions …") : null,
        blind ? el("div", { class: "row" }, [0, 1].map((i) => el("button", { disabled: !pair, "aria-pressed": String(Boolean(chosen) && pair !== null && chosen.better === pair[i].turn), onclick: () => prefer(i) },
          `${"AB"[i]} is better `, kbd("ab"[i])))) : el("div", { class: "row" },
          el("button", { class: "good", "aria-pressed": mark("good"), onclick: () => choose("good") }, "Good ", kbd("g")),
          el("button", { class: "bad", "aria-pressed": mark("bad"), onclick: () => choose("bad") }, "Bad ", kbd("b")),
          slider, out),
        el("p", { class: "row" },
          el("button", { onclick: () => move(-1), disabled: at === 0 }, "Back ", kbd("←")),
          el("button", { onclick: () => move(1), disabled: at === turns.length - 1 }, "Next ", kbd("→")),
          el("button", { class: "primary", onclick: () => save() }, "Save ", kbd("s")),
          el("button", { onclick: leave }, "Quit ", kbd("q")),
          el("span", { class: "grow" }),
          el("label", { class: "row" },
            el("input", { type: "checkbox", checked: blind, onchange: (event) => { blind = event.target.checked; pair = null; draw(); ask(); } }),
            "Blind: hide which version said what")),
      ].filter(Boolean));
    }
    async function leave() { await save(true); location.hash = "turns"; }
    page.key = (event) => {
      const act = blind && { a: () => prefer(0), b: () => prefer(1) }[event.key] || { g: () => choose("good"), b: () => choose("bad"), s: () => save(), q: leave, ArrowLeft: () => move(-1), ArrowRight: () => move(1) }[event.key];
      if (!act || (event.target.type === "range" && event.key.startsWith("Arrow"))) return false;
      act();
      return true;
    };
    page.leave = () => { asked = -1; save(true); };
    draw();
    ask();
    return page;
  },
};

// ----------------------------------------------------------------------------------------------------------- turns

const turns = {
  title: "Turns",
  async make() {
    const list = el("tbody"), detail = el("div");
    const search = el("input", { type: "search", placeholder: "Search", "aria-label": "Search", oninput: () => later(draw) });
    const pick = (label, options) => el("select", { "aria-label": label, onchange: () => draw() }, options.map(([value, text]) => el("option", { value }, text)));
    const rated = pick("Rated", [["", "rated or not"], ["yes", "rated"], ["no", "not rated"]]);
    const kind = pick("Kind", [["main", "main"], ["side", "side"], ["", "all kinds"]]);
    let timer = 0;
    const later = (job) => { clearTimeout(timer); timer = setTimeout(job, 200); };
    async function draw() {
      try {
        const query = new URLSearchParams({ limit: 100, search: search.value, rated: rated.value, kind: kind.value });
        const found = await api(`turns?${query}`);
        list.replaceChildren(...found.map((turn) => {
          const open = () => inspect(turn.id);
          return el("tr", { tabindex: 0, onclick: open, onkeydown: (event) => event.key === "Enter" && open() },
            el("td", {}, String(turn.id)), el("td", {}, when(turn.created_at)), el("td", {}, turn.agent),
            el("td", { class: "clip" }, turn.prompt), el("td", { class: "clip" }, turn.response || turn.calls.map((c) => c.name).join(", ")),
            el("td", { class: sign(turn.reward) }, opinion(turn)));
        }));
        if (!found.length) list.replaceChildren(el("tr", {}, el("td", { colspan: 6 }, "No turns.")));
      } catch (error) { say(error.message, true); }
    }
    async function inspect(id) {
      const turn = await api(`turns/${id}`);
      detail.replaceChildren(el("section", { class: "card" },
        el("h2", {}, `Turn ${turn.id}`),
        el("p", { class: "quiet" }, `${turn.agent} · session ${turn.session} · ${turn.kind} · ${turn.version === null ? turn.model : who(turn.version)}`),
        turn.messages.map((m) => el("p", { class: "said" }, el("span", { class: "quiet" }, `${m.role}: `), typeof m.content === "string" ? m.content : JSON.stringify(m.content))),
        el("p", { class: "said" }, el("span", { class: "quiet" }, "answer: "), turn.response),
        turn.next_state.length ? el("p", { class: "said" }, el("span", { class: "quiet" }, "then: "), turn.next_state.map((m) => m.content).join("\n")) : null,
        el("h2", {}, turn.reward === null ? "Nobody has said anything about it" : `Reward ${opinion(turn)}`),
        turn.parts.length ? el("table", {}, el("tbody", {}, turn.parts.map((p) => el("tr", {}, el("td", {}, p.kind), el("td", { class: sign(p.value) }, p.value.toFixed(2)), el("td", {}, `× ${p.weight}`))))) : null,
        el("p", { class: "row" }, ["good", "bad", "undo"].map((what) => el("button", { class: what, onclick: async () => {
          try { await api(`turns/${id}/feedback`, { kind: what }); await inspect(id); await draw(); } catch (error) { say(error.message, true); }
        } }, what[0].toUpperCase() + what.slice(1))))));
    }
    await draw();
    return { parts: [el("h1", {}, "Turns"), el("p", { class: "row" }, search, rated, kind), detail,
      el("table", {}, el("thead", {}, el("tr", {}, ["Turn", "When", "Agent", "Asked", "Answered", "Reward"].map((t) => el("th", {}, t)))), list)],
      leave: () => clearTimeout(timer) };
  },
};

// -------------------------------------------------------------------------------------------------------- learning

const learning = {
  title: "Learning",
  async make() {
    const host = el("div", { class: "plots" }), job = el("div");
    async function draw() {
      const now = await api("learning");
      const over = (name) => now.versions.map((v) => ({ x: v.version, y: v[name] }));
      const percent = (v) => `${Math.round(v * 100)} %`;
      host.replaceChildren(
        plot("Satisfaction: share of its rated answers that were good", over("satisfaction"), percent),
        plot("Expected reward over the version before, as the gate saw it", over("gain")),
        plot("Drift from the base model (KL, nats an answer)", over("kl")),
        plot("Perplexity of the base model's text (× the base's)", over("perplexity_ratio")));
      const run = now.run, step = run?.progress;
      job.replaceChildren(run
        ? el("section", { class: "card" }, el("p", {}, `Run ${run.id} learns from ${run.ratings} pieces of feedback: ${step.phase ?? "starting"} ${step.step ?? ""}${step.steps ? ` of ${step.steps}` : ""}`),
            el("progress", { max: step.steps ?? 1, value: step.step ?? 0 }))
        : el("p", { class: "row" }, el("button", { class: "primary", onclick: async () => {
            try { await api("train", {}); say("Training has started."); await draw(); } catch (error) { say(error.message, true); }
          } }, "Train now"), el("span", { class: "quiet" }, "in the background; what comes of it goes live only if the gate says so")));
    }
    await draw();
    const timer = setInterval(() => draw().catch((error) => say(error.message, true)), 2000);
    return { parts: [el("h1", {}, "Learning"), job, el("h2", {}, "Versions"), host], leave: () => clearInterval(timer) };
  },
};

// -------------------------------------------------------------------------------------------------------- versions

const versions = {
  title: "Versions",
  async make() {
    const [found, recent] = await Promise.all([api("versions"), api("turns?limit=3&kind=main")]);
    const side = el("div");
    const act = (path, body, text) => async () => {
      try { await api(path, body); say(text); show(); } catch (error) { say(error.message, true); }
    };
    async function compare(number) {
      side.replaceChildren(el("p", { class: "quiet" }, "Asking both …"));
      try {
        const rows = [];
        for (const turn of recent) rows.push(await api("pairs", { turn: turn.id, versions: [0, number], seed: 1 }));
        side.replaceChildren(el("h2", {}, `Before and after: the base model and version ${number}`), ...rows.map((row) => el("section", {},
          el("p", { class: "quiet" }, row.prompt), el("div", { class: "pair" }, row.answers.map((a) => el("div", { class: "card" }, el("p", { class: "quiet" }, who(a.version)), el("p", { class: "said" }, a.response)))))));
      } catch (error) { side.replaceChildren(); say(error.message, true); }
    }
    const card = (v) => el("section", { class: "card", style: null },
      el("div", { class: "row" }, el("strong", {}, v.number === 0 ? "The base model" : `Version ${v.number}`), el("span", { class: v.status === "live" ? "good" : v.status === "rejected" ? "bad" : "quiet" }, v.status),
        v.stale ? el("span", { class: "bad" }, "learned from feedback that was taken back") : null, el("span", { class: "grow" }), el("span", { class: "quiet" }, when(v.created_at))),
      v.report ? el("details", {}, el("summary", {}, v.report.reasons[0]), el("ul", {}, v.report.reasons.slice(1).map((r) => el("li", {}, r)))) : null,
      el("div", { class: "row" },
        v.status === "live" && v.number !== 0 ? el("button", { onclick: act("rollback", {}, "Rolled back.") }, "Roll back") : null,
        v.status === "retired" || (v.status === "candidate" && v.report?.accepted) ? el("button", { onclick: act(`versions/${v.number}/promote`, {}, `${who(v.number)} is live.`) }, "Make live") : null,
        v.number !== 0 && recent.length ? el("button", { onclick: () => compare(v.number) }, "Before and after") : null));
    return { parts: [el("h1", {}, "Versions"), side, ...found.map(card)] };
  },
};

// ---------------------------------------------------------------------------------------------------------- health

const health = {
  title: "Health",
  async make() {
    const now = await api("health");
    return { parts: [el("h1", {}, "Health"),
      el("p", { class: "quiet" }, `${now.recorded} turns recorded since the start${now.not_recorded ? `, ${now.not_recorded} not` : ""}.`),
      el("table", {}, el("tbody", {}, now.findings.map((f) => el("tr", {}, el("td", { class: f.ok ? "good" : "bad" }, f.ok ? "well" : "look"), el("td", {}, f.what), el("td", { class: "quiet" }, f.fix)))))] };
  },
};

export const views = { rate, turns, learning, versions, health };
