// How an agent or a program comes to answer and record here: commands and addresses to copy.
import { command, el, sentence } from "./dom.js";
import { api } from "./server.js";

const STATES = { set: "set up", found: "on this machine", none: "not found on this machine" };
const ORDER = ["set", "found", "none"];
const stateOf = (agent) => (agent.installed ? "set" : agent.found ? "found" : "none");

export const connect = {
  title: "Connect your agent",
  under: "more",
  about: "Commands to copy for Claude Code, Codex, Gemini CLI, OpenClaw, and any client of the OpenAI or Anthropic API.",
  keys: [["Tab, Enter", "the Copy buttons"]],
  async make() {
    const found = await api("agents"), here = location.origin;
    const key = found.open ? "any text" : `the content of ${found.token_file}`;
    const agents = [...found.agents].sort((a, b) => ORDER.indexOf(stateOf(a)) - ORDER.indexOf(stateOf(b)));
    const card = (agent) => el("div", { class: "card" },
      el("div", { class: "row" }, el("h3", {}, agent.title), el("span", { class: `badge ${agent.installed ? "live" : ""}` }, STATES[stateOf(agent)])),
      agent.problem ? el("p", { class: "bad" }, agent.problem) : null,
      agent.installed ? el("p", {}, "Rate there with ", agent.usage, ".") : command(agent.command, `Set up ${agent.title}`));
    const clients = [["Claude Code by the proxy", `ANTHROPIC_BASE_URL=${here} claude`], ["A program with an OpenAI client", `export OPENAI_BASE_URL=${here}/v1`],
      ["A program with an Anthropic client", `export ANTHROPIC_BASE_URL=${here}`], ["Agents that speak MCP", found.mcp],
      ["Try it", `curl ${here}/v1/chat/completions${found.open ? "" : ` -H "Authorization: Bearer $(cat ${found.token_file})"`} -H 'content-type: application/json' -d '{"model": "clawback", "messages": [{"role": "user", "content": "Hello"}]}'`]];
    return { parts: [el("h1", {}, "Connect your agent"),
      el("p", {}, sentence("Each command shows what it will change before it changes anything; `clawback init --remove` takes it out again.")),
      el("h2", {}, "Agents"),
      el("div", { class: "stack" }, agents.map(card)),
      el("h2", {}, "Any other client"),
      el("p", { class: "quiet" }, `Its answers come from ${found.upstream || "the live version"} and are recorded here. Its API key: ${key}.`),
      el("div", { class: "stack" }, clients.map(([title, text]) => el("div", { class: "card" }, el("h3", {}, title), command(text, title))))] };
  },
};
