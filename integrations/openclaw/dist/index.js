// Clawback in OpenClaw: `/rl good` and reactions rate the answer that they are about. No program is started and nothing is
// read from the environment; all that leaves goes to Clawback on this machine.
import { definePluginEntry } from "openclaw/plugin-sdk/plugin-entry";
import { Line, loopback } from "./client.js";
import { Commands } from "./commands.js";
import { Host, isErrand, isGroup, personOf } from "./host.js";
import { chatOf, nameOf } from "./reactions.js";
import { command, isBetweenSessions, lastAnswer, lastEnding, plain, workOf } from "./text.js";
import { keep, Turns } from "./turns.js";
import { Watch } from "./watch.js";
const MOST_SESSIONS = 500;
const SHARED = Symbol.for("clawback.plugin");
function register(api) {
    const given = api.pluginConfig ?? {};
    const origin = loopback(String(given["url"] ?? "http://127.0.0.1:8742"));
    if (!origin) {
        api.logger.error("Clawback: the url is none of this machine's own (http://127.0.0.1:PORT), so nothing is sent");
        return;
    }
    const plugin = shared(api, origin, String(given["token"] ?? ""), names(given["raters"]));
    plugin.commands.register(api);
    plugin.hook(api);
    api.registerProvider({
        id: "clawback",
        label: "Clawback",
        auth: [],
        resolveTransportTurnState: ({ sessionId }) => ({ headers: plugin.headers(sessionId) }),
    });
    const watch = given["reactions"] === false ? undefined : plugin.watch;
    api.registerService({
        id: "clawback",
        start: async () => {
            plugin.inGateway = true;
            if (watch && !(await watch.start()))
                api.logger.warn("Clawback: this OpenClaw does not show reactions");
        },
        stop: () => watch?.stop(),
    });
}
/** OpenClaw registers a plugin several times in one process, and a turn's hooks are spread over them: what they know is one. */
function shared(api, origin, token, raters) {
    const held = globalThis;
    const key = [origin, token, ...raters].join(" ");
    if (held[SHARED]?.key !== key) {
        held[SHARED]?.plugin.close();
        const line = new Line(origin, token, (text) => api.logger.warn(text));
        const config = () => (api.runtime?.config?.current?.() ?? api.config);
        held[SHARED] = { key, plugin: new Plugin(line, new Host(), config, raters) };
    }
    return held[SHARED].plugin;
}
/** A list of people, as `personOf` names them. */
function names(given) {
    return Array.isArray(given) ? given.map((name) => String(name).toLowerCase()) : [];
}
class Plugin {
    line;
    turns = new Turns();
    commands;
    watch;
    /** `openclaw agent --local` ends with its answer, and what was told must be gone by then. */
    inGateway = false;
    sessions = new Map();
    kinds = new Map();
    constructor(line, host, config, raters) {
        this.line = line;
        this.commands = new Commands(line, host, config, raters);
        this.watch = new Watch(line, host, config, raters);
    }
    close() {
        this.watch.stop();
        this.line.close();
    }
    /** With them our server knows the conversation, and that an errand is none of the person's turns. */
    headers(sessionId) {
        if (!sessionId)
            return {};
        const kind = this.kinds.get(sessionId);
        return { "User-Agent": "openclaw", "X-Session-Id": sessionId, ...(kind ? { "X-Turn-Type": kind } : {}) };
    }
    hook(api) {
        api.on("message_received", (event, ctx) => this.watch.look(event.sessionKey ?? ctx.sessionKey));
        api.on("before_dispatch", (event, ctx) => this.watch.look(event.sessionKey ?? ctx.sessionKey));
        api.on("before_agent_reply", async (event, ctx) => {
            const { runId, sessionKey = "", sessionId = sessionKey } = ctx;
            this.note(sessionKey, sessionId);
            const text = plain(event.cleanedBody);
            const errand = isBetweenSessions(text) || isErrand(sessionKey, ctx.trigger, ctx.inputProvenance?.kind);
            this.kind(sessionId, errand);
            const word = errand ? undefined : command(text);
            const sender = { channel: ctx.channel, account: ctx.accountId, id: ctx.senderId, group: isGroup(sessionKey) };
            if (word !== undefined) {
                if (runId)
                    this.turns.leaveOut(runId);
                const said = await this.commands.run(text, sessionId, sender);
                return { handled: true, reply: { text: said } };
            }
            if (runId && sessionId && !errand) {
                this.turns.begin(runId, sessionKey, sessionId);
                this.line.tell({ event: "prompt", session: sessionId, id: runId, text, by: personOf(sender) });
            }
            return undefined;
        });
        // Sub-agents have no `before_agent_reply`; here every run passes, and says where it came from.
        api.on("before_prompt_build", (_, ctx) => {
            this.kind(ctx.sessionId, isErrand(ctx.sessionKey, ctx.trigger, ctx.inputProvenance?.kind));
        });
        api.on("agent_end", async (event, ctx) => {
            const id = event.runId ?? ctx.runId ?? "";
            const run = this.turns.run(id);
            const text = run && event.success ? lastAnswer(event.messages) : "";
            if (run && !event.success)
                this.line.tell({ event: "failed", session: run.session, id });
            if (!run || !text)
                return;
            const model = [ctx.modelProviderId, ctx.modelId].filter(Boolean).join("/");
            const work = workOf(event.messages);
            const ending = lastEnding(event.messages);
            this.line.tell({ event: "answer", session: run.session, id, text, model, work, ending });
            for (const message of this.turns.told(id))
                this.shown(run.session, id, message);
            if (!this.inGateway)
                await this.line.drained(1_500);
        });
        api.on("reply_payload_sending", (event, ctx) => {
            const id = event.runId ?? "";
            const text = event.payload.text ?? "";
            if (event.kind === "tool" || !id || !text)
                return;
            const session = this.sessions.get(event.sessionKey ?? ctx.sessionKey ?? "");
            if (this.turns.sending(id, text) || !session)
                return;
            // The person sees an answer to something that nobody asked: `/rl good` must not go to the one before it.
            this.turns.leaveOut(id);
            this.line.tell({ event: "prompt", session, id: `own:${id}`, text: "" });
        });
        api.on("message_sent", (event, ctx) => {
            const sessionKey = event.sessionKey ?? ctx.sessionKey;
            if (!event.success || !event.messageId || !sessionKey)
                return;
            const run = this.turns.sent(sessionKey, event.content);
            if (!run)
                return;
            const account = ctx.accountId ?? "";
            const chat = chatOf(ctx.channelId, ctx.conversationId ?? event.to);
            const name = nameOf(ctx.channelId, account, chat, event.messageId);
            this.watch.shown(name, ctx.channelId, account);
            if (run.told)
                this.shown(run.session, run.id, name);
            else
                run.waiting.push(name);
        });
    }
    shown(session, id, message) {
        this.line.tell({ event: "shown", session, id, message });
    }
    note(sessionKey, sessionId) {
        if (!sessionKey)
            return;
        keep(this.sessions, sessionKey, sessionId, MOST_SESSIONS);
        this.watch.know(sessionKey, sessionId);
    }
    kind(sessionId, errand) {
        if (sessionId)
            keep(this.kinds, sessionId, errand ? "side" : "main", MOST_SESSIONS);
    }
}
export default definePluginEntry({
    id: "clawback",
    name: "Clawback",
    description: "Rate answers where they appear; your own model learns from it.",
    register,
});
