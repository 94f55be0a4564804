"""A rule with a real Claude Code: run by test_claude_code.py where only loopback exists.

usage: rules_loop.py CLAUDE WORKDIR
The upstream breaks the rule at first; the Stop hook sends the answer back, and the upstream keeps the rule from then on until it is
asked for something else. Prints one JSON object about what happened.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from agents import claude_environment
from messages_server import MessagesServer

from clawback import store
from clawback.paths import Home

RULE = "Never apologise."


def answer(messages: list[dict[str, str]]) -> str:
    """Apologises, unless what it was told last names the rule as broken."""
    return "It is four." if "does not keep a rule" in messages[-1]["content"] else "Sorry, it is four."


def main(claude: str, workdir: Path) -> dict[str, Any]:
    person, project = workdir / "home", workdir / "project"
    home = Home(workdir / "clawback")
    for folder in (person / ".claude", project):
        folder.mkdir(parents=True)
    with MessagesServer(answer) as server:
        environment = claude_environment(person, server.url, home.root)

        def run(*command: str) -> str:
            done = subprocess.run(
                command,
                cwd=project,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, f"{command[:3]}: {done.stdout[-500:]} {done.stderr[-2000:]}"
            return done.stdout

        def claude_says(text: str, *options: str) -> dict[str, Any]:
            return dict(json.loads(run(claude, "-p", text, "--output-format", "json", *options)))

        run("clawback", "init", "--yes", "--agent", "claude-code", "--model", "embedded")
        run("clawback", "rules", "add", RULE)
        run("clawback", "config", "set", "rules.send_back", "true")
        first = claude_says("What is two and two?")
        calls_first = len(server.requests)
        listed = claude_says("/rl rules", "--resume", first["session_id"])
        calls_rules = len(server.requests) - calls_first
        run("clawback", "config", "set", "rules.send_back", "false")
        claude_says("And three and one?", "--resume", first["session_id"])
        reminded = json.dumps(server.requests[-1]["messages"][-2:], ensure_ascii=False)
        shown = json.loads(run("clawback", "rules", "show", "1", "--json"))
        with store.connect(home.database) as db:
            turns = [
                (t.prompt, t.response, [m["content"] for m in t.messages])
                for t in reversed(db.turns(limit=50))
            ]
    log = home.logs / "hooks.log"
    return {
        "shown": first["result"],
        "calls_first": calls_first,
        "calls_rules": calls_rules,
        "listed": listed["result"],
        "reminded": reminded,
        "turns": turns,
        "kept": shown["kept"],
        "checked": shown["checked"],
        "models": shown["models"],
        "breaches": [one["turn"] for one in shown["breaches"]],
        "log": log.read_text() if log.exists() else "",
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
