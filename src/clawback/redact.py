"""Removes secrets from text before it is stored. ``store`` calls this for every text that it writes.

Three kinds of rule, from certain to likely:

* tokens with a known prefix (``_PREFIXES``), private keys, webhooks, and anything in a place for secrets:
  after ``Authorization:``, in an address, in a cookie;
* values that are *assigned* to a name such as ``api_key`` or ``client_secret`` and look random. A name alone is not enough:
  ``password = getpass()`` must stay, because a model would learn the broken code;
* nothing else. A random-looking word without a name may be a commit.

Hooks start on every prompt, so a rule is compiled when its marker is first seen in a text, and most texts hold none. Every pattern
is linear: a literal comes first, and repetitions are bounded or cannot begin anew inside themselves (``tests/test_linear.py``).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

MARK = "[redacted]"
Found = Sequence[str]
"""A match: the whole, then its groups."""
Act = Callable[[Found], str]
"""What is put in the place of a match."""

_WORD = "A-Za-z0-9_-"
_PREFIXES = (
    # (literal, the rest of the token)
    ("sk-ant-", rf"[{_WORD}]{{20,}}"), ("sk-proj-", rf"[{_WORD}]{{20,}}"), ("sk-or-", rf"[{_WORD}]{{20,}}"),
    ("sk-svcacct-", rf"[{_WORD}]{{20,}}"), ("sk-admin-", rf"[{_WORD}]{{20,}}"), ("sk-lf-", rf"[{_WORD}]{{20,}}"),
    ("sk-", rf"(?:[{_WORD}]{{0,20}}-)?[A-Za-z0-9]{{20,}}"),
    ("sess-", r"[A-Za-z0-9]{30,}"), ("gsk_", r"[A-Za-z0-9]{40,}"), ("xai-", r"[A-Za-z0-9]{40,}"), ("pplx-", r"[A-Za-z0-9]{40,}"),
    ("r8_", r"[A-Za-z0-9]{30,}"), ("hf_", r"[A-Za-z0-9]{30,}"), ("api_org_", r"[A-Za-z0-9]{30,}"), ("fw_", r"[A-Za-z0-9]{22,}"),
    ("tgp_v1_", rf"[{_WORD}]{{30,}}"), ("nvapi-", rf"[{_WORD}]{{50,}}"), ("lsv2_", r"[a-z]{2}_[a-f0-9]{32}_[a-f0-9]{10}"),
    ("ghp_", r"[A-Za-z0-9]{30,}"), ("gho_", r"[A-Za-z0-9]{30,}"), ("ghu_", r"[A-Za-z0-9]{30,}"), ("ghs_", r"[A-Za-z0-9]{30,}"),
    ("ghr_", r"[A-Za-z0-9]{30,}"), ("github_pat_", r"[A-Za-z0-9_]{40,}"),
    ("glpat-", rf"[{_WORD}]{{20,}}"), ("gldt-", rf"[{_WORD}]{{20,}}"), ("glrt-", rf"[{_WORD}]{{20,}}"), ("glptt-", r"[a-f0-9]{40}"),
    ("glcbt-", rf"[{_WORD}]{{20,}}"), ("glsoat-", rf"[{_WORD}]{{20,}}"), ("glft-", rf"[{_WORD}]{{20,}}"), ("glagent-", rf"[{_WORD}]{{40,}}"),
    ("ATATT3", r"[A-Za-z0-9_=-]{100,}"), ("ATBB", r"[A-Za-z0-9]{28,}"), ("ATCTT3", r"[A-Za-z0-9_=-]{100,}"),
    ("xox", r"[abceprs]-[A-Za-z0-9-]{10,}"), ("xapp-", r"[0-9]-[A-Za-z0-9-]{20,}"), ("xwfp-", r"[A-Za-z0-9-]{20,}"),
    ("AKIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"), ("ASIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"), ("AROA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("AIDA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"), ("ABIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"), ("ACCA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("ABSK", r"[A-Za-z0-9+/]{100,}={0,2}"),
    ("AIza", rf"[{_WORD}]{{35}}"), ("ya29.", r"[A-Za-z0-9_.-]{20,}"), ("1//0", rf"[{_WORD}]{{30,}}"), ("GOCSPX-", rf"[{_WORD}]{{20,}}"),
    ("npm_", r"[A-Za-z0-9]{36}"), ("pypi-", rf"[{_WORD}]{{40,}}"), ("rubygems_", r"[a-f0-9]{48}"), ("dckr_pat_", rf"[{_WORD}]{{20,}}"),
    ("dckr_oat_", rf"[{_WORD}]{{20,}}"), ("oy2", r"[a-z0-9]{43}(?![A-Za-z0-9])"), ("cio", r"[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    ("sk_live_", r"[A-Za-z0-9]{20,}"), ("sk_test_", r"[A-Za-z0-9]{20,}"), ("rk_live_", r"[A-Za-z0-9]{20,}"),
    ("rk_test_", r"[A-Za-z0-9]{20,}"), ("whsec_", r"[A-Za-z0-9+/=]{24,}"),
    ("sq0atp-", rf"[{_WORD}]{{22}}"), ("sq0csp-", rf"[{_WORD}]{{43}}"), ("EAAA", rf"[{_WORD}]{{60}}"), ("shpat_", r"[a-fA-F0-9]{32}"),
    ("shpca_", r"[a-fA-F0-9]{32}"), ("shppa_", r"[a-fA-F0-9]{32}"), ("shpss_", r"[a-fA-F0-9]{32}"),
    ("SG.", rf"[{_WORD}]{{16,}}\.[{_WORD}]{{20,}}"), ("xkeysib-", r"[a-f0-9]{64}-[A-Za-z0-9]{16}"), ("key-", r"[a-f0-9]{32}(?![A-Za-z0-9])"),
    ("pubkey-", r"[a-f0-9]{32}(?![A-Za-z0-9])"), ("AC", r"[a-f0-9]{32}(?![A-Za-z0-9])"), ("SK", r"[a-f0-9]{32}(?![A-Za-z0-9])"),
    ("dop_v1_", r"[a-f0-9]{64}"), ("doo_v1_", r"[a-f0-9]{64}"), ("dor_v1_", r"[a-f0-9]{64}"),
    ("HRKU-", rf"[{_WORD}]{{36,}}"), ("fo1_", rf"[{_WORD}]{{43}}"), ("fm2_", r"[A-Za-z0-9+/=]{80,}"), ("nfp_", r"[A-Za-z0-9]{36}"),
    ("vercel_blob_rw_", r"[A-Za-z0-9_]{20,}"), ("sbp_", r"[a-f0-9]{40}"), ("sb_secret_", rf"[{_WORD}]{{20,}}"),
    ("hvs.", rf"[{_WORD}]{{24,}}"), ("hvb.", rf"[{_WORD}]{{24,}}"), ("hvr.", rf"[{_WORD}]{{24,}}"), ("pul-", r"[a-f0-9]{40}"),
    ("dp.pt.", r"[A-Za-z0-9]{40,}"), ("dp.st.", r"[A-Za-z0-9._-]{40,}"), ("ops_eyJ", r"[A-Za-z0-9+/=_-]{80,}"),
    ("A3-", r"[A-Z0-9]{6}-[A-Z0-9]{6,11}-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}"),
    ("glsa_", r"[A-Za-z0-9]{32}_[a-fA-F0-9]{8}"), ("glc_", r"[A-Za-z0-9+/=]{32,}"), ("NRAK-", r"[A-Z0-9]{27}"), ("NRII-", rf"[{_WORD}]{{32}}"),
    ("sntrys_", r"[A-Za-z0-9+/=_-]{40,}"), ("sntryu_", r"[a-f0-9]{64}"), ("phc_", r"[A-Za-z0-9]{40,}"), ("phx_", r"[A-Za-z0-9]{40,}"),
    ("dapi", r"[a-f0-9]{32}(?:-\d)?(?![A-Za-z0-9])"), ("pscale_", r"(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,}"), ("lin_api_", r"[A-Za-z0-9]{40}"),
    ("ntn_", r"[A-Za-z0-9]{40,}"), ("secret_", r"[A-Za-z0-9]{43}(?![A-Za-z0-9])"), ("figd_", rf"[{_WORD}]{{40}}"), ("figo_", rf"[{_WORD}]{{40,}}"),
    ("PMAK-", r"[a-f0-9]{24}-[a-f0-9]{34}"), ("pat", r"[A-Za-z0-9]{14}\.[a-f0-9]{64}"), ("CFPAT-", rf"[{_WORD}]{{43}}"), ("rdme_", r"[a-z0-9]{70}"),
    ("AGE-SECRET-KEY-1", r"[A-Z0-9]{50,}"), ("tskey-", rf"[{_WORD}]{{20,}}"), ("LTAI", r"[A-Za-z0-9]{17,21}(?![A-Za-z0-9])"),
    ("AKCp", r"[A-Za-z0-9]{10,}"), ("EZAK", r"[A-Za-z0-9]{54}"), ("duffel_", rf"(?:test|live)_[{_WORD}]{{43}}"),
    ("eyJ", rf"[{_WORD}]{{10,}}\.eyJ[{_WORD}]{{10,}}\.[{_WORD}]{{10,}}"),  # JSON web tokens
    ("eyJ", rf"[{_WORD}]{{10,}}\.[{_WORD}]{{0,400}}\.[{_WORD}]{{10,}}\.[{_WORD}]{{10,}}\.[{_WORD}]{{10,}}"),  # encrypted ones
    (":AA", rf"[{_WORD}]{{33}}"),  # Telegram bots, after a number: see _prefixed
)  # fmt: skip

_PATTERNS = {
    # These are read in lower case, and without IGNORECASE, which would cost ten times as much.
    "discord": r"\.(?<=[a-z0-9_-]{24}\.)[a-z0-9_-]{6}\.[a-z0-9_-]{27,38}(?![\w-])",
    "mailchimp": r"(?<![\w-])[a-f0-9]{32}-us\d{1,2}(?!\w)",
    "webhook": r"((?:hooks\.slack\.com/(?:services|workflows|triggers)/|api/webhooks/|webhook\.office\.com/webhookb2/|api\.telegram\.org/bot))"
    r"([a-z0-9_@:/.-]{20,300})",
    # The value needs no digit where a scheme stands before it.
    "authorization": r"(authorization[\"']?[ ]{0,3}[:=][ ]{0,3}[\"']?(?:(?:bearer|basic|token|apikey|api-key|digest|aws4-hmac-sha256)[ ]{1,3})?)"
    r"([a-z0-9+/_.~=:-]{12,})",
    "scheme": r"((?:bearer|basic)[ ])([a-z0-9+/_.~=-]{12,})",
    "cookie": r"(cookie[\"']?[ ]{0,3}[:=][ ]{0,3}[\"']?)([^\r\n\"']{12,4000})",
    "address": r"(://[^\s/:@?#\"'<>{}]{0,100}:)([^\s/@?#\"'<>{}$]{1,200}(?:/[^\s/@?#\"'<>{}$]{1,100})?)(@(?=[\w\[]))",
    "query": r"([?&;](?:api_?-?key|key|access_?key|(?:access|auth|refresh|id|sas|private)?_?token|sig|signature|x-amz-signature|"
    r"x-amz-security-token|password|passwd|pwd|(?:client_?)?secret|code|subscription-key)=)([^\s&#\"'<>{}]{8,2000})",
    "curl": r"(curl\b[^\n]{0,300}?[ ](?:-u|--user|--proxy-user)[ =]?[\"']?[^\s:\"'$]{1,60}:)([^\s\"'$]{4,200})",
    "flag": r"([ ]--?(?:password|passwd|pass|token|api-?key|secret|auth-?token|access-?token|client-?secret)[ =][\"']?)([^\s\"'$<>{}(]{6,200})",
    "netrc": r"(machine\s{1,5}\S{1,200}\s{1,5}login\s{1,5}\S{1,200}\s{1,5}password\s{1,5})(\S{4,200})",
    "authtoken": r"(:_(?:authtoken|auth|password)\s?=\s?[\"']?)([^\s\"'$]{8,500})",
    "docker": r"(\"auth\"\s{0,3}:\s{0,3}\")([a-z0-9+/=]{12,500})",
    "pass in a string": r"((?:password|pwd|accountkey|sharedaccesskey|accesskey)=)([^;\s\"'{}$<>]{6,300})(?=;|[\"'])",
    "assigned": r"((?:(?:api|access|secret|private|account|auth|encryption|signing|master|consumer|license|app|subscription|deploy|service)"
    r"[_-]?key|secret|token|passw(?:or)?d|pwd|passphrase|credential)s?(?![a-z])(?:[_-][a-z0-9_-]{0,20})?"
    r"[\"'`\]]{0,2}[ \t]{0,8}(?:=>|:=|==?|:|,)[ \t]{0,4})([\"'`]?)([^\s\"'`,;<>(){}\[\]$]{8,400})",
    "password": r"((?:passw(?:or)?d|pwd|passphrase)[\"'`\]]{0,2}[ \t]{0,8}(?:=>|:=|=|:)[ \t]{0,4})([\"'])([^\s\"'<>{}$]{6,100})(?=\2)",
    "key header": r"-----begin [a-z0-9 ]{0,30}private key(?: block)?-----",
    "putty": r"(private-lines:[ ]?\d{1,3}\s{1,4})([a-z0-9+/=\s]{40,20000})",
}  # fmt: skip

_WINDOW = 16_384
"""Characters in which one search looks for the beginning of a match. While it does, no other thread runs: several such threads at once would
keep the server's event loop from running for all of their searches."""
_REACH, _SHORT_REACH = 24_000, 4_200
"""Characters in which a match must end if it is bounded at all; of most rules."""
_LONG = ("putty",)
_REMEMBERED_LENGTH = 4_000
"""Characters of a text whose redaction is remembered for a while."""
_KEY_BODY = 20_000
"""Characters of a private key in which its end is looked for."""
_KEY_SIGNS = r"(?:[A-Za-z0-9+/=]|\\[nrt]|[\s\"',+:.()\\-])"


def redact(text: str) -> str:
    """The text with every secret replaced by ``[redacted]``. Doing it twice changes nothing more."""
    if len(text) < 8:
        return text
    return _redact_remembered(text) if len(text) <= _REMEMBERED_LENGTH else _redact(text)


@lru_cache(maxsize=256)
def _redact_remembered(text: str) -> str:
    """A short text passes several doors on its way into the store, one after the other."""
    return _redact(text)


def _redact(text: str) -> str:
    if "PRIVATE KEY" in text:
        text = _without_keys(text)
    for literal, rest in _PREFIXES:
        if literal in text:
            text = _sub(_prefixed(literal, rest), _if_token(literal), text, text, _REACH)
    low = _lower(text)
    for marks, name, act in _RULES:
        if any(mark in low for mark in marks):
            changed = _sub(_compiled(name), act, text, low, _REACH if name in _LONG else _SHORT_REACH)
            if changed is not text:
                text, low = changed, _lower(changed)
    return text


def _lower(text: str) -> str:
    """In lower case and of the same length (``İ`` alone has two letters then)."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def _sub(pattern: re.Pattern[str], act: Act, text: str, low: str, reach: int) -> str:
    """``pattern`` is looked for in ``low``, ``act`` gets the groups of ``text``."""
    pieces, at = [], 0
    for match in _matches(pattern, low, reach):
        found = [text[begin:end] for begin, end in match.regs]
        if (made := act(found)) != found[0]:
            pieces += [text[at : match.start()], made]
            at = match.end()
    return "".join([*pieces, text[at:]]) if pieces else text


def _matches(pattern: re.Pattern[str], text: str, reach: int) -> Iterator[re.Match[str]]:
    """``pattern.finditer(text)``, a window at a time: one search keeps all other threads waiting, and a long text would for a second."""
    at = 0
    while at < len(text):
        stop = at + _WINDOW
        limit = min(len(text), stop + reach)
        match = pattern.search(text, at, limit)
        if match is None or match.start() >= stop:
            at = stop
            continue
        if match.end() == limit < len(text):  # it may go on
            match = pattern.match(text, match.start()) or match
        yield match
        at = match.end()


def redact_all(value: object) -> Any:
    """The same for every string in a message's lists and mappings, names included."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {redact_all(key): redact_all(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_all(inner) for inner in value]
    return value


def by_rules(rules: Sequence[str], value: object) -> Any:
    """A text, or everything in a message, with what a person's own rules (regular expressions) find replaced by ``[redacted]``."""
    if isinstance(value, str):
        for rule in rules:
            value = _rule(rule).sub(MARK, value)
        return value
    if isinstance(value, Mapping):
        return {by_rules(rules, key): by_rules(rules, inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [by_rules(rules, inner) for inner in value]
    return value


@cache
def _rule(rule: str) -> re.Pattern[str]:
    return re.compile(rule)


# ------------------------------------------------------------------------------------------------------- patterns


@cache
def _compiled(name: str) -> re.Pattern[str]:
    return re.compile(_PATTERNS[name])


@cache
def _prefixed(literal: str, rest: str) -> re.Pattern[str]:
    """No token begins inside a longer word, so a text of prefixes alone is read once. The literal comes first: that is found fastest."""
    start = re.escape(literal)
    before = rf"(?<=\d{{8}}{start})" if literal == ":AA" else rf"(?<![{_WORD}]{start})"
    return re.compile(start + before + rest)


@cache
def _if_token(literal: str) -> Act:
    """``sk-`` stands before kebab words, too, such as a CSS class: a token has digits and letters in one run."""

    def act(match: Found) -> str:
        last = match[0].rsplit("-", 1)[-1]
        plain = last.isalpha() or last.isdigit()
        return match[0] if literal == "sk-" and plain else MARK

    return act


def _mark(_: Found) -> str:
    return MARK


def _value(match: Found) -> str:
    """The second group goes, what stands around it stays."""
    return match[1] + MARK + (match[3] if len(match) > 3 else "")


def _value_if(test: Callable[[str], bool]) -> Act:
    return lambda found: _value(found) if test(found[2]) else found[0]


def _assigned(match: Found) -> str:
    """``name = "value"``: in quotes 12 characters with two digits, bare 16 with three (an identifier has fewer)."""
    quoted, value = bool(match[2]), match[3]
    long, digits = (12, 2) if quoted else (16, 3)
    looks = len(value) >= long and sum(c.isdigit() for c in value) >= digits and _random(value)
    return match[1] + match[2] + MARK if looks else match[0]


def _password(match: Found) -> str:
    """A password in quotes: letters and digits, and a capital or a sign."""
    value = match[3]
    mixed = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    strong = mixed and any(c.isupper() or not c.isalnum() for c in value)
    return match[1] + match[2] + MARK if strong and not _placeholder(value) else match[0]


def _cookie(match: Found) -> str:
    def pair(match: re.Match[str]) -> str:
        return "=" + (MARK if _random(match[1]) else match[1])

    return match[1] + re.sub(r"=([^;,\s=][^;,\s]{11,})", pair, match[2])


# ------------------------------------------------------------------------------------------------- what looks so


def _random(value: str) -> bool:
    """Letters and digits mixed as no words are: 3 bits a character of entropy and more, and no placeholder, path or address."""
    if value == MARK or _placeholder(value) or "://" in value or value.startswith(("/", "./", "~", "../")):
        return False
    if not (any(c.isdigit() for c in value) and any(c.isalpha() for c in value)):
        return False
    return _entropy(value) >= 3.0


def _entropy(value: str) -> float:
    """Shannon's, in bits a character."""
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())


def _placeholder(value: str) -> bool:
    low = value.lower()
    return any(word in low for word in ("your", "example", "placeholder", "changeme", "xxxx", "****", "dummy", "....", "redacted", "1234567890", "process.env", "environ"))  # fmt: skip


def _digit(value: str) -> bool:
    return value != MARK and any(c.isdigit() for c in value) and any(c.isalpha() for c in value)


def _secret(value: str) -> bool:
    return not _placeholder(value) and not value.isdigit()


def _any(value: str) -> bool:
    return not _placeholder(value)


def _login(value: str) -> bool:
    """Base64 of ``user:password``."""
    import base64
    import binascii

    try:
        plain = base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return b":" in plain[1:] and plain.isascii() and plain.decode("ascii").isprintable()


def _authorization(match: Found) -> str:
    """A scheme before it says that it is one; else it may be the name of a variable."""
    sure = match[1].endswith(" ") and match[1].rstrip()[-1] not in ":="
    secret = _any(match[2]) if sure else _digit(match[2]) and _any(match[2])
    return match[1] + MARK if secret else match[0]


def _after_scheme(match: Found) -> str:
    """``Bearer`` and ``Basic`` are words as well ("basic vue3-component-library")."""
    basic, value = match[1].lower().startswith("basic"), match[2]
    secret = _login(value) if basic else len(value) >= 16 and _digit(value)
    return match[1] + MARK if secret else match[0]


def _address(match: Found) -> str:
    """A port before a path that holds an ``@`` is no password."""
    first, slash, _ = match[2].partition("/")
    port = slash and first.isdigit()
    leave = port or len(match[2]) < 3 or match[2] == MARK or _placeholder(match[2])
    return match[0] if leave else _value(match)


_RULES: tuple[tuple[tuple[str, ...], str, Act], ...] = (
    ((".",), "discord", lambda found: MARK if _random(found[0]) else found[0]),
    (("-us1", "-us2"), "mailchimp", _mark),
    (("hooks.slack.com/", "/api/webhooks/", "webhook.office.com/", "api.telegram.org/bot"), "webhook", _value_if(_any)),
    (("authorization",), "authorization", _authorization),
    (("bearer ", "basic "), "scheme", _after_scheme),
    (("cookie",), "cookie", _cookie),
    (("://",), "address", _address),
    (("key=", "token=", "sig=", "signature=", "password=", "passwd=", "pwd=", "secret=", "code="), "query", _value_if(_digit)),
    (("curl",), "curl", _value_if(_secret)),
    ((" -p", " --p", " --t", " --a", " --s", " --c", " -t"), "flag", _value_if(_random)),
    (("machine",), "netrc", _value_if(_any)),
    ((":_",), "authtoken", _value_if(_any)),
    (('"auth"',), "docker", _value_if(_login)),
    (("password=", "pwd=", "key="), "pass in a string", _value_if(_secret)),
    (("key", "secret", "token", "passw", "pwd", "passphrase", "credential", "api"), "assigned", _assigned),
    (("passw", "pwd", "passphrase"), "password", _password),
    (("private-lines",), "putty", _value),
)  # fmt: skip
"""(markers, one of which the lower-cased text holds; pattern; what is done with each match), in the order in which they run."""


def _without_keys(text: str) -> str:
    """Private keys go, from their first line to their last. The first line alone, as code names it, stays and swallows nothing."""
    pieces, at = [], 0
    for match in _matches(_compiled("key header"), _lower(text), _SHORT_REACH):
        if match.start() < at:
            continue
        end = _key_end(text, match.end())
        if end > match.end():
            pieces += [text[at : match.start()], MARK]
            at = end
    return "".join([*pieces, text[at:]])


@cache
def _signs() -> re.Pattern[str]:
    return re.compile(rf"{_KEY_SIGNS}{{0,{_KEY_BODY}}}+")


def _key_end(text: str, begin: int) -> int:
    """Where a key ends whose first line ends at ``begin``; ``begin`` where what follows is no key."""
    close = text.find("-----", begin, begin + _KEY_BODY)
    if close >= 0 and text.startswith("-----END", close):
        body = text[begin:close]
        if _letters(body) < 12 or not _like_key(body):
            return begin
        tail = text.find("-----", close + 8, close + 80)
        return tail + 5 if tail >= 0 else close
    # Cut off: as far as it goes on like a key.
    found = _signs().match(text, begin, close if close >= 0 else begin + _KEY_BODY)
    body = found[0] if found else ""
    first = max(re.split(r"\\[nr]|\s", body, maxsplit=8)[:8], key=len, default="")
    return begin + len(body) if len(first) >= 40 else begin


def _letters(body: str) -> int:
    return sum(c.isalnum() for c in body)


def _like_key(body: str) -> bool:
    """Base64 in lines (real ones, or ``\\n`` in a string), after headers such as ``Proc-Type: 4,ENCRYPTED``; no code."""
    if re.search(r"[(){}\[\];<>#$]", body):
        return False
    lines = re.split(r"(?:\\[nr]|[\r\n\"'+,\s])+", body)
    base64 = sum(len(line) for line in lines if re.fullmatch(r"[A-Za-z0-9+/=]+", line))
    return base64 * 10 >= 6 * sum(map(len, lines))
