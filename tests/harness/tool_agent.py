"""An agent program with one tool: what the model says first is the tool's argument, and what the tool returns is put to the model again.

A model that writes a tool call has it carried out; of any other the whole reply is the text that is written.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path

TOOL = {
    "type": "function",
    "function": {
        "name": "write_answer",
        "description": "Write the answer down.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
}


def ask(messages):
    body = {"model": os.environ["OPENAI_MODEL"], "messages": messages, "tools": [TOOL], "max_tokens": 6}
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as response:
        return json.load(response)["choices"][0]["message"]


def main(task):
    messages = [{"role": "user", "content": task}]
    reply = ask(messages)
    arguments = json.dumps({"text": reply["content"] or ""})
    own_call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "write_answer", "arguments": arguments},
    }
    call = (reply.get("tool_calls") or [own_call])[0]
    text = str(json.loads(call["function"]["arguments"]).get("text", ""))
    Path("answer.txt").write_text(text)
    result = {"role": "tool", "tool_call_id": call["id"], "content": f"{len(text)} characters were written."}
    ask([*messages, {"role": "assistant", "content": reply["content"], "tool_calls": [call]}, result])


main(sys.argv[1])
