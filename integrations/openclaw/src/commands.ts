// `/rl …`: who may say it, and the sentence that answers it. The words themselves are understood by Clawback.

import type { OpenClawConfig, OpenClawPluginApi } from "openclaw/plugin-sdk/plugin-entry";
import { randomUUID } from "node:crypto";
import type { Line } from "./client.js";
import { isGroup, isOpen, personOf, type Host, type Sender } from "./host.js";
import { canWait, command, isAdmin } from "./text.js";

export class Commands {
  constructor(
    private readonly line: Line,
    private readonly host: Host,
    private readonly config: () => OpenClawConfig,
    /** Who may rate in direct messages that are open to anybody, beside the owner: `telegram:11`. */
    private readonly raters: readonly string[] = [],
  ) {}

  /** On the paths where OpenClaw runs commands. */
  register(api: OpenClawPluginApi): void {
    api.registerCommand({
      name: "rl",
      description: "Rate the last answer: good, bad, rate N, note TEXT, undo, status",
      acceptsArgs: true,
      handler: async (ctx) => {
        const sender: Sender = {
          channel: ctx.channel,
          account: ctx.accountId,
          id: ctx.senderId,
          from: ctx.from,
          group: isGroup(ctx.sessionKey, ctx.from),
          scopes: ctx.gatewayClientScopes,
        };
        return { text: await this.run(`/rl ${ctx.args ?? ""}`, ctx.sessionId ?? ctx.sessionKey ?? "", sender) };
      },
    });
  }

  /** What to tell the person. */
  async run(said: string, session: string, sender: Sender): Promise<string> {
    const word = command(said) ?? "status";
    if (!session) return "Clawback: there is no conversation here to rate.";
    if (!(await this.may(word, sender))) {
      if (!sender.group && !isAdmin(word)) {
        return "Clawback: anybody may write here, so only the owner can rate, and whom the plugin's `raters` name.";
      }
      return sender.group
        ? "Clawback: in a group only the owner can rate (OpenClaw's `commands.ownerAllowFrom`)."
        : `Clawback: only the owner can say \`${word}\` (OpenClaw's \`commands.ownerAllowFrom\`).`;
    }
    const event = { event: "prompt", session, id: randomUUID(), text: said, by: personOf(sender) };
    const answer = await this.line.ask(event, canWait(word));
    if (answer.kind === "said") return answer.text || "Clawback said nothing to that.";
    if (answer.kind === "refused") return "Clawback refused it. `clawback init --agent openclaw` sets the plugin up again.";
    const waits = canWait(word) ? " It is kept while OpenClaw runs, and brought when Clawback is back." : "";
    return `Clawback does not answer (is \`clawback serve\` running?).${waits}`;
  }

  /** In a group, and for what changes more than a rating, the owner; else whom OpenClaw has let in. */
  private async may(word: string, sender: Sender): Promise<boolean> {
    // Without a channel it came by the command line or the HTTP API, with the gateway's own token; its own web page is no group.
    if (!sender.channel) return true;
    const group = sender.group && sender.channel !== "webchat";
    if (!group && !isAdmin(word)) {
      const known = !isOpen(this.config(), sender) || this.raters.includes(personOf(sender));
      if (known || word === "status") return true;
    }
    return this.host.owns(this.config(), sender);
  }
}
