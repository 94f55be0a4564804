// Reactions, as OpenClaw's channels leave them: no hook tells of one, but each becomes a system event of its session,
// under a key that says what happened to which message. Keys arrive in lower case.
const SIGNS = new Map([
    ...["👍", "❤", "🎉", "+1", "thumbsup", "thumbs_up", "heart", "tada"].map((name) => [name, 1]),
    ...["👎", "-1", "thumbsdown", "thumbs_down"].map((name) => [name, -1]),
]);
const DRESS = /[\u{1F3FB}-\u{1F3FF}\u{FE0F}]/gu; // skin tones, and "as a picture"
const SHAPES = new Map(Object.entries({
    telegram: /^(?<act>add|remove)(?:e?d)?:(?<chat>-?\d+):(?<message>\d+):(?<user>[^:]+):(?<emoji>.+)$/,
    slack: /^(?<act>add|remove)(?:e?d)?:(?<chat>[^:]+):(?<message>[^:]+):(?<user>[^:]+):(?<emoji>.+)$/,
    discord: /^(?<act>add|remove)(?:e?d)?:(?<message>[^:]+):(?<user>[^:]+):(?<emoji>.+)$/,
    matrix: /^(?<act>add|remove)(?:e?d)?:![^$]+:(?<message>\$[^@]+):(?<user>@[^:]+:[^:]+(?::\d+)?):(?<emoji>.+)$/,
    mattermost: /^(?<message>[^:]+):(?<emoji>[^:]+):(?<user>[^:]+):(?<act>add|remove)(?:e?d)?$/,
}));
/** What a system event's key says, or undefined when it is of no reaction that we can read. */
export function read(contextKey) {
    const [, channel, rest] = /^([a-z][a-z0-9-]*):reaction:(.+)$/su.exec(contextKey ?? "") ?? [];
    const found = channel && rest ? SHAPES.get(channel)?.exec(rest)?.groups : undefined;
    if (!channel || !found)
        return undefined;
    return {
        channel,
        chat: channel === "telegram" ? (found["chat"] ?? "") : "",
        message: found["message"] ?? "",
        user: found["user"] ?? "",
        emoji: found["emoji"] ?? "",
        added: found["act"] === "add",
    };
}
/** 👍 → 1, 👎 → −1; undefined for what says neither. */
export function sign(emoji) {
    return SIGNS.get(emoji.replace(DRESS, "").replace(/^:|:$|::skin-tone-\d$/g, ""));
}
/** Our name for a message: the same from the side that sends it and from the side that sees the reaction. */
export function nameOf(channel, account, chat, message) {
    return [channel, account || "default", ...(chat ? [chat] : []), message].join("/").toLowerCase();
}
/** The chat as it must stand in the name: `telegram:-100:topic:5` → `-100`; "" for channels that need none. */
export function chatOf(channel, conversation) {
    if (channel !== "telegram")
        return "";
    return /-?\d+/.exec(conversation ?? "")?.[0] ?? "";
}
