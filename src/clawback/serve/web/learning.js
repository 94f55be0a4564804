// The run under way with its curves, the runs before it, and what became of each version.
import { attempt, button, count, duration, el, say, when } from "./dom.js";
import { capital, who } from "./names.js";
import { plot, ranges, wilson } from "./plot.js";
import { api, person } from "./server.js";

const EVERY = 2000;
const percent = (v) => `${Math.round(v * 100)} %`;
const number = (v) => (v === 0 ? "0" : Math.abs(v) < 0.001 ? v.toExponential(1) : Math.abs(v) >= 100 ? v.toFixed(0) : Math.abs(v) >= 1 ? v.toFixed(2) : v.toPrecision(2));
const ENDS = { done: "done", failed: "failed", stopped: "stopped", running: "running", preparing: "preparing", interrupted: "interrupted" };

export const learning = {
  title: "Learning",
  keys: [["Tab, Enter", "the buttons and the runs"]],
  async make({ refresh }) {
    const job = el("section", { class: "card", "aria-label": "The run" }), listed = el("ul", { class: "rows", "aria-label": "Runs" });
    const runPlots = el("div", { class: "plots" }), versionPlots = el("div", { class: "plots" }), named = el("h2", {}, "Curves"), versionsNamed = el("h2", {}, "Versions");
    let chosen = null, timer = 0, left = false, drawn = "";
    const open = [], overVersions = [];
    const curves = {
      loss: plot({ title: "Loss", data: { x: [], y: [] }, format: number }),
      reward: plot({ title: "Reward of the answers in a step", data: { x: [], y: [] }, format: number, range: ranges.around(0) }),
      kl: plot({ title: "How far it moved from the base model (KL, nats per token)", data: { x: [], y: [] }, format: number, range: ranges.fromZero }),
    };
    open.push(...Object.values(curves));
    runPlots.append(...open.map((one) => one.node));

    async function showRun(id) {
      const run = await api(`runs/${id}`);
      named.textContent = `Run ${id}: loss, reward and KL`;
      const x = run.history.map((_, i) => i + 1), of = (pick) => ({ x, y: run.history.map(pick) });
      curves.loss.update(of((s) => s.loss));
      curves.reward.update(of((s) => s.reward));
      curves.kl.update(of((s) => s.kl ?? s.drift ?? s.kl_loss));
    }
    const may = person.role !== "viewer";
    const act = (path, text) => attempt(async () => { await api(path, {}); say(text); await draw(); refresh(); });
    function now(data) {
      const run = data.run, last = data.runs[0];
      const text = JSON.stringify([run, last?.id, last?.status]);
      if (text === drawn) return; // so that the focus stays where it is
      const focus = job.contains(document.activeElement) ? document.activeElement.dataset.name : null;
      drawn = text;
      const name = (button, value) => { button.dataset.name = value; return button; };
      if (run) {
        const p = run.progress, prepares = run.status === "preparing";
        job.replaceChildren(...[
          el("div", { class: "row" }, el("h2", {}, prepares ? `Run ${run.id} is being prepared` : `Run ${run.id} learns from ${count(run.ratings, "piece")} of feedback`), el("span", { class: "grow" }),
            may && (run.interrupted ? name(button("Resume", act(`runs/${run.id}/resume`, "It continues in the background.")), "go")
              : name(button("Stop", act(`runs/${run.id}/stop`, "It stops after the current step; you can resume it."), { disabled: Boolean(run.stop_at) }), "stop")),
            may && prepares ? button("Preparing…", () => {}, { class: "primary", disabled: true }) : null),
          el("p", {}, el("strong", {}, capital(prepares ? run.text : p.phase ?? "starting")), p.steps ? ` ${p.step} of ${p.steps}` : "", p.rounds ? `, round ${p.round} of ${p.rounds}` : "",
            typeof p.seconds_left === "number" ? `, ${duration(p.seconds_left)} left in this phase` : "", run.interrupted ? ". Its process is gone." : run.stop_at ? ". It stops after this step." : ""),
          el("progress", { "aria-label": "This phase", max: p.steps ?? 1, value: p.steps ? p.step : undefined }),
        ]);
      } else {
        job.replaceChildren(el("div", { class: "row" },
          may && last?.status === "stopped" ? name(button(`Resume run ${last.id}`, act(`runs/${last.id}/resume`, "It continues in the background."), { class: "primary" }), "go") : null,
          may && name(button("Train now", act("train", "A training run is being prepared."), { class: last?.status === "stopped" ? "" : "primary" }), "train"),
          el("span", { class: "quiet" }, may ? "" : "No run is under way. ", "In the background. A new version goes live only if it passes the gate.")));
      }
      if (focus) job.querySelector(`[data-name="${focus}"]`)?.focus();
    }
    let rows = "";
    function list(data) {
      const text = JSON.stringify([data.runs.map((r) => [r.id, r.status, r.version, ["running", "preparing"].includes(r.status) && r.text]), chosen]);
      if (text === rows) return;
      const focus = listed.contains(document.activeElement) ? document.activeElement.dataset.run : null;
      rows = text;
      listed.replaceChildren(...(data.runs.length ? data.runs.map((r) => el("li", {}, el("button", { type: "button", class: "rowbutton", "data-run": r.id, "aria-pressed": String(r.id === chosen), onclick: attempt(async () => { chosen = r.id; await showRun(r.id); await draw(); }) },
        el("span", {}, `Run ${r.id}`), el("span", { class: `mark ${r.status === "failed" ? "bad" : r.status === "done" ? "good" : "quiet"}` }, ENDS[r.status]),
        el("span", { class: "quiet clip" }, [when(r.created_at), r.algorithm, ...(r.ratings ? [`${count(r.ratings, "piece")} of feedback`] : [])].join(" · ")),
        el("span", { class: "quiet clip" }, r.version ? `made ${who(r.version)}` : r.error || (["running", "preparing"].includes(r.status) ? r.text : ""))))) : [el("li", { class: "empty" }, "No runs yet. A run starts by itself when enough ratings have come together, or by Train now.")]));
      if (focus) listed.querySelector(`[data-run="${focus}"]`)?.focus();
    }
    let measured = "";
    function versions(data) {
      const text = JSON.stringify(data.versions);
      if (text === measured) return;
      measured = text;
      for (const one of overVersions.splice(0)) one.close();
      const x = data.versions.map((v) => v.version), of = (name) => ({ x, y: data.versions.map((v) => v[name] ?? null) });
      const bounds = data.versions.map((v) => wilson(v.good, v.rated));
      const version = { label: (n) => `v${n}`, one: "version" };
      overVersions.push(
        plot({ ...version, title: "Satisfaction: share of a version's rated answers that were good (95 % interval)", data: { ...of("satisfaction"), low: bounds.map((b) => b[0]), high: bounds.map((b) => b[1]) }, format: percent, range: ranges.share }),
        plot({ ...version, title: "How much better than the version before (expected reward, by the gate)", data: of("gain"), format: number, range: ranges.around(0) }),
        plot({ ...version, title: "How far it moved from the base model (KL, nats per answer)", data: of("kl"), format: number, range: ranges.fromZero }),
        plot({ ...version, title: "How well it still writes what the base model writes (perplexity, base = 1)", data: of("perplexity_ratio"), format: number, range: ranges.around(1) }));
      versionsNamed.hidden = !data.versions.some((v) => v.version);
      versionPlots.hidden = versionsNamed.hidden;
      versionPlots.replaceChildren(...overVersions.map((one) => one.node));
    }
    async function draw() {
      const data = await api("learning");
      if (left) return;
      now(data);
      if (chosen === null || (data.run && data.run.id > chosen)) chosen = data.run?.id ?? data.runs[0]?.id ?? null;
      list(data);
      versions(data);
      named.hidden = runPlots.hidden = chosen === null;
      if (chosen !== null) await showRun(chosen);
    }
    await draw();
    const tick = async () => {
      if (!document.hidden) await Promise.all([draw(), refresh()]).catch((error) => say(error.message, true));
      if (!left) timer = setTimeout(tick, EVERY);
    };
    timer = setTimeout(tick, EVERY);
    return {
      parts: [el("h1", {}, "Learning"), job, named, runPlots, el("h2", {}, "Runs"), el("p", {}, el("a", { href: "#episodes" }, "Episodes played in environments")), listed, versionsNamed, versionPlots],
      leave() { left = true; clearTimeout(timer); for (const one of [...open, ...overVersions]) one.close(); },
    };
  },
};
