"""Images in a conversation, for vision models: from ``data:`` addresses to the inputs that the model's own processor makes.

Images come with the conversation, as base64 (``clawback.pictures``). Nothing is fetched from the network or the
disk: an address of any other kind does not count as an image, and its message is read as text. The size in bytes
and in pixels is limited before anything is decoded. An image that cannot be read, or is too large, is left out with
a warning: conversations are captured as they come, and one broken file must not end every run.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clawback import installed, pictures
from clawback.errors import ModelError
from clawback.records import Message

log = logging.getLogger("clawback.engine")
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
MOST_PIXELS = 40_000_000
MOST_PICTURES = 16
"""In a conversation; of more the newest are seen."""
_OF_IDS = ("input_ids", "attention_mask")


@dataclass(frozen=True, eq=False)
class Pixels:
    """What a processor makes of the pictures of one conversation: the inputs of the model beside its token ids."""

    inputs: Mapping[str, Tensor]
    pictures: tuple[str, ...]
    """SHA-256 of their files, in order: conversations with the same tokens and other pictures are not the same."""

    @property
    def digest(self) -> str:
        """Of all of them."""
        return hashlib.sha256(bytes.fromhex("".join(self.pictures))).hexdigest()

    def plain(self) -> list[Any]:
        """As tensors and texts."""
        return [dict(self.inputs), list(self.pictures)]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Pixels | None:
        """What ``plain`` gave; None for nothing."""
        return cls(dict(plain[0]), tuple(plain[1])) if plain else None

    def model_inputs(self, tokens: int, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
        """The inputs for a sequence of so many tokens, of which the prompt's are the first. What there is one of for each token of the prompt (such as
        kinds of tokens) is 0, for text, at all others."""
        found = {}
        for name, value in self.inputs.items():
            if name.endswith("token_type_ids"):
                value = torch.nn.functional.pad(value, (0, tokens - value.shape[1]))
            found[name] = value.to(device, dtype) if value.is_floating_point() else value.to(device)
        return found


class Picture(NamedTuple):
    """One that was decoded, and the hash of its file."""

    image: object
    digest: bytes


def seen(messages: Sequence[Message]) -> list[list[Picture]]:
    """The pictures of each message; of too many the newest."""
    found = [pictures.pictures(message.get("content")) for message in messages]
    spare = sum(map(len, found)) - MOST_PICTURES
    for some in found:
        cut = min(len(some), max(0, spare))
        del some[:cut]
        spare -= cut
    return [[one for data in some if (one := _opened(data))] for some in found]


class Vision:
    """A model's processor, loaded when there is a first picture to look at."""

    def __init__(self, source: str, options: Mapping[str, object]) -> None:
        """``source``, ``options``: of ``from_pretrained``, as the model itself was loaded."""
        self.source, self.options = source, dict(options)
        self._processor: object = None

    @property
    def processor(self) -> Any:
        """Raises ``ModelError`` where it cannot be loaded."""
        if self._processor is None:
            from transformers import AutoProcessor

            try:
                self._processor = AutoProcessor.from_pretrained(self.source, **self.options)
            except Exception as error:  # transformers raises many kinds; each means the same to the user
                reason = str(error).strip().split("\n")[0]
                if find_spec("torchvision") is None:  # what is said then may be anything but that
                    reason += (
                        f" (many models need torchvision for it: {installed.add_package('torchvision')})"
                    )
                raise ModelError(
                    f"Conversations have pictures, and what reads pictures for the model {self.source} cannot be loaded: {reason}"
                ) from error
        return self._processor

    def look(self, text: str, pictures: Sequence[Picture]) -> tuple[list[int], Pixels]:
        """A rendered conversation, with a mark where each picture stands, as ids and inputs.

        Raises ``ModelError`` where marks and pictures are not as many.
        """
        images = [one.image for one in pictures]
        try:
            made = self.processor(text=[text], images=images, add_special_tokens=False, return_tensors="pt")
        except Exception as error:
            raise ModelError(
                f"The processor of {self.source} does not take a conversation with {len(pictures)} pictures: {error}"
            ) from error
        inputs = {name: value for name, value in made.items() if name not in _OF_IDS}
        return [int(token) for token in made["input_ids"][0]], Pixels(
            inputs, tuple(one.digest.hex() for one in pictures)
        )

    def unmarked(self, text: str) -> str:
        """A person's text without what would stand for a picture in it."""
        mark = getattr(self.processor, "image_token", None)
        return text.replace(mark, "") if isinstance(mark, str) and mark else text


def _opened(data: bytes) -> Picture | None:
    """The picture in a file; None, and a warning, where there is none to be had. Raises ``ModelError`` without Pillow."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ModelError(
            f"Pictures are read with Pillow, which is not installed: {installed.add_package('pillow')}."
        ) from error
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        if image.width * image.height > MOST_PIXELS:  # known before anything is unpacked
            raise ValueError(f"{image.width} × {image.height} is too large to be looked at")
        return Picture(image.convert("RGB"), hashlib.sha256(data).digest())
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        log.warning("A picture of %d bytes is left out: %s", len(data), error)
        return None
