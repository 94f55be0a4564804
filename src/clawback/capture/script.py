"""``$CLAWBACK_HOME/clawback-hook``: the small program that agents run on each event.

If our server runs, the event goes there, which takes a few milliseconds; otherwise the program starts a
Python of its own. It notices a server that has died by the refused connection, and one that hangs by a
quarter of a second without an answer (it is then not asked for a minute); Python then takes over. So no event
is lost, and if the server wakes up and handles it once more, nothing changes. Where Clawback itself has been
removed, the agent goes on, and its user is told once a day.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from clawback.files import replace
from clawback.paths import Home, secret

NAME = "clawback-hook"
SERVER = "server.port"
"""Where a running server leaves its port, under the home, and a question with its answer, made anew at each start: ``PORT ASK PROOF``.

Who comes to listen on the port of a server that is gone knows neither. So the program asks first, and says nothing of the event, nor
the token, to whoever does not answer right. What a stranger hears of that question is worth nothing: the next server has another.
"""
HEADER = "hook-header"

DELIVERY = "clawback_delivery"
"""The key under which the program gives each event a name: a server that hung may act on it long after Python did."""
REMOVE = "remove-hooks.py"
GONE = "gone"
"""Where the program notes on which day it last said that Clawback is gone."""
LINE = "status-line"
"""The last status line, as old as what it was read from: while neither the database nor the settings are newer, the program shows it."""
HUNG = "server.hung"
"""Until when a server that did not answer in time is not asked again."""

_SCRIPT = """\
#!{shell}
# One event of an agent, as its hooks tell it: `clawback-hook AGENT < event` or `clawback-hook AGENT EVENT`. Made by `clawback init`.
# `clawback-hook --remove` takes the hooks out again, also where Clawback itself is gone.
home={home}
python={python}
package={package}
gone() {{
  if [ "$1" = status-line ]; then printf 'clawback is gone'; exit 0; fi
  [ $# -gt 1 ] && event=$2
  [ -n "$event" ] || event=$(cat)
  block=block; [ "$1" = gemini-cli ] && block=deny
  case $event in
    *'"prompt":"/rl'* | *'"prompt": "/rl'* | *'"prompt":"rl:'* | *'"prompt": "rl:'*)
      printf '{{"decision":"%s","reason":"%s"}}' $block {sentence}; exit 0 ;;
  esac
  today=$(date +%Y-%m-%d)
  [ -r "$home/{gone}" ] && read -r last < "$home/{gone}"
  [ "$last" = "$today" ] && exit 0
  printf '%s\\n' "$today" > "$home/{gone}" && printf '{{"systemMessage":"%s"}}' {sentence}
  exit 0
}}
direct() {{
  [ -x "$python" ] && [ -r "$package" ] || gone "$@"
  "$python" -I -S -c {program} "$@" --home "$home"
  case $? in 1 | 126 | 127) gone "$@" ;; esac
  exit 0
}}
if [ "$1" = --remove ]; then
  for with in "$python" python3 python; do
    command -v "$with" > /dev/null && exec "$with" "$home/{remove}" "$home"
  done
  echo "There is no Python here. Delete what names clawback-hook from these files:"
  exec sed -n 's/.*"settings": "\\([^"]*\\)".*/\\1/p' "$home"/installed/*.json
fi
exec 2> /dev/null
if [ "$1" = status-line ] && [ -e "$home/{database}" ] && [ -x "$python" ] && [ -r "$package" ] \\
  && [ "$home/{line}" -nt "$home/{database}" ] && [ "$home/{line}" -nt "$home/{database}-wal" ] && [ "$home/{line}" -nt "$home/{settings}" ]; then
  cat > /dev/null  # what the agent tells of itself: it may not like to find nobody reading
  IFS= read -r said < "$home/{line}"
  printf '%s' "$said"
  exit 0
fi
{server}direct "$@"
"""
_TO_SERVER = """\
hung() {{
  [ -e "$home/{hung}" ] || return 1
  read -r until < "$home/{hung}"
  printf -v now '%(%s)T' -1 || now=$(date +%s)
  [ "$now" -lt "$until" ]
}}
if [ -r "$home/{server}" ] && ! hung && read -r port ask proof < "$home/{server}" && [ -n "$proof" ] && read -r token < "$home/{header}"; then
  LC_ALL=C
  if [ $# -gt 1 ]; then event=$2; else
    IFS= read -r -d '' -n 4000 event
    [ "${{#event}}" -lt 4000 ] || event=$event$(cat)
  fi
  case $event in '{{"'*) event="{{\\"{delivery}\\":\\"$$.$RANDOM\\",${{event#?}}" ;; esac
  wait=0.25; [ "${{#event}}" -gt 100000 ] && wait=1; [ "${{BASH_VERSINFO[0]}}" -lt 4 ] && wait=1
  if exec 3<> "/dev/tcp/127.0.0.1/$port"; then
    printf 'GET /api/hooks/proof HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nX-Clawback-Ask: %s\\r\\n\\r\\n' "$ask" >&3
    IFS= read -r -d '!' -n 2000 -t $wait answer <&3
    if [ $? -gt 128 ]; then
      printf -v now '%(%s)T' -1 || now=$(date +%s)
      echo $((now + 60)) > "$home/{hung}"
    fi
  fi
  if [ -n "$answer" ] && [ "${{answer#HTTP/1.1 200*$'\\r\\n\\r\\n'}}" = "$proof" ]; then
    printf 'POST /api/hooks/%s HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n%s\\r\\nContent-Type: application/json\\r\\nContent-Length: %s\\r\\nConnection: close\\r\\n\\r\\n%s' \\
      "$1" "$token" "${{#event}}" "$event" >&3
    IFS= read -r -d '' -t $wait answer <&3
    if [ $? -gt 128 ]; then
      printf -v now '%(%s)T' -1 || now=$(date +%s)
      echo $((now + 60)) > "$home/{hung}"
    else
      case $answer in "HTTP/1.1 200"*) printf '%s' "${{answer#*$'\\r\\n\\r\\n'}}"; exit 0 ;; esac
    fi
  fi
  set -- "$1"
  printf '%s' "$event" | direct "$@"
  exit 0
fi
"""
"""For bash, which speaks to a port by itself: curl takes as long to start as all the rest, and so does `cat`, which only long events need."""
_PROGRAM = "import gc, sys; gc.disable(); sys.path += {paths!r}; from clawback.rules.hook import main; main()"
"""Without ``-m`` and ``site``, which take 6 ms to find what is known here. Most imports are of the standard library, so that comes first; and
a process of 30 ms has no garbage. Together a sixth of a prompt's hook."""
_GONE = (
    "Clawback is not where it was: {python} does not run it. Nothing is recorded or rated. Install it again and run "
    "`clawback init`, or take its hooks out: sh '{script}' --remove"
)


def path(home: Home) -> Path:
    return home.root.resolve() / NAME


def announce(home: Home, port: int) -> None:
    """Write down the address of a server that has started, readable by its owner alone."""
    import secrets

    words = (str(port), secrets.token_urlsafe(24), secrets.token_urlsafe(24))
    replace(home.root / SERVER, f"{' '.join(words)}\n".encode(), mode=0o600)
    (home.root / HUNG).unlink(missing_ok=True)


def announced(home: Home) -> tuple[int, str, str] | None:
    """(port, question, answer) of the newest server; None where there is none."""
    try:
        port, *words = (home.root / SERVER).read_text("ascii").split()
        return int(port), words[0] if words else "", words[1] if len(words) > 1 else ""
    except (OSError, ValueError):
        return None


def write(home: Home) -> Path:
    """Write the program, and the header that it authenticates with: it is valid for sending events, and for nothing else.

    ``-I``: the agent may run in any folder, and we must not import a file of that folder (``json.py``).
    """
    import shlex
    import shutil

    home.create()
    replace(
        home.root / HEADER, f"X-Clawback-Token: {secret(home.root / 'hook-token')}\n".encode(), mode=0o600
    )
    bash = shutil.which("bash")
    named = {"server": SERVER, "header": HEADER, "hung": HUNG, "delivery": DELIVERY}
    made = _SCRIPT.format(
        shell=bash or "/bin/sh",
        home=shlex.quote(str(home.root.resolve())),
        python=shlex.quote(sys.executable),
        package=shlex.quote(str(Path(__file__).with_name("hook.py"))),
        program=shlex.quote(_PROGRAM.format(paths=_paths())),
        sentence=shlex.quote(json.dumps(_GONE.format(python=sys.executable, script=path(home)))[1:-1]),
        gone=GONE,
        remove=REMOVE,
        line=LINE,
        database=home.database.name,
        settings=home.config.name,
        server=_TO_SERVER.format(**named) if bash else "",
    )
    replace(home.root / REMOVE, Path(__file__).with_name("take_out.py").read_bytes(), mode=0o600)
    replace(path(home), made.encode(), mode=0o700)
    (home.root / GONE).unlink(missing_ok=True)
    return path(home)


def _paths() -> list[str]:
    """Where Clawback is, and what it needs: beside it, or wherever this Python finds it."""
    import sysconfig

    import msgspec

    ours, needed = (
        str(Path(file).resolve().parents[depth]) for file, depth in ((__file__, 2), (msgspec.__file__, 1))
    )
    return list(dict.fromkeys([ours, needed, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]))


def trouble(home: Home) -> str:
    """Why the program would not run, or ""."""
    import shlex

    try:
        lines = path(home).read_text("utf-8").splitlines()
        [named] = shlex.split(
            next(line for line in lines if line.startswith("python=")).removeprefix("python=")
        )
    except (OSError, StopIteration, ValueError):
        return f"{path(home)}, which the hooks run, is gone, or of another version: run `clawback init` again"
    return "" if Path(named).exists() else f"the hooks run {named}, which is gone"
