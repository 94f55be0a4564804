"""Claude Code's auto mode behind the recording proxy: run by test_claude_code.py where only loopback exists.

usage: auto_mode.py CLAUDE WORKDIR
The upstream calls a tool. Once it gives a verdict on the call, as the vendor's server does where it is asked for one; once it gives none, as any other
server. Prints one JSON object about what happened.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from agents import claude_environment
from messages_server import Call, MessagesServer

CALL = "toolu_01"
CHECKED = {"type": "available", "tool_uses": {CALL: {"type": "evaluated", "outcome": "not_flagged"}}}
VERDICT = {"safeguard_results": [{"type": "dangerous_tool_use", "status": CHECKED}]}
COMMAND = "python3 -c \"open('made', 'w').write('yes')\""


def main(claude: str, workdir: Path) -> dict[str, Any]:
    return {
        name: play(claude, workdir / name, checks)
        for name, checks in (("checked", True), ("unchecked", False))
    }


def play(claude: str, workdir: Path, checks: bool) -> dict[str, Any]:
    person, project, home = workdir / "home", workdir / "project", workdir / "clawback"
    for folder in (person, project, home):
        folder.mkdir(parents=True)

    def answer(messages: list[dict[str, str]]) -> str | Call:
        request = server.requests[-1]
        if any("tool_result" in json.dumps(m["content"]) for m in request["messages"] if m["role"] == "user"):
            return "That is all."
        asked = any(one.get("type") == "dangerous_tool_use" for one in request.get("safeguards") or ())
        call = {"command": COMMAND, "description": "Make a file"}
        return Call(CALL, "Bash", call, VERDICT if checks and asked else {})

    with MessagesServer(answer) as server:
        environment = claude_environment(person, server.url, home)
        proxy = subprocess.Popen(
            [sys.executable, "-m", "clawback", "serve", "--port", "0", "--upstream", server.url],
            env=environment, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            while not (home / "server.port").exists():
                assert proxy.poll() is None
                time.sleep(0.1)
            port = (home / "server.port").read_text().split()[0]
            environment |= {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}", **extra_environment()}
            done = subprocess.run(
                [claude, "-p", "Make the file.", "--permission-mode", "auto", "--output-format", "json"],
                cwd=project, env=environment, capture_output=True, text=True, timeout=240, check=False,
            )  # fmt: skip
        finally:
            proxy.send_signal(signal.SIGTERM)
            proxy.wait(timeout=30)
        first = next((r for r in server.requests if r.get("tools")), {})
        place = server.requests.index(first) if first else 0
        return {
            "made": (project / "made").exists(),
            "result": json.loads(done.stdout)
            if done.stdout.startswith("{")
            else done.stdout[-600:] + done.stderr[-600:],
            "safeguards": [one.get("type") for one in first.get("safeguards") or ()],
            "betas": server.betas[place] if server.betas else "",
            "requests": len(server.requests),
        }


def extra_environment() -> dict[str, str]:
    """What a trial by hand adds."""
    return {name: value for name, value in os.environ.items() if name.startswith("CLAUDE_CODE_")}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
