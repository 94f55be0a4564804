"""A policy: a base model with, or without, an adapter. What answers, and what is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from clawback.engine.torch import adapter as adapters
from clawback.engine.torch.chat import PROMPT_TOKENS, RESPONSE_TOKENS, Chat, Encoded
from clawback.engine.torch.logprobs import Scorer
from clawback.engine.types import Completion, ModelInfo
from clawback.errors import ModelError, UsageError
from clawback.records import Message, Sample

Conversation = Sequence[Message]


class Policy:
    """One set of base weights in memory, and at most one adapter on them.

    The reference of every KL is the same model with the adapter switched off (``with policy.base()``), never a second copy.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, info: ModelInfo) -> None:
        self.model = model
        """The transformers model, or the PEFT model around it once there is an adapter."""
        self.tokenizer = tokenizer
        self.info = info
        self.chat = Chat(tokenizer)
        self.max_prompt = min(PROMPT_TOKENS, max(32, info.context * 3 // 4))
        self.max_response = min(RESPONSE_TOKENS, max(16, info.context - self.max_prompt))
        self._scorer: Scorer | None = None

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def config(self) -> dict[str, Any]:
        """The base model's ``config.json``."""
        found: dict[str, Any] = cast(Any, self.model).config.to_dict()
        return found

    @property
    def has_adapter(self) -> bool:
        return hasattr(self.model, "peft_config")

    @property
    def moved(self) -> bool:
        """True when the adapter changes anything: a fresh one does not."""
        return any(bool(p.any()) for name, p in self.model.named_parameters() if "lora_B" in name)

    @property
    def scorer(self) -> Scorer:
        """Made on first use, and again when an adapter comes or goes."""
        if self._scorer is None:
            self._scorer = Scorer(self.model)
        return self._scorer

    @contextmanager
    def base(self) -> Iterator[None]:
        """The base model, within: the adapter is switched off, not removed."""
        inner: Any = self.model
        with inner.disable_adapter() if self.has_adapter else nullcontext():
            yield

    def attach(self, *, rank: int, alpha: int, seed: int) -> None:
        """A fresh adapter that changes nothing yet. Raises ``UsageError`` where there is one already."""
        if self.has_adapter:
            raise UsageError("This policy has an adapter already. Load another one, or go on with it.")
        self.model = adapters.attach(self.model, self.info, rank=rank, alpha=alpha, seed=seed)
        self._scorer = None

    def checkpoint_layers(self) -> None:
        """Keep only the inputs of layers for the way back. Needs transformers' training mode, so dropout is taken
        out first: the log-probs of a step have to be those of the policy."""
        inner: Any = self.model
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            if isinstance(getattr(module, "attention_dropout", None), float):
                module.attention_dropout = 0.0  # type: ignore[assignment]
        inner.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        inner.enable_input_require_grads()
        self.model.train()

    def put(self, folder: Path | None) -> None:
        """Take the adapter of a folder in place of the one there is; None: the base model alone.

        Raises ``ModelError`` where the folder is not safe or made for another base; the policy is then the base.
        """
        if self.has_adapter:
            self.model = adapters.strip(self.model)
        self._scorer = None
        if folder is not None:
            self.model = adapters.put(self.model, self.info, folder)

    def save(self, folder: Path) -> None:
        """Write the adapter into an existing folder, and fsync it. Raises ``ModelError`` where there is none."""
        if not self.has_adapter:
            raise ModelError("There is no adapter to save: this policy is the base model.")
        adapters.write(self.model, self.info, folder)

    def encode(self, sample: Sample) -> Encoded:
        """A sample as token ids, within this model's context."""
        return self.chat.encode(
            sample.messages,
            sample.response,
            sample.response_ids,
            max_prompt=self.max_prompt,
            max_response=self.max_response,
        )

    def logprobs(
        self, conversations: Sequence[Conversation], responses: Sequence[str | Sequence[int]]
    ) -> list[Tensor]:
        """Log-probability of each response token, end token included.

        Args:
            conversations: what came before each response.
            responses: texts, or recorded token ids.

        Returns:
            One float32 tensor [tokens] a response, on the CPU, without gradient.
        """
        encoded = [self._encode(c, r) for c, r in zip(conversations, responses, strict=True)]
        with torch.no_grad():
            return [values.cpu() for values in self.scorer(encoded).split()]

    def generate(
        self,
        conversations: Sequence[Conversation],
        *,
        samples: int = 1,
        temperature: float = 1.0,
        max_tokens: int = 160,
        seed: int = 0,
    ) -> list[list[Completion]]:
        """``samples`` answers to each conversation; see ``generate.generate``."""
        from clawback.engine.torch.generate import generate

        return generate(
            self.model,
            self.tokenizer,
            conversations,
            samples=samples,
            temperature=temperature,
            max_tokens=max_tokens,
            seed=seed,
        )

    def features(
        self, conversations: Sequence[Conversation], responses: Sequence[str | Sequence[int]]
    ) -> Tensor:
        """What the base model makes of each response, [n, features]; see ``features.features``."""
        from clawback.engine.torch.features import features

        with self.base():
            encoded = [self._encode(c, r) for c, r in zip(conversations, responses, strict=True)]
            return torch.from_numpy(features(self.scorer, encoded))

    def _encode(self, conversation: Conversation, response: str | Sequence[int]) -> Encoded:
        text, ids = (response, None) if isinstance(response, str) else ("", response)
        return self.chat.encode(
            conversation, text, ids, max_prompt=self.max_prompt, max_response=self.max_response
        )


def load(
    base: str,
    *,
    revision: str | None = None,
    adapter: Path | None = None,
    dtype: str = "auto",
    load_in_4bit: bool | None = None,
    device: str | None = None,
) -> Policy:
    """See ``clawback.engine.load``."""
    from clawback.engine.torch.models import load_base

    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    automatic = torch.float32 if where.type == "cpu" else torch.bfloat16
    kinds = {"auto": automatic, "float32": torch.float32, "bfloat16": torch.bfloat16}
    if dtype not in kinds:
        raise UsageError(f"dtype must be one of {', '.join(kinds)}, not {dtype!r}.")
    if load_in_4bit and where.type == "cpu":
        raise UsageError("4-bit weights need CUDA. Leave load_in_4bit out on a CPU.")
    model, tokenizer, info = load_base(
        base, revision=revision, dtype=kinds[dtype], load_in_4bit=bool(load_in_4bit), device=where
    )
    policy = Policy(model, tokenizer, info)
    if adapter is not None:
        policy.put(adapter)
    return policy
