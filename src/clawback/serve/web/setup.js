// The models of this machine, and the settings: those that are often changed as fields, the others with the command that changes them.
import { attempt, button, command, el, say, sentence } from "./dom.js";
import { api } from "./server.js";

const GB = 1e9;
const size = (bytes) => (bytes >= GB ? `${(bytes / GB).toFixed(1)} GB` : `${Math.round(bytes / 1e6)} MB`);
const parameters = (number) => (number >= GB ? `${(number / GB).toFixed(1)} B` : `${Math.round(number / 1e6)} M`);
const plain = (text) => text.replaceAll("``", "`");

export const setup = {
  title: "Models and settings",
  under: "more",
  about: "Which model learns, when a run starts, and what is recorded.",
  keys: [["Tab, Enter", "the fields and buttons"]],
  async make() {
    const [models, settings] = await Promise.all([api("models"), api("settings")]);
    const fixed = settings.filter((one) => !one.changeable);
    return { parts: [el("h1", {}, "Models and settings"), el("h2", {}, "Models"), ...modelsOf(models),
      el("h2", {}, "Settings"), el("div", { class: "card" }, settings.filter((one) => one.changeable).map(fieldOf)),
      el("details", { class: "fold" }, el("summary", {}, `All others (${fixed.length}), which are changed in a terminal`), el("div", { class: "stack" }, fixed.map(fixedOf)))] };
  },
};

function modelsOf({ base, demonstration, models }) {
  const row = (one) => el("li", { class: "card" },
    el("div", { class: "row" }, el("strong", {}, one.name), one.set ? el("span", { class: "badge live" }, "learns here") : null),
    el("p", { class: "quiet" }, `${parameters(one.parameters)} parameters · ${size(one.bytes)} · ${one.verdict}`),
    one.set || !one.fits ? null : command(one.command, `Use ${one.name}`));
  return [el("p", {}, "The model that learns is ", el("strong", {}, base), demonstration ? ": a small demonstration made of templates, not an assistant." : ".", " Restart the server after a change."),
    models.length ? el("ul", { class: "stack plain" }, models.map(row)) : el("p", { class: "card empty" }, "No other model was found on this machine: in the hub cache, Ollama, LM Studio, or among GGUF files.")];
}

/** A setting with its field, saved when it is changed. */
function fieldOf(one) {
  const id = one.key.replace(".", "-"), options = one.choices.map((value) => el("option", { value, selected: value === one.value }, value));
  const field = options.length ? el("select", { id }, options) : el("input", { id, value: one.value, placeholder: one.default || "not set", autocomplete: "off", size: 12 });
  const reset = button("Default", () => { field.value = one.default; save(""); }, { class: "quiet-button", hidden: one.is_default, "aria-label": `Default of ${one.key}` });
  const save = async (value) => {
    try {
      const now = await api("settings", { key: one.key, value });
      Object.assign(one, now);
      field.value = now.value;
      reset.hidden = now.is_default;
      say(`${one.key} is ${now.value || "not set"}.${now.at_start ? " It takes effect when the server restarts." : ""}`);
    } catch (error) {
      field.value = one.value;
      say(error.message, true);
    }
  };
  field.addEventListener("change", attempt(() => save(field.value.trim())));
  return el("div", { class: "setting" }, el("label", { for: id }, el("code", {}, one.key)), el("div", { class: "row" }, field, reset), el("p", { class: "quiet" }, sentence(plain(one.meaning)), ` It takes ${one.takes}.`));
}

const fixedOf = (one) => el("section", { class: "card", "aria-label": one.key }, el("h3", {}, el("code", {}, one.key), one.value ? [" = ", el("code", {}, one.value)] : null),
  el("p", { class: "quiet" }, sentence(plain(one.meaning)), ` It takes ${one.takes}.`), command(`clawback config set ${one.key} ${one.value && !/[\s"'{[]/.test(one.value) ? one.value : "VALUE"}`, one.key));
