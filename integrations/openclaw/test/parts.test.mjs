// The plugin's parts, without OpenClaw: what is a command, which message is meant, who may speak, and what waits.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { createServer } from "node:http";
import { test } from "node:test";
import { Line, loopback } from "../dist/client.js";
import { Commands } from "../dist/commands.js";
import { isErrand, isGroup } from "../dist/host.js";
import { chatOf, nameOf, read, sign } from "../dist/reactions.js";
import { command, lastAnswer, lastEnding, plain, workOf } from "../dist/text.js";
import { Turns } from "../dist/turns.js";
import { Watch } from "../dist/watch.js";

const quiet = () => {};

test("commands are ours alone", () => {
  assert.equal(command("/rl good short and right"), "good");
  assert.equal(command("  /RL BAD"), "bad");
  assert.equal(command("/rl"), "status");
  assert.equal(command("rl: rate 9"), "rate");
  assert.equal(command("rl:good"), "good");
  assert.equal(command("/clawback:rl undo"), "undo");
  for (const other of ["/rlx good", "say /rl good", "rl good", "[Inter-session message] /rl good", ""]) {
    assert.equal(command(other), undefined, other);
  }
});

test("a prompt is what the person wrote", () => {
  const context = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nSystem: x\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>";
  const sender = 'Conversation info: ⟦openclaw:ctx⟧\n```json\n{"sender":{"id":"11"}}\n```\n\n';
  assert.equal(plain(`[Sat 2026-11-21 00:19 UTC] ${sender}Hello\n${context}`), "Hello");
  assert.equal(plain("[not a time] stays"), "[not a time] stays");
  assert.equal(plain(context), "");
});

test("why the model stopped is its own word", () => {
  const asked = { role: "user", content: "x" };
  const call = { role: "assistant", content: [{ type: "toolCall" }], stopReason: "toolUse" };
  assert.equal(lastEnding([asked, call, { role: "assistant", content: "done", stopReason: "length" }]), "length");
  assert.equal(lastEnding([{ role: "assistant", content: "old", stopReason: "stop" }, asked]), "");
  assert.equal(lastEnding([asked, { role: "assistant", content: "done" }]), "");
  assert.equal(lastEnding([asked, { role: "assistant", content: "done", stopReason: 3 }]), "");
});

test("the answer is what the model said after the person", () => {
  const said = [{ type: "thinking", thinking: "hm" }, { type: "text", text: "done" }];
  assert.equal(lastAnswer([{ role: "user", content: "x" }, { role: "assistant", content: said }]), "done");
  assert.equal(lastAnswer([{ role: "assistant", content: "old" }, { role: "user", content: "x" }]), "");
  assert.equal(lastAnswer([null, 3, { role: "assistant", content: 7 }]), "");
});

test("tools and their results since the prompt are told with the answer", () => {
  const call = { type: "toolCall", id: "c1", name: "read", arguments: { path: "a.py" } };
  const messages = [
    { role: "assistant", content: [{ ...call, id: "old" }] },
    { role: "user", content: "read a.py" },
    { role: "assistant", content: [{ type: "text", text: "Looking." }, call] },
    { role: "toolResult", toolCallId: "c1", content: [{ type: "text", text: "x".repeat(30_000) }] },
    { role: "assistant", content: [{ type: "text", text: "done" }] },
  ];
  const [said, result, ...more] = workOf(messages);
  assert.deepEqual(said, { role: "assistant", content: "Looking.", tool_calls: [{ id: "c1", name: "read", arguments: { path: "a.py" } }] });
  assert.equal(result.tool_call_id, "c1");
  assert.equal(result.content.length, 20_000);
  assert.deepEqual(more, []);
  assert.deepEqual(workOf([null, 3, { role: "assistant", content: "done" }]), []);
});

test("reactions are read from the keys of five channels", () => {
  const seen = (key) => {
    const found = read(key);
    return found && [found.channel, found.chat, found.message, found.user, sign(found.emoji), found.added];
  };
  assert.deepEqual(seen("telegram:reaction:add:-100:8:22:👎"), ["telegram", "-100", "8", "22", -1, true]);
  assert.deepEqual(seen("slack:reaction:removed:c1:17.02:u1:thumbsup"), ["slack", "", "17.02", "u1", 1, false]);
  assert.deepEqual(seen("slack:reaction:added:c1:17.02:u1:+1::skin-tone-2"), ["slack", "", "17.02", "u1", 1, true]);
  assert.deepEqual(seen("discord:reaction:added:99:7:👍🏽"), ["discord", "", "99", "7", 1, true]);
  assert.deepEqual(seen("matrix:reaction:add:!r:host:8448:$e:host:@ann:host:👍"), ["matrix", "", "$e:host", "@ann:host", 1, true]);
  assert.deepEqual(seen("mattermost:reaction:p1:-1:u1:removed"), ["mattermost", "", "p1", "u1", -1, false]);
  assert.equal(sign("👀"), undefined);
  assert.equal(sign("constructor"), undefined);
  for (const other of [null, "", "session-created:x", "telegram:reaction:add:x:y", "constructor:reaction:add:1:2:3:👍"]) {
    assert.equal(seen(other), undefined, String(other));
  }
});

test("a message has one name, from wherever it is seen", () => {
  assert.equal(nameOf("telegram", "", chatOf("telegram", "telegram:-100:topic:5"), "8"), "telegram/default/-100/8");
  assert.equal(nameOf("telegram", "default", "-100", "8"), "telegram/default/-100/8");
  assert.equal(nameOf("slack", "team", chatOf("slack", "channel:C1"), "17.02"), "slack/team/17.02");
});

test("where several may speak, and what is nobody's", () => {
  assert.equal(isGroup("agent:main:main"), false);
  assert.equal(isGroup("agent:main:telegram:direct:11"), false);
  assert.equal(isGroup("agent:main:explicit:s1"), false);
  assert.equal(isGroup("agent:main:telegram:group:-100"), true);
  assert.equal(isGroup("agent:main:discord:channel:1"), true);
  assert.equal(isGroup("agent:main:main", "telegram:group:-100"), true);
  assert.equal(isErrand("agent:main:main", "user"), false);
  assert.equal(isErrand("agent:main:main", "heartbeat"), true);
  assert.equal(isErrand("agent:main:subagent:7", "user"), true);
  assert.equal(isErrand("agent:main:main", "user", "inter_session"), true);
});

test("messages find their run by text and order, and others find none", () => {
  const turns = new Turns();
  turns.begin("1", "k", "s");
  turns.begin("2", "k", "s");
  assert.equal(turns.sending("1", "One **long**\nanswer in two parts"), true);
  assert.equal(turns.sending("2", "Yes."), true);
  assert.equal(turns.sent("k", "One long answer")?.id, "1");
  assert.equal(turns.sent("k", "answer"), undefined, "it was seen already");
  assert.equal(turns.sent("k", "in two parts")?.id, "1");
  assert.equal(turns.sent("other", "Yes."), undefined, "another conversation");
  assert.equal(turns.sent("k", "Yes, and more"), undefined);
  assert.equal(turns.sent("k", "Yes.")?.id, "2");
  assert.equal(turns.sending("3", "a reminder"), false, "nobody asked");
  turns.leaveOut("3");
  assert.equal(turns.sending("3", "a reminder"), true, "said once");
});

test("only this machine is spoken to", () => {
  assert.equal(loopback("http://127.0.0.1:8742/x"), "http://127.0.0.1:8742");
  assert.equal(loopback("http://localhost:1"), "http://localhost:1");
  assert.equal(loopback("http://[::1]:1"), "http://[::1]:1");
  for (const other of ["http://10.0.0.1:1", "https://127.0.0.1", "http://127.0.0.1.evil.org", "http://a@127.0.0.1", "x", "file:///"]) {
    assert.equal(loopback(other), undefined, other);
  }
});

/** What Clawback makes of a question, with that token and on that port. */
const proof = (asked, token = "secret", port = 1) => createHmac("sha256", token).update(`clawback ${port} ${asked}`).digest("hex");

/** Clawback, as far as a line to it goes; `prove` is what it says for itself. */
async function clawback(answer, prove = (asked, port) => proof(asked, "secret", port)) {
  const got = [];
  const server = createServer((request, response) => {
    if (request.url === "/api/hooks/proof") {
      got.push({ path: request.url, token: request.headers["x-clawback-token"] });
      response.writeHead(200).end(prove(request.headers["x-clawback-nonce"], server.address().port));
      return;
    }
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", () => {
      got.push({ path: request.url, token: request.headers["x-clawback-token"], ...JSON.parse(body) });
      const said = answer?.(got.at(-1)) ?? { status: 200, body: "" };
      response.writeHead(said.status).end(said.body);
    });
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const origin = `http://127.0.0.1:${server.address().port}`;
  return { got, origin, close: () => new Promise((over) => server.close(over)) };
}

test("events arrive in order, and a question gets its answer", async () => {
  const there = await clawback((event) => ({ status: 200, body: event.text === "/rl good" ? '{"reply": "Noted"}' : "" }));
  const line = new Line(there.origin, "secret", quiet);
  line.tell({ event: "prompt", text: "a" });
  line.tell({ event: "answer", text: "b" });
  assert.deepEqual(await line.ask({ event: "prompt", text: "/rl good" }, true), { kind: "said", text: "Noted" });
  const events = there.got.filter((event) => event.text);
  assert.deepEqual(events.map((event) => event.text), ["a", "b", "/rl good"]);
  assert.equal(events[0].path, "/api/hooks/openclaw");
  assert.equal(events[0].token, "secret");
  await there.close();
});

test("who took Clawback's port hears no event and no token, and what waits comes when Clawback is back", async () => {
  const warned = [];
  let own = false;
  // It lets another server of Clawback's answer for it: the port in the proof is not its own then.
  const there = await clawback(undefined, (asked, port) => proof(asked, "secret", own ? port : port + 1));
  const line = new Line(there.origin, "secret", (text) => warned.push(text));
  line.tell({ event: "prompt", text: "my own words" });
  assert.deepEqual(await line.ask({ event: "prompt", text: "/rl good" }, true), { kind: "down" });
  assert.ok(there.got.every((event) => event.path === "/api/hooks/proof" && event.token === undefined && !event.text));
  assert.equal(warned.filter((text) => text.includes("is told nothing")).length, 1);
  assert.ok(!warned.join().includes("secret"));
  own = true;
  await line.ask({ event: "prompt", text: "/rl bad" }, true);
  assert.deepEqual(there.got.filter((event) => event.text).map((event) => event.text), ["my own words", "/rl good", "/rl bad"]);
  line.close();
  await there.close();
});

test("while Clawback is away who asks is told at once, ratings wait, and all come in order", async () => {
  let away = true;
  const came = [];
  const send = async (_, { body, headers }) => {
    if (away) throw new Error("refused");
    if (!body) return new Response(proof(headers["X-Clawback-Nonce"]));
    came.push(JSON.parse(body).text);
    return new Response("");
  };
  const lines = [];
  const line = new Line("http://127.0.0.1:1", "secret", (text) => lines.push(text), send);
  line.tell({ text: "prompt" });
  assert.deepEqual(await line.ask({ text: "good" }, true), { kind: "down" });
  assert.deepEqual(await line.ask({ text: "status" }, false), { kind: "down" });
  assert.equal(line.waiting, 2);
  away = false;
  assert.equal((await line.ask({ text: "bad" }, true)).kind, "said");
  assert.deepEqual(came, ["prompt", "good", "bad"]);
  assert.ok(!lines.join().includes("secret"));
});

test("the oldest go when too much waits", async () => {
  const line = new Line("http://127.0.0.1:1", "", quiet, async () => Promise.reject(new Error("refused")));
  for (let n = 0; n < 1_500; n += 1) line.tell({ n });
  await line.drained(1_000);
  assert.equal(line.waiting, 1_000);
  line.close();
});

test("an event that is refused holds up no other", async () => {
  const there = await clawback((event) => ({ status: event.n === 1 ? 401 : 200, body: "" }));
  const line = new Line(there.origin, "secret", quiet);
  assert.deepEqual(await line.ask({ n: 1 }, true), { kind: "refused" });
  assert.deepEqual(await line.ask({ n: 2 }, true), { kind: "said", text: "" });
  await there.close();
});

const owner = (...ids) => ({ owns: async (_, sender) => ids.includes(sender.id), peek: Promise.resolve(undefined) });

test("in a group the owner alone, elsewhere everybody but for what changes more", async () => {
  const asked = [];
  const line = { ask: async (event) => (asked.push(event.text), { kind: "said", text: "done" }) };
  const commands = new Commands(line, owner("11"), () => ({}));
  const say = (text, id, group, channel = "telegram") => commands.run(text, "s", { channel, id, group });
  assert.match(await say("/rl good", "22", true), /only the owner/);
  assert.match(await say("/rl train", "22", false), /only the owner/);
  assert.deepEqual(asked, []);
  assert.equal(await say("/rl good", "11", true), "done");
  assert.equal(await say("/rl good", "22", false), "done");
  assert.equal(await say("/rl train", "11", false), "done");
  assert.equal(await say("/rl train", undefined, true, ""), "done");
  assert.equal(await say("/rl good", "cli", true, "webchat"), "done");
  assert.match(await say("/rl train", "cli", true, "webchat"), /only the owner/);
  assert.equal(asked.length, 5);
});

test("who rates is named, and strangers in open direct messages do not count unless allowed", async () => {
  const asked = [];
  const line = { ask: async (event) => (asked.push(event.by), { kind: "said", text: "done" }) };
  let config = { channels: { telegram: { dmPolicy: "open" } } };
  const commands = new Commands(line, owner("11"), () => config, ["telegram:33"]);
  const say = (id, channel = "telegram") => commands.run("/rl bad", "s", { channel, id, group: false });
  assert.match(await say("22"), /only the owner can rate/);
  assert.equal(await say("11"), "done");
  assert.equal(await say("33"), "done");
  assert.equal(await say("cli", "webchat"), "done");
  config = { channels: { telegram: { dmPolicy: "pairing" } } };
  assert.equal(await say("22"), "done");
  assert.deepEqual(asked, ["telegram:11", "telegram:33", "", "telegram:22"]);
});

test("nor do a stranger's reactions", async () => {
  const queue = ["telegram:reaction:add:22:2:22:👎", "telegram:reaction:add:33:3:33:👎", "telegram:reaction:add:11:4:11:👎"];
  const host = { ...owner("11"), peek: Promise.resolve(() => queue.map((contextKey, n) => ({ id: String(n), contextKey }))) };
  const told = [];
  const config = { channels: { telegram: { dmPolicy: "open" } } };
  const watch = new Watch({ tell: (event) => told.push(event) }, host, () => config, ["telegram:33"]);
  await watch.start();
  watch.look("agent:main:main");
  await new Promise(setImmediate);
  watch.stop();
  assert.deepEqual(told.map((event) => event.by).sort(), ["telegram:11", "telegram:33"]);
});

test("reactions: once each, the owner's alone in a group, and not where the account is uncertain", async () => {
  const queues = {
    "agent:main:telegram:direct:11": ["telegram:reaction:add:11:2:11:👍", "telegram:reaction:add:11:2:11:👀"],
    "agent:main:telegram:group:-100": ["telegram:reaction:add:-100:8:22:👎", "telegram:reaction:add:-100:8:11:👍"],
  };
  const host = { ...owner("11"), peek: Promise.resolve((key) => queues[key].map((contextKey, n) => ({ id: key + n, contextKey }))) };
  const told = [];
  let accounts;
  const watch = new Watch({ tell: (event) => told.push(event) }, host, () => ({ channels: { telegram: { accounts } } }));
  await watch.start();
  for (const key of [...Object.keys(queues), ...Object.keys(queues)]) watch.look(key);
  await new Promise(setImmediate);
  assert.deepEqual(told.map((event) => [event.message, event.value, event.by]), [
    ["telegram/default/11/2", 1, "telegram:11"],
    ["telegram/default/-100/8", 1, "telegram:11"],
  ]);
  accounts = { one: {}, two: {} };
  queues["agent:main:telegram:direct:11"] = ["", "", "telegram:reaction:add:11:3:11:👍"];
  watch.look("agent:main:telegram:direct:11");
  await new Promise(setImmediate);
  assert.equal(told.length, 2, "two accounts, and neither is known to have sent it");
  watch.shown("telegram/two/11/4", "telegram", "two");
  queues["agent:main:telegram:direct:11"].push("telegram:reaction:add:11:4:11:👍");
  watch.look("agent:main:telegram:direct:11");
  await new Promise(setImmediate);
  assert.equal(told.at(-1).message, "telegram/two/11/4");
  watch.stop();
});

test("taken away and given again is another one", async () => {
  const queue = [];
  const host = { ...owner(), peek: Promise.resolve(() => queue.map((contextKey, n) => ({ id: String(n), contextKey }))) };
  const told = [];
  const watch = new Watch({ tell: (event) => told.push(event) }, host, () => ({}));
  await watch.start();
  for (const act of ["added", "removed", "added"]) {
    queue.push(`discord:reaction:${act}:9:7:👍`);
    watch.look("agent:main:main");
    await new Promise(setImmediate);
  }
  assert.deepEqual(told.map((event) => event.value), [1, 0, 1]);
  assert.equal(told[0].id, told[1].id);
  assert.notEqual(told[2].id, told[0].id);
  watch.stop();
});
