"""Secrets are taken out before a turn is stored.

Only shapes that are secrets wherever they stand: a token with a known prefix, a private key, a signed web token, a
password inside an address, the value after a ``Bearer`` or ``x-api-key``. A guess such as "whatever follows
`password =`" would tear up code, and a model would then learn the torn code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MARK = "[redacted]"

# Each alternative is anchored by a literal prefix, so that a long text costs one pass and no backtracking.
_TOKENS = re.compile(
    r"""
    (?<![A-Za-z0-9_-])(?:
        sk-(?:ant-|proj-|or-|svcacct-)?[A-Za-z0-9_-]{20,}            # OpenAI, Anthropic, OpenRouter
      | gh[pousr]_[A-Za-z0-9]{30,} | github_pat_[A-Za-z0-9_]{40,}     # GitHub
      | glpat-[A-Za-z0-9_-]{20,}                                      # GitLab
      | xox[abeprs]-[A-Za-z0-9-]{10,} | xapp-[0-9]-[A-Za-z0-9-]{20,}  # Slack
      | (?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}(?![A-Za-z0-9])            # AWS key ids
      | AIza[A-Za-z0-9_-]{35}                                         # Google
      | ya29\.[A-Za-z0-9_-]{20,}                                      # Google OAuth
      | hf_[A-Za-z0-9]{30,}                                           # Hugging Face
      | npm_[A-Za-z0-9]{36} | pypi-[A-Za-z0-9_-]{40,}                 # npm, PyPI
      | [rs]k_(?:live|test)_[A-Za-z0-9]{20,}                          # Stripe
      | SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{20,}                    # SendGrid
      | eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}  # JSON web tokens
      | [0-9]{8,10}:AA[A-Za-z0-9_-]{33}                               # Telegram bots
    )
    """,
    re.VERBOSE,
)
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:(?!-----END)[\s\S])*(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"
)
_AFTER = re.compile(
    r"""((?:\bBearer|\bBasic)[ ]|\bx-api-key["']?[ ]*[:=][ ]*["']?|\baws_secret_access_key["']?[ ]*[:=][ ]*["']?)
        ([A-Za-z0-9+/_.~=-]{16,})""",
    re.VERBOSE | re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,100}:)([^\s/@]{3,200})(@)")


def redact(text: str) -> str:
    """The text with every secret replaced by ``[redacted]``. Doing it twice changes nothing more."""
    text = _KEY_BLOCK.sub(MARK, text)
    text = _TOKENS.sub(MARK, text)
    text = _AFTER.sub(lambda m: m[1] + MARK if any(c.isdigit() for c in m[2]) else m[0], text)
    return _IN_ADDRESS.sub(lambda m: m[1] + MARK + m[3] if m[2] != MARK else m[0], text)


def redact_all(value: Any) -> Any:
    """The same for every string in a message's lists and mappings (keys are left alone)."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: redact_all(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_all(inner) for inner in value]
    return value
