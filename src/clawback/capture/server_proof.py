"""How the server proves its identity to clients that must not trust a port: bots and OpenClaw's plugin, before they send anything.

They ask with a random word, and the server answers with what only a holder of the hooks' token can derive
from it. The port is part of the answer, so that a program which took the port of a stopped server cannot have
another of our servers answer for it. (Agents' hooks, which are shell, compare a word instead: see
``script``.)
"""

from __future__ import annotations

import hmac
import secrets

from clawback.paths import Home, secret

PATH = "/api/hooks/proof"
HEADER = "X-Clawback-Nonce"
_LEAST, _MOST = 16, 128
SECONDS = 10.0


def nonce() -> str:
    return secrets.token_urlsafe(24)


def answer(home: Home, port: int, question: str) -> str:
    """ "" for a question that is none."""
    if not (_LEAST <= len(question) <= _MOST and question.isascii() and question.isprintable()):
        return ""
    key = secret(home.root / "hook-token").encode()
    return hmac.new(key, f"clawback {port} {question}".encode(), "sha256").hexdigest()


def proven(home: Home, port: int) -> bool:
    """Does our server answer on that port of this machine, and not another program?"""
    import http.client

    # No proxy of the environment's is asked for what is on this machine.
    connection, asked = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS), nonce()
    try:
        connection.request("GET", PATH, headers={HEADER: asked})
        return holds(home, port, asked, connection.getresponse().read(1000).decode("utf-8", "replace"))
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def holds(home: Home, port: int, question: str, text: str) -> bool:
    """Is that what our server on that port says?"""
    expected = answer(home, port, question)
    return bool(expected) and hmac.compare_digest(expected.encode(), text.encode("utf-8", "replace"))
