"""Images in a conversation, for vision models: from ``data:`` addresses to the inputs that the model's own processor makes.

Images come with the conversation, as base64. Nothing is fetched from the network or the disk: an address of
any other kind does not count as an image, and its message is read as text. The size in bytes and in pixels is
limited before anything is decoded.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clawback.errors import ModelError
from clawback.records import Message

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
MOST_BYTES = 20 << 20
"""Of a picture as it comes."""
MOST_PIXELS = 40_000_000
MOST_PICTURES = 16
"""In a conversation; of more the newest are seen."""
_OF_IDS = ("input_ids", "attention_mask")


@dataclass(frozen=True, eq=False)
class Pixels:
    """What a processor makes of the pictures of one conversation: the inputs of the model beside its token ids."""

    inputs: Mapping[str, Tensor]
    digest: str
    """Of the pictures: conversations with the same tokens and other pictures are not the same."""

    def beside(self, tokens: int, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
        """The inputs for a sequence of so many tokens, of which the prompt's are the first. What there is one of for each token of the prompt (such as
        kinds of tokens) is 0, for text, at all others."""
        found = {}
        for name, value in self.inputs.items():
            if name.endswith("token_type_ids"):
                value = torch.nn.functional.pad(value, (0, tokens - value.shape[1]))
            found[name] = value.to(device, dtype) if value.is_floating_point() else value.to(device)
        return found


def pictures(content: Any) -> list[bytes]:
    """The pictures among the blocks of a message, as files. Only what came with the message counts."""
    found = []
    for block in content if isinstance(content, (list, tuple)) else ():
        if isinstance(block, Mapping) and block.get("type") == "image_url":
            address = block.get("image_url")
            address = address.get("url") if isinstance(address, Mapping) else address
            if isinstance(address, str) and (data := _data(address)) is not None:
                found.append(data)
    return found


def seen(messages: Sequence[Message]) -> list[list[bytes]]:
    """The pictures of each message; of too many the newest."""
    found = [pictures(message.get("content")) for message in messages]
    spare = sum(map(len, found)) - MOST_PICTURES
    for some in found:
        cut = min(len(some), max(0, spare))
        del some[:cut]
        spare -= cut
    return found


class Vision:
    """A model's processor, loaded when there is a first picture to look at."""

    def __init__(self, source: str, options: Mapping[str, Any]) -> None:
        """``source``, ``options``: of ``from_pretrained``, as the model itself was loaded."""
        self.source, self.options = source, dict(options)
        self._processor: Any = None

    @property
    def processor(self) -> Any:
        """Raises ``ModelError`` where it cannot be loaded."""
        if self._processor is None:
            from transformers import AutoProcessor

            try:
                self._processor = AutoProcessor.from_pretrained(self.source, **self.options)
            except Exception as error:  # transformers raises many kinds; each means the same to the user
                reason = str(error).strip().split("\n")[0]
                raise ModelError(
                    f"Conversations have pictures, and what reads pictures for the model {self.source} cannot be loaded: {reason}"
                ) from error
        return self._processor

    def look(self, text: str, files: Sequence[bytes]) -> tuple[list[int], Pixels]:
        """A rendered conversation, with a mark where each picture stands, as ids and inputs.

        Raises ``ModelError`` where a picture cannot be read, or marks and pictures are not as many.
        """
        images = [_opened(data) for data in files]
        try:
            made = self.processor(text=[text], images=images, add_special_tokens=False, return_tensors="pt")
        except Exception as error:
            raise ModelError(
                f"The processor of {self.source} does not take a conversation with {len(files)} pictures: {error}"
            ) from error
        digest = hashlib.sha256()
        for data in files:
            digest.update(hashlib.sha256(data).digest())
        inputs = {name: value for name, value in made.items() if name not in _OF_IDS}
        return [int(token) for token in made["input_ids"][0]], Pixels(inputs, digest.hexdigest())

    def unmarked(self, text: str) -> str:
        """A person's text without what would stand for a picture in it."""
        mark = getattr(self.processor, "image_token", None)
        return text.replace(mark, "") if isinstance(mark, str) and mark else text


def _data(address: str) -> bytes | None:
    """What is in a ``data:image/…;base64,…`` address; None for another kind."""
    head, comma, body = address.partition(",")
    if not comma or not head.lower().startswith("data:image/") or not head.lower().endswith(";base64"):
        return None
    if len(body) > MOST_BYTES * 4 // 3 + 4:
        return None
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return None


def _opened(data: bytes) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ModelError(
            "Pictures are read with Pillow, which is not installed: pip install pillow."
        ) from error
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        if image.width * image.height > MOST_PIXELS:  # known before anything is unpacked
            raise ModelError(f"A picture of {image.width} × {image.height} is too large to be looked at.")
        return image.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ModelError(f"A picture of {len(data)} bytes cannot be read: {error}.") from error
