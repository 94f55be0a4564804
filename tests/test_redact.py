"""Secrets go, everything else stays as it was."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback import redact as module
from clawback.redact import MARK, redact, redact_all

# Put together here, so that no scanner takes this file for a leak.
SECRETS = [
    "sk-" + "ant-api03-" + "a1B2" * 10,
    "sk-" + "x9Y8" * 8,
    "ghp" + "_" + "A1b2" * 9,
    "github" + "_pat_" + "A1b2_" * 10,
    "xox" + "b-" + "1234567890-abcdefghij",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AIza" + "SyA" * 11 + "ab",
    "hf_" + "aB3d" * 9,
    "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJ" + "zdWIiOiIxMjM0In0" + "." + "c2lnbmF0dXJl" * 2,
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE" + "abc\n" * 5 + "-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_known_secrets_are_taken_out_wherever_they_stand(secret: str) -> None:
    for text in (secret, f"key = '{secret}'", f"curl -H 'x: {secret}' # no", f"({secret})"):
        cleaned = redact(text)
        assert secret not in cleaned
        assert MARK in cleaned


# What stands around a secret, and the secret: kinds and ways of writing that a first version let pass.
HEX = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
MIXED = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3gH5jK7m"
VARIANTS = [
    ("", "glpat-" + MIXED[:20]),
    ("", "dop_v1_" + HEX * 2),
    ("", "shpat_" + HEX),
    ("", "sq0atp-" + MIXED[:22]),
    ("", "SK" + HEX),
    ("", "key-" + HEX),
    ("", HEX + "-us12"),
    ("", "hvs." + MIXED),
    ("", "glsa_" + MIXED[:32] + "_" + HEX[:8]),
    ("", "NRAK-" + MIXED.upper()[:27]),
    ("", "dapi" + HEX),
    ("", "lin_api_" + MIXED),
    ("", "ntn_" + MIXED),
    ("", "PMAK-" + HEX[:24] + "-" + (HEX * 2)[:34]),
    ("", "gsk_" + MIXED * 2),
    ("", "xai-" + MIXED * 2),
    ("", "r8_" + MIXED),
    ("", "sbp_" + HEX + HEX[:8]),
    ("", "nfp_" + MIXED[:36]),
    ("", "GOCSPX-" + MIXED[:28]),
    ("", "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2),
    ("", "tskey-auth-" + MIXED[:24]),
    ("", "whsec_" + MIXED[:32]),
    ("", "dckr_pat_" + MIXED[:27]),
    ("", "MTk4NjIyNDgzNDcxOTI1MjQ4" + ".Cl2FMQ." + "ZnCjm1XVW7vRze4b7Cq4se7kKWs"),
    ("https://hooks.slack.com/services/", "T00000000/B00000000/" + MIXED[:24]),
    ("https://discord.com/api/webhooks/", "198622483471925248/" + MIXED),
    ("AccountName=me;AccountKey=", MIXED * 2 + "=="),
    ("Server=db;User Id=sa;Password=", "S3cret!pass"),
    ("https://x.blob.core.windows.net/c?sv=2022&sig=", MIXED + "%3D"),
    ("https://api.example.com/v1?api_key=", MIXED[:24]),
    ("wss://h/?access_token=", MIXED[:24]),
    ("redis://:", "p4ssw0rdLong"),
    ("mysql://root:", "we/ird4pass"),
    ("Authorization: Basic ", "dXNlcjpwYXNzd29yZDE="),
    ("Authorization: token ", MIXED),
    ("authorization: Bearer ", "abcdefghijklmnopqrstuvwx"),
    ("X-Auth-Token: ", MIXED),
    ("PRIVATE-TOKEN: ", MIXED[:20]),
    ("Cookie: theme=dark; sessionid=", MIXED[:32]),
    ("Set-Cookie: sid=", MIXED[:32]),
    ("curl -u admin:", "tr0ub4dor"),
    ("psql --password=", "Tr0ub4dor-9x8"),
    ("machine api.x.com login me password ", "tr0ub4dor"),
    ("//registry.npmjs.org/:_authToken=", MIXED[:36]),
    ('{"auths": {"h": {"auth": "', "dXNlcjpwYXNzd29yZDE="),
    ("export OPENAI_TOKEN=", MIXED),
    ('client_secret: "', MIXED[:24]),
    ('"secretAccessKey": "', MIXED),
    ("AWS_SESSION_TOKEN=", MIXED * 3),
    ("api_key = '", MIXED[:20]),
    ('password = "', "Hunter2!secret"),
    ('"private_key": "', "-----BEGIN PRIVATE KEY-----\\n" + (MIXED + "\\n") * 6 + "-----END PRIVATE KEY-----\\n"),
    ("", "-----BEGIN OPENSSH PRIVATE KEY-----\n" + (MIXED + "\n") * 6),
    ("", "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\n" + (MIXED + "\n") * 6 + "-----END PGP PRIVATE KEY BLOCK-----"),
    ("", "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,AB12\n\n" + (MIXED + "\n") * 6
     + "-----END RSA PRIVATE KEY-----"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "secret"), VARIANTS)
def test_variants_of_secrets_and_of_ways_to_write_them(before: str, secret: str) -> None:
    tail = (
        "@host/db"
        if before.startswith(("redis", "mysql"))
        else '" # and so on'
        if '"' in before
        else " # and so on"
    )
    cleaned = redact(f"see: {before}{secret}{tail}")
    assert MARK in cleaned
    kept = [
        piece for piece in (secret[-12:].strip(), secret[len(secret) // 2 :][:12].strip()) if piece in cleaned
    ]
    assert not kept or (
        secret.rstrip().endswith("-----") and not any(k.strip("-\\n") in cleaned for k in kept)
    )
    assert "so on" in cleaned or "host/db" in cleaned


def test_the_first_line_of_a_key_in_code_swallows_nothing() -> None:
    code = (
        'HEADER = "-----BEGIN PRIVATE KEY-----"\nif line == HEADER:\n    raise ValueError("no keys here")\n'
        * 3
    )
    assert redact(code) == code
    between = (
        'a = "-----BEGIN PRIVATE KEY-----"\n\ndef f(x): return x + 1\n\nb = "-----END PRIVATE KEY-----"\n'
    )
    assert redact(between) == between


def test_the_value_after_a_header_is_taken_out_and_the_header_stays() -> None:
    assert redact("Authorization: Bearer abc123def456ghi789") == f"Authorization: Bearer {MARK}"
    assert redact("postgres://me:hunter2secret@host/db") == f"postgres://me:{MARK}@host/db"


@pytest.mark.parametrize(
    "code",
    [
        "password = getpass.getpass()",
        "token: str | None = None",
        "if api_key == '': raise ValueError('no api key')",
        "secret = os.environ['SECRET']",
        "sk-learn and scikit-learn are the same package",
        "https://example.org:8080/path@2x.png",
        "The bearer of bad news arrived",
        "ssh-rsa is a public key type",
        'url = f"postgres://{user}:{password}@{host}/{name}"',
        'DATABASE_URL="postgres://$USER:$PASSWORD@localhost/db"',
        "sk-estimator-html-parallel-component-wrapper and sk-toggleable-control-hidden--visually",
        "basic vue3-component-library",
        "http://localhost:8080?email=a@b.com",
        "token = request.headers.get('X-Token')",
        "tokenizer = AutoTokenizer.from_pretrained('Qwen2.5-0.5B-Instruct')",
        'tokenizer="Qwen2.5-0.5B-Instruct"',
        "max_tokens=4096, token_count: 128000",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        'api_key="your-api-key-12345"',
        "api_key = settings.oauth2_client_key",
        "export API_TOKEN=$(cat ~/.token)",
        "docker run -u 1000:1000 -p 8080:80 image",
        "password: at least 12 characters, 2 digits",
        "https://example.org/page?code=404&key=value",
        "img = 'data:image/png;base64,iVBORw0KGgo='",
        "npm install @scope/pkg@1.2.3 --save-dev",
        "key-value stores and pat-terns",
    ],
)
def test_code_and_prose_are_left_alone(code: str) -> None:
    assert redact(code) == code


@given(st.text())
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda s: st.lists(s) | st.dictionaries(st.text(max_size=5), s),
        max_leaves=20,
    )
)
def test_any_message_keeps_its_shape(value: object) -> None:
    assert redact_all(value) == value, "no text of at most 20 characters holds a whole secret"


def test_a_long_text_takes_one_pass() -> None:
    """Linear: a hostile text of prefixes does not make the patterns backtrack (a quadratic one would never end here)."""
    for piece in ("sk-", "eyJa.", "-----BEGIN PRIVATE KEY-----", "a://b:", "Bearer "):
        redact(piece * 200_000)


PIECES = (
    "sk-" + "proj-" + "aB3" * 12 + " ", "curl -u me:hunter22x ", "token = 'aB3xY9zQ7wE5rT1y' ", "ghp" + "_" + "a1B" * 12, "\n", "nothing here ",
    "İ", "curl ", " -u ", "private-lines: 2\n" + "aB3+" * 30 + "\n", "https://" + "me:pass99word" + "@host/x ",
    "-----BEGIN PRIVATE KEY-----\n" + "aB3+" * 40 + "\n-----END PRIVATE KEY-----",
)  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None)
def test_a_text_is_redacted_the_same_a_window_at_a_time(pieces: list[str]) -> None:
    """A search keeps every other thread waiting, so none is over more than a window of the text."""
    text = "".join(pieces)
    whole = redact(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WINDOW", 37)
        patch.setattr(module, "_REACH", 1200)
        patch.setattr(module, "_SHORT_REACH", 1200)
        assert redact(text) == whole


def test_a_long_secret_goes_whole_wherever_a_window_ends() -> None:
    for before in range(module._WINDOW - 40, module._WINDOW + 40, 7):
        text = "x " * (before // 2) + "sk-" + "ant-" + "aB3xY9" * 20_000 + " end"
        assert redact(text) == "x " * (before // 2) + "[redacted] end"
