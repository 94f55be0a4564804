"""``$CLAWBACK_HOME/clawback-hook``: the small program that agents run on each event.

Where our server runs the event goes there, which takes some milliseconds; else a Python of its own is started. A server that
has died without a word is noticed by its refusal, and Python takes over: the event is never lost in between.
"""

from __future__ import annotations

import sys
from pathlib import Path

from clawback.files import replace
from clawback.paths import Home, secret

NAME = "clawback-hook"
SERVER = "server.port"
"""Where a running server leaves its port, under the home."""
HEADER = "hook-header"

_SCRIPT = """\
#!{shell}
# One event of an agent, as its hooks tell it: `clawback-hook AGENT < event` or `clawback-hook AGENT EVENT`. Made by `clawback init`.
home={home}
{server}exec {python} "$@" --home "$home"
"""
_TO_SERVER = """\
if [ -r "$home/{server}" ] && read -r port < "$home/{server}" && read -r token < "$home/{header}"; then
  if [ $# -gt 1 ]; then event=$2; else event=$(cat); fi
  LC_ALL=C
  if exec 3<> "/dev/tcp/127.0.0.1/$port"; then
    printf 'POST /api/hooks/%s HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n%s\\r\\nContent-Type: application/json\\r\\nContent-Length: %s\\r\\nConnection: close\\r\\n\\r\\n%s' \\
      "$1" "$token" "${{#event}}" "$event" >&3
    IFS= read -r -d '' -t 5 answer <&3
    case $answer in "HTTP/1.1 200"*) printf '%s' "${{answer#*$'\\r\\n\\r\\n'}}"; exit 0 ;; esac
  fi 2> /dev/null
  printf '%s' "$event" | {python} "$1" --home "$home"
  exit 0
fi
"""
"""For bash, which speaks to a port by itself: curl takes as long to start as all the rest."""
_PROGRAM = "import sys; sys.path[:0] = {paths!r}; from clawback.capture.hook import main; main()"
"""Without ``-m`` and ``site``, which take 6 ms to find what is known here."""


def path(home: Home) -> Path:
    return home.root.resolve() / NAME


def write(home: Home) -> Path:
    """Make the program, and the header that lets it in at the server: good for bringing events, and for nothing else.

    ``-I``: the agent runs in any folder, and a file of that folder (``json.py``) must not be imported by us.
    """
    import shlex
    import shutil

    home.create()
    replace(
        home.root / HEADER, f"X-Clawback-Token: {secret(home.root / 'hook-token')}\n".encode(), mode=0o600
    )
    python = shlex.join([sys.executable, "-I", "-S", "-c", _PROGRAM.format(paths=_paths())])
    bash = shutil.which("bash")
    made = _SCRIPT.format(
        shell=bash or "/bin/sh",
        home=shlex.quote(str(home.root.resolve())),
        python=python,
        server=_TO_SERVER.format(python=python, server=SERVER, header=HEADER) if bash else "",
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
