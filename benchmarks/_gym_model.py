"""A tiny chat model for one game: a token for each thing that can be seen or done, random weights, taught only the form of a reply.

It says what it sees, then any action: ``b3 down``. When it chooses it has what it sees before it, so that it can express every policy that goes by the
last observation, and knows none.

Words have embeddings of some size from the beginning. From a small start, actions that are only ever written at random keep nearly the same output embedding (0.16 apart
at a norm of 0.64, where squares were 1.2 apart), and hardly any policy can be learned on top of that by a small adapter: 16 squares with a reward in every turn went from 0.25 to
0.30 in 10,000 turns.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SPECIAL = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|unknown|>")
TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'user' %}<|user|>{{ m['content'] }}<|assistant|>"
    "{% else %}{{ m['content'] }}<|end|>{% endif %}{% endfor %}"
)


Action = str | Sequence[str]
"""Words, or tokens as they are (with what a word cannot hold: spaces, ends of lines)."""


class Sight(NamedTuple):
    """What a model is taught to look at."""

    said: str
    """How a reply begins."""
    shown: str
    """The message that it stands in."""
    right: int = -1
    """The place of the action that it asks for; -1: nothing is said about that."""


def tokenizer(words: Sequence[str]) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = [
        *SPECIAL,
        *dict.fromkeys(words),
    ]  # a token with a space in it is written, but never read: text is split at spaces
    core = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token=SPECIAL[4]))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[1],
        unk_token=SPECIAL[4],
        additional_special_tokens=list(SPECIAL[2:4]),
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def make(
    folder: Path,
    seen: Sequence[str],
    actions: Sequence[Action],
    *,
    sights: Callable[[random.Random], Sight] | None = None,
    before: str = "",
    skill: float = 0.0,
    hidden: int = 64,
    layers: int = 2,
    steps: int = 300,
    turns: int = 8,
    seed: int = 0,
) -> Path:
    """A Llama of some 0.1 million parameters in ``folder``.

    ``seen``: its words; ``sights``: draws what it is shown, each of ``seen`` as it stands where there is none. ``before``: the system message, which is unknown words to it.
    Where a sight says which action is right, each token of a reply is that one's in a share ``skill`` of the cases and any action's in the others: a
    model that knows a little, as a real one does before it learns by doing.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    if (folder / "config.json").exists():
        return folder
    rng = random.Random(seed)
    written = [action.split() if isinstance(action, str) else list(action) for action in actions]
    words = tokenizer(
        [*(word for text in seen for word in text.split()), *(word for action in written for word in action)]
    )
    replies = [words.convert_tokens_to_ids(action) for action in written]
    first = [*words.encode(before, add_special_tokens=False), 1] if before else []
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(words),
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            intermediate_size=hidden * 5 // 2,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=1,
        )
    )
    with torch.no_grad():
        model.get_input_embeddings().weight.normal_(0, 0.15)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * (1 - step / steps)
        rows, targets = [], []
        for _ in range(16):
            ids: list[int] = list(first)
            said: list[bool] = [False] * len(first)
            for _ in range(turns):
                sight = sights(rng) if sights else Sight(one := rng.choice(seen), one)
                said_so = rng.choice(replies)
                if sight.right >= 0:  # only where all replies have the same number of tokens
                    best = replies[sight.right]
                    said_so = [b if rng.random() < skill else t for b, t in zip(best, said_so, strict=True)]
                asked = words.encode(sight.shown, add_special_tokens=False)
                reply = [*words.encode(sight.said, add_special_tokens=False), *said_so, 1]
                ids += [2, *asked, 3, *reply]
                said += [False] * (len(asked) + 2) + [True] * len(reply)
            rows.append(ids)
            targets.append([t if s else -100 for t, s in zip(ids, said, strict=True)])
        longest = max(map(len, rows))
        batch = torch.tensor([r + [0] * (longest - len(r)) for r in rows])
        labels = torch.tensor([r + [-100] * (longest - len(r)) for r in targets])
        loss = model(input_ids=batch, attention_mask=(batch != 0).long(), labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.generation_config.eos_token_id = 1
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
