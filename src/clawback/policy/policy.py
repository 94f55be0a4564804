"""``Policy``: a base model with or without an adapter. It answers, and it is what training changes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clawback.config import GenerationSection
from clawback.errors import ModelError, UsageError
from clawback.models import Completion, ModelInfo, Sampling, delta, own_max_tokens, own_sampling
from clawback.models import adapter as adapters
from clawback.records import Message, Sample
from clawback.scoring import Scorer
from clawback.templates import PROMPT_TOKENS, RESPONSE_TOKENS, Chat, Encoded

if TYPE_CHECKING:
    from clawback.features.word_meanings import Floats, Ints
    from clawback.records import JsonObject
    from clawback.sampling import DrawSettings, Sampled
    from clawback.scoring import Choices
    from clawback.templates import NextSpeaker, Pixels, Vision

Conversation = Sequence[Message]


class Policy:
    """One set of base weights in memory, and at most one adapter, or delta of all of them, on them.

    The reference of every KL is the same model with the adapter switched off (``with policy.base()``), never a second copy.
    """

    engine = "torch"

    def __init__(self, model: nn.Module, tokenizer: Any, info: ModelInfo, eyes: Vision | None = None) -> None:
        """``eyes``: of a model that sees (``vision.py``)."""
        self.model = model
        """The transformers model, or the PEFT model around it once there is an adapter."""
        self.tokenizer = tokenizer
        self.info = info
        self.chat = Chat(tokenizer, eyes=eyes)
        self._read_at_most(PROMPT_TOKENS)
        self._sampling = own_sampling(model)
        self._max_tokens: int | None = None
        self.trains_thinking = False
        self.choices: Choices | None = None
        """What replies are held to, in drawing turns of conversations and in learning (``scoring/choices.py``)."""
        self._scorer: Scorer | None = None
        self.placement = ""
        """Why it is on its device, where that was measured (``torch_policy.py``)."""

    def configure(
        self,
        generation: GenerationSection,
        chat_template_args: Mapping[str, Any] | None = None,
        thinking: bool = False,
        system: str = "",
    ) -> None:
        """Take the user's settings in place of the model's own, where there are any. ``thinking``: train on it, too; ``system``: a learned
        prompt, which every conversation is answered and learned under."""
        self.chat = Chat(self.tokenizer, chat_template_args, system, self.chat.eyes)
        self.trains_thinking = thinking
        self.sampling = self.sampling.but(
            temperature=generation.temperature, top_p=generation.top_p, top_k=generation.top_k
        )
        self._max_tokens = generation.max_tokens
        self._read_at_most(generation.max_prompt or PROMPT_TOKENS)

    def _read_at_most(self, tokens: int) -> None:
        """Of a conversation; what the model has room for besides is for the answer."""
        self.max_prompt = min(tokens, max(32, self.info.context * 3 // 4))
        self.max_response = min(RESPONSE_TOKENS, max(16, self.info.context - self.max_prompt))

    @property
    def sampling(self) -> Sampling:
        """How this policy draws its tokens; its log-probs are at this temperature."""
        return self._sampling

    @sampling.setter
    def sampling(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._scorer = None

    @property
    def max_tokens(self) -> int:
        """Longest answer, unless one is asked for: by the settings, the model's own, or the room there is for a response."""
        return self._max_tokens or own_max_tokens(self.model) or self.max_response

    def room(self, rated: Sequence[Sequence[int]]) -> int:
        """Tokens that a fresh answer may have in training and gate: a quarter more than those of the longest ordinary rated one (twice as many
        where answers cost little), within the user's ``max_tokens`` and what the model has room for."""
        longest = longest_ordinary([len(ids) for ids in rated])
        wanted = max(64, 2 * longest if self.info.bucket == "micro" else 5 * longest // 4)
        return min(self.max_response, wanted, self._max_tokens or wanted)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def config(self) -> JsonObject:
        """The base model's ``config.json``."""
        found: JsonObject = cast(Any, self.model).config.to_dict()
        return found

    @property
    def has_adapter(self) -> bool:
        """Whether there is an adapter or, of full-parameter training, a delta on the base."""
        return hasattr(self.model, "peft_config") or self.full

    @property
    def full(self) -> bool:
        """Whether what is on the base is a delta of all weights."""
        return delta.carried(self.model)

    @property
    def adapted(self) -> bool:
        """Whether the adapter is switched on: it is not within ``base()``."""
        from peft.tuners.lora.layer import LoraLayer

        if delta.active(self.model) is not None:
            return True
        first = next((part for part in self.model.modules() if isinstance(part, LoraLayer)), None)
        return first is not None and not first.disable_adapters

    @property
    def moved(self) -> bool:
        """True when the adapter changes anything: a fresh one does not."""
        return any(
            bool(p.any())
            for name, p in self.model.named_parameters()
            if "lora_B" in name or delta.MARK in name
        )

    @property
    def scorer(self) -> Scorer:
        """Made on first use, and again when an adapter comes or goes or the temperature changes."""
        if self._scorer is None:
            self._scorer = Scorer(self.model, temperature=self.sampling.scale)
            self._scorer.choices = self.choices
        return self._scorer

    def hold_to(self, replies: Sequence[str]) -> bool:
        """Replies in conversations are one of these texts from now on. False where this model cannot be held to them: its own forward
        draws, or its head is more than a product."""
        from clawback.sampling import fits

        if not fits(self.model, 1) or not self.scorer.fused_head:
            return False
        encode = self.tokenizer.encode
        ids = [[*map(int, encode(text, add_special_tokens=False)), self.chat.end_id] for text in replies]
        from clawback.scoring import Choices

        self.choices = self.scorer.choices = Choices(ids)
        return True

    @contextmanager
    def base(self) -> Iterator[None]:
        """A context manager for the base model: within it the adapter is switched off, not removed."""
        inner: Any = self.model
        # PEFT makes every weight of an adapter trainable when it switches it on again: what was frozen stays frozen.
        frozen = [p for name, p in self.model.named_parameters() if "lora_" in name and not p.requires_grad]
        try:
            wrapped = hasattr(inner, "peft_config")
            with delta.off(self.model), inner.disable_adapter() if wrapped else nullcontext():
                yield
        finally:
            for parameter in frozen:
                parameter.requires_grad_(False)

    def attach(self, *, rank: int, alpha: int, seed: int) -> None:
        """A fresh adapter that changes nothing yet. Raises ``UsageError`` where there is one already."""
        if self.has_adapter:
            raise UsageError("This policy has an adapter already. Load another one, or go on with it.")
        self.model = adapters.attach(self.model, self.info, rank=rank, alpha=alpha, seed=seed)
        self._scorer = None

    def attach_full(self) -> None:
        """Make all weights of the decoder's layers trainable: a delta of zeros on each. Raises ``ModelError`` where they are quantised, ``UsageError``
        where there is an adapter already."""
        if self.has_adapter:
            raise UsageError("This policy has an adapter already. Load another one, or go on with it.")
        delta.attach(self.model)
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
            limits=(self.max_prompt, self.max_response),
            thinking=self.trains_thinking,
            ends=sample.ends,
        )

    def logprobs(
        self, conversations: Sequence[Conversation], responses: Sequence[str | Sequence[int]]
    ) -> list[Tensor]:
        """Log-probability of each response token, end token included, at the temperature of ``sampling``.

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
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        seed: int = 0,
    ) -> list[list[Completion]]:
        """``samples`` answers to each conversation, as text and token by token. None: as the policy itself says. Pictures are looked at where
        the model sees."""
        from clawback.sampling import DrawSettings, completion

        looked = [self.chat.looked(messages, self.max_prompt) for messages in conversations]
        prompts = [ids for ids, _ in looked]
        settings = DrawSettings(samples, max_tokens, sampling, seed)
        answers = self.sample(prompts, settings, pixels=[pixels for _, pixels in looked])
        return [
            [completion(self.chat, prompt, one) for one in group]
            for prompt, group in zip(prompts, answers, strict=True)
        ]

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        settings: DrawSettings,
        *,
        pixels: Sequence[Pixels | None] | None = None,
        merge: bool = False,
    ) -> list[list[Sampled]]:
        """Answers to each prompt of token ids; see ``sampling.sample``. ``merge``: add the adapter into the weights meanwhile."""
        from clawback.sampling import sample

        speaker = self.speaker_of(settings)
        with adapters.merged(self.model) if merge else nullcontext():
            return sample(self.model, prompts, self.completed(settings), speaker=speaker, pixels=pixels)

    def completed(self, settings: DrawSettings) -> DrawSettings:
        """The settings with this policy's own where they leave something open."""
        from clawback.sampling import stop_ids

        stop = stop_ids(self.model, self.chat.end_id) if settings.stop is None else settings.stop
        return replace(
            settings,
            max_tokens=settings.max_tokens or self.max_tokens,
            sampling=settings.sampling or self.sampling,
            stop=stop,
        )

    def speaker_of(self, settings: DrawSettings) -> NextSpeaker | None:
        """Whose label ends an answer: nobody's where nothing ends one."""
        return self.chat.speaker if settings.stop is None or len(settings.stop) else None

    def features(
        self, conversations: Sequence[Conversation], responses: Sequence[str | Sequence[int]]
    ) -> Tensor:
        """The base model's features of each response, ``[n, features]`` (``pooling.features``); ``[n, 0]`` where hidden states do not count (``reads_states``)."""
        from clawback.scoring import features

        if not self.info.reads_states:
            return torch.zeros(len(responses), 0)
        with self.base():
            encoded = [
                self._encode(c, r, thinking=False) for c, r in zip(conversations, responses, strict=True)
            ]
            return torch.from_numpy(features(self.scorer, encoded))

    @torch.no_grad()
    def word_vectors(self, tokens: Ints) -> Floats:
        """The base's input embeddings ``[n, hidden]`` of those of the tokens that begin a word; zeros for others."""
        inner: Any = self.model
        causal = inner.get_base_model() if hasattr(inner, "get_base_model") else inner
        try:
            table = getattr(causal.get_input_embeddings(), "weight", None)
        except NotImplementedError:  # of a family that embeds in its own way
            table = None
        if table is None or table.is_meta or not table.is_floating_point() or table.ndim != 2:
            return np.zeros((len(tokens), 1))  # no word has a vector, so there are no fields
        rows = table[torch.as_tensor(tokens, device=table.device)].float().cpu().numpy().astype(np.float64)
        return np.where(_are_words(self.tokenizer, tokens)[:, None], rows, 0.0)

    @torch.no_grad()
    def embedding(self, ids: Sequence[int]) -> list[float]:
        """The mean of the base model's last hidden states over a text, as a vector ``[hidden]`` of length one."""
        from clawback.models import wide

        inner: Any = self.model
        causal = inner.get_base_model() if hasattr(inner, "get_base_model") else inner
        with self.base():
            body = getattr(causal, causal.base_model_prefix)
            # Padding on the right, which no token before it sees: each new length would be compiled for.
            spare = min(wide(len(ids)), max(self.info.context, len(ids))) - len(ids)
            padded = torch.tensor([[*ids, *[ids[-1]] * spare]], device=self.device)
            states = body(input_ids=padded).last_hidden_state
        mean = states[0, : len(ids)].float().mean(0)
        unit: list[float] = torch.nn.functional.normalize(mean, dim=0).tolist()
        return unit

    def _encode(
        self, conversation: Conversation, response: str | Sequence[int], thinking: bool = True
    ) -> Encoded:
        text, ids = (response, None) if isinstance(response, str) else ("", response)
        return self.chat.encode(
            conversation,
            text,
            ids,
            limits=(self.max_prompt, self.max_response),
            thinking=thinking,
        )


def _are_words(tokenizer: Any, tokens: Ints) -> NDArray[np.bool_]:
    """``[n]`` whether each token begins a word of three letters or more or, of scripts without capitals or spaces, is one of two signs or more."""
    texts = [str(tokenizer.decode([int(token)])).strip() for token in tokens]
    begins = [str(piece)[:1] in ("Ġ", "▁") for piece in tokenizer.convert_ids_to_tokens([*map(int, tokens)])]
    return np.array(
        [
            text.isalpha() and (len(text) >= 3 if first else len(text) >= 2 and text.lower() == text.upper())
            for text, first in zip(texts, begins, strict=True)
        ],
        dtype=bool,
    )


def longest_ordinary(lengths: Sequence[int]) -> int:
    """What nine of ten of these do not exceed; of fewer than ten, the longest, but no more than twice their median. One long answer decides nothing."""
    if not lengths:
        return 0
    ordered = sorted(lengths)
    most = ordered[9 * (len(ordered) - 1) // 10]
    return max(most, min(ordered[-1], int(2 * statistics.median(ordered)))) if len(ordered) < 10 else most
