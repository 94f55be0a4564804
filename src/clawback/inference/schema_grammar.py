"""Constrained decoding by a JSON schema: at each position only tokens are drawn that can still lead to a valid document.

llguidance computes these from the model's own tokenizer: a mask over the vocabulary in some tens of
microseconds per token. It parses a schema within limits on time and size, so that schemas from the network
are safe to use.
"""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from clawback import installed
from clawback.errors import UsageError

MOST_BYTES = 64 * 1024
"""Of a schema, as JSON."""
_COMPACT: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""A model that may put in blanks wherever JSON allows them can go on doing so for ever."""
_MISSING = (
    "needs llguidance here, which is not installed. Run: {command}, or leave the schema out and ask for text."
)


def available() -> bool:
    return importlib.util.find_spec("llguidance") is not None


class JsonConstraint:
    """One answer's way through its schema: ``allowed``, draw, ``take``, and so on to the end token."""

    def __init__(self, matcher: Any) -> None:
        self.matcher = matcher

    def allowed(self, logits: Tensor) -> Tensor:
        """``logits [vocabulary]`` with minus infinity where a token would lead nowhere."""
        bits = torch.frombuffer(bytearray(self.matcher.compute_bitmask()), dtype=torch.uint8)
        mask = ((bits[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1).flatten().bool()[: len(logits)]
        mask = torch.nn.functional.pad(mask, (0, len(logits) - len(mask)))
        return logits.masked_fill(~mask.to(logits.device), float("-inf"))

    def take(self, token: int) -> None:
        self.matcher.consume_token(token)

    @property
    def trouble(self) -> str:
        """Why it cannot go on; "" where it can."""
        return str(self.matcher.get_error())


class Grammars:
    """Of one tokenizer, which is read when the first schema comes (a second for a large vocabulary). For any thread."""

    def __init__(self, tokenizer: Any, vocabulary: int, stop: Sequence[int]) -> None:
        self.tokenizer, self.vocabulary, self.stop = tokenizer, vocabulary, sorted(stop)
        self.lock = threading.Lock()
        self.read: object = None

    def constraint(self, schema: Mapping[str, Any]) -> JsonConstraint:
        """Raises ``UsageError`` for a schema that cannot be kept to, and without llguidance."""
        if not available():
            raise UsageError(f"A JSON schema {_MISSING.format(command=installed.add('json'))}")
        try:
            written = json.dumps(schema)
        except RecursionError:
            raise UsageError("The JSON schema is nested too deeply.") from None
        if len(written) > MOST_BYTES:
            raise UsageError(f"The JSON schema is {len(written)} bytes long; {MOST_BYTES} is the most.")
        from llguidance import LLMatcher

        try:
            grammar = LLMatcher.grammar_from_json_schema(written, overrides=_COMPACT)
            matcher = LLMatcher(self._tokenizer(), grammar, log_level=0)
        except ValueError as error:
            raise UsageError(f"The JSON schema cannot be kept to: {str(error)[:300]}") from error
        if matcher.is_error():
            why = str(matcher.get_error()).partition("\n")[0][:300]
            raise UsageError(f"The JSON schema cannot be kept to: {why}")
        return JsonConstraint(matcher)

    def _tokenizer(self) -> Any:
        with self.lock:
            if self.read is None:
                from llguidance import LLTokenizer

                backend = getattr(self.tokenizer, "backend_tokenizer", None)
                if backend is None:
                    raise UsageError("This model's tokenizer cannot keep to a JSON schema; ask for text.")
                known = json.loads(backend.to_str())
                text = json.dumps({**known, "truncation": None, "padding": None})
                self.read = LLTokenizer(text, n_vocab=self.vocabulary, eos_token=self.stop)
            return self.read
