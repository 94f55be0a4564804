// What we need of OpenClaw beyond its hooks. Both parts are taken where they are there, and done without where a later
// version has moved them: then nobody is an owner in a group, and reactions are not seen.
/** The person behind it, as reactions name them too; "" where a channel has none, or is OpenClaw's own page. */
export function personOf(sender) {
    return sender.id && sender.channel && sender.channel !== "webchat" ? `${sender.channel}:${sender.id}`.toLowerCase() : "";
}
/** Anybody may write to the agent there directly: what strangers say is answered, and must not be learned from. */
export function isOpen(config, sender) {
    const channels = config.channels;
    const channel = channels?.[sender.channel ?? ""];
    const account = channel?.accounts?.[sender.account ?? ""];
    const policy = account?.dmPolicy ?? account?.dm?.policy ?? channel?.dmPolicy ?? channel?.dm?.policy;
    return policy === "open";
}
export class Host {
    authorize;
    /** The events that wait in a session's queue; undefined where OpenClaw does not show them. */
    peek;
    constructor() {
        this.authorize = import("openclaw/plugin-sdk/command-auth").then((sdk) => sdk.resolveCommandAuthorization, () => undefined);
        const name = "openclaw/plugin-sdk/system-event-runtime"; // it has no published types
        this.peek = import(name).then((sdk) => sdk.peekSystemEventEntries, () => undefined);
    }
    /** OpenClaw's own notion of an owner (`commands.ownerAllowFrom`, an operator's client). */
    async owns(config, sender) {
        const authorize = await this.authorize;
        if (!authorize)
            return false;
        const ctx = {
            Provider: sender.channel,
            Surface: sender.channel,
            AccountId: sender.account,
            SenderId: sender.id,
            From: sender.from ?? "",
            ChatType: sender.group ? "group" : "direct",
            GatewayClientScopes: sender.scopes,
        };
        try {
            return authorize({ ctx, cfg: config, commandAuthorized: true }).senderIsOwner;
        }
        catch {
            return false;
        }
    }
}
/** Several people may speak there. Where it cannot be told it is taken for a group. */
export function isGroup(sessionKey, from) {
    if (/:(?:group|channel|room|space)(?::|$)/.test(from ?? ""))
        return true;
    if (!sessionKey)
        return false;
    return !/^agent:[^:]+:(?:main$|explicit:|openai:|(?:.+:)?(?:direct|dm):)/.test(sessionKey);
}
/** An agent's errand: nobody asked for it, or not directly. */
export function isErrand(sessionKey, trigger, origin) {
    const inside = origin === "inter_session" || origin === "internal_system";
    return inside || (trigger !== undefined && trigger !== "user") || /:(?:subagent|cron):/.test(`${sessionKey ?? ""}:`);
}
