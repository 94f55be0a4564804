"""Texts and names as the store keeps them: without secrets, comparable, and the places under which answers are found."""

from __future__ import annotations

from clawback.paths import Home


def of_prompt(agent: str, session: str, prompt_id: str) -> str:
    return f"{agent}:prompt:{session}:{prompt_id}"


def sent_back(agent: str, session: str, prompt_id: str) -> str:
    """The name under which is kept that the answer to a prompt was sent back, and with which sentence."""
    return f"{agent}:sent-back:{session}:{prompt_id}"


def of_message(agent: str, message: str) -> str:
    return f"{agent}:message:{message}"


def clean(here: Home, text: str) -> str:
    """The text as it may be stored: without secrets, and not longer than the settings allow."""
    redacting, limit = True, 2_000_000
    rules: tuple[str, ...] = ()
    try:
        # Reading settings costs more than all the rest; only who changed these has to pay for it.
        if b"[privacy]" in here.config.read_bytes():
            from clawback import config

            privacy = config.load(here.config).privacy
            redacting, limit, rules = privacy.redact, privacy.max_turn_bytes, privacy.rules
    except FileNotFoundError:
        pass
    if redacting:
        from clawback.redact import redact

        text = redact(text)
    if rules:
        from clawback.redact import by_rules

        text = by_rules(rules, text)
    return text if len(text) <= limit else text[len(text) - limit :]


def fingerprint(text: str) -> str:
    try:
        from _blake2 import blake2b  # the same, without OpenSSL, which `hashlib` takes 3 ms to load
    except ImportError:
        from hashlib import blake2b

    return blake2b(text.encode(), digest_size=12).hexdigest()


def plain(text: str) -> str:
    """The words alone: line and block breaks differ between the two sources, and a picture stands in one of them alone."""
    from clawback.records import PICTURE

    return " ".join(text.replace(PICTURE, " ").split())
