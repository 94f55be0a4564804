"""A task that has to be looked at, a square whose colour is to be named, and a tiny model that sees.

The model is a Llava of some 0.13 million parameters, made here: random weights, taught the form of a reply, and each word of it right in a share
``skill`` of the cases more than chance, for all that there is to be seen, what is held out among it. Learning by doing trains an adapter on its language part alone.

``squares``: six colours at four places; each colour and each place comes in training, but of their pairs one in four is held out. Each task has a
shade of its own.
"""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._gym_model import SPECIAL, tokenizer
from clawback.environments.core import Environment, Observation, Split, Step, Task
from clawback.records import Message, text_of

MARK = "<image>"
TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{% for p in m['content'] %}{{ p['text'] }}{% endfor %}<|end|>"
    "{% else %}<|user|>{% for p in m['content'] %}{% if p['type'] == 'image' %}"
    + MARK
    + "{% else %}{{ p['text'] }}{% endif %}{% endfor %}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SIDE, PATCH = 32, 8
"""Pixels of what the model sees, and of the parts that it sees it in."""

COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 180, 40),
    "blue": (40, 60, 220),
    "yellow": (230, 220, 40),
    "violet": (150, 40, 190),
    "grey": (130, 130, 130),
}
PLACES = ((0, 0), (16, 0), (0, 16), (16, 16))
ASKED = "Which colour has the square?"


class Shown(NamedTuple):
    """What a model is taught on."""

    image: Any
    text: str
    right: Sequence[str]
    """The words of the reply that is right."""
    any: Callable[[random.Random], Sequence[str]]
    """Draws one of its form, of as many words."""


def square(colour: str, place: int, shade: int) -> Any:
    """A square of 12 × 12 on white; ``shade`` makes it darker or brighter."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (SIDE, SIDE), (245, 245, 245))
    x, y = PLACES[place]
    fill = tuple(max(0, min(255, part + shade)) for part in COLOURS[colour])
    ImageDraw.Draw(image).rectangle((x + 2, y + 2, x + 13, y + 13), fill=fill)
    return image


def message(image: Any, text: str) -> Message:
    """What an environment sends: the picture as PNG, and words."""
    made = io.BytesIO()
    image.save(made, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(made.getvalue()).decode()}"
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]}  # fmt: skip


class Squares:
    """1 for the colour's name."""

    name = "squares"

    def tasks(self, split: Split) -> Sequence[Task]:
        pairs = [(c, p) for c in range(len(COLOURS)) for p in range(len(PLACES))]
        chosen = [(c, p) for c, p in pairs if (c % 4 == p) == (split == "test")]
        shades = range(-20, 21, 8)
        return [
            Task(f"squares/{split}-{c}-{p}-{s}", {"colour": c, "place": p, "shade": s}, split)
            for c, p in chosen
            for s in shades
        ]

    def make(self) -> Environment:
        return _Square()


class _Square:
    async def reset(self, task: Task, seed: int) -> Observation:  # noqa: ARG002 — a task has no chance
        self.colour = [*COLOURS][task.data["colour"]]
        return Observation((message(square(self.colour, task.data["place"], task.data["shade"]), ASKED),))

    async def step(self, message: Message) -> Step:
        said = text_of(message["content"]).strip()
        return Step((), float(said == self.colour), True, {} if said in COLOURS else {"unparsable": True})

    async def close(self) -> None:
        pass


def a_square(rng: random.Random) -> Shown:
    colour = rng.choice([*COLOURS])
    image = square(colour, rng.randrange(len(PLACES)), rng.randrange(-20, 21))
    return Shown(image, ASKED, [colour], lambda rng: [rng.choice([*COLOURS])])


def of_squares(folder: Path) -> Path:
    return make(folder, [*ASKED.split(), *COLOURS], a_square, skill=0.15, steps=1000)


def make(
    folder: Path,
    words: Sequence[str],
    draws: Callable[[random.Random], Shown],
    *,
    before: str = "",
    skill: float,
    steps: int = 400,
    seed: int = 0,
) -> Path:
    """A Llava in ``folder``. ``words``: of what is asked and replied; ``draws``: what it is shown. ``before``: the system message, which is unknown words to it."""
    import torch
    import transformers as t
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    if (folder / "config.json").exists():
        return folder
    known = tokenizer([MARK, *words])
    known.add_special_tokens({"additional_special_tokens": [*SPECIAL[2:4], MARK]})
    known.chat_template = TEMPLATE
    torch.manual_seed(seed)
    text = t.LlamaConfig(
        vocab_size=len(known), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, intermediate_size=160,
        max_position_embeddings=512, tie_word_embeddings=True, pad_token_id=0, bos_token_id=None, eos_token_id=1, initializer_range=0.1,
    )  # fmt: skip
    eye = t.CLIPVisionConfig(
        hidden_size=48, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4, image_size=SIDE, patch_size=PATCH, initializer_range=0.2,
    )  # fmt: skip
    model = t.LlavaForConditionalGeneration(
        t.LlavaConfig(
            vision_config=eye, text_config=text, image_token_index=known.convert_tokens_to_ids(MARK), vision_feature_layer=-1,
            vision_feature_select_strategy="default", tie_word_embeddings=True, initializer_range=0.1,
        )
    )  # fmt: skip
    with torch.no_grad():
        model.get_input_embeddings().weight.normal_(0, 0.15)
    looks = CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    processor = t.LlavaProcessor(
        image_processor=looks, tokenizer=known, patch_size=PATCH, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    )  # fmt: skip
    first = f"<|user|>{before}" if before else ""
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * (1 - step / steps)
        shown = [draws(rng) for _ in range(16)]
        said = [
            [
                word if rng.random() < skill else other
                for word, other in zip(one.right, one.any(rng), strict=True)
            ]
            for one in shown
        ]
        rows = [f"{first}<|user|>{MARK}{one.text}<|assistant|>{' '.join(words)}<|end|>" for one, words in zip(shown, said, strict=True)]  # fmt: skip
        made = processor(text=rows, images=[one.image for one in shown], padding=True, add_special_tokens=False, return_tensors="pt")  # fmt: skip
        ids = made["input_ids"]
        mark = ids == known.convert_tokens_to_ids(SPECIAL[3])
        said_here = (mark.cumsum(1) > mark.long()) & (made["attention_mask"] > 0)
        labels = torch.where(said_here, ids, -100)
        loss = model(**made, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.generation_config.eos_token_id = 1
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
