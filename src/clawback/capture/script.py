"""``$CLAWBACK_HOME/clawback-hook``: the small program that agents run on each event.

Where our server runs the event goes there, which takes some milliseconds; else a Python of its own is started. A server that
has died without a word is noticed by its refusal, and Python takes over: the event is never lost in between.
"""

from __future__ import annotations

import sys
from pathlib import Path

from clawback.capture.settings_file import replace
from clawback.paths import Home, secret

NAME = "clawback-hook"
SERVER = "server.port"
"""Where a running server leaves its port, under the home."""
HEADER = "hook-header"

_SCRIPT = """\
#!/bin/sh
# One event of an agent, as its hooks tell it: `clawback-hook AGENT < event` or `clawback-hook AGENT EVENT`. Made by `clawback init`.
home={home}
if [ -r "$home/{server}" ] && read -r port < "$home/{server}"; then
  if [ $# -gt 1 ]; then event=$2; else event=$(cat); fi
  answer=$(printf '%s' "$event" | curl -sf -m 5 --noproxy '*' -H "@$home/{header}" -H 'Content-Type: application/json' \\
    --data-binary @- "http://127.0.0.1:$port/api/hooks/$1" 2>/dev/null) && {{ printf '%s' "$answer"; exit 0; }}
  printf '%s' "$event" | {python} "$1" --home "$home"
  exit 0
fi
exec {python} "$@" --home "$home"
"""
_PROGRAM = "import sys; sys.path[:0] = {paths!r}; from clawback.capture.hook import main; main()"
"""Without ``-m`` and ``site``, which take 6 ms to find what is known here."""


def path(home: Home) -> Path:
    return home.root.resolve() / NAME


def write(home: Home) -> Path:
    """Make the program, and the header that lets it in at the server: good for bringing events, and for nothing else.

    ``-I``: the agent runs in any folder, and a file of that folder (``json.py``) must not be imported by us.
    """
    import shlex

    home.create()
    replace(
        home.root / HEADER, f"X-Clawback-Token: {secret(home.root / 'hook-token')}\n".encode(), mode=0o600
    )
    made = _SCRIPT.format(
        home=shlex.quote(str(home.root.resolve())),
        python=shlex.join([sys.executable, "-I", "-S", "-c", _PROGRAM.format(paths=_paths())]),
        server=SERVER,
        header=HEADER,
    )
    replace(path(home), made.encode(), mode=0o700)
    return path(home)


def _paths() -> list[str]:
    """Where Clawback is, and what it needs."""
    import sysconfig

    ours = str(Path(__file__).resolve().parents[2])
    return list(dict.fromkeys([ours, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]))


def trouble(home: Home) -> str:
    """Why the program would not run, or ""."""
    import shlex

    try:
        words = shlex.split(path(home).read_text("utf-8").splitlines()[-1])
    except (OSError, IndexError, ValueError):
        return f"{path(home)}, which the hooks run, is gone"
    return "" if Path(words[1]).exists() else f"the hooks run {words[1]}, which is gone"
