"""A small agent program: it asks the model a few times, in the dialect that it is told, and writes what the model said last.

Its words: dialect, requests, "forget" or "keep" its history, then the task.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path

DIALECTS = {
    "chat": ("/v1/chat/completions", lambda said: said["choices"][0]["message"]["content"]),
    "responses": ("/v1/responses", lambda said: said["output"][0]["content"][0]["text"]),
    "anthropic": ("/v1/messages", lambda said: said["content"][0]["text"]),
}


def main(dialect, requests, history, task):
    path, text_of = DIALECTS[dialect]
    messages = [{"role": "user", "content": task[:40]}]
    text = ""
    for number in range(int(requests)):
        body = {"model": "m", "max_tokens": 6, "input" if dialect == "responses" else "messages": messages}
        headers = {
            "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
            "Content-Type": "application/json",
        }
        url = os.environ["ANTHROPIC_BASE_URL"] + path
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request) as response:
            text = text_of(json.load(response))
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": f"And {number}?"}]
        if history == "forget":
            messages = messages[-1:]
    Path("answer.txt").write_text(text)


main(*sys.argv[1:])
