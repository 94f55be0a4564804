// Import and export: what a file holds is shown as a table before anything of it is stored.
import { attempt, button, count, duration, el, say, sentence } from "./dom.js";
import { api, send, token } from "./server.js";

const EXPORTS = [["format=jsonl", "Everything that you rated", "Clawback's own lines, which lose nothing"], ["format=jsonl&all=yes", "All turns", "rated or not"],
  ["format=trl&layout=dpo", "Pairs for TRL", "DPO"], ["format=trl&layout=kto", "Thumbs for TRL", "KTO"], ["format=trl&layout=sft", "Liked answers for TRL", "SFT"],
  ["format=openai&layout=dpo", "Pairs for OpenAI", "preference tuning"], ["format=openai&layout=sft", "Liked answers for OpenAI", "fine-tuning"]];

export const files = {
  title: "Import and export",
  under: "more",
  about: "Bring in a history or a preference set; write your ratings for other trainers.",
  keys: [["Tab, Enter", "the buttons"]],
  async make({ refresh }) {
    const node = el("div", { class: "card" });
    imports(node, refresh);
    const row = ([query, title, what]) => el("li", { class: "row" }, el("span", { class: "grow" }, el("strong", {}, title), el("span", { class: "quiet" }, ` ${what}`)),
      button("Download", download(query), { "aria-label": `Download: ${title}` }));
    return { parts: [el("h1", {}, "Import and export"), el("h2", {}, "Import"), node,
      el("h2", {}, "Export"), el("div", { class: "card" }, el("ul", { class: "plain exports" }, EXPORTS.map(row)))] };
  },
};

const download = (query) => attempt(async () => {
  const answer = await fetch(`/api/export?${query}`, { headers: { authorization: `Bearer ${token.get()}` } });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `The server answered ${answer.status}.`);
  const name = /filename="([^"]+)"/.exec(answer.headers.get("content-disposition") ?? "")?.[1] ?? "clawback.jsonl";
  const link = el("a", { href: URL.createObjectURL(await answer.blob()), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  say(`${name} is downloaded.`);
});

/** Choose a file, look at its table, store it. */
function imports(node, refresh) {
  const file = el("input", { type: "file", id: "file", onchange: () => file.files[0] && upload(file.files[0]) });
  const hint = "Exports of ChatGPT (zip), Claude.ai, Open WebUI, LM Studio and LibreChat, sessions of agents, and sets in JSON, CSV or Parquet. A whole folder: `clawback import PATH`.";
  const choose = () => node.replaceChildren(el("label", { for: "file" }, "A file"), file, el("p", { class: "quiet" }, sentence(hint)));
  async function upload(chosen) {
    const bar = el("progress", { max: chosen.size || 1, value: 0, "aria-label": "Upload" });
    node.replaceChildren(el("p", { role: "status" }, `Reading ${chosen.name} …`), bar);
    try {
      const { id, part_bytes: size } = await api("imports", { name: chosen.name, size: chosen.size });
      for (let offset = 0; offset < chosen.size; offset += size) {
        await send(`imports/${id}/parts?offset=${offset}`, chosen.slice(offset, offset + size));
        bar.value = Math.min(offset + size, chosen.size);
      }
      await look(id, {});
    } catch (error) { file.value = ""; choose(); say(error.message, true); }
  }
  async function look(id, options) {
    node.replaceChildren(el("p", { role: "status" }, "Looking at what it holds …"), el("progress", { "aria-label": "Looking" }));
    const began = performance.now(), table = await api(`imports/${id}/table`, options);
    const seconds = (performance.now() - began) / 1000;
    const scale = el("input", { id: "scale", placeholder: "such as 1-5", size: 8, value: options.scale ?? "" });
    const mine = el("input", { type: "checkbox", id: "mine", checked: Boolean(options.mine) }), liked = el("input", { type: "checkbox", id: "liked", checked: Boolean(options.liked) });
    const chosen = () => ({ scale: scale.value.trim(), mine: mine.checked, liked: liked.checked });
    const known = table.files.some((one) => Object.keys(one.formats).length);
    const discard = async () => { await api(`imports/${id}/discard`, {}).catch(() => {}); file.value = ""; choose(); file.focus(); };
    const again = attempt(() => look(id, chosen()));
    const store = button("Store this", attempt(async () => {
      store.disabled = true;
      store.textContent = seconds > 5 ? `Storing, ${duration(seconds * 2)} …` : "Storing …";
      try { done(await api(`imports/${id}/store`, chosen())); } catch (error) { store.disabled = false; store.textContent = "Store this"; throw error; }
      await refresh();
    }), { class: "primary" });
    node.replaceChildren(...[el("h3", {}, "What was understood"), ...table.files.flatMap(tableOf),
      table.unknown ? el("p", { class: "bad" }, sentence(table.unknown)) : null, problemsOf(table),
      known ? el("div", { class: "options" },
        el("label", { for: "scale" }, "Scale of the scores, where they do not say it"), scale,
        el("label", {}, mine, " Opinions in a set that strangers made count as mine"),
        el("label", {}, liked, " Answers of which nothing is said are ones that I like"),
        button("Read it again with these", again)) : null,
      el("div", { class: "row" }, known ? store : null, button(known ? "Do not store it" : "Another file", discard)),
      el("p", { class: "quiet" }, "Nothing is stored yet.")].filter(Boolean));
    (known ? store : node.querySelector("button")).focus();
  }
  function done(result) {
    const text = `${count(result.turns, "turn")} and ${result.feedback} pieces of feedback imported; ${result.known} were known already.`;
    say(text);
    file.value = "";
    node.replaceChildren(...[el("p", { class: "good", role: "status" }, text), problemsOf(result),
      el("div", { class: "row" }, el("a", { href: "#rate" }, "Rate what tells most"), button("Import another file", () => { choose(); file.focus(); }))].filter(Boolean));
  }
  choose();
}

/** The lines of the command's table, as one. */
function tableOf(one) {
  const lines = one.lines.slice(1, one.lines.length - one.notes.length); // the notes stand under the table
  const rows = lines.map((line) => [line.slice(2, 17).trim(), line.slice(18).trim()]);
  const notes = one.notes.map((note) => el("p", { class: "quiet" }, sentence(note)));
  return [el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `What ${one.file} holds` }, el("table", { class: "understood" },
    el("caption", {}, one.file), el("tbody", {}, rows.map(([label, text]) => el("tr", {}, el("th", { scope: "row" }, label), el("td", {}, sentence(text))))))), ...notes];
}

function problemsOf({ problems, more_problems: rest }) {
  if (!problems.length) return null;
  return el("details", { class: "fold" }, el("summary", {}, `${count(problems.length + rest, "record")} could not be read`), el("ul", {}, problems.map((one) => el("li", {}, one)), rest ? el("li", {}, `and ${rest} more`) : null));
}
