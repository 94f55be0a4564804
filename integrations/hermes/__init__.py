"""Clawback in Hermes Agent: prompts, answers and tool calls are recorded, and ``/rl good`` rates the last answer without asking a model.

``clawback init --agent hermes`` puts this folder into Hermes's plugins, with the path of Clawback's hook in HOOK. It runs in Hermes's own
Python and imports nothing of Clawback.
"""

import asyncio
import contextvars
import json
import subprocess
from pathlib import Path

HOOK = "clawback-hook"
WAIT_SECONDS = 5
ERRANDS = ("subagent", "cron")
"""Platforms on which no person asks."""
ALONE = "In a group nobody can rate with `/rl`: write to the bot alone."

_asking = contextvars.ContextVar("clawback_asking", default=None)
"""(session, person, whether it is a group) of the message that the gateway is about to act on."""
_latest = {"session": ""}
"""The session of the newest prompt, or of the newest conversation: the one that a terminal shows."""


def register(ctx):
    """Called by Hermes once it loads the plugin."""
    ctx.register_hook("pre_gateway_dispatch", note_asking)
    ctx.register_hook("pre_llm_call", send_prompt)
    ctx.register_hook("post_llm_call", send_answer)
    ctx.register_hook("on_session_end", send_failure)
    ctx.register_hook("on_session_reset", note_session)
    ctx.register_command(
        "rl",
        rate,
        "Rate the last answer: good, bad, rate N, note TEXT, undo, status",
        args_hint="good | bad | rate N",
    )


def note_session(session_id="", platform="", **_):
    if platform in ("", "cli") and session_id:
        _latest["session"] = session_id


def note_asking(event=None, session_store=None, **_):
    """Who writes where: a command is told neither. ``rl: good`` becomes the command."""
    source = getattr(event, "source", None)
    if source is None:
        return None
    session = ""
    if session_store is not None:
        try:
            key = session_store._generate_session_key(source)
            session = session_store.peek_session_id(key) or ""
        except Exception:
            session = ""
    platform = getattr(source.platform, "value", source.platform) or ""
    person = f"{platform}:{source.user_id}" if source.user_id else ""
    _asking.set((session, person, getattr(source, "chat_type", "dm") not in ("dm", "", None)))
    text = getattr(event, "text", "") or ""
    if text.lstrip()[:3].lower() == "rl:":
        return {"action": "rewrite", "text": "/rl " + text.lstrip()[3:].strip()}
    return None


def send_prompt(session_id="", turn_id="", user_message="", platform="", sender_id="", **_):
    text = _words(user_message)
    if _is_errand(platform) or not text:
        return
    if platform in ("", "cli"):
        _latest["session"] = session_id
    person = f"{platform}:{sender_id}" if sender_id else ""
    _send({"event": "prompt", "session": session_id, "id": turn_id, "text": text, "by": person, "last": True})


def send_answer(
    session_id="", turn_id="", assistant_response="", conversation_history=(), platform="", model="", **_
):
    if _is_errand(platform) or not assistant_response:
        return
    event = {
        "event": "answer",
        "session": session_id,
        "id": turn_id,
        "text": assistant_response,
        "model": model,
    }
    if platform in ("", "cli"):
        event["cwd"] = str(Path.cwd())
    _send({**event, "work": _work(list(conversation_history))})


def send_failure(session_id="", turn_id="", completed=True, interrupted=False, platform="", **_):
    """No answer comes. (After an answer this changes nothing: its prompt is answered then.)"""
    if turn_id and (interrupted or not completed) and not _is_errand(platform):
        _send({"event": "failed", "session": session_id, "id": turn_id})


async def rate(arguments=""):
    """``/rl …``: the sentence that Hermes shows."""
    session, person, group = _asking.get() or (_latest["session"], "", False)
    if group:
        return f"Clawback: {ALONE}"
    if not session:
        return "Clawback: there is no conversation here to rate yet."
    event = {"event": "prompt", "session": session, "text": f"/rl {arguments}".strip(), "by": person}
    said = await asyncio.get_running_loop().run_in_executor(None, _send, event)
    return said or "Clawback did not answer. `clawback doctor` says why."


def _send(event):
    """Hand one event to Clawback. Nothing that goes wrong reaches Hermes."""
    try:
        done = subprocess.run(
            [HOOK, "hermes"],
            input=json.dumps(event),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=WAIT_SECONDS,
            check=False,
        )
        return str(json.loads(done.stdout).get("reply") or "") if done.stdout else ""
    except Exception:
        return ""


def _is_errand(platform):
    """Work of Hermes itself: a sub-agent, a job on a schedule, its review of a conversation in the background."""
    if platform in ERRANDS:
        return True
    try:
        from tools.skill_provenance import is_background_review

        return bool(is_background_review())
    except Exception:
        return False


def _words(content):
    if isinstance(content, str):
        return content.strip()
    parts = content if isinstance(content, list) else []
    return "\n".join(
        str(part.get("text") or "") for part in parts if isinstance(part, dict) and part.get("type") == "text"
    ).strip()


def _work(messages):
    """The tool calls and results since the person's last message, as chat messages."""
    start = max(
        (place for place, message in enumerate(messages) if message.get("role") == "user"),
        default=len(messages),
    )
    work = []
    for message in messages[start + 1 :]:
        if message.get("role") == "assistant" and message.get("tool_calls"):
            calls = [
                {
                    "id": call.get("id"),
                    "name": call["function"].get("name"),
                    "arguments": call["function"].get("arguments"),
                }
                for call in message["tool_calls"]
                if isinstance(call, dict) and isinstance(call.get("function"), dict)
            ]
            work.append({"role": "assistant", "content": _words(message.get("content")), "tool_calls": calls})
        elif message.get("role") == "tool":
            work.append(
                {
                    "role": "tool",
                    "tool_call_id": message.get("tool_call_id"),
                    "content": _words(message.get("content")),
                }
            )
    return work
