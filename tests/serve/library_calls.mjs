// The AI SDK asks the questions of library_calls.py: `node library_calls.mjs URL KEY [CASE…]`, in a folder that has the packages.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.cwd()}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { version } = require("ai/package.json");

const [url, key, ...named] = process.argv.slice(2);
const questions = {
  whole: "Tell me about the otter.",
  stream: "Tell me about the fox.",
  tools: "How is the weather in Vienna?",
  forced: "Describe the newt by a call.",
  schema: "Describe the newt.",
  picture: "What is in this image?",
};
const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
const provider = createOpenAICompatible({ name: "clawback", baseURL: `${url}/v1`, apiKey: key, supportsStructuredOutputs: true });
const model = provider("clawback");
const usual = { model, maxRetries: 0 };
const animal = jsonSchema({
  type: "object",
  properties: {
    name: { enum: ["otter", "newt", "fox"] },
    legs: { enum: [0, 2, 4] },
    kind: { enum: ["mammal", "bird", "fish"] },
  },
  required: ["name", "legs", "kind"],
  additionalProperties: false,
});
const weather = tool({
  description: "The weather.",
  inputSchema: jsonSchema({ type: "object", properties: { city: { type: "string" } }, required: ["city"] }),
  execute: async ({ city }) => `sunny in ${city}`,
});
const cases = {
  whole: async (prompt) => (await generateText({ ...usual, prompt })).text,
  stream: async (prompt) => {
    let text = "";
    for await (const piece of streamText({ ...usual, prompt, onError: ({ error }) => { throw error; } }).textStream) text += piece;
    return text;
  },
  tools: async (prompt) => (await generateText({ ...usual, prompt, tools: { weather }, stopWhen: stepCountIs(3) })).text,
  forced: async (prompt) => {
    const tools = { animal: tool({ description: "An animal.", inputSchema: animal }) };
    return (await generateText({ ...usual, prompt, tools, toolChoice: { type: "tool", toolName: "animal" } })).toolCalls[0].input;
  },
  schema: async (prompt) => (await generateObject({ ...usual, prompt, schema: animal })).object,
  picture: async (text) => {
    const content = [{ type: "text", text }, { type: "image", image: `data:image/png;base64,${png}` }];
    return (await generateText({ ...usual, messages: [{ role: "user", content }] })).text;
  },
};
const results = {};
for (const name of named.length ? named : Object.keys(questions)) {
  try {
    results[name] = { result: await cases[name](questions[name]) };
  } catch (error) {
    results[name] = { error: `${error.name}: ${error.message}` };
  }
}
console.log(JSON.stringify({ version, cases: results }));
