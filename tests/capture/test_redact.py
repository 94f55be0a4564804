"""Secrets go, everything else stays as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.capture.redact import MARK, redact, redact_all

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
