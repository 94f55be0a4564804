"""A rule with a real Codex: run by test_codex.py where only loopback exists.

usage: codex_rules.py CODEX WORKDIR
As rules_loop.py does with Claude Code. Prints one JSON object about what happened.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from codex_loop import TRUSTED, Person
from responses_server import Asked, ResponsesServer, Say

from clawback import store


def main(codex: str, workdir: Path) -> dict[str, Any]:
    def answer(asked: Asked) -> Say:
        """What a hook sends back is no text of the person's."""
        return Say("Sorry, it is four." if asked.texts else "It is four.")

    with ResponsesServer(answer) as server:
        person = Person(codex, workdir, server)
        seen: dict[str, Any] = {}
        try:
            person.run("clawback", "rules", "add", "Never apologise.")
            person.run("clawback", "config", "set", "rules.send_back", "true")
            with person.calls(seen, "calls_first"):
                thread = person.exec("What is two and two?", *TRUSTED)
            person.run("clawback", "config", "set", "rules.send_back", "false")
            person.exec("And three and one?", *TRUSTED, thread=thread)
            shown = json.loads(person.run("clawback", "rules", "show", "1", "--json"))
            sessions = sorted((person.codex / "sessions").rglob("*.jsonl"))
            with store.connect(person.home.database) as db:
                turns = [
                    (t.prompt, t.response, [m["content"] for m in t.messages])
                    for t in reversed(db.turns(limit=9))
                ]
            return seen | {
                "turns": turns,
                "reminded": any("recent answers did not keep to it" in path.read_text() for path in sessions),
                "kept": shown["kept"],
                "checked": shown["checked"],
                "breaches": [one["turn"] for one in shown["breaches"]],
            }
        finally:
            person.left()


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
